//! Tests of decisions about nodes with pods, case by case.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::fixtures::{Read, TestCluster, merged};
use crate::reasons::NodeReason;
use crate::{NodeDecision, ScalingPlan};

fn owned() -> Value {
    json!({ "metadata": { "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o", "uid": "u", "controller": true }] } })
}

fn with(change: Value) -> Value {
    merged(owned(), change)
}

fn replicas(count: i32) -> Value {
    json!({ "spec": { "replicas": count } })
}

fn scale_down(rules: Value) -> Value {
    json!({ "scaleDown": merged(json!({ "unneededSeconds": 0, "delayAfterAddSeconds": 0 }), rules) })
}

fn none() -> Value {
    json!({})
}

/// A pool `a` with Ready nodes `n1`, `n2`, … of 4 cores each.
fn nodes(cluster: TestCluster, count: usize) -> TestCluster {
    let cluster = cluster.pool("a", replicas(i32::try_from(count).unwrap()));
    (1..=count).fold(cluster, |cluster, at| cluster.node("a", &format!("n{at}"), none()))
}

fn budget(mut cluster: TestCluster, name: &str, allowed: i32) -> TestCluster {
    let object = json!({ "metadata": { "name": name, "namespace": "apps" }, "spec": { "selector": {} }, "status": { "disruptionsAllowed": allowed } });
    cluster.observed.budgets.push(Arc::new(serde_json::from_value(object).unwrap()));
    cluster
}

fn verdict<'a>(plan: &'a ScalingPlan, node: &str) -> &'a NodeDecision {
    plan.nodes.iter().find(|verdict| verdict.name == node).unwrap()
}

#[test]
fn a_node_goes_when_its_pods_have_a_place_on_another() {
    let plan = nodes(TestCluster::eager(), 2)
        .running("x", "n1", "1", owned())
        .running("y", "n2", "1500m", owned())
        .plan();
    assert_eq!(
        (plan.pool("a").victims.as_slice(), plan.desired("a")),
        (&["n1".to_owned()][..], 1),
        "the one with less on it"
    );
    assert_eq!(verdict(&plan, "n1").message, "its pod has a place elsewhere");
    assert_eq!(plan.verdict("n2"), "NoPlaceToMovePods");
    assert!(verdict(&plan, "n2").reason.removable(), "without the other it could have gone");
}

#[test]
fn of_two_nodes_whose_pods_fit_only_one_gap_one_goes() {
    let cluster = |gap: &str| {
        nodes(TestCluster::eager(), 3)
            .running("x", "n1", "1", owned())
            .running("y", "n2", "1", owned())
            .running("z", "n3", gap, owned())
            .plan()
    };
    // The gap of 1 takes the pods of either; those of the other may not move to a removed node.
    let plan = cluster("3");
    assert_eq!(plan.pool("a").victims, ["n1"]);
    // With a gap of two both are removed.
    let plan = cluster("2");
    assert_eq!(plan.pool("a").victims, ["n1", "n2"]);
    assert_eq!(plan.desired("a"), 1);
}

#[test]
fn pods_move_on_with_the_node_they_moved_to() {
    // Only the candidates have room: what moves from n1 to n3 has to move once more before n3 can be removed, and
    // cannot.
    let plan = nodes(TestCluster::eager(), 3)
        .running("x", "n1", "1900m", owned())
        .running("y", "n2", "1950m", owned())
        .running("z", "n3", "1980m", owned())
        .plan();
    assert_eq!((plan.pool("a").victims.as_slice(), plan.desired("a")), (&["n1".to_owned()][..], 2));
    let plan = nodes(TestCluster::eager(), 3)
        .running("x", "n1", "1", owned())
        .running("y", "n2", "1", owned())
        .running("z", "n3", "1", owned())
        .plan();
    assert_eq!(plan.desired("a"), 1);
}

