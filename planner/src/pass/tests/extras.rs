//! Tests of daemons and headroom, from objects to decisions.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::fixtures::{NOW, Read, TestCluster, merged};

fn none() -> Value {
    json!({})
}

/// A `DaemonSet` whose pods request a core.
fn daemon(mut cluster: TestCluster, name: &str, change: Value) -> TestCluster {
    let base = json!({ "metadata": { "name": name, "namespace": "sys" }, "spec": { "selector": {}, "template": { "spec": {
        "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1" } } }] } } } });
    cluster.observed.daemon_sets.push(Arc::new(serde_json::from_value(merged(base, change)).unwrap()));
    cluster
}

fn in_template(spec: &Value) -> Value {
    json!({ "spec": { "template": { "spec": spec } } })
}

#[test]
fn daemons_take_their_part_of_new_and_upcoming_nodes() {
    for (what, change, desired) in [
        ("everywhere", none(), 3),
        ("on other nodes", in_template(&json!({ "nodeSelector": { "disk": "ssd" } })), 2),
        ("being deleted", json!({ "metadata": { "deletionTimestamp": NOW } }), 2),
    ] {
        let cluster = TestCluster::eager().pool("a", json!({ "spec": { "replicas": 1 } })).pending(
            "p",
            8,
            "1",
            &none(),
        );
        let plan = daemon(cluster, "d", change).plan();
        assert_eq!(plan.desired("a"), desired, "{what}");
    }
}

#[test]
fn a_daemon_tolerates_what_its_controller_says_and_no_other_taint() {
    let tainted = |key: &str| json!({ "spec": { "template": { "spec": { "taints": [{ "key": key, "effect": "NoSchedule" }] } } } });
    let tolerant = json!({ "spec": { "tolerations": [{ "operator": "Exists" }] } });
    for (key, change, desired) in [
        ("node.kubernetes.io/memory-pressure", none(), 2),
        ("node.kubernetes.io/network-unavailable", none(), 1),
        ("node.kubernetes.io/network-unavailable", in_template(&json!({ "hostNetwork": true })), 2),
        ("dedicated", none(), 1),
        (
            "dedicated",
            in_template(&json!({ "tolerations": [{ "key": "dedicated", "operator": "Exists" }] })),
            2,
        ),
    ] {
        let cluster = TestCluster::eager().pool("a", tainted(key)).pending("p", 4, "1", &tolerant);
        assert_eq!(daemon(cluster, "d", change.clone()).plan().desired("a"), desired, "{key} {change}");
    }
}

