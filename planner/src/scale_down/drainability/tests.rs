//! The truth table of what prevents an eviction.

use std::sync::Arc;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::fixtures::{NOW, merged};

fn pod(change: Value) -> PodInfo {
    let base = json!({
        "metadata": { "name": "p", "namespace": "apps", "labels": { "app": "web" },
                      "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o", "uid": "u", "controller": true }] },
        "spec": { "nodeName": "n", "containers": [] },
        "status": { "phase": "Running", "startTime": "2026-01-01T11:00:00Z" } });
    serde_json::from_value(merged(base, change)).unwrap()
}

/// The only rule that blocks a pod which keeps its node, or why no rule does.
fn verdict(pod: &PodInfo, budgets: &Budgets) -> &'static str {
    let now: Timestamp = NOW.parse().unwrap();
    if !pods::keeps_node(pod, now) {
        return "keeps nothing";
    }
    blocker(pod, budgets, now).map_or("goes", |blocker| blocker.rule.as_str())
}

fn owner(kind: &str, version: &str) -> Value {
    json!({ "metadata": { "ownerReferences": [{ "apiVersion": version, "kind": kind, "name": "o", "uid": "u", "controller": true }] } })
}

fn annotated(annotations: &[(&str, &str)]) -> Value {
    let annotations: serde_json::Map<_, _> =
        annotations.iter().map(|(k, v)| ((*k).to_owned(), json!(v))).collect();
    json!({ "metadata": { "annotations": annotations } })
}

fn volumes(of: &Value) -> Value {
    json!({ "spec": { "volumes": of } })
}

fn bare() -> Value {
    json!({ "metadata": { "ownerReferences": [] } })
}

const SAFE: &str = SAFE_TO_EVICT;
const LOCAL: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes";
const DISRUPT: &str = "karpenter.sh/do-not-disrupt";

fn all(changes: impl IntoIterator<Item = Value>) -> Value {
    changes.into_iter().fold(json!({}), merged)
}

