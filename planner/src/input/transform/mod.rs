//! What the caches keep of nodes and pods: only what the planner reads, because these objects are the most numerous of
//! a cluster.

mod annotations;
mod others;
mod pod;

use k8s_openapi::api::core::v1::Node;

pub use others::{budget, daemon_set, namespace, storage_class};
pub use pod::{pod, pods};

use self::annotations::keep_read;

/// Drops what the planner does not read of a node; on a real node the list of images is most of the object.
pub fn node(node: &mut Node) {
    keep_read(&mut node.metadata);
    node.metadata.finalizers = None;
    if let Some(status) = node.status.as_mut() {
        // Allocatable is what pods can use; capacity is only read if it is missing.
        if status.allocatable.is_some() {
            status.capacity = None;
        }
        status.addresses = None;
        status.images = None;
        status.node_info = None;
        status.volumes_attached = None;
        status.volumes_in_use = None;
        status.conditions.iter_mut().flatten().for_each(|c| c.message = None);
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::resources::ResourceNames;

    #[test]
    fn the_planner_reads_the_same_from_a_pruned_node() {
        for room in [
            json!({ "allocatable": { "cpu": "1" }, "capacity": { "cpu": "2" } }),
            json!({ "capacity": { "cpu": "2" } }),
        ] {
            reads_the_same(room);
        }
    }

    fn reads_the_same(mut status: serde_json::Value) {
        status["images"] = json!([{ "names": ["i"] }]);
        status["conditions"] = json!([{ "type": "Ready", "status": "True", "message": "m" }]);
        let whole: Node = serde_json::from_value(json!({
            "metadata": { "name": "n", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": { "zone": "a" },
                "annotations": { "tandem.dev/drain-start-time": "x", "node.alpha.kubernetes.io/ttl": "0" } },
            "spec": { "taints": [{ "key": "k", "effect": "NoSchedule" }] },
            "status": status
        }))
        .unwrap();
        let mut pruned = whole.clone();
        node(&mut pruned);
        let read = |node: &Node| {
            let profile = crate::requirements::node_profile::NodeProfile::of_node(node);
            let facts = (crate::input::nodes::is_leaving(node), crate::input::nodes::is_ready(node));
            let created: Option<Timestamp> = crate::input::nodes::created(node);
            (profile, facts, created, crate::pools::allocatable(node, &mut ResourceNames::default()))
        };
        assert_eq!(read(&pruned), read(&whole));
        assert!(pruned.status.unwrap().images.is_none());
    }
}
