//! Tests of which nominations are believed, constraint by constraint.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use shared_crds::names::DRAIN_STARTED_ANNOTATION;

use super::*;
use crate::fixtures::merged;

const ZONE: &str = "topology.kubernetes.io/zone";

fn object<K: DeserializeOwned>(written: Value) -> Arc<K> {
    Arc::new(serde_json::from_value(written).unwrap())
}

/// A node of four cores in zone `a`.
fn node(change: Value) -> Arc<Node> {
    let base = json!({ "metadata": { "name": "n", "labels": { "disk": "ssd", "kubernetes.io/hostname": "n", ZONE: "a" } },
        "status": { "allocatable": { "cpu": "4", "pods": "10" }, "conditions": [{ "type": "Ready", "status": "True" }] } });
    object(merged(base, change))
}

/// The node `n`, `near` in the same zone, and `far` in another.
fn three_nodes() -> Vec<Arc<Node>> {
    let named = |name: &str, zone: &str| {
        node(
            json!({ "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name, ZONE: zone } } }),
        )
    };
    vec![named("n", "a"), named("near", "a"), named("far", "b")]
}

/// A pod of priority 10 that asks for two cores.
fn pod(name: &str, change: Value) -> Arc<PodInfo> {
    let base = json!({ "metadata": { "name": name, "namespace": "x" },
        "spec": { "priority": 10, "containers": [{ "name": "c", "resources": { "requests": { "cpu": "2" } } }] } });
    object(merged(base, change))
}

fn nominated(name: &str, change: Value) -> Arc<PodInfo> {
    pod(name, merged(json!({ "status": { "nominatedNodeName": "n" } }), change))
}

fn on(node: &str, name: &str, change: Value) -> Arc<PodInfo> {
    pod(name, merged(json!({ "spec": { "nodeName": node } }), change))
}

fn believed_of(observed: &Observed) -> Vec<String> {
    let nominations = Nominations::of(observed);
    let names = observed.pods.iter().filter(|pod| nominations.node_of(pod) == Some("n"));
    names.map(|pod| pod.key().1.to_owned()).collect()
}

fn believed(nodes: &[Arc<Node>], pods: &[Arc<PodInfo>]) -> Vec<String> {
    believed_of(&Observed { nodes: nodes.to_vec(), pods: pods.to_vec(), ..Observed::default() })
}

fn low() -> Value {
    json!({ "spec": { "priority": 9 } })
}

fn going() -> Value {
    json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } })
}

fn never() -> Value {
    json!({ "spec": { "preemptionPolicy": "Never" } })
}

/// One required term, about the pods of the app `a`.
fn required(which: &str, key: &str) -> Value {
    let term = json!([{ "topologyKey": key, "labelSelector": { "matchLabels": { "app": "a" } } }]);
    json!({ "spec": { "affinity": { which: { "requiredDuringSchedulingIgnoredDuringExecution": term } } } })
}

fn app() -> Value {
    json!({ "metadata": { "labels": { "app": "a" } } })
}

fn both(one: Value, other: Value) -> Value {
    merged(one, other)
}

/// Asserts whether the nomination of a pod with `change` is believed beside these pods.
fn assert_believed(what: &str, change: Value, others: &[Arc<PodInfo>], expected: bool) {
    let pods = [others, &[nominated("p", change)][..]].concat();
    assert_eq!(believed(&three_nodes(), &pods).contains(&"p".to_owned()), expected, "{what}");
}

