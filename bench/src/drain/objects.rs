//! The objects of a drain: the pool, its pods, their owner and the budget that holds them.

use serde_json::{Value, json};

/// The name of the pool, of the owner of the pods and of their budget.
pub(crate) const NAME: &str = "large";
/// The namespace of all.
pub(crate) const NAMESPACE: &str = "drain";
const LABEL: &str = "app.kubernetes.io/name";
/// How many environment variables a large pod has.
const VARIABLES: usize = 60;

/// Which pods are on the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// With much in them.
    Large,
    /// With little in them.
    Small,
    /// With little in them, and the wish to be left alone.
    Protected,
}

/// A pool of so many nodes.
pub(crate) fn pool(nodes: usize) -> Value {
    json!({
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {
            "replicas": nodes,
            "maxReplicas": nodes,
            "template": {"spec": {"capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"}}},
            "provider": {"simulated": {}},
        },
    })
}

/// The owner of all pods. A budget counts what the owner asks for; pods without one it lets nothing of go.
pub(crate) fn owner(pods: usize) -> Value {
    let containers = json!([{"name": "app", "image": "registry.example.com/app"}]);
    json!({
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {
            "replicas": pods,
            "selector": {"matchLabels": {LABEL: NAME}},
            "template": {"metadata": {"labels": {LABEL: NAME}}, "spec": {"containers": containers}},
        },
    })
}

/// A pod on a node. `owner` is the UID of [`owner`].
pub(crate) fn pod(kind: Kind, owner: &str, node: &str, number: usize) -> Value {
    let variables = if kind == Kind::Large { VARIABLES } else { 2 };
    let env: Vec<Value> = (0..variables)
        .map(|at| {
            let value = format!("http://service-{at}.some-namespace.svc:8080/and/a/path");
            json!({"name": format!("SETTING_NUMBER_{at:02}"), "value": value})
        })
        .collect();
    let annotations = match kind {
        Kind::Protected => json!({"karpenter.sh/do-not-disrupt": "true"}),
        Kind::Large | Kind::Small => json!({"prometheus.io/scrape": "true", "prometheus.io/port": "9090"}),
    };
    json!({
        "metadata": {
            "name": format!("{node}-{number}"),
            "namespace": NAMESPACE,
            "labels": {LABEL: NAME, "pod-template-hash": "7d4c9f6b58"},
            "annotations": annotations,
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": NAME, "uid": owner,
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "nodeName": node,
            "containers": [{
                "name": "app",
                "image": "registry.example.com/app:1.42.0",
                "args": ["--listen=0.0.0.0:8080", "--log-format=json"],
                "env": env,
                "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}},
            }],
        },
    })
}

/// A budget that lets one pod be missing: no other one goes after the first, because nothing makes a new one.
pub(crate) fn budget() -> Value {
    json!({
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {LABEL: NAME}}},
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::ReplicaSet;
    use k8s_openapi::api::core::v1::Pod;
    use k8s_openapi::api::policy::v1::PodDisruptionBudget;
    use shared_crds::NodePool;

    use super::*;

    #[test]
    fn every_object_is_what_it_says_and_the_budget_is_about_the_pods() {
        let pool: NodePool = serde_json::from_value(pool(5000)).unwrap();
        assert_eq!(pool.spec.replicas, Some(5000));
        let owner: ReplicaSet = serde_json::from_value(owner(15_000)).unwrap();
        let budget: PodDisruptionBudget = serde_json::from_value(budget()).unwrap();
        let selected = [
            owner.spec.unwrap().selector.match_labels.unwrap(),
            budget.spec.unwrap().selector.unwrap().match_labels.unwrap(),
        ];
        for (kind, variables) in [(Kind::Large, 60), (Kind::Small, 2), (Kind::Protected, 2)] {
            let pod: Pod = serde_json::from_value(pod(kind, "u", "n-1", 3)).unwrap();
            let labels = pod.metadata.labels.unwrap();
            let has = |(key, value): (&String, &String)| labels.get(key) == Some(value);
            assert!(selected.iter().all(|selected| selected.iter().all(has)));
            assert_eq!(pod.spec.unwrap().containers[0].env.as_ref().unwrap().len(), variables);
            let asks = pod.metadata.annotations.unwrap().contains_key("karpenter.sh/do-not-disrupt");
            assert_eq!(asks, kind == Kind::Protected);
        }
    }
}