#[test]
fn a_starting_node_keeps_room_only_for_daemons_that_are_not_there_yet() {
    let starting = json!({ "metadata": { "creationTimestamp": "2026-01-01T11:59:00Z" },
        "status": { "conditions": [{ "type": "Ready", "status": "False" }] } });
    let of = |name: &str| {
        json!({ "metadata": { "namespace": "sys", "ownerReferences": [
            { "apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "uid": "u", "controller": true }] } })
    };
    for (what, node, owner, fits) in [
        ("not there", starting.clone(), None, 3),
        ("there", starting.clone(), Some("d"), 3),
        ("another is there", starting, Some("e"), 2),
        ("the node is up", none(), None, 4),
    ] {
        let mut cluster = TestCluster::eager()
            .pool("a", json!({ "spec": { "replicas": 1, "maxReplicas": 1 } }))
            .node("a", "n1", node);
        if let Some(owner) = owner {
            cluster = cluster.running("d-1", "n1", "1", of(owner));
        }
        let plan = daemon(cluster.pending("p", 4, "1", &none()), "d", none()).plan();
        assert_eq!(plan.results().iter().filter(|f| *f == "fits n1").count(), fits, "{what}");
    }
}

/// A `DaemonSet` whose pods have these requests and this priority.
fn requesting(requests: &Value, priority: i32) -> Value {
    in_template(&json!({ "priority": priority,
        "containers": [{ "name": "c", "resources": { "requests": requests } }] }))
}

#[test]
fn a_daemon_takes_no_room_where_it_does_not_fit() {
    let core = |change: Value| requesting(&merged(json!({ "cpu": "1" }), change), 0);
    for (what, daemons, desired) in [
        ("it fits", vec![core(none())], 2),
        ("no such resource", vec![core(json!({ "example.com/gpu": "1" }))], 1),
        ("none of that resource is no request", vec![core(json!({ "example.com/gpu": "0" }))], 2),
        ("larger than the node", vec![core(json!({ "cpu": "5" }))], 1),
        ("short of one resource only", vec![core(json!({ "memory": "17Gi" }))], 1),
        (
            "one by one, not together: the first by name",
            vec![core(json!({ "cpu": "3" })), core(json!({ "cpu": "2" }))],
            4,
        ),
        ("the second beside the first", vec![core(json!({ "cpu": "5" })), core(json!({ "cpu": "2" }))], 2),
        (
            "the one of the higher priority",
            vec![requesting(&json!({ "cpu": "3" }), 0), requesting(&json!({ "cpu": "2" }), 1)],
            2,
        ),
    ] {
        let cluster = TestCluster::eager().pool("a", none()).pending("p", 4, "1", &none());
        let names = ["d", "e"].into_iter();
        let cluster =
            names.zip(daemons).fold(cluster, |cluster, (name, change)| daemon(cluster, name, change));
        assert_eq!(cluster.plan().desired("a"), desired, "{what}");
    }
}

#[test]
fn of_two_daemons_with_one_host_port_the_second_takes_nothing() {
    let port =
        in_template(&json!({ "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1" } },
        "ports": [{ "containerPort": 1, "hostPort": 9100 }] }] }));
    let cluster = TestCluster::eager().pool("a", none()).pending("p", 3, "1", &none());
    let plan = daemon(daemon(cluster, "d", port.clone()), "e", port).plan();
    assert_eq!(plan.desired("a"), 1);
}

#[test]
fn an_empty_node_never_offers_less_than_nothing() {
    let cluster = TestCluster::eager().pool("a", none()).pending("p", 1, "5", &none());
    let plan = daemon(cluster, "d", requesting(&json!({ "cpu": "6" }), 0)).plan();
    let crate::SchedulingResult::Unschedulable { reasons } = &plan.pods[0].result else { panic!("it fits") };
    assert!(reasons[0].message.contains("offers 4"), "{}", reasons[0].message);
}

#[test]
fn a_daemon_of_a_starting_node_fits_beside_the_pods_that_it_does_not_preempt() {
    let starting = json!({ "metadata": { "creationTimestamp": "2026-01-01T11:59:00Z" },
        "status": { "conditions": [{ "type": "Ready", "status": "False" }] } });
    let three = json!({ "cpu": "3" });
    let polite = merged(requesting(&three, 9), in_template(&json!({ "preemptionPolicy": "Never" })));
    for (what, change, fits) in [
        ("a lower priority waits", requesting(&three, 0), 2),
        ("so does an equal one", requesting(&three, 5), 2),
        ("a higher one preempts", requesting(&three, 9), 0),
        ("unless its policy forbids it", polite, 2),
    ] {
        let cluster = TestCluster::eager()
            .pool("a", json!({ "spec": { "replicas": 1, "maxReplicas": 1 } }))
            .node("a", "n1", starting.clone())
            .running("there", "n1", "2", json!({ "spec": { "priority": 5 } }))
            .pending("p", 4, "1", &none());
        let plan = daemon(cluster, "d", change).plan();
        assert_eq!(plan.results().iter().filter(|f| *f == "fits n1").count(), fits, "{what}");
    }
}

#[test]
fn an_init_container_of_a_daemon_keeps_no_host_port() {
    let port = json!([{ "containerPort": 1, "hostPort": 9100 }]);
    let user = json!({ "spec": { "containers": [{ "name": "c", "ports": port }] } });
    for (restart, result) in [(Value::Null, "grows ns/a"), (json!("Always"), "no HostPortConflict")] {
        let init = json!({ "initContainers": [{ "name": "i", "restartPolicy": restart, "ports": port }] });
        let cluster = TestCluster::eager().pool("a", none()).pending("p", 1, "1", &user);
        let plan = daemon(cluster, "d", in_template(&init)).plan();
        assert_eq!(plan.results(), [result]);
    }
}

#[test]
fn other_pods_see_the_daemons_of_nodes_that_do_not_exist_yet() {
    let labelled = json!({ "spec": { "template": { "metadata": { "labels": { "app": "d" } } } } });
    let all_of_them =
        json!({ "namespaces": ["sys"], "topologyKey": "kubernetes.io/hostname", "labelSelector": {} });
    let required = |which: &str, change: Value| {
        json!({ "spec": { "affinity": { which: {
        "requiredDuringSchedulingIgnoredDuringExecution": [merged(all_of_them.clone(), change)] } } } })
    };
    let away = |change| required("podAntiAffinity", change);
    let near = |change| required("podAffinity", change);
    let named = |app: &str| json!({ "labelSelector": { "matchLabels": { "app": app } } });
    let from_all =
        json!({ "template": { "spec": { "affinity": away(none())["spec"]["affinity"].clone() } } });
    let from_all = json!({ "spec": merged(from_all, json!({ "template": { "spec": { "affinity": { "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [{ "namespaces": ["apps"], "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {} }] } } } } })) });
    for (what, daemon_change, pod_change, new, upcoming) in [
        ("away from all", none(), away(none()), "no PodAntiAffinityConflict", "no PodAntiAffinityConflict"),
        (
            "away from it",
            none(),
            away(named("d")),
            "no PodAntiAffinityConflict",
            "no PodAntiAffinityConflict",
        ),
        ("away from others", none(), away(named("e")), "grows ns/a", "fits upcoming ns/a"),
        ("near it", none(), near(named("d")), "grows ns/a", "fits upcoming ns/a"),
        ("near others", none(), near(named("e")), "no PodAffinityMismatch", "no PodAffinityMismatch"),
        ("it keeps away", from_all, none(), "no PodAntiAffinityConflict", "no PodAntiAffinityConflict"),
        (
            "it runs elsewhere",
            in_template(&json!({ "nodeSelector": { "disk": "ssd" } })),
            away(none()),
            "grows ns/a",
            "fits upcoming ns/a",
        ),
    ] {
        for (replicas, result) in [(0, new), (1, upcoming)] {
            let pool = json!({ "spec": { "replicas": replicas, "template": { "metadata": { "labels": {
                "kubernetes.io/arch": "amd64" } } } } });
            let cluster = TestCluster::eager().pool("a", pool).pending("p", 1, "1", &pod_change);
            let plan = daemon(cluster, "d", merged(labelled.clone(), daemon_change.clone())).plan();
            assert_eq!(plan.results(), [result], "{what}, {replicas} on their way");
        }
    }
}

