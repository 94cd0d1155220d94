//! Tests of which pods count on a node, and of what its utilization is a share of.

use std::sync::Arc;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::{Value, json};

use crate::ScalingPlan;
use crate::fixtures::{Read as _, TestCluster, merged};

fn owned(kind: &str) -> Value {
    json!({ "metadata": { "ownerReferences": [
        { "apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "u", "controller": true }] } })
}

fn with_priority(priority: i32) -> Value {
    merged(owned("ReplicaSet"), json!({ "spec": { "priority": priority } }))
}

/// A cluster whose autoscaler acts at once, by these rules for scale-down.
fn cluster(rules: Value) -> TestCluster {
    let at_once = json!({ "unneededSeconds": 0, "delayAfterAddSeconds": 0 });
    TestCluster::new().autoscaler("x", json!({ "scaleDown": merged(at_once, rules) }))
}

/// Pool `a` with nodes `n1` and `n2`. A pod on `n2` keeps it, and asks for `cpu` of its 4 cores.
fn two_nodes(cluster: TestCluster, cpu: &str) -> TestCluster {
    cluster
        .pool("a", json!({ "spec": { "replicas": 2 } }))
        .node("a", "n1", json!({}))
        .node("a", "n2", json!({}))
        .running("bare", "n2", cpu, json!({}))
}

fn message<'a>(plan: &'a ScalingPlan, node: &str) -> &'a str {
    &plan.nodes.iter().find(|decision| decision.name == node).unwrap().message
}

#[test]
fn of_a_node_with_gpus_only_the_gpus_count() {
    let gpus = json!({ "nvidia.com/gpu": "2" });
    let asking = |gpus: &str| {
        let requests = json!({ "cpu": "100m", "nvidia.com/gpu": gpus });
        merged(
            owned("ReplicaSet"),
            json!({ "spec": { "containers": [{ "name": "c", "resources": { "requests": requests } }] } }),
        )
    };
    let gpu_nodes = |nodes: &[&str]| {
        let capacity = json!({ "template": { "spec": { "capacity": gpus } }, "replicas": nodes.len() });
        let pool = cluster(json!({})).pool("a", json!({ "spec": capacity }));
        nodes.iter().fold(pool, |cluster, node| {
            cluster.node("a", node, json!({ "status": { "allocatable": gpus } })).running(
                &format!("daemon-{node}"),
                node,
                "3",
                owned("DaemonSet"),
            )
        })
    };
    let plan = gpu_nodes(&["n1"]).plan();
    assert_eq!((plan.verdict("n1"), plan.desired("a")), ("Unneeded", 0), "{}", message(&plan, "n1"));
    let plan = gpu_nodes(&["n1"]).running("train", "n1", "0", asking("1")).plan();
    assert_eq!(plan.verdict("n1"), "NotUnderutilized");
    assert_eq!(
        message(&plan, "n1"),
        "the node's pods ask for 50% of its GPUs; scaleDown.utilizationThresholdPercent is 50"
    );
    // A pod that asks for none of the GPUs has to find a place, and is no reason to keep them.
    let plan = gpu_nodes(&["n1", "n2"]).running("web", "n1", "900m", owned("ReplicaSet")).plan();
    assert_eq!(plan.desired("a"), 1);
}

#[test]
fn a_threshold_of_zero_keeps_a_node_with_gpus_whose_pods_ask_for_cpu_only() {
    let gpus = json!({ "nvidia.com/gpu": "2" });
    let node = json!({ "status": { "allocatable": gpus } });
    for (threshold, cpu, verdict) in
        [(0, "100m", "NotUnderutilized"), (0, "0", "Unneeded"), (1, "100m", "Unneeded")]
    {
        let rules = json!({ "utilizationThresholdPercent": threshold });
        let capacity = json!({ "template": { "spec": { "capacity": gpus } }, "replicas": 2 });
        let plan = cluster(rules)
            .pool("a", json!({ "spec": capacity }))
            .node("a", "n1", node.clone())
            .node("a", "n2", node.clone())
            .running("bare", "n2", "1", json!({}))
            .running("web", "n1", cpu, owned("ReplicaSet"))
            .plan();
        assert_eq!(plan.verdict("n1"), verdict, "{cpu} at {threshold}%: {}", message(&plan, "n1"));
        if threshold == 0 {
            assert_eq!(
                message(&plan, "n2"),
                "the node's pods ask for none of its GPUs, and for other resources; \
                 scaleDown.utilizationThresholdPercent is 0"
            );
        }
    }
}

#[test]
fn daemons_and_static_pods_count_unless_the_autoscaler_leaves_them_out() {
    let mirror = json!({ "metadata": { "annotations": { "kubernetes.io/config.mirror": "x" } } });
    for daemon in [owned("DaemonSet"), mirror] {
        for (ignored, cpu, verdict) in [
            (false, "100m", "NotUnderutilized"),
            (true, "499m", "Unneeded"),
            // Half of the core that the daemon leaves.
            (true, "500m", "NotUnderutilized"),
        ] {
            let rules = json!({ "ignoreDaemonSetsUtilization": ignored });
            let plan = two_nodes(cluster(rules), "0")
                .running("daemon", "n1", "3", daemon.clone())
                .running("web", "n1", cpu, owned("ReplicaSet"))
                .plan();
            assert_eq!(plan.verdict("n1"), verdict, "{ignored} {cpu}: {}", message(&plan, "n1"));
        }
        // Without other pods the node is empty, however much the daemon asks for.
        for (ignored, verdict) in [(false, "NotUnderutilized"), (true, "Unneeded")] {
            let rules = json!({ "ignoreDaemonSetsUtilization": ignored, "utilizationThresholdPercent": 0 });
            let plan = two_nodes(cluster(rules), "0").running("daemon", "n1", "4", daemon.clone()).plan();
            assert_eq!(plan.verdict("n1"), verdict, "{ignored}");
        }
    }
}

#[test]
fn expendable_pods_keep_no_node_and_count_for_nothing() {
    let asks = |key: &str, value: &str| json!({ "metadata": { "annotations": { key: value } } });
    let safe_to_evict = "cluster-autoscaler.kubernetes.io/safe-to-evict";
    for (change, verdict) in [
        (with_priority(-11), "Unneeded"),
        (with_priority(-10), "NotUnderutilized"),
        (owned("ReplicaSet"), "NotUnderutilized"),
        // No controller would make it again, and still it keeps nothing.
        (json!({ "spec": { "priority": -11 } }), "Unneeded"),
        (merged(with_priority(-11), asks(safe_to_evict, "false")), "NotUnderutilized"),
        (merged(with_priority(-11), asks("karpenter.sh/do-not-disrupt", "true")), "NotUnderutilized"),
    ] {
        let plan = two_nodes(cluster(json!({})), "0").running("p", "n1", "3", change.clone()).plan();
        assert_eq!(plan.verdict("n1"), verdict, "{change}");
    }
    let rules = json!({ "expendablePodsPriorityCutoff": 0,
        "scaleDown": { "unneededSeconds": 0, "delayAfterAddSeconds": 0 } });
    let plan = two_nodes(TestCluster::new().autoscaler("x", rules), "0")
        .running("p", "n1", "3", with_priority(-1))
        .plan();
    assert_eq!(plan.verdict("n1"), "Unneeded", "each autoscaler has its own cutoff");
}

#[test]
fn beside_headroom_pods_keep_their_nodes_whatever_their_priority() {
    for (headroom, verdict) in
        [(json!([]), "Unneeded"), (json!([{ "count": 1, "requests": { "cpu": "1" } }]), "NotUnderutilized")]
    {
        let rules = json!({ "headroom": headroom,
            "scaleDown": { "unneededSeconds": 0, "delayAfterAddSeconds": 0 } });
        let plan = two_nodes(TestCluster::new().autoscaler("x", rules), "0")
            .running("p", "n1", "4", with_priority(-11))
            .plan();
        assert_eq!(plan.verdict("n1"), verdict, "{headroom}");
    }
}

#[test]
fn an_expendable_pod_needs_no_place_when_its_node_is_drained() {
    for (priority, verdict) in [(-11, "Unneeded"), (-10, "NoPlaceToMovePods")] {
        let rules = json!({ "utilizationThresholdPercent": 100 });
        let plan = two_nodes(cluster(rules), "3")
            .running("cheap", "n1", "2", with_priority(priority))
            .running("dear", "n1", "1", owned("ReplicaSet"))
            .plan();
        assert_eq!(plan.verdict("n1"), verdict, "{priority}: {}", message(&plan, "n1"));
    }
}

#[test]
fn an_expendable_pod_keeps_its_node_while_a_budget_refuses_its_eviction() {
    for (allowed, verdict) in [(0, "BlockedByPod"), (1, "Unneeded")] {
        let budget = json!({ "metadata": { "name": "b", "namespace": "apps" }, "spec": { "selector": {} },
            "status": { "disruptionsAllowed": allowed, "currentHealthy": 2, "desiredHealthy": 2, "expectedPods": 2 } });
        let mut nodes = two_nodes(cluster(json!({})), "0").running("p", "n1", "1", with_priority(-11));
        nodes.observed.budgets.push(Arc::new(serde_json::from_value::<PodDisruptionBudget>(budget).unwrap()));
        let plan = nodes.plan();
        assert_eq!(plan.verdict("n1"), verdict, "{allowed}: {}", message(&plan, "n1"));
    }
}

#[test]
fn expendable_pods_under_a_budget_need_a_disruption_each() {
    for (allowed, verdicts) in
        [(1, ["BlockedByPod", "Unneeded"]), (2, ["Unneeded", "BlockedByPod"]), (3, ["Unneeded", "Unneeded"])]
    {
        let budget = json!({ "metadata": { "name": "b", "namespace": "apps" }, "spec": { "selector": {} },
            "status": { "disruptionsAllowed": allowed } });
        let cheap = || with_priority(-11);
        let pool = cluster(json!({})).pool("a", json!({ "spec": { "replicas": 3 } }));
        let mut nodes = ["n1", "n2", "n3"]
            .into_iter()
            .fold(pool, |cluster, node| cluster.node("a", node, json!({})))
            .running("bare", "n2", "4", json!({}))
            .running("p", "n1", "1", cheap())
            .running("q", "n1", "1", cheap())
            .running("r", "n3", "1", cheap());
        nodes.observed.budgets.push(Arc::new(serde_json::from_value::<PodDisruptionBudget>(budget).unwrap()));
        let plan = nodes.plan();
        assert_eq!(["n1", "n3"].map(|node| plan.verdict(node)), verdicts, "{allowed}");
    }
}

#[test]
fn a_pending_pod_that_is_expendable_keeps_no_node() {
    for (priority, verdict, desired) in [(-11, "Unneeded", 1), (-10, "NeededByPendingPods", 2)] {
        let change = json!({ "spec": { "priority": priority } });
        let plan = two_nodes(cluster(json!({})), "4").pending("p", 1, "1", &change).plan();
        assert_eq!(plan.results(), ["fits n1"]);
        assert_eq!((plan.verdict("n1"), plan.desired("a")), (verdict, desired));
    }
}
