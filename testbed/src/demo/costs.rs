//! What the demo's writes cost: a table of the pool, and one of the objects that the maker of the machines keeps.

use serde::Serialize;

use super::maker::Maker;
use super::names::{NAMESPACE, NODE_POOL_OPERATOR};
use crate::audit::{Event, ObjectKey};
use crate::request_costs::{CostRow, RequestCosts};

/// The tables at the end of a demo.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DemoCosts {
    /// The requests about the pool.
    #[serde(flatten)]
    pub pool: RequestCosts,
    /// The requests about the objects that stand for machines: a `MachineDeployment` and its `Machine`s, or
    /// `NodeClaim`s. `None` for a provider that keeps none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_objects: Option<RequestCosts>,
}

impl DemoCosts {
    pub(super) fn of(events: &[Event], maker: Maker) -> Self {
        let ours = |object: &ObjectKey| object.resource == "nodepools" && object.namespace == NAMESPACE;
        Self {
            pool: RequestCosts::of(events, ours),
            provider_objects: maker.objects().map(|_| RequestCosts::of(events, |object| maker.made(object))),
        }
    }
}

/// How often writers of [`DemoCosts::provider_objects`] were refused because of each other, as a sentence.
pub(super) fn refusals(costs: &RequestCosts) -> String {
    let (own, others): (Vec<&CostRow>, Vec<&CostRow>) =
        costs.totals.iter().partition(|total| total.writer.ends_with(NODE_POOL_OPERATOR));
    let count = |rows: Vec<&CostRow>| {
        let conflicts: u64 = rows.iter().map(|row| row.conflicts).sum();
        let writes: u64 = rows.iter().map(|row| row.writes).sum();
        format!("{conflicts} of {writes}")
    };
    format!(
        "Answered 409 Conflict: {} writes by {NODE_POOL_OPERATOR}, which then decides again, and {} by all others.",
        count(own),
        count(others)
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::audit::tests::Wrote;

    const OPERATOR: &str = "system:serviceaccount:tandem-system:tandem-nodepool-operator";
    const CLUSTER_API: &str = "system:serviceaccount:capi-system:capi-manager";

    /// A write to an object of Cluster API's.
    fn event(user: &str, resource: &str, subresource: &str, code: u16, version: i64) -> Event {
        let response =
            json!({"metadata": {"resourceVersion": version.to_string()}, "spec": {"replicas": version}});
        let response = if code == 200 { response } else { Value::Null };
        let request = Value::Null;
        let event = Wrote { user, verb: "update", subresource, request, code, response, at: version }.event();
        let object = ObjectKey {
            group: "cluster.x-k8s.io".into(),
            resource: resource.into(),
            namespace: NAMESPACE.into(),
            name: "workers".into(),
        };
        Event { object: Some(object), ..event }
    }

    fn sample() -> Vec<Event> {
        let status = event(OPERATOR, "nodepools", "status", 200, 15);
        vec![
            event(OPERATOR, "machinedeployments", "scale", 200, 10),
            event(OPERATOR, "machinedeployments", "scale", 409, 11),
            event(OPERATOR, "machines", "", 200, 12),
            event(CLUSTER_API, "machines", "status", 200, 13),
            event(CLUSTER_API, "machinesets", "", 200, 14),
            Event { object: Some(ObjectKey::node_pool(NAMESPACE, "workers")), ..status },
        ]
    }

    #[test]
    fn the_second_table_has_every_writer_of_the_machines_and_nothing_else() {
        let costs = DemoCosts::of(&sample(), Maker::ClusterApi);
        assert_eq!(costs.pool.rows.len(), 1, "{}", costs.pool);
        let table = costs.provider_objects.unwrap();
        let counts =
            |row: &CostRow| (row.target.clone(), row.writes, row.conflicts, row.resource_version_moved);
        let of = |writer: &str| {
            table.rows.iter().filter(|row| row.writer.ends_with(writer)).map(counts).collect::<Vec<_>>()
        };
        assert_eq!(
            of("nodepool-operator"),
            [("machinedeployments/scale".to_owned(), 2, 1, 1), ("machines".to_owned(), 1, 0, 1),]
        );
        assert_eq!(of("capi-manager"), [("machines/status".to_owned(), 1, 0, 1)]);
        let total = table.row("tandem-system:tandem-nodepool-operator", "all").unwrap();
        assert_eq!(total.requests_per_write(), Some(1.5));
        assert_eq!(
            refusals(&table),
            "Answered 409 Conflict: 1 of 3 writes by nodepool-operator, which then decides again, and 0 of 1 by all others."
        );
    }

    #[test]
    fn as_json_the_pool_is_where_it_was_and_the_machines_are_beside_it() {
        let simulated = serde_json::to_value(DemoCosts::of(&sample(), Maker::Simulated)).unwrap();
        assert_eq!(simulated["rows"][0]["target"], "nodepools/status");
        assert_eq!(simulated.get("providerObjects"), None);
        let made = serde_json::to_value(DemoCosts::of(&sample(), Maker::ClusterApi)).unwrap();
        assert_eq!(made["rows"], simulated["rows"]);
        assert_eq!(made["providerObjects"]["totals"][1]["conflicts"], 1);
    }
}
