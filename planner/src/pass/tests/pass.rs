//! Tests of the planner as a whole: what DESIGN §3.1 specifies, case by case.

use serde_json::{Value, json};

use crate::fixtures::{Read, TestCluster};

const NONE: Value = Value::Null;

fn none() -> Value {
    json!({})
}

#[test]
fn from_zero_nodes_a_pool_grows_by_exactly_what_pods_need() {
    let plan = TestCluster::eager().pool("a", none()).pending("p", 9, "1", &none()).plan();
    assert_eq!(plan.desired("a"), 3);
    assert_eq!(plan.pool("a").reason.as_str(), "ScaleUp");
    assert_eq!(plan.pool("a").message, "3 nodes for 9 pending pods");
    assert_eq!(plan.results(), vec!["grows ns/a"; 9]);
}

#[test]
fn existing_nodes_are_used_before_upcoming_ones_and_those_before_new_ones() {
    let plan = TestCluster::eager()
        .pool("a", json!({ "spec": { "replicas": 2 } }))
        .node("a", "n1", none())
        .running("r", "n1", "1", none())
        .pending("p", 8, "1", &none())
        .plan();
    assert_eq!(plan.desired("a"), 3);
    let mut expected = vec!["fits n1"; 3];
    expected.extend(["fits upcoming ns/a"; 4]);
    expected.push("grows ns/a");
    assert_eq!(plan.results(), expected);
}

#[test]
fn what_one_pool_cannot_take_goes_to_the_next_in_the_same_pass() {
    let plan = TestCluster::eager()
        .pool("a", json!({ "spec": { "maxReplicas": 1 } }))
        .pool("b", json!({ "spec": { "maxReplicas": 1 } }))
        .pending("p", 9, "1", &none())
        .plan();
    assert_eq!((plan.desired("a"), plan.desired("b")), (1, 1));
    assert!(plan.pool("a").limited && plan.pool("b").limited);
    assert_eq!(plan.results()[8], "no MaxReplicasReached,MaxReplicasReached");
}

#[test]
fn a_pool_that_is_full_already_passes_pods_on_and_says_that_its_bound_cut_them() {
    // A label tells the pools apart: equal ones would be balanced.
    let cluster = |max_of_a: i32, max_of_b: i32| {
        TestCluster::eager()
            .pool("a", json!({ "spec": { "replicas": 1, "maxReplicas": max_of_a } }))
            .node("a", "n1", none())
            .running("r", "n1", "4", none())
            .pool("b", json!({ "spec": { "maxReplicas": max_of_b, "template": { "metadata": { "labels": { "l": "b" } } } } }))
            .pending("p", 1, "1", &none())
            .plan()
    };
    let plan = cluster(1, 5);
    assert_eq!((plan.desired("a"), plan.desired("b")), (1, 1));
    assert!(plan.pool("a").limited && !plan.pool("b").limited);
    let plan = cluster(5, 0);
    assert_eq!((plan.desired("a"), plan.desired("b")), (2, 0));
    assert!(
        !plan.pool("a").limited && !plan.pool("b").limited,
        "ties go to the first name, so b was never asked"
    );
}

#[test]
fn the_pool_with_the_least_waste_grows() {
    let large =
        json!({ "spec": { "template": { "spec": { "capacity": { "cpu": "16", "memory": "64Gi" } } } } });
    let cluster = TestCluster::eager().pool("a-large", large).pool("b-small", none());
    assert_eq!(cluster.pending("p", 3, "1", &none()).plan().desired("b-small"), 1);
}

#[test]
fn pods_too_large_for_one_pool_open_a_larger_one_and_small_ones_fill_it() {
    let large =
        json!({ "spec": { "template": { "spec": { "capacity": { "cpu": "16", "memory": "64Gi" } } } } });
    let plan = TestCluster::eager()
        .pool("large", large)
        .pool("small", none())
        .pending("big", 1, "12", &json!({ "spec": { "overhead": { "memory": "47Gi" } } }))
        .pending("small", 4, "1", &none())
        .plan();
    assert_eq!((plan.desired("large"), plan.desired("small")), (1, 0));
}

