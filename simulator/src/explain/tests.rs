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
fn a_pod_that_the_scheduler_refuses_for_volume_limits_is_explained_with_them() {
    let condition = json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/1 nodes are available: 1 node(s) exceed max volume count." });
    let cluster = cluster().pending("new", 1, "1", &json!({ "status": { "conditions": [condition] } }));
    let facts = json_of(&cluster, Kind::Pod, "new-000");
    assert_eq!((&facts["outcome"], &facts["node"]), (&json!("Unschedulable"), &json!("")));
    let message = facts["message"].as_str().unwrap();
    assert!(
        message.starts_with("no NodePool grows for it: ") && message.contains("volume limits"),
        "{message}"
    );
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

/// A condition of a pool, for an hour.
fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({ "type": type_, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T11:00:00Z" })
}

/// The text about `a1`, the only node of a pool with this condition. A pod of which it is full runs on it.
fn of_a1(of_pool: &Value, of_node: Value) -> String {
    text(&of_one_node(of_pool, of_node), Kind::Node, "a1")
}

fn of_one_node(of_pool: &Value, of_node: Value) -> TestCluster {
    TestCluster::eager()
        .pool("a", json!({ "spec": { "replicas": 1 }, "status": { "conditions": [of_pool] } }))
        .node("a", "a1", of_node)
        .running("web", "a1", "3", owned())
}

#[test]
fn a_node_that_is_drained_says_what_the_lifecycle_has_noted_on_it_and_since_when() {
    let blocked = condition("Reconciling", "True", "DrainBlocked", "node b1 waits for pod apps/other: no");
    let drained = json!({ "spec": { "unschedulable": true }, "metadata": { "annotations": {
        "tandem.dev/drain-start-time": "2026-01-01T11:50:00Z",
        "tandem.dev/disruption-reason": "ScaleDown",
        "tandem.dev/drain-waits-for": "waits for pod apps/web: Cannot evict pod as it would violate the pod's disruption budget." } } });
    let said = of_a1(&blocked, drained.clone());
    let expected = "\
Node a1 of NodePool ns/a leaves.
Its drain for ScaleDown began at 2026-01-01T11:50:00Z.
It waits for pod apps/web: Cannot evict pod as it would violate the pod's disruption budget.

If it were gone, and nothing in its place:
";
    assert!(said.starts_with(expected), "{said}");
    let facts = json_of(&of_one_node(&blocked, drained.clone()), Kind::Node, "a1");
    assert_eq!(facts["reason"], "CurrentlyBeingDeleted");
    assert_eq!(
        facts["lifecycle"],
        json!({ "leaves": true, "reason": "ScaleDown", "drainStartTime": "2026-01-01T11:50:00Z",
            "deletionTime": "", "givenBackTime": "", "poolConditions": [],
            "waitsFor": "waits for pod apps/web: Cannot evict pod as it would violate the pod's disruption budget." })
    );
    // What is noted is from before the pause.
    let paused = condition("Reconciling", "False", "Paused", "spec.paused is set");
    let said = of_a1(&paused, drained);
    let of_pool =
        "NodePool ns/a: Reconciling is False since 2026-01-01T11:00:00Z (Paused): spec.paused is set.\n";
    assert!(said.contains(of_pool), "{said}");
}

#[test]
fn a_node_whose_drain_waits_for_nothing_comes_with_what_is_said_of_all_that_leave() {
    let turn = "0 of 1 nodes are ready, 1 draining; 1 node waits for its turn to be drained";
    let drained = || json!({ "metadata": { "annotations": { "tandem.dev/drain-start-time": "2026-01-01T11:50:00Z" } } });
    let said = of_a1(&condition("Reconciling", "True", "Draining", turn), drained());
    let expected = "\
Node a1 of NodePool ns/a leaves.
Its drain began at 2026-01-01T11:50:00Z.
Nothing is noted on it that it waits for.
NodePool ns/a: Reconciling is True since 2026-01-01T11:00:00Z (Draining): 0 of 1 nodes are ready, 1 draining; 1 node waits for its turn to be drained.

If it were gone, and nothing in its place:
";
    assert!(said.starts_with(expected), "{said}");
    let said = of_a1(&condition("Reconciling", "False", "Settled", "there is nothing to do"), drained());
    assert!(!said.contains("Reconciling"), "{said}");
}

#[test]
fn a_node_that_is_repaired_says_for_what_and_since_when_it_goes() {
    let nothing = condition("Reconciling", "False", "Settled", "there is nothing to do");
    let drained = json!({ "tandem.dev/drain-start-time": "2026-01-01T11:50:00Z", "tandem.dev/disruption-reason": "Repair" });
    let said = of_a1(&nothing, json!({ "metadata": { "annotations": drained } }));
    assert!(said.contains("leaves.\nIts drain for Repair began at 2026-01-01T11:50:00Z.\n"), "{said}");
    let silent = json!({ "tandem.dev/disruption-reason": "Repair", "tandem.dev/drain-waits-for": "waits for its machine to end" });
    let said = of_a1(
        &nothing,
        json!({ "metadata": { "annotations": silent, "deletionTimestamp": "2026-01-01T11:55:00Z" } }),
    );
    let expected = "\
Node a1 of NodePool ns/a leaves.
Its Node was deleted for Repair at 2026-01-01T11:55:00Z.
It waits for its machine to end.
";
    assert!(said.starts_with(expected), "{said}");
}

#[test]
fn an_unhealthy_node_that_stays_says_why_it_is_not_repaired() {
    let unready = || json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } });
    let not_due =
        "node a1 is unhealthy (Ready is Unknown since 2026-01-01T11:59:00Z) and is replaced after 300 s";
    let said = of_a1(&condition("Reconciling", "False", "Settled", not_due), unready());
    let line =
        format!("NodePool ns/a: Reconciling is False since 2026-01-01T11:00:00Z (Settled): {not_due}.\n");
    assert!(said.contains(&line), "{said}");
    // Of several it names another one, or none.
    let braked = "0 of 1 nodes are ready, 1 not ready; 1 node is unhealthy, so none is replaced";
    let all = condition("NodesReady", "False", "NodesNotReady", braked);
    let line =
        format!("NodePool ns/a: NodesReady is False since 2026-01-01T11:00:00Z (NodesNotReady): {braked}.\n");
    let said = of_a1(&all, unready());
    assert!(said.contains(&line), "{said}");
    let said = of_a1(&all, json!({}));
    assert!(!said.contains("NodesReady"), "{said}");
}