#[test]
fn the_threshold_is_measured_on_the_cluster_as_it_is() {
    let cluster = |percent: i32, cpu: &str, other: &str| {
        nodes(
            TestCluster::new().autoscaler("x", scale_down(json!({ "utilizationThresholdPercent": percent }))),
            2,
        )
        .running("x", "n1", cpu, owned())
        .running("bare", "n2", other, none())
        .plan()
    };
    for (percent, cpu, other, expected) in [
        (50, "2", "0", "NotUnderutilized"),
        (50, "1999m", "0", "Unneeded"),
        (50, "1999m", "3", "NoPlaceToMovePods"),
        (25, "1", "0", "NotUnderutilized"),
        (26, "1", "0", "Unneeded"),
        (100, "4", "0", "NotUnderutilized"),
        (0, "0", "0", "Unneeded"),
        (0, "1m", "0", "NotUnderutilized"),
        (1, "0", "0", "Unneeded"),
    ] {
        let plan = cluster(percent, cpu, other);
        assert_eq!(plan.verdict("n1"), expected, "{cpu} of 4 at {percent}%, {other} of 4 on the other node");
    }
    let daemon = json!({ "metadata": { "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": true }] } });
    let plan = nodes(TestCluster::eager(), 1).running("d", "n1", "3", daemon.clone()).plan();
    assert_eq!(
        plan.verdict("n1"),
        "NotUnderutilized",
        "also where nothing but a DaemonSet's pod is on the node"
    );
    let plan = nodes(TestCluster::eager(), 2)
        .running("d", "n1", "1500m", daemon)
        .running("x", "n1", "500m", owned())
        .plan();
    assert_eq!(plan.verdict("n1"), "NotUnderutilized", "DaemonSet pods count");
    assert_eq!(
        verdict(&plan, "n1").message,
        "the node's pods ask for 50% of its cpu; scaleDown.utilizationThresholdPercent is 50"
    );
}

#[test]
fn places_of_planned_pods_are_taken_and_pods_on_nodes_that_go_take_theirs_first() {
    // n2 has room for one pod of 2: the pending one takes it.
    let cluster = || {
        nodes(TestCluster::eager(), 2).running("x", "n1", "1900m", owned()).running("y", "n2", "2", owned())
    };
    assert_eq!(cluster().plan().pool("a").victims, ["n1"]);
    let cordoned = json!({ "spec": { "nodeSelector": { "kubernetes.io/hostname": "n2" } } });
    let plan = cluster().pending("p", 1, "2", &cordoned).plan();
    assert_eq!((plan.results(), plan.verdict("n1")), (vec!["fits n2".to_owned()], "NoPlaceToMovePods"));
    // n3 is being drained: its pod will need the room.
    let drained =
        json!({ "metadata": { "annotations": { "tandem.dev/drain-start-time": "2026-01-01T11:59:00Z" } } });
    let plan = cluster().node("a", "n3", drained).running("z", "n3", "2", owned()).plan();
    assert_eq!((plan.verdict("n1"), plan.verdict("n3")), ("NoPlaceToMovePods", "CurrentlyBeingDeleted"));
    assert!(!verdict(&plan, "n1").reason.removable());
}

#[test]
fn pods_move_only_to_nodes_that_take_them() {
    let cluster = |node: Value, pod: Value| {
        nodes(TestCluster::eager(), 1)
            .pool("b", replicas(1))
            .node("b", "other", node)
            .running("x", "n1", "1", with(pod))
            .plan()
    };
    let taint = json!({ "spec": { "taints": [{ "key": "gpu", "effect": "NoSchedule" }] } });
    let here = json!({ "spec": { "nodeSelector": { "tandem.dev/nodepool": "a" } } });
    let ports = json!({ "spec": { "containers": [{ "name": "c", "ports": [{ "containerPort": 1, "hostPort": 1 }] }] } });
    let keeps = json!({ "metadata": { "annotations": { "cluster-autoscaler.kubernetes.io/scale-down-disabled": "true" } } });
    for (what, node, pod, expected) in [
        ("a place", keeps.clone(), none(), "Unneeded"),
        ("a taint", merged(keeps.clone(), taint), none(), "NoPlaceToMovePods"),
        (
            "cordoned",
            merged(keeps.clone(), json!({ "spec": { "unschedulable": true } })),
            none(),
            "NoPlaceToMovePods",
        ),
        (
            "down",
            merged(
                keeps.clone(),
                json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } }),
            ),
            none(),
            "NoPlaceToMovePods",
        ),
        ("a selector", keeps.clone(), here, "NoPlaceToMovePods"),
        ("a port that is free there", keeps, ports, "Unneeded"),
    ] {
        let plan = cluster(node, pod);
        assert_eq!(plan.verdict("n1"), expected, "{what}");
        if expected != "Unneeded" {
            assert_eq!(verdict(&plan, "n1").message, "no other node has a place for pod apps/x", "{what}");
        }
    }
}

