//! Explanations, from objects to text and JSON.

use planner::Observed;
use planner::fixtures::TestCluster;
use serde_json::{Value, json};

use super::{Format, Kind, explained};
use crate::input::Input;

fn input(observed: &Observed) -> Input {
    Input { observed: observed.clone(), priority_classes: Vec::new(), warnings: Vec::new() }
}

fn text(cluster: &TestCluster, kind: Kind, name: &str) -> String {
    explained(input(&cluster.observed), kind, name, Format::Text).unwrap().0
}

fn json_of(cluster: &TestCluster, kind: Kind, name: &str) -> Value {
    serde_json::from_str(&explained(input(&cluster.observed), kind, name, Format::Json).unwrap().0).unwrap()
}

fn owned() -> Value {
    json!({ "metadata": { "ownerReferences": [
        { "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o", "uid": "u", "controller": true }] } })
}

/// Three pools, of which `b` is tainted and `c` is like `a`; a node of `a` is full.
fn cluster() -> TestCluster {
    TestCluster::eager()
        .pool("a", json!({ "spec": { "replicas": 1 } }))
        .pool("b", json!({ "spec": { "template": { "spec": { "taints": [{ "key": "gpu", "effect": "NoSchedule" }] } } } }))
        .pool("c", json!({ "spec": { "template": { "spec": { "capacity": { "cpu": "8", "memory": "64Gi", "pods": "10" } } } } }))
        .pool("lone", json!({ "metadata": { "namespace": "elsewhere" } }))
        .node("a", "a1", json!({}))
        .running("web", "a1", "3", owned())
}

#[test]
fn a_pod_is_explained_with_the_answer_of_every_pool() {
    let cluster = cluster().pending("new", 1, "4", &json!({}));
    assert_eq!(
        text(&cluster, Kind::Pod, "apps/new-000"),
        "\
Pod apps/new-000 waits for a node: NodePool ns/a grows for it and for others like it, from 1 to 2 nodes.

POOL             ANSWER          WHY
elsewhere/lone   not asked       NotSelected: no NodePoolAutoscaler of this namespace selects this pool
ns/a             takes it        1 node for 1 pending pod
ns/b             refuses it      UntoleratedTaint: the pod does not tolerate the taint gpu:NoSchedule of the pool's template
ns/c             could take it   could grow for it as well
"
    );
    let facts = json_of(&cluster, Kind::Pod, "new-000");
    assert_eq!(facts["outcome"], "TriggersScaleUp");
    let answers: Vec<_> =
        facts["pools"].as_array().unwrap().iter().map(|pool| pool["answer"].clone()).collect();
    assert_eq!(answers, ["NotPlanned", "Takes", "Refuses", "CouldTake"]);
}

#[test]
fn a_pod_that_no_pool_takes_is_explained_with_the_reasons() {
    let cluster = cluster().pending("big", 1, "64", &json!({}));
    let text = text(&cluster, Kind::Pod, "big-000");
    assert!(text.starts_with("Pod apps/big-000 waits for a node: no NodePool can take it.\n"), "{text}");
    assert!(
        text.contains(
            "InsufficientCpu: the pod asks for 64 of cpu; an empty node of the pool's template offers 4"
        ),
        "{text}"
    );
}

#[test]
fn a_pod_that_pools_could_take_and_do_not_grow_for_is_explained_with_what_keeps_it_waiting() {
    let delayed = json!({ "metadata": { "creationTimestamp": "2026-01-01T11:59:00Z",
        "annotations": { "cluster-autoscaler.kubernetes.io/pod-scale-up-delay": "5m" } } });
    for (change, reason, part) in [
        (
            json!({ "spec": { "priority": -11 } }),
            "Expendable",
            "below spec.expendablePodsPriorityCutoff (-10)",
        ),
        (delayed, "ScaleUpDelayed", "younger than its annotation"),
    ] {
        let cluster = cluster().pending("new", 1, "4", &change);
        let facts = json_of(&cluster, Kind::Pod, "new-000");
        assert_eq!(facts["outcome"], "Unschedulable");
        let message = facts["message"].as_str().unwrap();
        assert!(message.starts_with("no NodePool grows for it: ") && message.contains(part), "{message}");
        let reasons: Vec<_> =
            facts["pools"].as_array().unwrap().iter().map(|pool| pool["reason"].clone()).collect();
        assert_eq!(reasons, ["NotSelected", reason, "UntoleratedTaint", reason]);
    }
}

#[test]
fn a_pod_that_is_not_planned_is_explained_with_its_state() {
    let gated = json!({ "spec": { "schedulingGates": [{ "name": "g" }] } });
    let cluster = cluster().pending("gated", 1, "1", &gated).pending("small", 1, "1", &json!({}));
    for (pod, state, part) in [
        ("web", "Bound", "has a place on node a1"),
        ("gated-000", "Gated", "spec.schedulingGates"),
        ("small-000", "Pending", "node a1 of NodePool ns/a has room for it; no pool has to grow"),
    ] {
        let facts = json_of(&cluster, Kind::Pod, pod);
        assert_eq!(facts["state"], state);
        assert!(facts["message"].as_str().unwrap().contains(part), "{facts}");
    }
}

