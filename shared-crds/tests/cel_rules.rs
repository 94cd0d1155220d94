//! The validation rules at creation, evaluated offline by kube's CEL interpreter.
//!
//! What the rule on `replicas` refuses is not here: kube-cel 0.8 hands a rule with `optionalOldSelf` a null or a map
//! where the API server hands it an optional, so it cannot evaluate ours to `false`. Nor are the rules on `repair` here: it
//! does not know `type()`, which tells the number 20 from the text "20". `e2e/tests` runs both on a real API server, the first
//! for creation and for transitions.

use kube::core::cel::validate_cel_schema;
use serde_json::{Value, json};
use shared_crds::NodePool;

fn pool(min: i32, max: i32, replicas: Option<i32>) -> Value {
    let mut pool = json!({
        "apiVersion": "tandem.dev/v1alpha1",
        "kind": "NodePool",
        "metadata": { "name": "x", "namespace": "default" },
        "spec": {
            "minReplicas": min,
            "maxReplicas": max,
            "template": { "spec": { "capacity": { "cpu": "4", "memory": "8Gi" } } },
            "provider": { "simulated": {} },
        },
    });
    if let Some(replicas) = replicas {
        pool["spec"]["replicas"] = replicas.into();
    }
    pool
}

/// Validates the creation of `new` with the rules.
fn validate(new: &Value) -> Result<(), String> {
    validate_cel_schema::<NodePool>(new, None).map_err(|e| e.to_string())
}

#[test]
fn replicas_within_the_bounds_are_accepted() {
    assert_eq!(validate(&pool(1, 5, Some(3))), Ok(()));
    assert_eq!(validate(&pool(1, 5, Some(5))), Ok(()));
    assert_eq!(validate(&pool(1, 5, None)), Ok(()));
}

#[test]
fn crossed_bounds_are_refused() {
    assert!(validate(&pool(6, 5, None)).is_err());
}

#[test]
fn a_pool_without_a_provider_or_capacity_is_refused() {
    let mut bad = pool(0, 1, None);
    bad["spec"]["provider"] = json!({});
    assert!(validate(&bad).is_err());
    let mut bad = pool(0, 1, None);
    bad["spec"]["template"]["spec"]["capacity"] = json!({ "cpu": "4" });
    assert!(validate(&bad).is_err());
    let mut bad = pool(0, 1, None);
    bad["spec"]["template"]["spec"]["reserved"] = json!({ "nvidia.com/gpu": "1" });
    assert!(validate(&bad).is_err());
}

/// A pool whose template carries the label `key`.
fn labelled(key: &str) -> Value {
    let mut pool = pool(0, 1, None);
    pool["spec"]["template"]["metadata"] = json!({ "labels": { "pool": "x", key: "" } });
    pool
}

#[test]
fn labels_that_a_kubelet_could_not_set_itself_are_refused() {
    for key in [
        "node-role.kubernetes.io/control-plane",
        "node-role.kubernetes.io/worker",
        "node-restriction.kubernetes.io/pci",
        "x.node-restriction.kubernetes.io/pci",
        "kubernetes.io/role",
        "topology.kubernetes.io/rack",
        "cloud.kubernetes.io/x",
        "k8s.io/x",
        "cluster.k8s.io/x",
    ] {
        let refusal = validate(&labelled(key)).expect_err(key);
        assert!(refusal.contains("a kubelet may set itself"), "{key}: {refusal}");
    }
    for key in ["tandem.dev/nodepool", "x.tandem.dev/y"] {
        let refusal = validate(&labelled(key)).expect_err(key);
        assert!(refusal.contains("belong to the operators"), "{key}: {refusal}");
    }
}

#[test]
fn labels_that_planning_from_zero_needs_and_labels_of_ones_own_are_accepted() {
    for key in [
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "node.kubernetes.io/instance-type",
        "beta.kubernetes.io/instance-type",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "node.kubernetes.io/anything",
        "gpu.node.kubernetes.io/model",
        "kubelet.kubernetes.io/anything",
        "kwok.x-k8s.io/node",
        "example.com/kubernetes.io",
        "notkubernetes.io/x",
        "team",
    ] {
        assert_eq!(validate(&labelled(key)), Ok(()), "{key}");
    }
}

/// What is said of a pool with this budget.
fn budget(budget: &Value) -> Result<(), String> {
    let mut pool = pool(0, 1, None);
    pool["spec"]["disruption"] = json!({ "budgets": [{ "nodes": 1, "effect": "Limit" }, budget] });
    validate(&pool)
}

#[test]
fn disruption_budgets_that_say_something_are_accepted() {
    for nodes in [json!(0), json!(1), json!(100_000), json!("0%"), json!("7%"), json!("10%"), json!("100%")] {
        assert_eq!(budget(&json!({ "nodes": nodes, "effect": "Limit" })), Ok(()), "{nodes}");
    }
    for effect in ["Limit", "AllowOnly"] {
        let windows = json!({
            "nodes": "10%", "effect": effect, "reasons": ["Rollout", "Repair"],
            "schedule": "0 22 * * *", "timeZone": "Europe/Berlin", "durationSeconds": 3600,
        });
        assert_eq!(budget(&windows), Ok(()));
    }
}

#[test]
fn disruption_budgets_that_say_nothing_or_two_things_are_refused() {
    let (schedule, always) = ("0 22 * * *", "Limit");
    for (change, said) in [
        (json!({ "nodes": -1, "effect": always }), "a number from 0 to 100000 or a percentage"),
        (json!({ "nodes": 100_001, "effect": always }), "a number from 0 to 100000 or a percentage"),
        (json!({ "nodes": "101%", "effect": always }), "a number from 0 to 100000 or a percentage"),
        (json!({ "nodes": "ten%", "effect": always }), "a number from 0 to 100000 or a percentage"),
        (json!({ "nodes": "05%", "effect": always }), "a number from 0 to 100000 or a percentage"),
        (json!({ "nodes": "", "effect": always }), "a number from 0 to 100000 or a percentage"),
        (json!({ "nodes": 1, "effect": always, "schedule": schedule }), "set both or neither"),
        (json!({ "nodes": 1, "effect": always, "durationSeconds": 60 }), "set both or neither"),
        (json!({ "nodes": 1, "effect": always, "timeZone": "UTC" }), "set schedule too"),
        (json!({ "nodes": 1, "effect": "AllowOnly" }), "AllowOnly allows disruption in windows"),
        (
            json!({ "nodes": 0, "effect": "AllowOnly", "schedule": schedule, "durationSeconds": 60 }),
            "AllowOnly with 0 nodes would never allow any",
        ),
        (
            json!({ "nodes": "0%", "effect": "AllowOnly", "schedule": schedule, "durationSeconds": 60 }),
            "AllowOnly with 0 nodes would never allow any",
        ),
    ] {
        let refusal = budget(&change).expect_err(&change.to_string());
        assert!(refusal.contains(said), "{change}: {refusal}");
    }
}