#[test]
fn pods_do_not_move_to_nodes_where_other_pods_keep_them_away() {
    let labels = json!({ "metadata": { "labels": { "app": "web" } } });
    let ports = json!({ "spec": { "containers": [{ "name": "c", "ports": [{ "containerPort": 1, "hostPort": 1 }] }] } });
    let anti_affinity = json!({ "spec": { "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
        { "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { "app": "web" } } }] } } } });
    for (what, pod, there, expected) in [
        ("nothing", labels.clone(), labels.clone(), "Unneeded"),
        ("a host port", ports.clone(), ports, "NoPlaceToMovePods"),
        ("its own anti-affinity", anti_affinity.clone(), labels.clone(), "NoPlaceToMovePods"),
        ("that of the pod that is there", labels, anti_affinity, "NoPlaceToMovePods"),
    ] {
        let keeps = json!({ "metadata": { "annotations": { "cluster-autoscaler.kubernetes.io/scale-down-disabled": "true" } } });
        let web = json!({ "metadata": { "labels": { "app": "web" } } });
        let plan = nodes(TestCluster::eager(), 1)
            .pool("b", replicas(1))
            .node("b", "other", keeps)
            .running("x", "n1", "1", with(merged(web.clone(), pod)))
            .running("y", "other", "1", merged(web, there))
            .plan();
        assert_eq!(plan.verdict("n1"), expected, "{what}");
    }
}

#[test]
fn a_node_is_blocked_by_the_pod_that_blocks_it_for_longest_and_the_moment_is_waited_for() {
    let held = |for_: &str| {
        with(
            json!({ "metadata": { "annotations": { "karpenter.sh/do-not-disrupt": for_ } }, "status": { "startTime": "2026-01-01T11:00:00Z" } }),
        )
    };
    let cluster = || {
        nodes(TestCluster::eager(), 2).running("x", "n1", "1", held("90m")).running(
            "y",
            "n1",
            "100m",
            held("75m"),
        )
    };
    let plan = cluster().plan();
    assert_eq!(plan.verdict("n1"), "BlockedByPod");
    assert_eq!(
        verdict(&plan, "n1").message,
        "pod apps/x asks not to be disrupted (karpenter.sh/do-not-disrupt: 90m) (DoNotDisruptAnnotation)"
    );
    assert_eq!(plan.next, Some("2026-01-01T12:30:00Z".parse().unwrap()));
    let plan = cluster().running("z", "n1", "100m", none()).plan();
    assert_eq!(
        verdict(&plan, "n1").message,
        "pod apps/z has no controller that would make it again (NotReplicated)"
    );
    assert_eq!(plan.next, None, "time alone changes nothing");
}

#[test]
fn budgets_are_used_up_by_all_victims_together() {
    let cluster = |allowed: i32| {
        let cluster = nodes(TestCluster::eager(), 4)
            .running("x", "n1", "1", owned())
            .running("y", "n2", "1", owned())
            .running("z", "n3", "1", owned());
        budget(cluster.running("full", "n4", "100m", none()), "b", allowed).plan()
    };
    let plan = cluster(0);
    assert_eq!(plan.verdict("n1"), "BlockedByPod");
    assert!(!verdict(&plan, "n1").reason.removable());
    assert_eq!(
        verdict(&plan, "n1").message,
        "pod apps/x is under PodDisruptionBudget apps/b, which allows no disruption now (NotEnoughPdb)"
    );
    let plan = cluster(2);
    assert_eq!(plan.pool("a").victims, ["n1", "n2"]);
    assert_eq!(plan.verdict("n3"), "BlockedByPod");
    assert!(verdict(&plan, "n3").reason.removable(), "others go first");
    assert_eq!(cluster(3).pool("a").victims, ["n1", "n2", "n3"]);
}

#[test]
fn a_node_goes_while_a_budget_lets_one_of_its_pods_go_and_then_no_other_does() {
    let cluster = |allowed: i32| {
        let cluster = nodes(TestCluster::eager(), 3)
            .running("x", "n1", "100m", owned())
            .running("y", "n1", "100m", owned())
            .running("z", "n2", "300m", owned());
        budget(cluster.running("full", "n3", "100m", none()), "b", allowed).plan()
    };
    let plan = cluster(0);
    assert_eq!((plan.verdict("n1"), plan.verdict("n2")), ("BlockedByPod", "BlockedByPod"));
    let plan = cluster(1);
    assert_eq!((plan.pool("a").victims.clone(), plan.verdict("n2")), (vec!["n1".to_owned()], "BlockedByPod"));
    assert_eq!(cluster(3).pool("a").victims, ["n1", "n2"]);
}

#[test]
fn pods_of_a_daemon_set_count_in_what_is_used_and_a_node_that_nothing_is_asked_of_always_goes() {
    let daemon = json!({ "metadata": { "ownerReferences": [
        { "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": true }] } });
    for (cpu, threshold, expected) in [
        ("1900m", 50, "Unneeded"),
        ("2", 50, "NotUnderutilized"),
        ("0", 50, "Unneeded"),
        ("0", 0, "Unneeded"),
        ("1m", 0, "NotUnderutilized"),
    ] {
        let rules = scale_down(json!({ "utilizationThresholdPercent": threshold }));
        let plan = nodes(TestCluster::new().autoscaler("x", rules), 1)
            .running("d", "n1", cpu, daemon.clone())
            .plan();
        assert_eq!(plan.verdict("n1"), expected, "{cpu} at {threshold}%");
    }
}

#[test]
fn empty_nodes_go_first_then_those_that_are_used_least() {
    let cluster = |max: i32| {
        nodes(TestCluster::new().autoscaler("x", scale_down(json!({ "maxNodes": max }))), 4)
            .running("w", "n1", "1900m", owned())
            .running("x", "n2", "1", owned())
            .running("y", "n3", "500m", owned())
            .plan()
    };
    assert_eq!(cluster(1).pool("a").victims, ["n4"]);
    assert_eq!(cluster(2).pool("a").victims, ["n3", "n4"]);
    let plan = cluster(3);
    assert_eq!(plan.pool("a").victims, ["n2", "n3", "n4"]);
    assert_eq!(plan.verdict("n1"), "NodeGroupMaxDeletionCountReached");
}

#[test]
fn a_node_is_unneeded_only_while_its_pods_have_a_place() {
    let since = json!({ "status": { "autoscaling": { "unneededNodes": [{ "name": "n1", "sinceTime": "2026-01-01T11:50:00Z" }] } } });
    let cluster = |cpu: &str| {
        TestCluster::new()
            .autoscaler("x", scale_down(json!({ "unneededSeconds": 600 })))
            .pool("a", merged(replicas(2), since.clone()))
            .node("a", "n1", none())
            .node("a", "n2", none())
            .running("x", "n1", "1", owned())
            .running("full", "n2", cpu, none())
            .plan()
    };
    let names =
        |plan: &ScalingPlan| plan.pool("a").unneeded.iter().map(|node| node.name.clone()).collect::<Vec<_>>();
    let plan = cluster("3");
    assert_eq!((plan.verdict("n1"), names(&plan)), ("Unneeded", vec!["n1".to_owned()]));
    let plan = cluster("3500m");
    assert_eq!((plan.verdict("n1"), names(&plan)), ("NoPlaceToMovePods", vec![]), "the count begins anew");
}

#[test]
fn no_more_nodes_go_than_the_budgets_of_the_pool_leave() {
    let limited = |disrupted: i32| {
        json!({
            "spec": { "disruption": { "budgets": [{ "nodes": 2, "reasons": ["ScaleDown", "Rollout"] }] } },
            "status": { "disruption": { "rollout": disrupted } },
        })
    };
    for (disrupted, desired) in [(0, 1), (1, 2), (2, 3)] {
        let plan = (1..=3)
            .fold(
                TestCluster::eager().pool("a", merged(replicas(3), limited(disrupted))),
                |cluster, number| cluster.node("a", &format!("n{number}"), none()),
            )
            .plan();
        assert_eq!(plan.desired("a"), desired, "{disrupted}");
        let kept: Vec<_> = (1..=3)
            .map(|number| verdict(&plan, &format!("n{number}")))
            .filter(|verdict| verdict.reason == NodeReason::DisruptionBudget)
            .collect();
        assert_eq!(kept.len(), usize::try_from(desired).unwrap());
        assert!(
            kept.iter().all(|verdict| verdict.message.contains("spec.disruption.budgets[0] allows 2 nodes"))
        );
        assert!(kept.iter().all(|verdict| verdict.reason.removable()));
    }
}

#[test]
fn a_percentage_is_of_the_nodes_that_are_there() {
    let tenth = json!({ "spec": { "maxReplicas": 30, "disruption": { "budgets": [{ "nodes": "10%" }] } } });
    // The `NodePool` operator asks while all of them are there, although fewer are wanted by then.
    for (nodes, expected) in [(10, 1), (11, 2), (20, 2), (21, 3), (24, 3)] {
        let cluster = TestCluster::eager().pool("a", merged(replicas(nodes), tenth.clone()));
        let cluster =
            (1..=nodes).fold(cluster, |cluster, number| cluster.node("a", &format!("n{number}"), none()));
        assert_eq!(nodes - cluster.plan().desired("a"), expected, "of {nodes}");
    }
}

/// A pool of `wanted` nodes and a budget, with four nodes, of which a decision before has named `n1` at this count.
fn named(wanted: i32, budget: i32, status: Value) -> TestCluster {
    let named = json!({
        "spec": { "replicas": wanted, "disruption": { "budgets": [{ "nodes": budget }] } },
        "status": { "autoscaling": { "scaleDown": {
            "targetReplicas": wanted, "decisionID": "x", "nodes": ["n1"] } } },
    });
    TestCluster::eager().pool("a", merged(named, status))
}

#[test]
fn a_node_that_is_named_and_not_cordoned_yet_has_its_place_in_the_budget() {
    let marked = json!({ "metadata": { "annotations": {
        "tandem.dev/drain-started": "2026-01-01T11:59:59Z", "tandem.dev/disruption-reason": "ScaleDown" } } });
    let counted = json!({ "status": { "disruption": { "scaleDown": 1 } } });
    for (what, budget, first, status, desired) in [
        ("it takes the only place", 1, none(), none(), 3),
        ("one more place is left", 2, none(), none(), 2),
        ("it is cordoned, and the status does not count it yet", 2, marked.clone(), none(), 2),
        ("it is cordoned and counted", 2, marked, counted.clone(), 2),
        ("it is counted, and was seen before it was cordoned", 2, none(), counted, 2),
    ] {
        let cluster = named(3, budget, status).node("a", "n1", first);
        let plan = ["n2", "n3", "n4"].iter().fold(cluster, |all, node| all.node("a", node, none())).plan();
        assert_eq!(plan.desired("a"), desired, "{what}");
        assert_eq!(plan.verdict("n1"), "CurrentlyBeingDeleted", "{what}");
    }
}

#[test]
fn nodes_that_leave_and_are_in_no_budget_take_no_place_in_one() {
    let deleted = json!({ "metadata": { "deletionTimestamp": "2026-01-01T11:59:59Z" } });
    let never_ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } });
    let out_of_date = json!({ "metadata": { "annotations": {
        "tandem.dev/drain-started": "2026-01-01T11:59:59Z", "tandem.dev/disruption-reason": "Rollout" } } });
    for (what, first, desired) in [
        ("another client deleted it", deleted, 2),
        ("it has never been Ready", never_ready, 2),
        ("it leaves for a reason that the budget is for", out_of_date, 3),
    ] {
        let cluster = named(3, 1, none()).node("a", "n1", first);
        let plan = ["n2", "n3", "n4"].iter().fold(cluster, |all, node| all.node("a", node, none())).plan();
        assert_eq!(plan.desired("a"), desired, "{what}");
    }
}

#[test]
fn a_pool_that_rolls_grows_from_what_was_asked_for() {
    let rolling = |state: &str| json!({ "spec": { "maxReplicas": 9 }, "status": { "replacement": { "state": state } } });
    for (state, desired) in [("Active", 2), ("Unknown", 2), ("Inactive", 3)] {
        let plan = TestCluster::eager()
            .pool("a", merged(replicas(1), rolling(state)))
            .node("a", "n1", none())
            .node("a", "n2", none())
            .running("x", "n1", "3500m", owned())
            .running("y", "n2", "3500m", owned())
            .pending("z", 1, "3500m", &none())
            .plan();
        assert_eq!(plan.desired("a"), desired, "{state}");
    }
}

#[test]
fn nothing_goes_until_the_operator_has_seen_the_template() {
    let seen = |generation: i64| {
        let replacement = json!({ "state": "Inactive", "observedGeneration": generation });
        json!({ "metadata": { "generation": 2 }, "status": { "replacement": replacement } })
    };
    for (generation, verdict_of) in [(1, "RolloutInProgress"), (2, "Unneeded")] {
        let plan = TestCluster::eager()
            .pool("a", merged(replicas(1), seen(generation)))
            .node("a", "n1", none())
            .plan();
        assert_eq!(plan.verdict("n1"), verdict_of);
    }
}

#[test]
fn nothing_goes_while_nodes_are_replaced() {
    let rolling = |state: &str| json!({ "status": { "replacement": { "state": state } } });
    for (state, desired, verdict_of) in [("Active", 1, "RolloutInProgress"), ("Inactive", 0, "Unneeded")] {
        let plan = TestCluster::eager()
            .pool("a", merged(replicas(1), rolling(state)))
            .node("a", "n1", none())
            .plan();
        assert_eq!((plan.desired("a"), plan.verdict("n1")), (desired, verdict_of));
        assert!(verdict(&plan, "n1").reason.removable());
    }
}

#[test]
fn nodes_go_while_a_rollout_waits_whatever_it_has_made() {
    let waits = |state: &str, may_go: Option<i32>| {
        let mut rollout = json!({ "templateHash": "h", "outdatedNodes": 1, "availableNodes": 0, "progressTime": "2026-01-01T11:00:00Z" });
        rollout.as_object_mut().unwrap().extend(may_go.map(|count| ("mayGoNodes".to_owned(), count.into())));
        json!({ "status": { "rollout": rollout, "replacement": { "state": state } } })
    };
    let plan = |pool: Value, nodes: i32| {
        let cluster = TestCluster::eager().pool("a", merged(replicas(1), pool));
        let cluster =
            (1..=nodes).fold(cluster, |cluster, number| cluster.node("a", &format!("n{number}"), none()));
        cluster.plan().desired("a")
    };
    for (state, may_go, desired) in [
        ("Active", None, 1),
        ("Active", Some(1), 1),
        ("Active", Some(0), 0),
        ("Inactive", Some(0), 0),
        ("Unknown", Some(0), 1),
    ] {
        assert_eq!(plan(waits(state, may_go), 1), desired, "{state} {may_go:?}");
    }
    // One more than asked for: it is about to go, unless a rollout has made it that waits.
    assert_eq!((plan(waits("Inactive", None), 2), plan(waits("Inactive", Some(0)), 2)), (1, 0));
    assert_eq!(plan(waits("Inactive", Some(0)), 3), 1, "it makes no more than one");
}

#[test]
fn a_pod_on_its_way_out_needs_no_place_unless_its_successor_waits_for_it() {
    let going = |class: &str| {
        json!({ "metadata": { "deletionTimestamp": "2026-01-01T12:00:00Z", "ownerReferences": [
        { "apiVersion": "apps/v1", "kind": class, "name": "o", "uid": "u", "controller": true }] } })
    };
    for (class, expected) in [("ReplicaSet", "Unneeded"), ("StatefulSet", "NoPlaceToMovePods")] {
        let plan = nodes(TestCluster::eager(), 1).running("x", "n1", "1", going(class)).plan();
        assert_eq!(plan.verdict("n1"), expected, "{class}");
    }
}

#[test]
fn a_node_whose_pod_has_a_constraint_that_is_not_planned_is_not_removed() {
    let claims = || json!({ "resourceClaims": [{ "name": "r" }] });
    let group = json!({ "schedulingGroup": { "podGroupName": "g" } });
    for (spec, expected, victim) in [
        (json!({}), "Unneeded", "n1"),
        (json!({ "resourceClaims": [] }), "Unneeded", "n1"),
        (claims(), "BlockedByPod", "n2"),
        (group, "BlockedByPod", "n2"),
    ] {
        let plan = nodes(TestCluster::eager(), 2)
            .running("x", "n1", "1", with(json!({ "spec": spec })))
            .running("y", "n2", "1500m", owned())
            .plan();
        assert_eq!(plan.verdict("n1"), expected, "{spec}");
        assert_eq!(plan.pool("a").victims, [victim], "what is planned moves to its node: {spec}");
    }
    let plan =
        nodes(TestCluster::eager(), 2).running("x", "n1", "1", with(json!({ "spec": claims() }))).plan();
    assert_eq!(
        verdict(&plan, "n1").message,
        "pod apps/x has resource claims, which this version does not plan with: whether another node could take it is not known (NotPlanned)"
    );
    // These need no other place.
    let daemon = json!({ "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": true }] });
    for metadata in [daemon, json!({ "annotations": { "kubernetes.io/config.mirror": "x" } })] {
        let agent = json!({ "metadata": metadata, "spec": claims() });
        let plan = nodes(TestCluster::eager(), 1).running("d", "n1", "1", agent).plan();
        assert_eq!(plan.verdict("n1"), "Unneeded", "{metadata}");
    }
}