#[test]
fn priority_decides_who_gets_the_last_place() {
    let plan = TestCluster::eager()
        .pool("a", json!({ "spec": { "maxReplicas": 1 } }))
        .pending("low", 1, "4", &none())
        .pending("high", 1, "1", &json!({ "spec": { "priority": 100 } }))
        .plan();
    assert_eq!(plan.results(), ["grows ns/a", "no MaxReplicasReached"]);
}

#[test]
fn every_pod_that_finds_no_place_gets_one_reason_from_each_selected_pool() {
    let tainted = json!({ "spec": { "template": { "spec": { "taints": [{ "key": "gpu", "value": "yes", "effect": "NoSchedule" }] } } } });
    let zoned = json!({ "spec": { "template": { "metadata": { "labels": { "zone": "a" } } } } });
    let base = || {
        TestCluster::eager()
            .pool("plain", none())
            .pool("tainted", tainted.clone())
            .pool("zoned", zoned.clone())
            .pool("paused", json!({ "spec": { "paused": true } }))
            .pool("going", json!({ "metadata": { "deletionTimestamp": "2026-01-01T11:59:00Z" } }))
            .pool("broken", json!({ "spec": { "template": { "spec": { "capacity": { "cpu": "lots" } } } } }))
    };
    for (what, cpu, change, reasons) in [
        (
            "cpu",
            "5",
            none(),
            "InvalidTemplate,PoolDeleting,PoolPaused,InsufficientCpu,UntoleratedTaint,InsufficientCpu",
        ),
        (
            "selector",
            "1",
            json!({ "spec": { "nodeSelector": { "zone": "b" } } }),
            "InvalidTemplate,PoolDeleting,PoolPaused,NodeSelectorMismatch,UntoleratedTaint,NodeSelectorMismatch",
        ),
        (
            "extended resource",
            "1",
            json!({ "spec": { "containers": [{ "name": "c", "resources": { "requests": { "example.com/gpu": "1" } } }] } }),
            "InvalidTemplate,PoolDeleting,PoolPaused,InsufficientResource,UntoleratedTaint,InsufficientResource",
        ),
        (
            "nonsense",
            "many",
            none(),
            "InvalidRequests,InvalidRequests,InvalidRequests,InvalidRequests,InvalidRequests,InvalidRequests",
        ),
    ] {
        let plan = base().pending("p", 1, cpu, &change).plan();
        assert_eq!(plan.results(), [format!("no {reasons}")], "{what}");
        assert!(plan.pools.iter().all(|p| p.desired == 0 && !p.limited), "{what}");
    }
}

#[test]
fn a_node_on_its_way_up_counts_as_its_template_says() {
    let template = json!({ "spec": { "replicas": 1, "provisioningTimeoutSeconds": 600, "template": { "spec": {
        "startupTaints": [{ "key": "cni", "effect": "NoSchedule" }] } } } });
    let young = "2026-01-01T11:55:00Z";
    let old = "2026-01-01T11:45:00Z";
    let not_ready = |created: &str| {
        json!({ "metadata": { "creationTimestamp": created },
            "spec": { "taints": [{ "key": "node.kubernetes.io/not-ready", "effect": "NoSchedule" }] },
            "status": { "allocatable": null, "conditions": [{ "type": "Ready", "status": "False" }] } })
    };
    let startup_taint = |created: &str| json!({ "metadata": { "creationTimestamp": created }, "spec": { "taints": [{ "key": "cni", "effect": "NoSchedule" }] } });
    for (what, node, result, desired) in [
        ("young and not ready", not_ready(young), "fits n1", 1),
        ("old and not ready", not_ready(old), "grows ns/a", 2),
        ("young with a startup taint", startup_taint(young), "fits n1", 1),
        ("old with a startup taint", startup_taint(old), "grows ns/a", 2),
    ] {
        let plan = TestCluster::eager()
            .pool("a", template.clone())
            .node("a", "n1", node)
            .pending("p", 1, "1", &none())
            .plan();
        assert_eq!((plan.results()[0].as_str(), plan.desired("a")), (result, desired), "{what}");
    }
}

