//! The pool of a soak, and the pods that fill it.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::{Value, json};
use shared_crds::NodePool;

use crate::objects;

/// The name of the pool.
pub(super) const POOL: &str = "soak";
/// Two pods of this size fit on a node, and a third does not.
const POD_CPU: &str = "1500m";
/// Pods of a Deployment.
const PODS_EACH: usize = 50;
/// How many pods of a Deployment may be missing. Fewer than there are on the nodes that a rollout replaces at a time, so that
/// the budgets, and not only the surge, decide how fast it is.
pub(super) const MISSING: usize = 2;

/// How long a kubelet is silent before its node is replaced.
const SILENT_SECONDS: i32 = 5;

/// A pool for `nodes` nodes, and some more.
pub(super) fn pool(nodes: usize) -> serde_json::Result<NodePool> {
    let most = i32::try_from(nodes + nodes / 5).unwrap_or(i32::MAX);
    let mut pool = serde_json::to_value(objects::pool(POOL, 0, most))?;
    let spec = json!({
        "rollout": {"maxSurge": "10%", "maxUnavailable": "2%"},
        "repair": {"conditions": [{"type": "Ready", "status": "Unknown", "seconds": SILENT_SECONDS}], "maxUnhealthy": "20%"},
    });
    json_patch::merge(&mut pool["spec"], &spec);
    serde_json::from_value(pool)
}

/// The part of a spec that makes every node of the pool out of date, and lets as many pods fit as before.
pub(super) fn other_machines() -> Value {
    json!({"template": {"spec": {"capacity": {"memory": "20Gi"}}}})
}

/// Deployments whose pods fill `nodes` nodes, two on each.
pub(super) fn deployments(nodes: usize) -> Vec<Deployment> {
    let pods = 2 * nodes;
    let count = pods.div_ceil(PODS_EACH);
    let share = |number: usize| pods / count + usize::from(number < pods % count);
    let of = |number| {
        let replicas = i32::try_from(share(number)).unwrap_or(i32::MAX);
        objects::deployment(&format!("app-{number}"), POOL, replicas, POD_CPU)
    };
    (0..count).map(of).collect()
}

/// The budget of a Deployment's pods.
pub(super) fn budget(deployment: &Deployment) -> serde_json::Result<PodDisruptionBudget> {
    let name = deployment.metadata.name.as_deref();
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"maxUnavailable": MISSING, "selector": {"matchLabels": {"app": name}}},
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pods_fill_the_nodes_and_every_budget_is_of_a_deployment() {
        for nodes in [1, 30, 33, 500] {
            let all = deployments(nodes);
            let pods: i32 =
                all.iter().filter_map(|deployment| deployment.spec.as_ref().and_then(|it| it.replicas)).sum();
            assert_eq!(usize::try_from(pods).unwrap(), 2 * nodes);
            let selector = budget(&all[0]).unwrap().spec.unwrap().selector.unwrap();
            assert_eq!(selector.match_labels, all[0].spec.as_ref().unwrap().selector.match_labels);
            assert!(pool(nodes).unwrap().spec.max_replicas >= i32::try_from(nodes).unwrap());
        }
    }
}