#[test]
fn a_node_is_kept_for_a_pod_whose_volume_is_being_made_there() {
    let uses = json!({ "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "c" } }] });
    let condition = |reason: &str| json!([{ "type": "PodScheduled", "status": "False", "reason": reason }]);
    let gated = merged(uses.clone(), json!({ "schedulingGates": [{ "name": "g" }] }));
    let (chosen, bound) =
        (json!({}), json!({ "spec": { "volumeName": "pv" }, "status": { "phase": "Bound" } }));
    let kept = "NeededByPendingPods";
    for (what, claim, spec, conditions, expected) in [
        ("in its binding cycle", &chosen, &uses, json!([]), kept),
        ("that took too long", &chosen, &uses, condition("SchedulerError"), kept),
        ("gated", &chosen, &gated, condition("SchedulingGated"), "Unneeded"),
        ("the volume is there", &bound, &uses, json!([]), "Unneeded"),
    ] {
        let base = json!({ "metadata": { "name": "c", "namespace": "apps",
                "annotations": { "volume.kubernetes.io/selected-node": "n2" } },
            "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "disk" }, "status": { "phase": "Pending" } });
        let mut cluster = nodes(TestCluster::eager(), 2).running("f", "n1", "3", owned());
        let claim = serde_json::from_value(merged(base, claim.clone())).unwrap();
        cluster.observed.claims.push(Arc::new(claim));
        let pod = with(json!({ "spec": spec, "status": { "conditions": conditions } }));
        assert_eq!(cluster.pending("x", 1, "1", &pod).plan().verdict("n2"), expected, "{what}");
    }
}

#[test]
fn what_cannot_be_read_keeps_a_node() {
    let plan = nodes(TestCluster::eager(), 2).running("x", "n1", "nonsense", owned()).plan();
    assert_eq!(plan.verdict("n1"), "BlockedByPod");
    let message = "pod apps/x has requests or selectors that cannot be read (UnexpectedError)";
    assert_eq!(verdict(&plan, "n1").message, message);
    let apart = |operator: &str| {
        let selector =
            json!({ "matchExpressions": [{ "key": "app", "operator": operator, "values": ["b"] }] });
        let terms = json!([{ "topologyKey": "kubernetes.io/hostname", "labelSelector": selector }]);
        with(json!({ "spec": { "affinity": { "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": terms } } } }))
    };
    for (operator, expected) in [("In", "Unneeded"), ("Like", "BlockedByPod")] {
        let cluster = nodes(TestCluster::eager(), 2).running("y", "n2", "2", owned());
        let plan = cluster.running("x", "n1", "1", apart(operator)).plan();
        assert_eq!(plan.verdict("n1"), expected, "{operator}");
        assert!(expected == "Unneeded" || verdict(&plan, "n1").message == message, "{operator}");
    }
    let odd = json!({ "status": { "allocatable": { "cpu": "nonsense" } } });
    let plan = nodes(TestCluster::eager(), 1).node("a", "n2", odd).running("x", "n2", "1", owned()).plan();
    assert_eq!(plan.verdict("n2"), "UnexpectedError");
}

/// Cluster Autoscaler's `BenchmarkRunOnceScaleDown`, smaller: pods of a hundredth of a node each, forty on every node;
/// exactly six nodes of ten can be removed.
#[test]
fn six_of_ten_nodes_go_when_all_are_two_fifths_full() {
    for count in [10, 100, 500] {
        let mut cluster = TestCluster::eager().pool(
            "a",
            json!({ "spec": { "replicas": count, "maxReplicas": 10_000, "template": { "spec": { "capacity": { "pods": "110" } } } } }),
        );
        for node in 0..count {
            let name = format!("n{node:04}");
            let allocatable = json!({ "cpu": "10", "memory": "10000", "pods": "110" });
            cluster = cluster.node("a", &name, json!({ "status": { "allocatable": allocatable } }));
            for pod in 0..40 {
                let asks = json!({ "cpu": "100m", "memory": "100" });
                let change = json!({ "metadata": { "annotations": { "cluster-autoscaler.kubernetes.io/safe-to-evict": "true" } },
                    "spec": { "containers": [{ "name": "c", "resources": { "requests": asks } }] } });
                cluster = cluster.running(&format!("p-{node}-{pod}"), &name, "0", change);
            }
        }
        let plan = cluster.plan();
        assert_eq!(plan.pool("a").victims.len(), usize::try_from(count * 6 / 10).unwrap());
    }
}

#[test]
fn as_many_empty_nodes_stay_as_pods_are_pending_that_the_pool_could_take() {
    let anti_affinity = json!({ "metadata": { "labels": { "app": "p" } }, "spec": { "affinity": { "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [{ "topologyKey": "zone", "labelSelector": { "matchLabels": { "app": "p" } } }] } } } });
    let elsewhere = json!({ "spec": { "nodeSelector": { "none": "has" } } });
    let since = |time: &str| {
        let condition = json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": time });
        json!({ "status": { "conditions": [condition] } })
    };
    for (what, count, pod, remaining) in [
        ("they share a node in the plan, and may not in the cluster", 3, json!({}), 3),
        ("none", 0, json!({}), 0),
        ("more than there are nodes", 9, json!({}), 5),
        ("of no use to them", 3, elsewhere, 0),
        ("kept out by the first of them for as long as it is there", 3, anti_affinity, 1),
        ("not bound since shortly", 3, since("2026-01-01T11:00:01Z"), 3),
        ("not bound for so long that something else is in the way", 3, since("2026-01-01T11:00:00Z"), 1),
    ] {
        let plan = five_empty(json!({})).pending("p", count, "100m", &pod).plan();
        assert_eq!(plan.desired("a"), remaining, "{what}");
    }
    let plan = five_empty(json!({})).pending("p", 3, "100m", &since("2026-01-01T11:30:00Z")).plan();
    assert_eq!(
        plan.next,
        Some("2026-01-01T12:30:00Z".parse().unwrap()),
        "it is looked at again when they count no more"
    );
}

/// A pool of five idle nodes, each with this change.
fn five_empty(change: Value) -> TestCluster {
    let zone = json!({ "metadata": { "labels": { "zone": "a" } } });
    let pool = json!({ "spec": { "replicas": 5, "maxReplicas": 5, "template": zone } });
    let node = merged(zone, change);
    (1..=5).fold(TestCluster::eager().pool("a", pool), |cluster, n| {
        cluster.node("a", &format!("n{n}"), node.clone())
    })
}

#[test]
fn a_node_that_no_pending_pod_fits_makes_room_for_one_that_it_does() {
    for (what, change) in [
        (
            "its device is broken, or it is from before the template was changed",
            json!({ "status": { "allocatable": { "cpu": "1" } } }),
        ),
        ("it was tainted", json!({ "spec": { "taints": [{ "key": "k", "effect": "NoSchedule" }] } })),
        ("it is cordoned", json!({ "spec": { "unschedulable": true } })),
    ] {
        let plan = five_empty(change).pending("p", 5, "3", &json!({})).plan();
        assert_eq!(plan.desired("a"), 0, "{what}");
    }
}

#[test]
fn nodes_are_not_drained_while_pending_pods_would_have_their_pool_grow_again() {
    let cluster = |pending: usize| {
        nodes(TestCluster::eager(), 2)
            .running("x", "n1", "500m", owned())
            .running("y", "n2", "1500m", owned())
            .pending("p", pending, "2", &json!({}))
            .plan()
    };
    assert_eq!(cluster(0).desired("a"), 1);
    let plan = cluster(1);
    assert_eq!((plan.desired("a"), plan.verdict("n1")), (2, "NeededByPendingPods"));
}
