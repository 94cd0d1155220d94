//! What the nodes of a pool really give pods, where the template promises more. Real machines have less than their type's name
//! says: firmware, kernel and kubelet keep a part. Without this, a pod that fits the template and no real node would make the
//! pool grow for as long as it is pending.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use shared_crds::NodePool;
use shared_crds::names::TEMPLATE_HASH_ANNOTATION;
use shared_crds::quantity::Exact;
use shared_crds::v1alpha1::DiscoveredResources;

use crate::resources::ExactAmounts;
use crate::time::later;

/// How long in seconds the resources of the last such node are believed: then the provider may have got other machines, and
/// one more is tried. Long against the ten minutes after which an unneeded node goes, so that a pod that never fits costs
/// little.
const BELIEVED_SECONDS: i32 = 3600;

/// The resources that are compared. Extended ones appear when a device plugin has started, so that a node may be Ready and
/// still lack them.
const COMPARED: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pods"];

/// What the nodes of `pool` have turned out to give pods; `None` if that is what the template promises, or if there has been
/// none for a while. `ready` are the Ready nodes, `promised` is what the template leaves to pods.
///
/// The largest amount counts: it shows that a machine of the pool can have that much, while a smaller one may be a fault of
/// that machine.
pub fn discovered<'a>(
    pool: &NodePool,
    promised: &ExactAmounts,
    ready: impl Iterator<Item = &'a Node>,
    remembered: Option<&DiscoveredResources>,
    now: Timestamp,
) -> Option<DiscoveredResources> {
    let template_hash = pool.spec.template_hash()?;
    let nodes: Vec<&Node> = ready.filter(|node| hash_of(node) == Some(&template_hash)).collect();
    if nodes.is_empty() {
        let known = remembered.filter(|known| known.template_hash == template_hash)?.clone();
        let until = known.until_time.unwrap_or(Time(later(now, BELIEVED_SECONDS)));
        return (until.0 > now).then_some(DiscoveredResources { until_time: Some(until), ..known });
    }
    let mut allocatable = BTreeMap::new();
    for name in COMPARED {
        let Some((largest, text)) = largest(&nodes, name) else { continue };
        if promised.get(name).is_some_and(|promised| largest < *promised) {
            allocatable.insert(name.to_owned(), text.clone());
        }
    }
    (!allocatable.is_empty()).then_some(DiscoveredResources { allocatable, template_hash, until_time: None })
}

/// Lowers what the template leaves to pods to what has been discovered.
pub fn lower(promised: &mut ExactAmounts, discovered: &DiscoveredResources) {
    for (name, quantity) in &discovered.allocatable {
        if let (Some(promised), Ok(real)) = (promised.get_mut(name), Exact::parse(&quantity.0)) {
            *promised = real.max(Exact::ZERO).min(*promised);
        }
    }
}

fn hash_of(node: &Node) -> Option<&String> {
    node.metadata.annotations.as_ref()?.get(TEMPLATE_HASH_ANNOTATION)
}

