//! Tests of startup taints that are never removed.

use serde_json::{Value, json};
use shared_crds::names::TEMPLATE_HASH_ANNOTATION;

use crate::fixtures::{Read as _, TestCluster};

/// A pool whose nodes have a quarter of an hour to lose the taint `cni`, with so many nodes.
fn pool(replicas: i32) -> TestCluster {
    pool_in(TestCluster::eager(), replicas)
}

fn pool_in(cluster: TestCluster, replicas: i32) -> TestCluster {
    let startup = json!([{ "key": "cni", "effect": "NoSchedule" }]);
    cluster.pool(
        "a",
        json!({ "spec": { "replicas": replicas, "provisioningTimeoutSeconds": 900,
            "template": { "spec": { "startupTaints": startup } } } }),
    )
}

/// Adds a node of the present template.
fn with(cluster: TestCluster, name: &str, created: &str, is_tainted: bool) -> TestCluster {
    let hash = cluster.observed.pools[0].spec.template_hash();
    let taints = if is_tainted { json!([{ "key": "cni", "effect": "NoSchedule" }]) } else { json!([]) };
    let metadata = json!({ "creationTimestamp": format!("2026-01-01T{created}:00Z"),
        "annotations": { TEMPLATE_HASH_ANNOTATION: hash } });
    cluster.node("a", name, json!({ "metadata": metadata, "spec": { "taints": taints } }))
}

fn none() -> Value {
    json!({})
}

#[test]
fn no_second_node_comes_for_a_pod_while_the_first_keeps_its_startup_taint() {
    let tolerant = json!({ "spec": { "tolerations": [{ "key": "cni", "operator": "Exists" }] } });
    for (what, created, pod, result, desired) in [
        ("it is starting", "11:50", none(), "fits n1", 1),
        ("its time is over", "11:45", none(), "no UntoleratedTaint", 1),
        ("a pod that tolerates it", "11:45", tolerant, "fits n1", 1),
        ("an hour later another one is tried", "10:45", none(), "grows ns/a", 2),
    ] {
        let plan = with(pool(1), "n1", created, true).pending("p", 1, "1", &pod).plan();
        assert_eq!((plan.results()[0].as_str(), plan.desired("a")), (result, desired), "{what}");
    }
}

#[test]
fn a_pool_grows_while_one_of_its_nodes_has_lost_the_taint() {
    let cluster = with(with(pool(2), "n1", "11:45", true), "n2", "11:30", false);
    let plan = cluster.running("r", "n2", "4", none()).pending("p", 1, "1", &none()).plan();
    assert_eq!((plan.results()[0].as_str(), plan.desired("a")), ("grows ns/a", 3));
}

#[test]
fn a_pod_goes_to_another_pool_while_a_startup_taint_is_stuck() {
    let plan = with(pool(1), "n1", "11:45", true).pool("b", none()).pending("p", 1, "1", &none()).plan();
    assert_eq!((plan.results()[0].as_str(), plan.desired("a")), ("grows ns/b", 1));
}

#[test]
fn the_node_that_shows_a_stuck_taint_stays_for_an_hour_and_the_others_go() {
    for (created, verdict, desired) in [("11:45", "NotStartedYet", 1), ("10:45", "Unneeded", 0)] {
        let plan = with(pool(1), "n1", created, true).plan();
        assert_eq!((plan.verdict("n1"), plan.desired("a")), (verdict, desired), "{created}");
    }
    let plan = with(with(pool(2), "n1", "11:45", true), "n2", "11:30", true).plan();
    let verdicts = (plan.verdict("n1"), plan.verdict("n2"));
    assert_eq!((verdicts, plan.desired("a")), (("NotStartedYet", "Unneeded"), 1));
}

#[test]
fn headroom_is_not_kept_where_a_startup_taint_is_stuck() {
    let headroom = json!({ "headroom": [{ "count": 1, "requests": { "cpu": "1" } }] });
    let cluster = pool_in(TestCluster::new().autoscaler("x", headroom), 1);
    let plan = with(cluster, "n1", "11:45", true).pool("b", none()).plan();
    assert_eq!((plan.desired("a"), plan.desired("b")), (1, 1));
}
