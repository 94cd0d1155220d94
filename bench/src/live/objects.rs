//! The objects of a round: the same pods for both autoscalers, and for each the pool that makes the same nodes.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use shared_crds::quantity::Exact;
use testbed::karpenter::{NODE_CLASS, REGISTRATION_SECONDS};

/// The name of every object here.
pub(crate) const NAME: &str = "live";
/// The type of Karpenter's simulated cloud that its machines are of.
const INSTANCE_TYPE: &str = "s-4x-amd64-linux";
/// What a machine of that type has (`kwok/cloudprovider/instance_types.json` in Karpenter's module), and what is reserved
/// of it (`helpers.go` there). [`check_size`] tells when a node differs.
const SIZE: [(&str, &str, &str); 4] = [
    ("cpu", "4", "100m"),
    ("memory", "16Gi", "10Mi"),
    ("pods", "64", "0"),
    ("ephemeral-storage", "20Gi", "0"),
];
/// What a pod requests. Six fill a node.
const REQUESTS: [(&str, &str); 2] = [("cpu", "600m"), ("memory", "512Mi")];
/// How long a node is empty before it may go, for both: Karpenter's `consolidateAfter`, Tandem's `unneededSeconds`.
const EMPTY_SECONDS: u32 = 30;
/// Labels of the machine in Karpenter's cloud that its pool is restricted to: one of the eight offers of the type.
const OFFER: [(&str, &str); 5] = [
    ("node.kubernetes.io/instance-type", INSTANCE_TYPE),
    ("kubernetes.io/arch", "amd64"),
    ("kubernetes.io/os", "linux"),
    ("karpenter.sh/capacity-type", "on-demand"),
    ("topology.kubernetes.io/zone", "test-zone-a"),
];

/// Karpenter's pool.
pub(crate) fn karpenter_pool() -> Value {
    let (group, kind, name) = NODE_CLASS;
    let requirements: Vec<Value> =
        OFFER.iter().map(|(key, value)| json!({"key": key, "operator": "In", "values": [value]})).collect();
    json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": NAME},
        "spec": {
            "template": {"spec": {
                "requirements": requirements,
                "nodeClassRef": {"group": group, "kind": kind, "name": name},
            }},
            "disruption": {
                "consolidateAfter": format!("{EMPTY_SECONDS}s"),
                // By default a tenth of the nodes at a time.
                "budgets": [{"nodes": "100%"}],
            },
        },
    })
}

/// Tandem's pool and autoscaler, as one list.
pub(crate) fn tandem_pool(most: usize) -> Value {
    let of = |which: fn(&(&str, &str, &str)) -> (String, Value)| {
        SIZE.iter().map(which).collect::<serde_json::Map<_, _>>()
    };
    let pool = json!({
        "apiVersion": "tandem.dev/v1alpha1",
        "kind": "NodePool",
        "metadata": {"name": NAME},
        "spec": {
            "maxReplicas": most,
            "template": {"spec": {
                "capacity": of(|&(name, capacity, _)| (name.to_owned(), json!(capacity))),
                "reserved": of(|&(name, _, reserved)| (name.to_owned(), json!(reserved))),
            }},
            "provider": {"simulated": {"provisionSeconds": REGISTRATION_SECONDS}},
        },
    });
    let autoscaler = json!({
        "apiVersion": "tandem.dev/v1alpha1",
        "kind": "NodePoolAutoscaler",
        "metadata": {"name": NAME},
        "spec": {
            "nodePoolSelector": {},
            // Karpenter has no delay after a scale-up.
            "scaleDown": {"unneededSeconds": EMPTY_SECONDS, "delayAfterAddSeconds": 0},
        },
    });
    json!({"apiVersion": "v1", "kind": "List", "items": [pool, autoscaler]})
}

/// The pods.
pub(crate) fn deployment(pods: usize) -> Value {
    let requests: serde_json::Map<_, _> =
        REQUESTS.iter().map(|&(name, amount)| (name.to_owned(), json!(amount))).collect();
    json!({
        "metadata": {"name": NAME},
        "spec": {
            "replicas": pods,
            "selector": {"matchLabels": {"app": NAME}},
            "template": {
                "metadata": {"labels": {"app": NAME}},
                "spec": {"containers": [{
                    "name": "app",
                    "image": "registry.example.com/app:1",
                    "resources": {"requests": requests},
                }]},
            },
        },
    })
}

/// Checks that every node has for pods what [`SIZE`] says, so that both autoscalers were given the same nodes.
pub(crate) fn check_size(nodes: &[Node]) -> Result<()> {
    for node in nodes {
        let has = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        for (resource, capacity, reserved) in SIZE {
            let wanted = Exact::parse(capacity)?.minus(Exact::parse(reserved)?);
            let has = has.and_then(|has| has.get(resource)).map_or("0", |quantity| quantity.0.as_str());
            let name = node.name_any();
            let amount = Exact::parse(has).with_context(|| format!("the {resource} of {name}"))?;
            ensure!(
                amount == wanted,
                "node {name} has {has} {resource} for pods, and the comparison is of nodes with {capacity} less {reserved}: \
                 correct SIZE in bench/src/live/objects.rs"
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use shared_crds::{NodePool, NodePoolAutoscaler};

    use super::*;

    #[test]
    fn every_object_is_what_it_says() {
        let both = tandem_pool(70);
        let pool: NodePool = serde_json::from_value(both["items"][0].clone()).unwrap();
        assert_eq!(pool.spec.provider.simulated.unwrap().provision_seconds, 1);
        let scaler: NodePoolAutoscaler = serde_json::from_value(both["items"][1].clone()).unwrap();
        let down = scaler.spec.scale_down.unwrap();
        assert_eq!((down.unneeded_seconds, down.max_nodes), (30, None));
        let pods: Deployment = serde_json::from_value(deployment(300)).unwrap();
        assert_eq!(pods.spec.unwrap().replicas, Some(300));
        let disruption = &karpenter_pool()["spec"]["disruption"];
        assert_eq!(disruption["consolidateAfter"], "30s");
    }

    #[test]
    fn a_node_of_another_size_is_named() {
        let node = |memory: &str| -> Node {
            serde_json::from_value(json!({
                "metadata": {"name": "n"},
                "status": {"allocatable":
                    {"cpu": "3900m", "memory": memory, "pods": "64", "ephemeral-storage": "20Gi"}},
            }))
            .unwrap()
        };
        check_size(&[node("16374Mi")]).unwrap();
        check_size(&[node("17169383424")]).unwrap();
        let error = check_size(&[node("16374Mi"), node("16Gi")]).unwrap_err().to_string();
        assert!(error.starts_with("node n has 16Gi memory for pods"), "{error}");
        check_size(&[Node::default()]).unwrap_err();
    }
}