/// The largest amount that one of the nodes has, and how the node says it. Most nodes of a pool say the same.
fn largest<'a>(nodes: &[&'a Node], name: &str) -> Option<(Exact, &'a Quantity)> {
    let quantities = nodes.iter().filter_map(|node| node.status.as_ref()?.allocatable.as_ref()?.get(name));
    quantities.fold(None, |largest, quantity| {
        if largest.is_some_and(|(_, known)| known == quantity) {
            return largest;
        }
        let Ok(amount) = Exact::parse(&quantity.0) else { return largest };
        Some((amount, quantity)).filter(|_| largest.is_none_or(|(most, _)| amount > most)).or(largest)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::resources::exact;

    const NOW: &str = "2026-01-01T12:00:00Z";

    fn pool(capacity: &Value) -> NodePool {
        serde_json::from_value(json!({ "metadata": { "name": "p", "namespace": "ns" }, "spec": {
            "maxReplicas": 9, "provider": { "simulated": {} }, "template": { "spec": { "capacity": capacity } } } }))
        .unwrap()
    }

    /// A node of the pool's template, with these allocatable resources.
    fn node(pool: &NodePool, allocatable: &Value) -> Node {
        let hash = pool.spec.template_hash();
        serde_json::from_value(
            json!({ "metadata": { "name": "n", "annotations": { TEMPLATE_HASH_ANNOTATION: hash } },
            "status": { "allocatable": allocatable } }),
        )
        .unwrap()
    }

    fn found(
        pool: &NodePool,
        nodes: &[Node],
        remembered: Option<&DiscoveredResources>,
        now: &str,
    ) -> Option<DiscoveredResources> {
        let promised = exact(&pool.spec.template.spec.capacity).unwrap();
        discovered(pool, &promised, nodes.iter(), remembered, now.parse().unwrap())
    }

    fn texts(found: Option<DiscoveredResources>) -> Vec<(String, String)> {
        found.into_iter().flat_map(|it| it.allocatable).map(|(name, amount)| (name, amount.0)).collect()
    }

    #[test]
    fn what_ready_nodes_lack_is_found_and_the_largest_of_them_counts() {
        let pool = pool(&json!({ "cpu": "4", "memory": "16Gi", "pods": "110", "example.com/gpu": "1" }));
        let node = |allocatable: &Value| node(&pool, allocatable);
        let all = |cpu: &str, memory: &str| node(&json!({ "cpu": cpu, "memory": memory, "pods": "110" }));
        for (what, nodes, expected) in [
            ("as promised", vec![all("4", "16Gi")], vec![]),
            ("more than promised", vec![all("8", "32Gi")], vec![]),
            ("less memory", vec![all("4", "15Gi")], vec![("memory", "15Gi")]),
            (
                "the larger of two",
                vec![all("3", "14Gi"), all("3900m", "13Gi")],
                vec![("cpu", "3900m"), ("memory", "14Gi")],
            ),
            ("one as promised", vec![all("3", "15Gi"), all("4", "16Gi")], vec![]),
            ("nothing said", vec![node(&json!({}))], vec![]),
            ("not a quantity", vec![node(&json!({ "cpu": "many" }))], vec![]),
        ] {
            let expected: Vec<_> = expected.iter().map(|(n, a)| ((*n).to_owned(), (*a).to_owned())).collect();
            assert_eq!(texts(found(&pool, &nodes, None, NOW)), expected, "{what}");
        }
    }

    #[test]
    fn nodes_of_another_template_say_nothing_of_new_ones() {
        let (before, now) = (pool(&json!({ "cpu": "4" })), pool(&json!({ "cpu": "8" })));
        let nodes = [node(&before, &json!({ "cpu": "3" }))];
        let known = found(&before, &nodes, None, NOW).unwrap();
        assert_eq!(found(&now, &nodes, Some(&known), NOW), None);
    }

    #[test]
    fn what_was_found_outlives_the_last_node_for_an_hour_and_a_better_node_ends_it_at_once() {
        let pool = pool(&json!({ "cpu": "4" }));
        let known = found(&pool, &[node(&pool, &json!({ "cpu": "3" }))], None, NOW).unwrap();
        assert_eq!(known.until_time, None);
        let after = found(&pool, &[], Some(&known), NOW).unwrap();
        assert_eq!(after.until_time, Some(Time("2026-01-01T13:00:00Z".parse().unwrap())));
        let later = found(&pool, &[], Some(&after), "2026-01-01T12:59:59Z");
        assert_eq!(later.as_ref(), Some(&after), "the hour does not begin anew");
        assert_eq!(found(&pool, &[], Some(&after), "2026-01-01T13:00:00Z"), None);
        let again = found(&pool, &[node(&pool, &json!({ "cpu": "3" }))], Some(&after), NOW);
        assert_eq!(again, Some(known));
        assert_eq!(found(&pool, &[node(&pool, &json!({ "cpu": "4" }))], Some(&after), NOW), None);
    }

    #[test]
    fn a_template_is_lowered_and_never_raised() {
        let pool = pool(&json!({ "cpu": "4", "memory": "16Gi" }));
        let mut known =
            found(&pool, &[node(&pool, &json!({ "cpu": "3", "memory": "1Gi" }))], None, NOW).unwrap();
        let less = json!({ "cpu": "8", "memory": "1Gi", "pods": "5" });
        known.allocatable = serde_json::from_value(less).unwrap();
        let mut promised = exact(&pool.spec.template.spec.capacity).unwrap();
        lower(&mut promised, &known);
        let expected =
            exact(&serde_json::from_value(json!({ "cpu": "4", "memory": "1Gi" })).unwrap()).unwrap();
        assert_eq!(promised, expected);
    }
}
