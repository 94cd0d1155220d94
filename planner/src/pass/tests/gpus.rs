//! Tests of which pool grows if some have GPUs.

use serde_json::{Value, json};

use crate::ScalingPlan;
use crate::fixtures::{Read as _, TestCluster};

/// Pools `gpu` (4 cores, 2 GPUs) and `plain` (8 cores). Ties go to the first by name.
fn pools(expander: &str, weight: i32) -> TestCluster {
    let capacity = |capacity: Value| json!({ "template": { "spec": { "capacity": capacity } } });
    let mut gpu = capacity(json!({ "nvidia.com/gpu": "2" }));
    gpu["weight"] = json!(weight);
    TestCluster::new()
        .autoscaler("x", json!({ "expander": expander }))
        .pool("gpu", json!({ "spec": gpu }))
        .pool("plain", json!({ "spec": capacity(json!({ "cpu": "8", "memory": "32Gi" })) }))
}

fn asking(gpus: &str) -> Value {
    let requests = json!({ "cpu": "1", "nvidia.com/gpu": gpus });
    json!({ "spec": { "containers": [{ "name": "c", "resources": { "requests": requests } }] } })
}

fn sizes(plan: &ScalingPlan) -> (i32, i32) {
    (plan.desired("gpu"), plan.desired("plain"))
}

#[test]
fn pods_that_ask_for_no_gpu_go_elsewhere_first() {
    for (expander, weight, expected) in [
        ("LeastWaste", 1, (0, 1)),
        ("MostPods", 1, (0, 1)),
        ("LeastNodes", 1, (0, 1)),
        ("Priority", 1, (0, 1)),
        ("Priority", 2, (1, 0)),
    ] {
        let plan = pools(expander, weight).pending("web", 1, "3", &json!({})).plan();
        assert_eq!(sizes(&plan), expected, "{expander} {weight}");
    }
}

#[test]
fn pods_that_ask_for_no_gpu_do_not_follow_those_that_do_onto_nodes_of_their_own() {
    for expander in ["LeastWaste", "MostPods", "LeastNodes", "Priority"] {
        let cluster = pools(expander, 1).pending("web", 10, "3", &json!({}));
        let plan = cluster.pending("train", 1, "1", &asking("1")).plan();
        assert_eq!(sizes(&plan), (1, 5), "{expander}");
    }
}

#[test]
fn a_pool_with_gpus_grows_for_any_pod_if_no_other_can() {
    let plan = TestCluster::eager()
        .pool("gpu", json!({ "spec": { "template": { "spec": { "capacity": { "nvidia.com/gpu": "2" } } } } }))
        .pending("web", 1, "3", &json!({}))
        .plan();
    assert_eq!(plan.desired("gpu"), 1);
}

#[test]
fn least_waste_counts_gpus_that_stay_unused() {
    let pool = |gpus: &str| json!({ "spec": { "template": { "spec": { "capacity": { "nvidia.com/gpu": gpus } } } } });
    let cluster = TestCluster::eager().pool("a-eight", pool("8")).pool("b-two", pool("2"));
    let plan = cluster.pending("train", 1, "1", &asking("2")).plan();
    assert_eq!((plan.desired("a-eight"), plan.desired("b-two")), (0, 1));
}