#[test]
fn nodes_that_are_cordoned_drained_or_deleted_take_no_pods() {
    for (what, change) in [
        ("cordoned", json!({ "spec": { "unschedulable": true } })),
        (
            "drained",
            json!({ "metadata": { "annotations": { "tandem.dev/drain-start-time": "2026-01-01T11:59:00Z" } } }),
        ),
        ("deleted", json!({ "metadata": { "deletionTimestamp": "2026-01-01T11:59:00Z" } })),
        ("tainted", json!({ "spec": { "taints": [{ "key": "k", "effect": "NoExecute" }] } })),
    ] {
        let plan = TestCluster::eager()
            .pool("a", json!({ "spec": { "replicas": 1, "maxReplicas": 1 } }))
            .pool("b", none())
            .node("a", "n1", change)
            .running("r", "n1", "1", none())
            .pending("p", 1, "1", &none())
            .plan();
        // If the node is being removed, another one replaces it in the count and is upcoming capacity.
        let expected =
            if matches!(what, "drained" | "deleted") { "fits upcoming ns/a" } else { "grows ns/b" };
        assert_eq!(plan.results(), [expected], "{what}");
    }
}

#[test]
fn a_pod_that_tolerates_the_cordon_fits_a_cordoned_node() {
    let tolerant = json!({ "spec": { "tolerations": [{ "key": "node.kubernetes.io/unschedulable", "operator": "Exists" }] } });
    let plan = TestCluster::eager()
        .pool("a", json!({ "spec": { "replicas": 1 } }))
        .node("a", "n1", json!({ "spec": { "unschedulable": true } }))
        .pending("p", 1, "1", &tolerant)
        .plan();
    assert_eq!(plan.results(), ["fits n1"]);
}

#[test]
fn victims_of_the_decision_in_force_are_no_capacity_and_do_not_go_twice() {
    let deciding = |target: i32| {
        json!({ "spec": { "replicas": 1 }, "status": { "autoscaling": { "scaleDown": {
            "targetReplicas": target, "decisionID": "x", "nodes": ["n1"] } } } })
    };
    let cluster = |target| {
        TestCluster::eager()
            .pool("a", deciding(target))
            .node("a", "n1", none())
            .node("a", "n2", none())
            .running("r", "n2", "4", none())
    };
    let plan = cluster(1).pending("p", 1, "1", &none()).plan();
    assert_eq!((plan.verdict("n1"), plan.desired("a")), ("CurrentlyBeingDeleted", 2));
    let plan = cluster(5).pending("p", 1, "1", &none()).plan();
    assert_eq!(plan.results(), ["fits n1"], "a plan for another count is not in force");
}