#[test]
fn a_pool_that_only_gets_recommendations_says_so_to_pods_and_to_people() {
    let cluster = TestCluster::new()
        .autoscaler("advisor", json!({ "mode": "Recommend" }))
        .pool("a", json!({}))
        .pending("new", 2, "3", &json!({}));
    let pod = text(&cluster, Kind::Pod, "new-000");
    assert!(
        pod.contains(
            "no NodePool grows for it: NodePool ns/a would, but its NodePoolAutoscaler is in mode Recommend"
        ),
        "{pod}"
    );
    assert!(
        pod.contains(
            "not asked   RecommendOnly: its NodePoolAutoscaler only recommends: 2 nodes for 2 pending pods"
        ),
        "{pod}"
    );
    let pool = text(&cluster, Kind::Pool, "ns/a");
    assert_eq!(
        pool,
        "\
NodePool ns/a has 0 nodes and should have 2 (at least 0, at most 10). ScaleUp: 2 nodes for 2 pending pods.
NodePoolAutoscaler advisor (mode Recommend) reports this and writes nothing.
It grows for 2 pending pods: apps/new-000, apps/new-001.
"
    );
    assert_eq!(json_of(&cluster, Kind::Pool, "a")["written"], false);
}

#[test]
fn a_node_says_where_each_of_its_pods_would_go() {
    let cluster = cluster()
        .pool("d", json!({ "spec": { "replicas": 1 } }))
        .node("d", "d1", json!({}))
        .running("small", "a1", "1", owned())
        .running("bare", "a1", "0", json!({}))
        .running("daemon", "a1", "0", json!({ "metadata": { "ownerReferences": [
            { "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "o", "uid": "u", "controller": true }] } }))
        .running("other", "d1", "1500m", owned());
    let facts = json_of(&cluster, Kind::Node, "a1");
    let results: Vec<_> = facts["pods"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pod| {
            format!(
                "{} {} {}{}",
                pod["name"].as_str().unwrap(),
                pod["result"].as_str().unwrap(),
                pod["nodePool"].as_str().unwrap(),
                pod["node"].as_str().unwrap()
            )
        })
        .collect();
    assert_eq!(
        results,
        ["bare Lost ", "daemon GoesWithNode ", "small Moves ns/dd1", "web NeedsNewNode ns/a"]
    );
    assert_eq!((facts["nodePool"].as_str(), facts["removable"].as_bool()), (Some("ns/a"), Some(false)));
    let text = text(&cluster, Kind::Node, "a1");
    assert!(text.starts_with("Node a1 of NodePool ns/a stays. "), "{text}");
    assert!(text.contains("apps/small    yes           moves to node d1\n"), "{text}");
}

#[test]
fn a_node_that_goes_says_since_when_nothing_needs_it() {
    let cluster =
        TestCluster::eager().pool("a", json!({ "spec": { "replicas": 1 } })).node("a", "a1", json!({}));
    assert_eq!(
        text(&cluster, Kind::Node, "a1"),
        "\
Node a1 of NodePool ns/a could go. Unneeded: nothing needs the node.
It goes with the decision of this moment.
Nothing has needed it since 2026-01-01T12:00:00Z.
No pods are on it.
"
    );
    let pool = text(&cluster, Kind::Pool, "a");
    assert!(pool.contains("These nodes go: a1.\n"), "{pool}");
    assert!(pool.contains("a1     yes        Unneeded   2026-01-01T12:00:00Z\n"), "{pool}");
}

#[test]
fn a_pool_is_explained_with_its_history() {
    let status = json!({ "autoscaling": {
        "autoscaler": "all", "lastScaleUpTime": "2026-01-01T10:00:00Z",
        "lastDecision": { "id": "x", "fromReplicas": 1, "toReplicas": 3, "reason": "ScaleUp", "message": "2 nodes for 9 pending pods", "time": "2026-01-01T10:00:00Z" },
        "scaleEvents": [{ "change": -1, "time": "2026-01-01T09:00:00Z" }, { "change": 2, "time": "2026-01-01T10:00:00Z" }],
        "recommendations": [{ "replicas": 3, "time": "2026-01-01T10:00:00Z" }] } });
    let cluster = TestCluster::eager()
        .pool("a", json!({ "spec": { "replicas": 3, "minReplicas": 3 }, "status": status }));
    let text = text(&cluster, Kind::Pool, "a");
    assert!(
        text.ends_with(
            "\
TIME                   WHAT HAPPENED
2026-01-01T09:00:00Z   1 node fewer
2026-01-01T10:00:00Z   2 nodes more
2026-01-01T10:00:00Z   last decision: from 1 to 3, ScaleUp: 2 nodes for 9 pending pods
It last grew at 2026-01-01T10:00:00Z.
Wanted within the stabilisation windows: 3 since 2026-01-01T10:00:00Z.
"
        ),
        "{text}"
    );
}

#[test]
fn unknown_names_are_answered_with_the_nearest() {
    let cluster = cluster().pool("a", json!({ "metadata": { "namespace": "other" } }));
    for (kind, name, expected) in [
        (Kind::Pod, "wob", "there is no pod wob; did you mean web?"),
        (Kind::Pod, "apps/wob", "there is no pod apps/wob; did you mean apps/web?"),
        (Kind::Node, "worker-77", "there is no node worker-77"),
        (Kind::Pool, "ns/z", "there is no NodePool ns/z; did you mean ns/a?"),
        (Kind::Pool, "a", "there are several: ns/a, other/a; name the namespace too"),
    ] {
        let failed = explained(input(&cluster.observed), kind, name, Format::Text).unwrap_err();
        assert_eq!(failed.to_string(), expected);
    }
}