#[test]
fn a_nomination_counts_while_its_node_takes_pods() {
    let pods = [nominated("p", json!({}))];
    assert_eq!(believed(&[node(json!({}))], &pods), ["p"]);
    assert!(believed(&[], &pods).is_empty(), "gone");
    for (what, change) in [
        ("another node", json!({ "metadata": { "name": "m" } })),
        ("not ready", json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } })),
        ("no condition", json!({ "status": { "conditions": null } })),
        ("unschedulable", json!({ "spec": { "unschedulable": true } })),
        ("being deleted", json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } })),
        ("being drained", json!({ "metadata": { "annotations": { DRAIN_STARTED_ANNOTATION: "x" } } })),
        ("tainted", json!({ "spec": { "taints": [{ "key": "k", "effect": "NoSchedule" }] } })),
        ("too small", json!({ "status": { "allocatable": { "cpu": "1" } } })),
        ("unreadable", json!({ "status": { "allocatable": { "cpu": "lots" } } })),
    ] {
        assert!(believed(&[node(change)], &pods).is_empty(), "{what}");
    }
}

#[test]
fn it_counts_while_the_pod_could_run_there() {
    let full = |change: Value| [on("n", "a", change.clone()), on("n", "b", change)];
    let elsewhere = json!({ "spec": { "nodeName": "m" } });
    for (what, change, others, expected) in [
        ("pods of its own priority", json!({}), full(json!({})), false),
        ("of a higher one", json!({}), full(json!({ "spec": { "priority": 11 } })), false),
        ("of a lower one, which it preempts", json!({}), full(low()), true),
        ("or may not preempt", never(), full(low()), false),
        ("pods that are going", json!({}), full(going()), true),
        ("also for one that does not preempt", never(), full(going()), true),
        ("pods that have ended", json!({}), full(json!({ "status": { "phase": "Failed" } })), true),
        ("it is going itself", going(), full(elsewhere.clone()), false),
        ("another label", json!({ "spec": { "nodeSelector": { "disk": "hdd" } } }), full(elsewhere), false),
    ] {
        let pods = [&others[..], &[nominated("p", change)][..]].concat();
        assert_eq!(believed(&[node(json!({}))], &pods).contains(&"p".to_owned()), expected, "{what}");
    }
}

#[test]
fn of_several_pods_those_of_a_higher_priority_come_first() {
    let high = json!({ "spec": { "priority": 11 } });
    let pods = [
        nominated("a", json!({})),
        nominated("b", json!({})),
        nominated("c", json!({})),
        nominated("z", high),
    ];
    assert_eq!(believed(&[node(json!({}))], &pods), ["a", "z"]);
}

/// The pod of a `DaemonSet` waits for one node, which labels and taints still decide about.
#[test]
fn labels_and_taints_decide_also_about_the_pod_of_a_daemon_set() {
    let daemon = json!({ "metadata": { "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u" }] } });
    let tainted = json!({ "spec": { "taints": [{ "key": "k", "effect": "NoSchedule" }] } });
    let pods = [nominated("p", daemon)];
    assert_eq!(believed(&[node(json!({}))], &pods), ["p"]);
    assert!(believed(&[node(tainted)], &pods).is_empty());
}

#[test]
fn a_host_port_must_be_free() {
    let port = |number: i32| json!({ "spec": { "containers": [{ "name": "c", "ports": [{ "containerPort": 1, "hostPort": number }] }] } });
    for (what, change, other, expected) in [
        ("of a pod of its own priority", port(80), on("n", "o", port(80)), false),
        ("another one", port(80), on("n", "o", port(81)), true),
        ("of a pod of another node", port(80), on("near", "o", port(80)), true),
        ("of one that it preempts", port(80), on("n", "o", both(port(80), low())), true),
        ("or may not preempt", both(port(80), never()), on("n", "o", both(port(80), low())), false),
        ("of one that is going", both(port(80), never()), on("n", "o", both(port(80), going())), true),
    ] {
        assert_believed(what, change, &[other], expected);
    }
}

#[test]
fn of_two_nominated_pods_one_gets_the_port() {
    let port = |priority: i32| {
        json!({ "spec": { "priority": priority, "containers": [
            { "name": "c", "ports": [{ "containerPort": 1, "hostPort": 80 }] }] } })
    };
    let pods = [nominated("a", port(10)), nominated("b", port(11))];
    assert_eq!(believed(&three_nodes(), &pods), ["b"]);
}