#[test]
fn empty_nodes_go_and_daemon_mirror_and_finished_pods_do_not_keep_them() {
    let owned = |kind: &str| {
        json!({ "metadata": { "ownerReferences": [
        { "apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "u", "controller": true }] } })
    };
    let plan = TestCluster::eager()
        .pool("a", json!({ "spec": { "replicas": 5 } }))
        .node("a", "n1", none())
        .node("a", "n2", none())
        .node("a", "n3", none())
        .node("a", "n4", none())
        .node("a", "n5", none())
        .running("d", "n1", "1", owned("DaemonSet"))
        .running("m", "n2", "1", json!({ "metadata": { "annotations": { "kubernetes.io/config.mirror": "x" } } }))
        .running("f", "n3", "1", json!({ "status": { "phase": "Succeeded" } }))
        .running("w", "n4", "3", owned("ReplicaSet"))
        .running("n", "n5", "1", json!({ "spec": { "nodeName": null }, "status": { "phase": "Pending", "nominatedNodeName": "n5" } }))
        .plan();
    assert_eq!(plan.pool("a").victims, ["n1", "n2", "n3"]);
    assert_eq!(plan.desired("a"), 2);
    assert_eq!((plan.verdict("n4"), plan.verdict("n5")), ("NotUnderutilized", "NeededByPendingPods"));
}

#[test]
fn nodes_that_pending_pods_are_planned_onto_stay() {
    let plan = TestCluster::eager()
        .pool("a", json!({ "spec": { "replicas": 2 } }))
        .node("a", "n1", none())
        .node("a", "n2", none())
        .pending("p", 1, "1", &none())
        .plan();
    assert_eq!(plan.pool("a").victims, ["n2"]);
    assert_eq!(plan.verdict("n1"), "NeededByPendingPods");
}

#[test]
fn a_node_goes_when_it_has_been_unneeded_for_long_enough() {
    let since = |time: Value| json!({ "spec": { "replicas": 1 }, "status": { "autoscaling": { "unneededNodes": [{ "name": "n1", "sinceTime": time }] } } });
    let cluster = |pool: Value| {
        TestCluster::new()
            .autoscaler("x", json!({ "scaleDown": { "unneededSeconds": 600, "delayAfterAddSeconds": 0 } }))
            .pool("a", pool)
            .node("a", "n1", none())
            .plan()
    };
    let plan = cluster(since(json!("2026-01-01T11:50:00Z")));
    assert_eq!((plan.desired("a"), plan.verdict("n1")), (0, "Unneeded"));
    let plan = cluster(since(json!("2026-01-01T11:50:01Z")));
    assert_eq!((plan.desired("a"), plan.verdict("n1")), (1, "NotUnneededLongEnough"));
    assert_eq!(plan.next, Some("2026-01-01T12:00:01Z".parse().unwrap()));
    let plan = cluster(json!({ "spec": { "replicas": 1 } }));
    assert_eq!(plan.desired("a"), 1, "without a record a node is unneeded since now");
    assert_eq!(plan.pool("a").unneeded[0].name, "n1");
    assert_eq!(plan.next, Some("2026-01-01T12:10:00Z".parse().unwrap()));
}

#[test]
fn nothing_goes_for_a_while_after_the_pool_grew() {
    let cluster = |last: Value, created: &str| {
        TestCluster::new()
            .autoscaler("x", json!({ "scaleDown": { "unneededSeconds": 0, "delayAfterAddSeconds": 600 } }))
            .pool("a", json!({ "spec": { "replicas": 1 }, "status": { "autoscaling": { "lastScaleUpTime": last } } }))
            .node("a", "n1", json!({ "metadata": { "creationTimestamp": created } }))
            .plan()
            .desired("a")
    };
    assert_eq!(cluster(json!("2026-01-01T11:50:01Z"), "2026-01-01T10:00:00Z"), 1);
    assert_eq!(cluster(json!("2026-01-01T11:50:00Z"), "2026-01-01T10:00:00Z"), 0);
    assert_eq!(cluster(NONE, "2026-01-01T11:55:00Z"), 1, "the youngest node counts");
    assert_eq!(
        cluster(json!("2026-01-01T10:00:00Z"), "2026-01-01T11:55:00Z"),
        1,
        "also when an earlier growth is recorded"
    );
}

#[test]
fn bounds_limits_and_annotations_spare_nodes() {
    let three = |change: Value, max_nodes: Value| {
        TestCluster::new()
            .autoscaler("x", json!({ "scaleDown": { "unneededSeconds": 0, "delayAfterAddSeconds": 0, "maxNodes": max_nodes } }))
            .pool("a", crate::fixtures::merged(json!({ "spec": { "replicas": 3 } }), change))
            .node("a", "n1", none())
            .node("a", "n2", none())
            .node("a", "n3", json!({ "metadata": { "annotations": { "karpenter.sh/do-not-disrupt": "true" } } }))
            .plan()
    };
    let plan = three(none(), NONE);
    assert_eq!(plan.pool("a").victims, ["n1", "n2"]);
    assert_eq!(plan.verdict("n3"), "ScaleDownDisabledAnnotation");
    let plan = three(json!({ "spec": { "minReplicas": 2 } }), NONE);
    assert_eq!(
        (plan.pool("a").victims.as_slice(), plan.verdict("n2")),
        (&["n1".to_owned()][..], "NodeGroupMinSizeReached")
    );
    assert!(plan.nodes[1].reason.removable(), "a bound is not the node's own merit");
    let plan = three(none(), json!(1));
    assert_eq!((plan.pool("a").victims.len(), plan.verdict("n2")), (1, "NodeGroupMaxDeletionCountReached"));
}

#[test]
fn max_nodes_counts_over_all_pools_of_an_autoscaler_and_the_longest_unneeded_go_first() {
    let pool = |node: &str, since: &str| json!({ "spec": { "replicas": 1 }, "status": { "autoscaling": { "unneededNodes": [{ "name": node, "sinceTime": since }] } } });
    let plan = TestCluster::new()
        .autoscaler(
            "x",
            json!({ "scaleDown": { "unneededSeconds": 0, "delayAfterAddSeconds": 0, "maxNodes": 1 } }),
        )
        .pool("a", pool("n1", "2026-01-01T11:30:00Z"))
        .pool("b", pool("n2", "2026-01-01T11:10:00Z"))
        .node("a", "n1", none())
        .node("b", "n2", none())
        .plan();
    assert_eq!((plan.desired("a"), plan.desired("b")), (1, 0));
}

#[test]
fn max_nodes_counts_nodes_that_are_still_on_their_way_out() {
    let going = json!({ "metadata": { "deletionTimestamp": "2026-01-01T11:59:00Z" } });
    let cluster = |max_nodes: i32, leaving: Option<Value>| {
        let rules = json!({ "scaleDown": { "unneededSeconds": 0, "delayAfterAddSeconds": 0, "maxNodes": max_nodes } });
        let pools = |replicas: i32| json!({ "spec": { "replicas": replicas } });
        let cluster = TestCluster::new().autoscaler("x", rules).pool("a", pools(0)).pool("b", pools(2));
        let cluster = cluster.node("b", "n2", none()).node("b", "n3", none());
        match leaving {
            Some(leaving) => cluster.node("a", "n1", leaving).plan(),
            None => cluster.plan(),
        }
    };
    let plan = cluster(1, Some(going.clone()));
    assert_eq!((plan.desired("b"), plan.verdict("n2")), (2, "NodeGroupMaxDeletionCountReached"));
    assert_eq!(cluster(2, Some(going)).desired("b"), 1);
    assert_eq!(cluster(1, None).desired("b"), 1, "nothing else goes");
}

#[test]
fn replicas_outside_the_bounds_are_corrected_at_once() {
    let slow = json!({ "scaleDown": { "unneededSeconds": 3600, "delayAfterAddSeconds": 3600 } });
    let plan = TestCluster::new()
        .autoscaler("x", slow.clone())
        .pool("a", json!({ "spec": { "replicas": 3, "maxReplicas": 1 } }))
        .node("a", "n1", none())
        .node("a", "n2", none())
        .node("a", "n3", none())
        .running("r", "n1", "1", none())
        .running("s", "n3", "1", none())
        .running("t", "n3", "1", none())
        .plan();
    let a = plan.pool("a");
    assert_eq!((a.desired, a.reason.as_str(), a.limited), (1, "AboveMaxReplicas", false));
    assert_eq!(a.victims, ["n1", "n2"], "the node with the most pods stays");
    // An unset number stands for what the `NodePool` operator fills in, so nothing has to be written.
    for (replicas, reason, writes) in [(json!(0), "BelowMinReplicas", true), (NONE, "ReplicasUnset", false)] {
        let plan = TestCluster::new()
            .autoscaler("x", slow.clone())
            .pool("a", json!({ "spec": { "replicas": replicas, "minReplicas": 2 } }))
            .plan();
        assert_eq!((plan.desired("a"), plan.pool("a").reason.as_str()), (2, reason));
        assert_eq!(plan.pool("a").changes_replicas(), writes);
    }
}

#[test]
fn nodes_that_a_bound_brings_are_capacity_in_the_same_pass() {
    let plan = TestCluster::eager()
        .pool("a", json!({ "spec": { "replicas": 0, "minReplicas": 1 } }))
        .pending("p", 5, "1", &none())
        .plan();
    assert_eq!(plan.desired("a"), 2);
    assert_eq!(plan.results().iter().filter(|f| *f == "fits upcoming ns/a").count(), 4);
}

#[test]
fn pools_without_an_autoscaler_keep_their_replicas_and_their_nodes_are_capacity() {
    for (what, cluster, reason) in [
        ("no autoscaler", TestCluster::new(), "NotSelected"),
        ("off", TestCluster::new().autoscaler("x", json!({ "mode": "Off" })), "AutoscalerOff"),
        (
            "two",
            TestCluster::new().autoscaler("x", none()).autoscaler("y", json!({ "mode": "Recommend" })),
            "AmbiguousSelector",
        ),
    ] {
        let plan = cluster
            .pool("a", json!({ "spec": { "replicas": 2, "maxReplicas": 5 } }))
            .node("a", "n1", none())
            .pending("p", 9, "1", &none())
            .plan();
        assert_eq!((plan.desired("a"), plan.pool("a").reason.as_str()), (2, reason), "{what}");
        assert!(!plan.pool("a").changes_replicas());
        assert_eq!(plan.verdict("n1"), "NotAutoscaled");
        let fits = plan.results().iter().filter(|f| f.starts_with("fits")).count();
        assert_eq!(fits, 8, "{what}");
    }
}

#[test]
fn paused_pools_and_those_being_deleted_are_left_alone_and_their_missing_nodes_do_not_count() {
    for (change, reason) in [
        (json!({ "spec": { "replicas": 2, "paused": true } }), "Paused"),
        (
            json!({ "spec": { "replicas": 2 }, "metadata": { "deletionTimestamp": "2026-01-01T11:59:00Z" } }),
            "Deleting",
        ),
    ] {
        let plan = TestCluster::eager()
            .pool("a", change)
            .node("a", "n1", none())
            .pending("p", 9, "1", &none())
            .plan();
        assert_eq!((plan.desired("a"), plan.pool("a").reason.as_str()), (2, reason));
        assert_eq!(plan.results().iter().filter(|f| f.starts_with("fits")).count(), 4);
        assert!(!plan.pool("a").changes_replicas());
    }
}

#[test]
fn recommendations_are_planned_only_where_they_are_asked_for() {
    let mut cluster = TestCluster::new()
        .autoscaler("x", json!({ "mode": "Recommend" }))
        .pool("a", none())
        .pending("p", 1, "1", &none());
    assert_eq!(cluster.plan().desired("a"), 1);
    cluster.observed.options.recommendations = crate::Recommendations::Exclude;
    let plan = cluster.plan();
    assert_eq!((plan.desired("a"), plan.pool("a").reason.as_str()), (0, "RecommendOnly"));
}

#[test]
fn a_decision_names_no_more_victims_than_a_status_can_hold() {
    let mut cluster = TestCluster::eager().pool("a", json!({ "spec": { "replicas": 5 } }));
    for n in 0..5 {
        cluster = cluster.node("a", &format!("n{n}"), none());
    }
    let decision = cluster.plan().pool("a").clone();
    assert_eq!((decision.desired, decision.victims.len()), (0, 5));
    let limited = decision.clone().limited_to(2);
    assert_eq!((limited.desired, limited.victims.len()), (3, 2));
    assert_ne!(limited.id, decision.id);
}

#[test]
fn in_a_cluster_pods_are_never_planned_onto_nodes_that_are_only_recommended() {
    let labelled = |mode: &str| json!({ "metadata": { "labels": { "mode": mode } } });
    let selecting =
        |mode: &str| json!({ "mode": mode, "nodePoolSelector": { "matchLabels": { "mode": mode } } });
    let cluster = TestCluster::new()
        .autoscaler("x", selecting("Recommend"))
        .autoscaler("y", selecting("Auto"))
        .pool("a-recommended", labelled("Recommend"))
        .pool("b-real", labelled("Auto"))
        .pending("p", 1, "1", &none());
    let plan = crate::plan_for_cluster(&cluster.observed);
    assert_eq!(plan.results(), ["grows ns/b-real"]);
    assert_eq!((plan.desired("a-recommended"), plan.desired("b-real")), (1, 1));
    assert!(!plan.pool("a-recommended").acts && plan.pool("b-real").acts);
}

#[test]
fn a_node_does_not_inherit_what_was_remembered_of_another_of_its_name() {
    let plan = TestCluster::new()
        .autoscaler("x", json!({ "scaleDown": { "unneededSeconds": 600, "delayAfterAddSeconds": 0 } }))
        .pool(
            "a",
            json!({ "spec": { "replicas": 1 }, "status": { "autoscaling": {
            "unneededNodes": [{ "name": "n1", "sinceTime": "2026-01-01T10:00:00Z" }] } } }),
        )
        .node("a", "n1", json!({ "metadata": { "creationTimestamp": "2026-01-01T11:55:00Z" } }))
        .plan();
    assert_eq!((plan.desired("a"), plan.verdict("n1")), (1, "NotUnneededLongEnough"));
}

#[test]
fn a_bound_that_cut_nothing_does_not_limit_a_pool() {
    let small =
        json!({ "spec": { "template": { "spec": { "capacity": { "cpu": "2", "memory": "16Gi" } } } } });
    let cluster = |max_of_b: i32| {
        TestCluster::eager()
            .pool("a", small.clone())
            .pool("b", json!({ "spec": { "maxReplicas": max_of_b } }))
            .pending("big", 1, "3500m", &none())
            .pending("small", 1, "2", &none())
            .plan()
    };
    let plan = cluster(1);
    assert_eq!(plan.results(), ["grows ns/b", "grows ns/a"]);
    assert!(!plan.pool("a").limited && !plan.pool("b").limited, "another pool had the better offer anyway");
    let plan = cluster(0);
    assert!(plan.pool("b").limited && !plan.pool("a").limited);
}

#[test]
fn a_pool_whose_offer_was_cut_is_not_limited_when_it_would_not_have_got_the_pods_anyway() {
    let pool = |cpu: &str, max: i32| json!({ "spec": { "maxReplicas": max, "template": { "spec": { "capacity": { "cpu": cpu, "memory": "1Gi" } } } } });
    // With one node, b wastes the least and goes first; with two it would waste more than a does.
    for max_of_b in [1, 2] {
        let plan = TestCluster::eager()
            .pool("a", pool("2200m", 10))
            .pool("b", pool("4", max_of_b))
            .pending("big", 1, "3900m", &none())
            .pending("small", 1, "2", &none())
            .plan();
        assert_eq!(plan.results(), ["grows ns/b", "grows ns/a"]);
        assert!(!plan.pool("b").limited, "{max_of_b}");
    }
}

#[test]
fn pods_that_should_have_ended_long_ago_do_not_keep_a_node_and_the_moment_is_waited_for() {
    let deleted = |time: &str| json!({ "metadata": { "deletionTimestamp": time }, "spec": { "terminationGracePeriodSeconds": 60 } });
    let cluster = |time: &str| {
        TestCluster::eager()
            .pool("a", json!({ "spec": { "replicas": 1 } }))
            .node("a", "n1", none())
            .running("d", "n1", "500m", deleted("2026-01-01T11:58:40Z"))
            .running("e", "n1", "500m", deleted(time))
    };
    let plan = cluster("2026-01-01T11:58:29Z").plan();
    assert_eq!((plan.verdict("n1"), plan.desired("a")), ("BlockedByPod", 1), "one of them is still young");
    assert_eq!(plan.next, Some("2026-01-01T12:00:10.001Z".parse().unwrap()));
    let plan = cluster("2026-01-01T11:59:00Z").plan();
    assert_eq!(plan.next, Some("2026-01-01T12:00:30.001Z".parse().unwrap()), "the last of them counts");
    let plan = cluster("2026-01-01T11:59:00Z").running("r", "n1", "500m", none()).plan();
    assert_eq!(plan.next, None, "another pod keeps the node");
    let mut cluster = cluster("2026-01-01T11:59:00Z");
    cluster.observed.now = "2026-01-01T12:00:30.001Z".parse().unwrap();
    let plan = cluster.plan();
    assert_eq!((plan.verdict("n1"), plan.desired("a"), plan.next), ("Unneeded", 0, None));
}

#[test]
fn what_a_pool_is_busy_with_says_nothing_against_its_nodes() {
    let removable = |plan: &crate::ScalingPlan, node: &str| {
        plan.nodes.iter().find(|n| n.name == node).unwrap().reason.removable()
    };
    let cordoned = json!({ "spec": { "unschedulable": true } });
    let plan = TestCluster::eager()
        .pool("a", json!({ "spec": { "replicas": 1 } }))
        .node("a", "n1", cordoned.clone())
        .pending("p", 1, "1", &none())
        .plan();
    assert_eq!((plan.verdict("n1"), plan.desired("a")), ("ScaleUpInProgress", 2));
    assert!(removable(&plan, "n1"));

    let plan = TestCluster::eager()
        .pool("a", json!({ "spec": { "replicas": 1 } }))
        .node("a", "n1", none())
        .node("a", "n2", none())
        .plan();
    assert_eq!(plan.verdict("n1"), "ScaleDownInProgress");
    assert!(removable(&plan, "n1") && plan.pool("a").victims.is_empty());

    let plan = TestCluster::new()
        .autoscaler("x", json!({ "scaleDown": { "unneededSeconds": 600, "delayAfterAddSeconds": 0 } }))
        .pool("a", json!({ "spec": { "replicas": 1 } }))
        .node("a", "n1", cordoned)
        .pending("p", 1, "1", &none())
        .plan();
    assert_eq!(plan.verdict("n1"), "NotUnneededLongEnough", "its own merits come first");
    assert!(!removable(&plan, "n1"));
}

#[test]
fn a_pool_whose_count_is_not_set_keeps_the_nodes_that_are_there_and_grows_from_them() {
    let cluster = |running: &str, max: i32| {
        TestCluster::eager()
            .pool("a", json!({ "spec": { "replicas": null, "maxReplicas": max } }))
            .node("a", "n1", none())
            .node("a", "n2", none())
            .running("r1", "n1", running, none())
            .running("r2", "n2", running, none())
            .pending("p", 1, "3", &none())
            .plan()
    };
    // Both are kept, even if one would be enough: the `NodePool` operator fills in just that number.
    let plan = cluster("1", 2);
    assert_eq!((plan.desired("a"), plan.results()), (2, vec!["fits n1".to_owned()]));
    assert!(plan.pool("a").victims.is_empty() && !plan.pool("a").changes_replicas());
    assert_eq!(plan.pool("a").message, "spec.replicas is not set, which stands for 2 nodes");
    // No node has room, and the bound allows no third.
    let plan = cluster("3", 2);
    assert_eq!((plan.desired("a"), plan.results()), (2, vec!["no MaxReplicasReached".to_owned()]));
    assert!(plan.pool("a").victims.is_empty() && plan.pool("a").limited);
    assert_eq!((plan.verdict("n1"), plan.verdict("n2")), ("NotUnderutilized", "NotUnderutilized"));
    // No node has room, and a third is allowed.
    let plan = cluster("3", 3);
    assert_eq!((plan.desired("a"), plan.results()), (3, vec!["grows ns/a".to_owned()]));
    assert!(plan.pool("a").victims.is_empty() && !plan.pool("a").limited);
}

#[test]
fn a_pool_whose_provider_fails_is_not_counted_on_and_the_next_one_grows() {
    let failing = |since: &str| {
        let failure = json!({ "reason": "QuotaExceeded", "message": "quota is 1", "sinceTime": since });
        json!({ "spec": { "replicas": 2 }, "status": { "provisioning": { "failure": failure } } })
    };
    let cluster = |a: Value| {
        TestCluster::eager().pool("a", a).node("a", "n1", none()).running("r", "n1", "4", none()).pending(
            "p",
            1,
            "1",
            &none(),
        )
    };
    let alone = cluster(failing("2026-01-01T11:59:00Z")).plan();
    assert_eq!(alone.results(), ["no InBackoff"]);
    assert_eq!(alone.desired("a"), 2, "what was asked for stays asked for");
    let both = cluster(failing("2026-01-01T11:59:00Z")).pool("b", none()).plan();
    assert_eq!((both.results(), both.desired("b")), (vec!["grows ns/b".to_owned()], 1));
    let recovered = cluster(json!({ "spec": { "replicas": 2 } })).pool("b", none()).plan();
    assert_eq!((recovered.results(), recovered.desired("b")), (vec!["fits upcoming ns/a".to_owned()], 0));
}
