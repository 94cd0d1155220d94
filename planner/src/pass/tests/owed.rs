//! Nodes that a pool owes and that do not come: until when pods are planned onto them, and that they count for no bound.

use k8s_openapi::jiff::SignedDuration;
use serde_json::{Value, json};

use crate::fixtures::{Read, TestCluster};

/// Five nodes of the pool called `name` are missing; another pool has none and may grow.
fn cluster(name: &str, change: Value) -> TestCluster {
    let owing =
        json!({ "metadata": { "uid": "u" }, "spec": { "replicas": 5, "provisioningTimeoutSeconds": 600 } });
    TestCluster::eager().pool(name, crate::fixtures::merged(owing, change)).pool("other", json!({})).pending(
        "p",
        1,
        "1",
        &json!({}),
    )
}

#[test]
fn pods_are_planned_elsewhere_once_the_missing_nodes_of_a_pool_are_overdue() {
    for (observed, result, is_planned_again) in [
        (None, "fits upcoming ns/a", false),
        (Some(599), "fits upcoming ns/a", true),
        (Some(600), "grows ns/other", false),
    ] {
        let mut cluster = cluster("a", json!({}));
        cluster.observed.owed_for = observed
            .map(|seconds| ("u".to_owned(), SignedDuration::from_secs(seconds)))
            .into_iter()
            .collect();
        let plan = cluster.plan();
        assert_eq!(plan.results(), [result], "after {observed:?} s");
        let in_a_second = cluster.observed.now.checked_add(SignedDuration::from_secs(1)).unwrap();
        assert_eq!(plan.next == Some(in_a_second), is_planned_again, "after {observed:?} s");
        assert_eq!(plan.desired("a"), 5, "what is owed stays wanted");
    }
}

#[test]
fn a_pool_that_no_node_can_be_made_of_is_no_capacity() {
    let reserved = json!({ "spec": { "template": { "spec": { "reserved": { "cpu": "5" } } } } });
    for (name, change) in [("a", reserved), (&"a".repeat(70), json!({}))] {
        assert_eq!(cluster(name, change).plan().results(), ["grows ns/other"]);
    }
}

#[test]
fn nodes_that_do_not_come_are_none_of_those_that_the_minimum_asks_for() {
    for (min, desired, verdict) in [(3, 5, "NodeGroupMinSizeReached"), (2, 4, "Unneeded")] {
        let owing = json!({ "metadata": { "uid": "u" },
            "spec": { "replicas": 5, "minReplicas": min, "provisioningTimeoutSeconds": 600 } });
        let cluster = TestCluster::eager().pool("a", owing);
        let mut cluster =
            ["n1", "n2", "n3"].into_iter().fold(cluster, |cluster, name| cluster.node("a", name, json!({})));
        cluster.observed.owed_for = [("u".to_owned(), SignedDuration::from_secs(600))].into_iter().collect();
        let plan = cluster.plan();
        assert_eq!((plan.desired("a"), plan.verdict("n1")), (desired, verdict), "at least {min}");
    }
}
