//! Tests of taints that all nodes of a pool have and that its template does not name.

use serde_json::{Value, json};
use shared_crds::names::TEMPLATE_HASH_ANNOTATION;

use crate::fixtures::{Read as _, TestCluster};

/// A pool whose nodes have a quarter of an hour to start, with so many nodes.
fn pool(replicas: i32) -> TestCluster {
    pool_in(TestCluster::eager(), replicas)
}

fn pool_in(cluster: TestCluster, replicas: i32) -> TestCluster {
    cluster.pool("a", json!({ "spec": { "replicas": replicas, "provisioningTimeoutSeconds": 900 } }))
}

/// Adds nodes of the present template: when each was created, and the key of its taint if it has one.
fn with(cluster: TestCluster, nodes: &[&str]) -> TestCluster {
    let hash = cluster.observed.pools[0].spec.template_hash();
    nodes.iter().enumerate().fold(cluster, |cluster, (at, node)| {
        let (created, key) = node.split_once(' ').unwrap_or((node, ""));
        let taints = if key.is_empty() { json!([]) } else { json!([{ "key": key, "effect": "NoSchedule" }]) };
        let metadata = json!({ "creationTimestamp": format!("2026-01-01T{created}:00Z"),
            "annotations": { TEMPLATE_HASH_ANNOTATION: hash } });
        let change = json!({ "metadata": metadata, "spec": { "taints": taints } });
        cluster.node("a", &format!("n{}", at + 1), change)
    })
}

fn none() -> Value {
    json!({})
}

fn tolerant() -> Value {
    json!({ "spec": { "tolerations": [{ "key": "dedicated", "operator": "Exists" }] } })
}

#[test]
fn no_other_node_comes_for_a_pod_while_all_of_several_nodes_have_a_taint() {
    for (what, nodes, result, grown) in [
        ("two", vec!["11:40 dedicated", "11:30 dedicated"], "no UntoleratedTaint", 0),
        ("young ones", vec!["11:58 dedicated", "11:57 dedicated"], "no UntoleratedTaint", 0),
        ("the only one", vec!["11:40 dedicated"], "grows ns/a", 1),
        ("one of two", vec!["11:40 dedicated", "11:30 other"], "grows ns/a", 1),
        ("an hour later another one is tried", vec!["10:45 dedicated", "10:30 dedicated"], "grows ns/a", 1),
        (
            "taints of their state",
            vec!["11:40 node.kubernetes.io/x", "11:30 node.kubernetes.io/x"],
            "grows ns/a",
            1,
        ),
    ] {
        let replicas = i32::try_from(nodes.len()).unwrap();
        let plan = with(pool(replicas), &nodes).pending("p", 1, "1", &none()).plan();
        assert_eq!((plan.results()[0].as_str(), plan.desired("a") - replicas), (result, grown), "{what}");
    }
}

/// Adds a node of the present template that is not Ready yet.
fn starting(cluster: TestCluster, name: &str) -> TestCluster {
    let hash = cluster.observed.pools[0].spec.template_hash();
    let change = json!({ "metadata": { "creationTimestamp": "2026-01-01T11:59:00Z",
            "annotations": { TEMPLATE_HASH_ANNOTATION: hash } },
        "status": { "conditions": [{ "type": "Ready", "status": "False" }] } });
    cluster.node("a", name, change)
}

#[test]
fn a_node_that_is_starting_counts_with_the_taint() {
    let cluster = starting(with(pool(3), &["11:40 dedicated", "11:30 dedicated"]), "n3");
    let plan = cluster.pending("p", 1, "1", &none()).plan();
    assert_eq!(plan.results(), ["no UntoleratedTaint"]);
}

#[test]
fn pods_that_tolerate_it_make_the_pool_grow_and_others_another_pool() {
    let cluster = || {
        let cluster = with(pool(2), &["11:40 dedicated", "11:30 dedicated"]).pool("b", none());
        cluster.running("r1", "n1", "4", tolerant()).running("r2", "n2", "4", tolerant())
    };
    // Both pools are declared alike, and the smaller one grows for a pod that both take.
    for (pod, a, b) in [(none(), 2, 1), (tolerant(), 2, 1)] {
        let plan = cluster().pending("p", 1, "1", &pod).plan();
        assert_eq!((plan.desired("a"), plan.desired("b")), (a, b));
    }
}

#[test]
fn two_nodes_that_show_a_taint_stay_while_a_pod_waits_because_of_it() {
    let nodes = ["11:20 dedicated", "11:40 dedicated", "11:30 dedicated"];
    let verdicts = |cluster: TestCluster| {
        let plan = cluster.plan();
        (["n1", "n2", "n3"].map(|node| plan.verdict(node)), plan.desired("a"))
    };
    let idle = || with(pool(3), &nodes);
    assert_eq!(verdicts(idle()), (["Unneeded"; 3], 0), "no pod waits");
    assert_eq!(verdicts(idle().pending("p", 1, "1", &tolerant())).1, 1, "only one that tolerates it");
    let expected = ["Unneeded", "ScaleUpInProgress", "ScaleUpInProgress"];
    assert_eq!(verdicts(idle().pending("p", 1, "1", &none())), (expected, 2));
    let (found, desired) = verdicts(idle().running("r", "n1", "4", tolerant()).pending("p", 1, "1", &none()));
    assert_eq!((found[1], found[2], desired), ("ScaleUpInProgress", "Unneeded", 2), "one stays anyway");
}

#[test]
fn the_first_node_with_a_taint_stays_until_the_second_is_up() {
    let cluster = starting(with(pool(2), &["11:50 dedicated"]), "n2");
    let plan = cluster.pending("p", 1, "1", &none()).plan();
    assert_eq!((plan.results()[0].as_str(), plan.verdict("n1")), ("fits n2", "ScaleUpInProgress"));
    assert_eq!(plan.desired("a"), 2);
}

#[test]
fn headroom_is_kept_on_nodes_that_share_a_taint() {
    let headroom = json!({ "headroom": [{ "count": 1, "requests": { "cpu": "1" } }] });
    let cluster = pool_in(TestCluster::new().autoscaler("x", headroom), 2);
    let plan = with(cluster, &["11:40 dedicated", "11:30 dedicated"]).plan();
    assert_eq!(plan.desired("a"), 2);
}