#[test]
fn a_daemon_that_keeps_pods_out_of_its_zone_keeps_them_from_the_first_node_there() {
    let term = json!({ "namespaces": ["apps"], "topologyKey": "topology.kubernetes.io/zone",
        "labelSelector": { "matchLabels": { "app": "web" } } });
    let keeper = in_template(&json!({ "affinity": { "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [term] } } }));
    let zone = json!({ "spec": { "template": { "metadata": { "labels": {
        "topology.kubernetes.io/zone": "a" } } } } });
    for (app, result) in [("web", "no PodAntiAffinityConflict"), ("other", "grows ns/a")] {
        let pod = json!({ "metadata": { "labels": { "app": app } } });
        let cluster = TestCluster::eager().pool("a", zone.clone()).pending("p", 1, "1", &pod);
        assert_eq!(daemon(cluster, "d", keeper.clone()).plan().results(), [result], "{app}");
    }
}

#[test]
fn a_pod_that_is_too_large_beside_the_daemons_is_told_what_is_left_for_it() {
    let cluster = TestCluster::eager().pool("a", none()).pending("p", 1, "4", &none());
    let plan = daemon(cluster, "d", none()).plan();
    assert_eq!(plan.results(), ["no InsufficientCpu"]);
    let crate::SchedulingResult::Unschedulable { reasons } = &plan.pods[0].result else { panic!("{plan:?}") };
    assert_eq!(
        reasons[0].message,
        "the pod asks for 4 of cpu; an empty node of the pool's template offers 3"
    );
}

#[test]
fn a_daemon_whose_requests_make_no_sense_is_named() {
    let bad = in_template(
        &json!({ "containers": [{ "name": "c", "resources": { "requests": { "cpu": "many" } } }] }),
    );
    let plan = daemon(TestCluster::eager().pool("a", none()).pending("p", 4, "1", &none()), "d", bad).plan();
    assert_eq!(plan.desired("a"), 1);
    assert!(
        plan.warnings[0].starts_with("DaemonSet sys/d counts as asking for nothing"),
        "{:?}",
        plan.warnings
    );
}

fn with_headroom(headroom: &Value) -> TestCluster {
    TestCluster::new().autoscaler(
        "x",
        json!({ "headroom": headroom, "scaleDown": { "unneededSeconds": 0, "delayAfterAddSeconds": 0 } }),
    )
}

#[test]
fn headroom_brings_nodes_and_keeps_them_and_is_never_reported() {
    let headroom = json!([{ "count": 6, "requests": { "cpu": "1" } }]);
    let plan = with_headroom(&headroom).pool("a", none()).plan();
    assert_eq!((plan.desired("a"), plan.pool("a").message.as_str()), (2, "2 nodes for headroom"));
    assert_eq!((plan.pods.len(), plan.pool("a").triggering_pods), (0, 0));

    let up = with_headroom(&headroom)
        .pool("a", json!({ "spec": { "replicas": 3 } }))
        .node("a", "n1", none())
        .node("a", "n2", none())
        .node("a", "n3", none());
    let plan = up.plan();
    assert_eq!((plan.desired("a"), plan.pool("a").victims.as_slice()), (2, &["n3".to_owned()][..]));
    assert_eq!(plan.verdict("n1"), "NeededByPendingPods");
}

#[test]
fn an_idle_node_goes_when_the_headroom_fits_beside_pods_of_a_node_that_stays() {
    let headroom = json!([{ "count": 1, "requests": { "cpu": "2" } }]);
    for (used, idle) in [("n1", "n2"), ("n2", "n1")] {
        let plan = with_headroom(&headroom)
            .pool("a", json!({ "spec": { "replicas": 2 } }))
            .node("a", "n1", none())
            .node("a", "n2", none())
            .running("r", used, "2", none())
            .plan();
        assert_eq!((plan.desired("a"), plan.pool("a").victims.as_slice()), (1, &[idle.to_owned()][..]));
    }
}

#[test]
fn a_node_is_drained_when_its_pods_and_the_headroom_fit_a_node_that_stays() {
    let owned = json!({ "metadata": { "ownerReferences": [
        { "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": true }] } });
    for (requested, desired) in [("1", 1), ("1500m", 2), ("3", 2)] {
        let headroom = json!([{ "count": 1, "requests": { "cpu": requested } }]);
        let plan = with_headroom(&headroom)
            .pool("a", json!({ "spec": { "replicas": 2 } }))
            .node("a", "n1", none())
            .node("a", "n2", none())
            .running("small", "n1", "500m", owned.clone())
            .running("large", "n2", "2400m", owned.clone())
            .plan();
        assert_eq!(plan.desired("a"), desired, "{requested}");
    }
}

#[test]
fn headroom_is_kept_first_where_the_pool_is_as_small_as_it_may_be() {
    let headroom = json!([{ "count": 1, "requests": { "cpu": "2" } }]);
    let plan = with_headroom(&headroom)
        .pool("a", json!({ "spec": { "replicas": 1 } }))
        .pool("b", json!({ "spec": { "replicas": 1, "minReplicas": 1 } }))
        .node("a", "n1", none())
        .node("b", "n2", none())
        .plan();
    assert_eq!((plan.desired("a"), plan.desired("b")), (0, 1));
}

#[test]
fn pods_come_before_headroom_whatever_their_priority() {
    let headroom = json!([{ "count": 1, "requests": { "cpu": "4" } }]);
    let low = json!({ "spec": { "priority": -1000 } });
    let plan = with_headroom(&headroom)
        .pool("a", json!({ "spec": { "replicas": 1, "maxReplicas": 1 } }))
        .node("a", "n1", none())
        .pending("p", 1, "1", &low)
        .plan();
    assert_eq!((plan.results(), plan.desired("a")), (vec!["fits n1".to_owned()], 1));
    assert!(plan.pool("a").limited);
}

#[test]
fn headroom_is_kept_on_the_pools_of_its_autoscaler_whatever_their_taints_but_not_on_cordoned_nodes() {
    let headroom = json!([{ "count": 1, "requests": { "cpu": "3" } }]);
    let tainted = json!({ "spec": { "replicas": 1, "template": { "spec": { "taints": [{ "key": "gpu", "effect": "NoSchedule" }] } } } });
    let taint = json!({ "spec": { "taints": [{ "key": "gpu", "effect": "NoSchedule" }] } });
    let cluster = |node: Value| {
        with_headroom(&headroom).pool("a", tainted.clone()).node("other", "m1", none()).node("a", "n1", node)
    };
    assert_eq!(cluster(taint.clone()).plan().desired("a"), 1, "the room is there");
    let cordoned = merged(taint, json!({ "spec": { "unschedulable": true } }));
    assert_eq!(cluster(cordoned).plan().desired("a"), 2, "neither a cordoned node nor a stranger's is room");
}

#[test]
fn headroom_that_makes_no_sense_is_named_and_left_out() {
    let headroom =
        json!([{ "count": 1, "requests": { "cpu": "-1" } }, { "count": 1, "requests": { "cpu": "1" } }]);
    let plan = with_headroom(&headroom).pool("a", none()).plan();
    assert_eq!(plan.desired("a"), 1);
    assert!(plan.warnings[0].contains("spec.headroom[0].requests"), "{:?}", plan.warnings);
}

#[test]
fn a_nomination_to_a_node_that_cannot_take_the_pod_holds_up_no_scale_up() {
    let named = |node: &str| json!({ "status": { "nominatedNodeName": node } });
    for (what, node, pod, result) in [
        ("gone", none(), named("n9"), vec!["fits n1"]),
        ("ready", none(), named("n1"), vec![]),
        ("cordoned", json!({ "spec": { "unschedulable": true } }), named("n1"), vec!["grows ns/a"]),
        (
            "down",
            json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } }),
            named("n1"),
            vec!["grows ns/a"],
        ),
    ] {
        let pool = json!({ "spec": { "replicas": 1 } });
        let cluster = TestCluster::eager().pool("a", pool).node("a", "n1", node);
        let busy = cluster.running("f", "n1", "2", none());
        assert_eq!(busy.pending("p", 1, "2", &pod).plan().results(), result, "{what}");
    }
}

#[test]
fn a_nomination_to_a_node_whose_port_is_taken_holds_up_no_scale_up() {
    let port = json!({ "spec": { "containers": [{ "name": "c", "ports": [{ "containerPort": 1, "hostPort": 80 }] }] } });
    let nominated = merged(port.clone(), json!({ "status": { "nominatedNodeName": "n1" } }));
    for (what, holder, result) in
        [("it stays", none(), vec!["grows ns/a"]), ("it goes", json!({ "spec": { "priority": -1 } }), vec![])]
    {
        let cluster = TestCluster::eager().pool("a", json!({ "spec": { "replicas": 1 } }));
        let held = cluster.node("a", "n1", none()).running("f", "n1", "1", merged(port.clone(), holder));
        assert_eq!(held.pending("p", 1, "1", &nominated).plan().results(), result, "{what}");
    }
}

#[test]
fn a_pod_whose_nomination_is_believed_takes_its_place() {
    let container = json!({ "name": "c", "ports": [{ "containerPort": 1, "hostPort": 80 }],
        "resources": { "requests": { "cpu": "2" } } });
    let nominated = json!({ "metadata": { "labels": { "app": "a" } }, "spec": { "containers": [container] },
        "status": { "nominatedNodeName": "n1" } });
    let apart = json!([{ "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { "app": "a" } } }]);
    let apart = json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": apart } });
    for (what, spec) in [
        (
            "its cores",
            json!({ "containers": [{ "name": "c", "resources": { "requests": { "cpu": "3" } } }] }),
        ),
        (
            "its port",
            json!({ "containers": [{ "name": "c", "ports": [{ "containerPort": 1, "hostPort": 80 }] }] }),
        ),
        ("its node", json!({ "affinity": apart })),
    ] {
        let other = json!({ "spec": spec });
        let cluster = || {
            let cluster = TestCluster::eager().pool("a", json!({ "spec": { "replicas": 1 } }));
            cluster.node("a", "n1", none()).pending("q", 1, "1", &other)
        };
        assert_eq!(cluster().plan().results(), ["fits n1"], "{what}");
        assert_eq!(cluster().pending("p", 1, "1", &nominated).plan().results(), ["grows ns/a"], "{what}");
    }
}

/// What a pod with a resource claim, or of a scheduling group, needs is not known here.
#[test]
fn nothing_is_promised_to_a_pod_with_a_constraint_that_is_not_planned() {
    for (spec, result, desired) in [
        (json!({}), "grows ns/a", 1),
        (json!({ "resourceClaims": [{ "name": "r" }] }), "no NotPlanned", 0),
        (json!({ "schedulingGroup": { "podGroupName": "g" } }), "no NotPlanned", 0),
    ] {
        let pod = json!({ "spec": spec });
        let plan = TestCluster::eager().pool("a", json!({})).pending("p", 1, "1", &pod).plan();
        assert_eq!((plan.results(), plan.desired("a")), (vec![result.to_owned()], desired), "{spec}");
    }
}

/// The scheduler says that nodes can attach no more volumes; the planner knows no limits of nodes.
#[test]
fn a_place_on_an_existing_node_is_no_promise_where_the_scheduler_names_volume_limits() {
    let limited = "0/1 nodes are available: 1 node(s) exceed max volume count.";
    let small = "0/1 nodes are available: 1 Insufficient cpu.";
    for (replicas, used, message, result, desired) in [
        (1, "0", small, "fits n", 1),
        (1, "0", limited, "no VolumeLimitsNotPlanned", 1),
        (1, "4", limited, "grows ns/a", 2),
        (2, "4", limited, "fits upcoming ns/a", 2),
    ] {
        let pool = json!({ "spec": { "replicas": replicas } });
        let cluster = TestCluster::eager().pool("a", pool).node("a", "n", none());
        let cluster = cluster.running("busy", "n", used, none());
        let plan = cluster.pending("p", 1, "1", &told(message)).plan();
        assert_eq!((plan.results(), plan.desired("a")), (vec![result.to_owned()], desired), "{message}");
    }
}

/// The scheduler says that too little storage is left where nodes are; the planner does not know how much is.
#[test]
fn a_place_on_an_existing_node_is_no_promise_where_the_scheduler_names_free_storage() {
    let short = told("0/1 nodes are available: 1 node(s) did not have enough free storage.");
    for (replicas, used, result, desired) in [
        (1, "0", "no FreeStorageNotPlanned", 1),
        (1, "4", "grows ns/a", 2),
        (2, "4", "fits upcoming ns/a", 2),
    ] {
        let pool = json!({ "spec": { "replicas": replicas } });
        let cluster = TestCluster::eager().pool("a", pool).node("a", "n", none());
        let plan = cluster.running("busy", "n", used, none()).pending("p", 1, "1", &short).plan();
        assert_eq!((plan.results(), plan.desired("a")), (vec![result.to_owned()], desired), "{used}");
    }
}

/// A claim whose volume is there is planned, whatever an older message says.
#[test]
fn a_place_on_an_existing_node_is_believed_where_the_scheduler_names_volumes_that_are_planned() {
    for reason in [
        "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
        "node(s) had volume node affinity conflict",
        "node(s) didn't find available persistent volumes to bind",
    ] {
        let planned = told(&format!("0/1 nodes are available: 1 {reason}."));
        let pool = json!({ "spec": { "replicas": 1 } });
        let cluster = TestCluster::eager().pool("a", pool).node("a", "n", none());
        let plan = cluster.pending("p", 1, "1", &planned).plan();
        assert_eq!((plan.results(), plan.desired("a")), (vec!["fits n".to_owned()], 1), "{reason}");
    }
}

#[test]
fn a_node_that_is_starting_is_not_one_that_the_scheduler_has_refused_for_volume_limits() {
    let limited = told(
        "0/2 nodes are available: 1 node(s) exceed max volume count, 1 node(s) had untolerated taint(s).",
    );
    for (ready, created, results) in [
        ("False", "2026-01-01T11:59:00Z", ["fits n"]),
        ("True", "2026-01-01T11:59:00Z", ["no VolumeLimitsNotPlanned"]),
    ] {
        let change = json!({ "metadata": { "creationTimestamp": created },
            "status": { "conditions": [{ "type": "Ready", "status": ready }] } });
        let pool = json!({ "spec": { "replicas": 1 } });
        let cluster = TestCluster::eager().pool("a", pool).node("a", "n", change);
        assert_eq!(cluster.pending("p", 1, "1", &limited).plan().results(), results, "{ready}");
    }
}

#[test]
fn a_pod_refused_for_volume_limits_keeps_its_place_and_its_node_and_says_nothing_about_equal_pods() {
    let pool = json!({ "spec": { "replicas": 1 } });
    let cluster = TestCluster::eager().pool("a", pool).node("a", "n", none());
    let limited = told("0/1 nodes are available: 1 node(s) exceed max volume count.");
    let cluster = cluster.pending("limited", 1, "2", &limited);
    let plan = cluster.plan();
    assert_eq!((plan.verdict("n"), plan.desired("a")), ("NeededByPendingPods", 1));
    let plan = cluster.pending("plain", 2, "2", &none()).plan();
    assert_eq!(plan.results(), ["no VolumeLimitsNotPlanned", "fits n", "grows ns/a"]);
    let crate::SchedulingResult::Unschedulable { reasons } = &plan.pods[0].result else { panic!("{plan:?}") };
    assert!(reasons[0].message.contains("does not plan with volume limits"), "{reasons:?}");
}

/// A pod with this message of the scheduler.
fn told(message: &str) -> Value {
    json!({ "status": { "conditions": [
        { "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message }] } })
}