#[test]
fn who_made_a_pod_and_where_it_runs() {
    let system = || json!({ "metadata": { "namespace": "kube-system" } });
    for (what, change, expected) in [
        ("a ReplicaSet's", json!({}), "goes"),
        ("a ReplicationController's", owner("ReplicationController", "v1"), "goes"),
        ("a StatefulSet's", owner("StatefulSet", "apps/v1"), "goes"),
        ("a Job's", owner("Job", "batch/v1"), "goes"),
        ("a custom controller's", owner("Bakery", "example.com/v1"), "goes"),
        ("a DaemonSet's", owner("DaemonSet", "apps/v1"), "keeps nothing"),
        (
            "one like a DaemonSet's",
            annotated(&[("cluster-autoscaler.kubernetes.io/daemonset-pod", "true")]),
            "keeps nothing",
        ),
        (
            "a DaemonSet's that is not safe to evict",
            all([owner("DaemonSet", "apps/v1"), annotated(&[(SAFE, "false")])]),
            "keeps nothing",
        ),
        (
            "a DaemonSet's with local storage",
            all([owner("DaemonSet", "apps/v1"), volumes(&json!([{ "name": "v", "emptyDir": {} }]))]),
            "keeps nothing",
        ),
        ("a DaemonSet's of the system", all([owner("DaemonSet", "apps/v1"), system()]), "keeps nothing"),
        ("bare", bare(), "NotReplicated"),
        (
            "owned, but not controlled",
            json!({ "metadata": { "ownerReferences": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u" }] } }),
            "NotReplicated",
        ),
        ("bare and safe to evict", all([bare(), annotated(&[(SAFE, "true")])]), "goes"),
        ("mirror", all([bare(), annotated(&[("kubernetes.io/config.mirror", "x")])]), "keeps nothing"),
        (
            "mirror of the system",
            all([bare(), system(), annotated(&[("kubernetes.io/config.mirror", "x")])]),
            "keeps nothing",
        ),
        ("of the system", system(), "UnmovableKubeSystemPod"),
        ("bare, of the system", all([bare(), system()]), "NotReplicated"),
        ("of the system, safe to evict", all([system(), annotated(&[(SAFE, "true")])]), "goes"),
        ("bare and finished", all([bare(), json!({ "status": { "phase": "Succeeded" } })]), "keeps nothing"),
        ("failed", json!({ "status": { "phase": "Failed" } }), "keeps nothing"),
        (
            "failed, on completion",
            all([json!({ "status": { "phase": "Failed" } }), annotated(&[(SAFE, "on-completion")])]),
            "keeps nothing",
        ),
    ] {
        assert_eq!(verdict(&pod(change), &Budgets::default()), expected, "{what}");
    }
}

#[test]
fn what_annotations_say() {
    for (what, annotations, expected) in [
        ("safe", &[(SAFE, "true")][..], "goes"),
        ("not safe", &[(SAFE, "false")], "NotSafeToEvictAnnotation"),
        ("on completion", &[(SAFE, "on-completion")], "NotSafeToEvictAnnotation"),
        ("another word", &[(SAFE, "True")], "goes"),
        ("do not disrupt", &[(DISRUPT, "true")], "DoNotDisruptAnnotation"),
        ("do not disrupt, but safe", &[(DISRUPT, "true"), (SAFE, "true")], "goes"),
        ("not for two hours", &[(DISRUPT, "2h")], "DoNotDisruptAnnotation"),
        ("not for an hour and a half", &[(DISRUPT, "1h30m")], "DoNotDisruptAnnotation"),
        ("not for an hour and a moment", &[(DISRUPT, "1h0.001s")], "DoNotDisruptAnnotation"),
        ("not for the hour that is over", &[(DISRUPT, "1h")], "goes"),
        ("not for half an hour", &[(DISRUPT, "30m")], "goes"),
        ("not for no time", &[(DISRUPT, "0")], "goes"),
        ("not for less than no time", &[(DISRUPT, "-3h")], "goes"),
        ("not for days, which Go does not know", &[(DISRUPT, "3d")], "goes"),
        ("a number", &[(DISRUPT, "7200")], "goes"),
        ("false", &[(DISRUPT, "false")], "goes"),
        ("a word", &[(DISRUPT, "yes")], "goes"),
    ] {
        assert_eq!(verdict(&pod(annotated(annotations)), &Budgets::default()), expected, "{what}");
    }
    let unstarted = all([annotated(&[(DISRUPT, "1m")]), json!({ "status": { "startTime": null } })]);
    assert_eq!(
        verdict(&pod(unstarted), &Budgets::default()),
        "DoNotDisruptAnnotation",
        "the time has not begun"
    );
}

#[test]
fn what_volumes_say() {
    let two = || json!([{ "name": "a", "emptyDir": {} }, { "name": "b", "hostPath": { "path": "/x" } }]);
    for (what, volumes_of, annotations, expected) in [
        ("an empty directory", json!([{ "name": "a", "emptyDir": {} }]), &[][..], "LocalStorageRequested"),
        (
            "one on the node's disk",
            json!([{ "name": "a", "emptyDir": { "medium": "" } }]),
            &[],
            "LocalStorageRequested",
        ),
        (
            "one on huge pages",
            json!([{ "name": "a", "emptyDir": { "medium": "HugePages" } }]),
            &[],
            "LocalStorageRequested",
        ),
        ("one in memory", json!([{ "name": "a", "emptyDir": { "medium": "Memory" } }]), &[], "goes"),
        (
            "a directory of the host",
            json!([{ "name": "a", "hostPath": { "path": "/x" } }]),
            &[],
            "LocalStorageRequested",
        ),
        ("a claim", json!([{ "name": "a", "persistentVolumeClaim": { "claimName": "c" } }]), &[], "goes"),
        ("a ConfigMap", json!([{ "name": "a", "configMap": { "name": "c" } }]), &[], "goes"),
        ("safe to evict", two(), &[(SAFE, "true")], "goes"),
        ("not safe to evict", two(), &[(SAFE, "false")], "NotSafeToEvictAnnotation"),
        ("all named", two(), &[(LOCAL, "a,b")], "goes"),
        ("all named, and more", two(), &[(LOCAL, "c,b,a,")], "goes"),
        ("one named", two(), &[(LOCAL, "b")], "LocalStorageRequested"),
        ("another named", two(), &[(LOCAL, "a,c")], "LocalStorageRequested"),
        ("none named", two(), &[(LOCAL, "")], "LocalStorageRequested"),
        ("named with a space", two(), &[(LOCAL, "a, b")], "LocalStorageRequested"),
    ] {
        let change = all([volumes(&volumes_of), annotated(annotations)]);
        assert_eq!(verdict(&pod(change), &Budgets::default()), expected, "{what}");
    }
}

fn budgets(of: &[(&str, i32)]) -> Budgets {
    let object = |(at, (namespace, allowed)): (usize, &(&str, i32))| -> Arc<PodDisruptionBudget> {
        let object = json!({ "metadata": { "name": format!("b{at}"), "namespace": namespace },
            "spec": { "selector": { "matchLabels": { "app": "web" } } },
            "status": { "disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1 } });
        Arc::new(serde_json::from_value(object).unwrap())
    };
    Budgets::of(&of.iter().enumerate().map(object).collect::<Vec<_>>())
}

#[test]
fn what_budgets_say() {
    let system = || json!({ "metadata": { "namespace": "kube-system" } });
    for (what, of, change, expected) in [
        ("allows one", &[("apps", 1)][..], json!({}), "goes"),
        ("allows none", &[("apps", 0)], json!({}), "NotEnoughPdb"),
        ("of another namespace", &[("other", 0)], json!({}), "goes"),
        ("for other pods", &[("apps", 0)], json!({ "metadata": { "labels": { "app": "db" } } }), "goes"),
        ("two", &[("apps", 1), ("apps", 1)], json!({}), "NotEnoughPdb"),
        ("none, though safe to evict", &[("apps", 0)], annotated(&[(SAFE, "true")]), "NotEnoughPdb"),
        (
            "two, though safe to evict",
            &[("apps", 1), ("apps", 1)],
            annotated(&[(SAFE, "true")]),
            "NotEnoughPdb",
        ),
        ("none, for a bare pod", &[("apps", 0)], bare(), "NotReplicated"),
        ("one, for a bare pod", &[("apps", 1)], bare(), "NotReplicated"),
        ("of the system, allows one", &[("kube-system", 1)], system(), "goes"),
        ("of the system, allows none", &[("kube-system", 0)], system(), "NotEnoughPdb"),
        (
            "of the system, for other pods",
            &[("kube-system", 1)],
            all([system(), json!({ "metadata": { "labels": { "app": "db" } } })]),
            "UnmovableKubeSystemPod",
        ),
        (
            "none, but the pod has not begun",
            &[("apps", 0)],
            json!({ "status": { "phase": "Pending" } }),
            "goes",
        ),
    ] {
        assert_eq!(verdict(&pod(change), &budgets(of)), expected, "{what}");
    }
}

#[test]
fn a_pod_that_is_being_deleted_blocks_like_any_other_until_it_should_have_ended() {
    let deleted = |at: &str| json!({ "metadata": { "deletionTimestamp": at }, "spec": { "terminationGracePeriodSeconds": 10 } });
    for (what, change, expected) in [
        ("young", deleted("2026-01-01T11:59:59Z"), "goes"),
        ("young and bare", all([bare(), deleted("2026-01-01T11:59:20Z")]), "NotReplicated"),
        ("old and bare", all([bare(), deleted("2026-01-01T11:59:19Z")]), "keeps nothing"),
        (
            "young, not to be disrupted",
            all([annotated(&[(DISRUPT, "true")]), deleted("2026-01-01T11:59:59Z")]),
            "goes",
        ),
        (
            "young, not safe",
            all([annotated(&[(SAFE, "false")]), deleted("2026-01-01T11:59:59Z")]),
            "NotSafeToEvictAnnotation",
        ),
    ] {
        assert_eq!(verdict(&pod(change), &budgets(&[("apps", 0)])), expected, "{what}");
    }
}

#[test]
fn what_is_not_planned_of_a_pending_pod_keeps_a_running_one_where_it_is() {
    let claims = || json!({ "spec": { "resourceClaims": [{ "name": "r", "resourceClaimName": "c" }] } });
    let group = || json!({ "spec": { "schedulingGroup": { "podGroupName": "g" } } });
    let deleted = || json!({ "metadata": { "deletionTimestamp": "2026-01-01T11:59:59Z" } });
    let mirror = || annotated(&[("kubernetes.io/config.mirror", "x")]);
    for (what, change, expected) in [
        ("resource claims", claims(), "NotPlanned"),
        ("an empty list of them", json!({ "spec": { "resourceClaims": [] } }), "goes"),
        ("a scheduling group", group(), "NotPlanned"),
        (
            "a volume, whose limits are planned as if there were none",
            volumes(&json!([{ "name": "a", "persistentVolumeClaim": { "claimName": "c" } }])),
            "goes",
        ),
        ("safe to evict", all([claims(), annotated(&[(SAFE, "true")])]), "NotPlanned"),
        ("not safe to evict", all([group(), annotated(&[(SAFE, "false")])]), "NotPlanned"),
        ("bare", all([bare(), claims()]), "NotPlanned"),
        ("a DaemonSet's", all([owner("DaemonSet", "apps/v1"), claims()]), "keeps nothing"),
        ("mirror", all([bare(), mirror(), claims()]), "keeps nothing"),
        ("finished", all([claims(), json!({ "status": { "phase": "Succeeded" } })]), "keeps nothing"),
        ("a ReplicaSet's that ends", all([claims(), deleted()]), "goes"),
        (
            "a StatefulSet's that ends",
            all([owner("StatefulSet", "apps/v1"), claims(), deleted()]),
            "NotPlanned",
        ),
    ] {
        assert_eq!(verdict(&pod(change), &Budgets::default()), expected, "{what}");
    }
    let why = blocker(&pod(claims()), &Budgets::default(), NOW.parse().unwrap()).unwrap().why;
    assert!(why.starts_with("has resource claims, "), "{why}");
}

#[test]
fn what_time_lifts_says_when() {
    let now: Timestamp = NOW.parse().unwrap();
    let until =
        |change: Value| blocker(&pod(change), &Budgets::default(), now).unwrap().until.map(|t| t.to_string());
    assert_eq!(until(annotated(&[(DISRUPT, "90m")])).as_deref(), Some("2026-01-01T12:30:00Z"));
    assert_eq!(until(annotated(&[(DISRUPT, "true")])), None);
    let going = all([bare(), json!({ "metadata": { "deletionTimestamp": "2026-01-01T12:00:00Z" } })]);
    assert_eq!(until(going.clone()).as_deref(), Some("2026-01-01T12:01:00.001Z"));
    let claims = json!({ "spec": { "resourceClaims": [{ "name": "r" }] } });
    assert_eq!(until(all([annotated(&[(DISRUPT, "90m")]), claims.clone()])), None);
    let successor_waits = all([going, owner("StatefulSet", "apps/v1"), claims]);
    assert_eq!(until(successor_waits).as_deref(), Some("2026-01-01T12:01:00.001Z"));
}