#[test]
fn anti_affinity_must_hold_from_both_sides() {
    let apart = || required("podAntiAffinity", ZONE);
    for (what, its, other, expected) in [
        ("its own", apart(), on("n", "o", app()), false),
        ("its own, in the zone", apart(), on("near", "o", app()), false),
        ("its own, in another zone", apart(), on("far", "o", app()), true),
        ("the other's", app(), on("n", "o", apart()), false),
        ("the other's, in the zone", app(), on("near", "o", apart()), false),
        ("the other's, in another zone", app(), on("far", "o", apart()), true),
        ("the other does not mean it", json!({}), on("n", "o", apart()), true),
        ("of a pod that it preempts", apart(), on("n", "o", both(app(), low())), true),
        ("preempts, the other's", app(), on("n", "o", both(apart(), low())), true),
        ("may not preempt", both(apart(), never()), on("n", "o", both(app(), low())), false),
        (
            "a lower priority on another node, where nothing is preempted",
            apart(),
            on("near", "o", both(app(), low())),
            false,
        ),
        ("of a pod that is going", apart(), on("n", "o", both(app(), going())), true),
        ("over nodes", required("podAntiAffinity", "kubernetes.io/hostname"), on("near", "o", app()), true),
    ] {
        assert_believed(what, its, &[other], expected);
    }
}

#[test]
fn nominated_pods_keep_each_other_away() {
    let apart = both(app(), required("podAntiAffinity", ZONE));
    let near = json!({ "status": { "nominatedNodeName": "near" } });
    for (what, first, expected) in [
        ("it comes first", both(apart.clone(), near.clone()), vec![]),
        (
            "its nomination does not hold",
            both(apart.clone(), json!({ "status": { "nominatedNodeName": "gone" } })),
            vec!["p"],
        ),
        ("nothing is between them", near, vec!["p"]),
    ] {
        let pods = [nominated("first", first), nominated("p", apart.clone())];
        assert_eq!(believed(&three_nodes(), &pods), expected, "{what}");
    }
}

#[test]
fn affinity_must_be_met() {
    let near = || required("podAffinity", ZONE);
    for (what, its, others, expected) in [
        ("nothing is there", near(), vec![], false),
        ("by itself", both(app(), near()), vec![], true),
        ("on the node", near(), vec![on("n", "o", app())], true),
        ("in the zone", near(), vec![on("near", "o", app())], true),
        ("in another zone", near(), vec![on("far", "o", app())], false),
        ("by itself, but the others are elsewhere", both(app(), near()), vec![on("far", "o", app())], false),
        ("by one that it need not preempt", near(), vec![on("n", "o", both(app(), low()))], true),
        (
            "by one that it would have to preempt",
            both(
                near(),
                json!({ "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": "3" } } }] } }),
            ),
            vec![on("n", "o", both(app(), low()))],
            false,
        ),
    ] {
        assert_believed(what, its, &others, expected);
    }
}

#[test]
fn a_spread_must_hold() {
    let spread = |when: &str| {
        let rule = json!([{ "maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": when,
            "labelSelector": { "matchLabels": { "app": "a" } } }]);
        both(app(), json!({ "spec": { "topologySpreadConstraints": rule } }))
    };
    let hard = || spread("DoNotSchedule");
    for (what, its, others, expected) in [
        ("even", hard(), vec![], true),
        ("one more here", hard(), vec![on("near", "o", app())], false),
        ("one more there", hard(), vec![on("far", "o", app())], true),
        ("only a wish", spread("ScheduleAnyway"), vec![on("near", "o", app())], true),
        ("one that it preempts", hard(), vec![on("n", "o", both(app(), low()))], true),
        ("of a lower priority on another node", hard(), vec![on("near", "o", both(app(), low()))], false),
        ("one that is going", hard(), vec![on("near", "o", both(app(), going()))], true),
    ] {
        assert_believed(what, its, &others, expected);
    }
    let two = [nominated("a", hard()), nominated("b", hard())];
    assert_eq!(believed(&three_nodes(), &two), ["a"], "the first one counts for the second");
}

