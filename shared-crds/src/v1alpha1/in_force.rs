//! The rule by which both operators decide whether a list of nodes to remove is in force.
//!
//! A list and its count are two writes, so a list can exist whose count was never written, because its author crashed
//! or lost its lease. A user who then writes the same number did not mean those nodes. Also, a list replaces the
//! previous one while the previous count is still set: when nodes must be removed because of the Autoscaler's count,
//! those are removed that it has named, for this count or for the next.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;

use super::{NodePool, ScaleDownPlan};
use crate::names::AUTOSCALER_OPERATOR;

impl NodePool {
    /// The plan in force: that of the decision whose count the pool has. The API server records who wrote the count;
    /// where it does not, the rest of the spec must be unchanged since the plan was made.
    pub fn scale_down_in_force(&self) -> Option<&ScaleDownPlan> {
        let plan = self.status.as_ref()?.autoscaling.as_ref()?.scale_down.as_ref()?;
        let is_unsaid = self.replicas_writers().next().is_none();
        let is_written =
            if is_unsaid { plan.generation == self.metadata.generation } else { self.has_own_count() };
        (is_written && self.spec.replicas == Some(plan.target_replicas)).then_some(plan)
    }

    /// The plan whose nodes are removed first when there are more nodes than the pool's count: the one in force; or,
    /// while the API server records the Autoscaler as the writer of the count, the one that it announced later from the
    /// same spec: it did not decide on a pool whose count, bounds or template have changed since. The plan does not
    /// authorise a removal: the count determines how many nodes are removed.
    pub fn scale_down_first(&self) -> Option<&ScaleDownPlan> {
        let announced = || self.status.as_ref()?.autoscaling.as_ref()?.scale_down.as_ref();
        let follows = self.metadata.generation.and_then(|generation| generation.checked_add(1));
        let is_next = |plan: &&ScaleDownPlan| plan.generation.is_some() && plan.generation == follows;
        let next = || announced().filter(is_next).filter(|_| self.has_own_count());
        self.scale_down_in_force().or_else(next)
    }

    /// Whether the API server records the Autoscaler as the writer of `spec.replicas`.
    fn has_own_count(&self) -> bool {
        self.replicas_writers().any(|entry| entry.manager.as_deref() == Some(AUTOSCALER_OPERATOR))
    }

    /// The writer of `spec.replicas`, if the API server records it: in a pool that was created without them, a write
    /// through `/scale` leaves no entry.
    pub fn replicas_writers(&self) -> impl Iterator<Item = &ManagedFieldsEntry> {
        let owns = |entry: &&ManagedFieldsEntry| {
            entry.fields_v1.as_ref().is_some_and(|fields| fields.0.pointer("/f:spec/f:replicas").is_some())
        };
        self.metadata.managed_fields.iter().flatten().filter(owns)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use serde_json::json;

    use super::*;

    /// A pool of two replicas at generation 7, which `writer` wrote, with a plan for `target` at `generation`.
    fn pool(writer: Option<&str>, target: i32, generation: Option<i64>) -> NodePool {
        let entries: Vec<_> = writer
            .map(|name| json!({ "manager": name, "operation": "Update", "fieldsV1": { "f:spec": { "f:replicas": {} } } }))
            .into_iter()
            .collect();
        serde_json::from_value(json!({
            "apiVersion": "tandem.dev/v1alpha1",
            "kind": "NodePool",
            "metadata": { "name": "p", "generation": 7, "managedFields": entries },
            "spec": {
                "replicas": 2,
                "maxReplicas": 5,
                "template": { "spec": { "capacity": { "cpu": "4", "memory": "8Gi" } } },
                "provider": { "simulated": {} },
            },
            "status": { "autoscaling": { "scaleDown": {
                "decisionID": "d", "targetReplicas": target, "generation": generation, "nodes": ["a"], "nodeUIDs": ["1"],
            } } },
        }))
        .unwrap()
    }

    #[test]
    fn a_plan_is_followed_at_its_count_where_its_author_wrote_that() {
        let autoscaler = Some(AUTOSCALER_OPERATOR);
        for (what, writer, target, generation, followed) in [
            ("the author wrote the count", autoscaler, 2, Some(7), true),
            ("and the user changed something else since", autoscaler, 2, Some(6), true),
            ("it is for another count", autoscaler, 1, Some(7), false),
            ("a person wrote the count", Some("kubectl"), 2, Some(7), false),
            ("who wrote it is not known, and nothing has changed since", None, 2, Some(7), true),
            ("who wrote it is not known, and something has", None, 2, Some(6), false),
            (
                "who wrote it is not known, and the plan does not say from which spec it was made",
                None,
                2,
                None,
                false,
            ),
        ] {
            let pool = pool(writer, target, generation);
            assert_eq!(pool.scale_down_in_force().is_some(), followed, "{what}");
        }
    }

    #[test]
    fn the_next_plan_says_who_goes_first_only_at_a_count_of_its_author() {
        let autoscaler = Some(AUTOSCALER_OPERATOR);
        for (what, writer, target, generation, first) in [
            ("its count is there", autoscaler, 2, Some(7), true),
            (
                "its count is not there yet, and the one before it is the author's",
                autoscaler,
                1,
                Some(8),
                true,
            ),
            ("and the user changed something else since", autoscaler, 1, Some(7), false),
            ("and it does not say from which spec it was made", autoscaler, 1, None, false),
            ("a person wrote the count that is there", Some("kubectl"), 1, Some(8), false),
            ("a person wrote the very count", Some("kubectl"), 2, Some(8), false),
            ("who wrote the count is not known", None, 1, Some(8), false),
        ] {
            let pool = pool(writer, target, generation);
            assert_eq!(pool.scale_down_first().is_some(), first, "{what}");
        }
    }

    #[test]
    fn a_plan_means_nodes_and_not_names() {
        let pool = pool(None, 2, Some(7));
        let plan = pool.scale_down_in_force().unwrap();
        let node = |name: &str, uid: &str| {
            let mut node = Node::default();
            node.metadata.name = Some(name.to_owned());
            node.metadata.uid = Some(uid.to_owned());
            node
        };
        assert!(plan.means(&node("a", "1")));
        assert!(!plan.means(&node("a", "2")), "the name was given to another node");
        assert!(!plan.means(&node("b", "1")));
        let only_names = ScaleDownPlan { node_uids: Vec::new(), ..plan.clone() };
        assert!(!only_names.means(&node("a", "1")));
    }
}
