//! The objects that tests and demos use, in their smallest form.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use shared_crds::{NodePool, NodePoolAutoscaler};

/// Labels of every pool made here; [`autoscaler`] selects them.
const SCALED: (&str, &str) = ("scaled", "yes");

/// A pool of 4-cpu nodes that only pods of [`deployment`] with the same name fit on: the nodes have the label `pool`.
/// Its nodes are created without delay, and `replicas` is unset.
///
/// # Panics
/// Never: the literal below is a valid pool.
pub fn pool(name: &str, min: i32, max: i32) -> NodePool {
    of(json!({
        "apiVersion": "tandem.dev/v1alpha1",
        "kind": "NodePool",
        "metadata": {"name": name, "labels": {SCALED.0: SCALED.1}},
        "spec": {
            "minReplicas": min,
            "maxReplicas": max,
            "template": {
                "metadata": {"labels": {"pool": name}},
                "spec": {"capacity": {"cpu": "4", "memory": "16Gi", "pods": "110"}},
            },
            "provider": {"simulated": {}},
        },
    }))
}

/// An autoscaler of every [`pool`] in its namespace that removes empty nodes after `unneeded_seconds`.
pub fn autoscaler(name: &str, unneeded_seconds: i32) -> NodePoolAutoscaler {
    of(json!({
        "apiVersion": "tandem.dev/v1alpha1",
        "kind": "NodePoolAutoscaler",
        "metadata": {"name": name},
        "spec": {
            "nodePoolSelector": {"matchLabels": {SCALED.0: SCALED.1}},
            "mode": "Auto",
            "scaleDown": {"unneededSeconds": unneeded_seconds, "delayAfterAddSeconds": 0},
        },
    }))
}

/// A Deployment of pods that request `cpu` and run only on nodes of the pool called `pool`.
pub fn deployment(name: &str, pool: &str, replicas: i32, cpu: &str) -> Deployment {
    of(json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "nodeSelector": {"pool": pool},
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{
                        "name": "app",
                        "image": "example.invalid/app",
                        "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}},
                    }],
                },
            },
        },
    }))
}

/// A pod that requests nothing, of the name of its pool: it runs only on a node of that.
pub fn pod_on(pool: &str) -> Pod {
    of(json!({
        "metadata": {"name": pool},
        "spec": {
            "nodeSelector": {"pool": pool},
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "app", "image": "example.invalid/app"}],
        },
    }))
}

#[expect(
    clippy::expect_used,
    reason = "the literals of this file are objects, and a test of this file makes each"
)]
fn of<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("an object of this file")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_can_be_made() {
        assert_eq!(pool("a", 1, 2).spec.max_replicas, 2);
        assert_eq!(autoscaler("b", 0).spec.scale_down.unwrap().unneeded_seconds, 0);
        assert_eq!(deployment("c", "a", 3, "1").spec.unwrap().replicas, Some(3));
        assert_eq!(pod_on("a").spec.unwrap().containers.len(), 1);
    }
}