fn uses(claim: &str) -> Value {
    json!({ "spec": { "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": claim } }] } })
}

/// A cluster with the claim `c`, bound to a volume of `zone`, and the claim `late`, for which there is one free volume of zone `a`.
fn with_claims(zone: &str, mode: &str, pods: Vec<Arc<PodInfo>>) -> Observed {
    let claim = |name: &str, class: &str, volume: Value, phase: &str| {
        object(json!({ "metadata": { "name": name, "namespace": "x" }, "status": { "phase": phase },
            "spec": { "accessModes": [mode], "storageClassName": class, "volumeName": volume,
                "resources": { "requests": { "storage": "1Gi" } } } }))
    };
    let volume = |name: &str, zone: &str| {
        object(json!({ "metadata": { "name": name }, "status": { "phase": "Available" },
            "spec": { "capacity": { "storage": "1Gi" }, "accessModes": [mode], "storageClassName": "local",
                "nodeAffinity": { "required": { "nodeSelectorTerms": [
                    { "matchExpressions": [{ "key": ZONE, "operator": "In", "values": [zone] }] }] } } } }))
    };
    let bound = object(json!({ "metadata": { "name": "bound" }, "status": { "phase": "Bound" },
        "spec": { "capacity": { "storage": "1Gi" }, "accessModes": [mode], "storageClassName": "other",
            "claimRef": { "namespace": "x", "name": "c" },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [
                { "matchExpressions": [{ "key": ZONE, "operator": "In", "values": [zone] }] }] } } } }));
    Observed {
        nodes: three_nodes(),
        pods,
        claims: vec![
            claim("c", "other", json!("bound"), "Bound"),
            claim("late", "local", Value::Null, "Pending"),
            claim("later", "local", Value::Null, "Pending"),
        ],
        volumes: vec![bound, volume("free", "a")],
        storage_classes: vec![object(json!({ "metadata": { "name": "local" },
            "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer" }))],
        ..Observed::default()
    }
}

#[test]
fn its_volumes_must_be_usable_there() {
    for (what, zone, claim, expected) in [
        ("in its zone", "a", "c", vec!["p"]),
        ("elsewhere", "b", "c", vec![]),
        ("a free one", "b", "late", vec!["p"]),
        ("no such claim", "a", "none", vec![]),
    ] {
        let observed = with_claims(zone, "ReadWriteOnce", vec![nominated("p", uses(claim))]);
        assert_eq!(believed_of(&observed), expected, "{what}");
    }
}

#[test]
fn one_free_volume_is_there_for_one_nominated_pod() {
    let pods = vec![nominated("p", uses("late")), nominated("q", uses("later"))];
    assert_eq!(believed_of(&with_claims("a", "ReadWriteOnce", pods)), ["p"]);
}

#[test]
fn a_claim_for_one_pod_must_not_be_in_use() {
    let once = |others: Vec<Arc<PodInfo>>| {
        with_claims("a", "ReadWriteOncePod", [others, vec![nominated("p", uses("c"))]].concat())
    };
    for (what, others, expected) in [
        ("unused", vec![], vec!["p"]),
        ("used there", vec![on("n", "o", uses("c"))], vec![]),
        ("used elsewhere", vec![on("near", "o", uses("c"))], vec![]),
        ("by one that it preempts", vec![on("n", "o", both(uses("c"), low()))], vec!["p"]),
        ("by one of a lower priority on another node", vec![on("near", "o", both(uses("c"), low()))], vec![]),
        ("by one that is going", vec![on("n", "o", both(uses("c"), going()))], vec!["p"]),
        ("by another nominated pod", vec![nominated("first", uses("c"))], vec!["first"]),
        ("another claim", vec![on("n", "o", uses("late"))], vec!["p"]),
    ] {
        assert_eq!(believed_of(&once(others)), expected, "{what}");
    }
}