#[test]
fn a_node_that_stays_says_what_nodes_that_are_out_of_date_wait_for() {
    for (reason, message) in [
        (
            "WaitsForBudget",
            "2 nodes are out of date; spec.disruption.budgets[0] allows no Rollout until its window",
        ),
        (
            "WaitsForProtected",
            "1 node is out of date; node a1 has the annotation karpenter.sh/do-not-disrupt",
        ),
    ] {
        let rolling = condition("RollingOut", "False", reason, message);
        let said = of_a1(&rolling, json!({}));
        let line =
            format!("NodePool ns/a: RollingOut is False since 2026-01-01T11:00:00Z ({reason}): {message}.\n");
        assert!(said.starts_with("Node a1 of NodePool ns/a stays. NotUnderutilized: "), "{said}");
        assert!(said.contains(&line), "{said}");
        // The planner's reason and what to do about it come first.
        assert!(said.find("To change that: ") < said.find("RollingOut"), "{said}");
        // `Reconciling` repeats it, and is quoted only where it says more of the node.
        for (more, count) in [("", 1), ("; unhealthy node a1 has to wait: a budget", 2)] {
            let other = format!("1 of 1 nodes are ready; {message}{more}");
            let both = json!([rolling, condition("Reconciling", "True", reason, &other)]);
            let mut cluster = of_one_node(&rolling, json!({}));
            cluster.observed.pools.clear();
            let cluster =
                cluster.pool("a", json!({ "spec": { "replicas": 1 }, "status": { "conditions": both } }));
            let said = text(&cluster, Kind::Node, "a1");
            assert_eq!(said.matches("NodePool ns/a: ").count(), count, "{said}");
        }
    }
    let said = of_a1(&condition("RollingOut", "False", "UpToDate", "no node is out of date"), json!({}));
    assert!(!said.contains("RollingOut"), "{said}");
}

#[test]
fn a_node_that_was_given_back_says_when() {
    let given_back = json!({ "tandem.dev/drain-given-back-time": "2026-01-01T11:30:00Z" });
    let nothing = condition("Reconciling", "False", "Settled", "there is nothing to do");
    let said = of_a1(&nothing, json!({ "metadata": { "annotations": given_back } }));
    assert!(said.starts_with("Node a1 of NodePool ns/a stays. "), "{said}");
    let line = "Its last drain took too long and was cancelled at 2026-01-01T11:30:00Z.\n";
    assert!(said.contains(line), "{said}");
}

#[test]
fn a_node_that_the_decision_in_force_names_is_to_go_before_its_drain_begins() {
    let deciding = json!({ "spec": { "replicas": 1 }, "status": { "autoscaling": { "scaleDown": {
        "targetReplicas": 1, "decisionID": "x", "nodes": ["a1"] } } } });
    let cluster =
        TestCluster::eager().pool("a", deciding).node("a", "a1", json!({})).node("a", "a2", json!({}));
    let said = text(&cluster, Kind::Node, "a1");
    assert!(said.starts_with("Node a1 of NodePool ns/a is to go. CurrentlyBeingDeleted: "), "{said}");
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
