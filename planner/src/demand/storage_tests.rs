//! Tests of where `PersistentVolumeClaim`s let a pod run, and when they let it run nowhere.

use serde_json::{Value, json};

use super::cases::{Resolution, object, pending, placed, read_with};
use crate::fixtures::merged;
use crate::input::claim_info::DEFAULT_CLASS;
use crate::input::observed::Observed;
use crate::reasons::Rejection;
use crate::requirements::node_profile::NodeProfile;
use crate::requirements::predicates::volumes;

const ZONE: &str = "topology.kubernetes.io/zone";

fn user(name: &str, claim: &str) -> Value {
    pending(
        name,
        json!({ "spec": { "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": claim } }] } }),
    )
}

fn claim(change: Value) -> Value {
    merged(
        json!({ "metadata": { "name": "c", "namespace": "x" }, "status": { "phase": "Pending" },
            "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "sc",
                      "resources": { "requests": { "storage": "10Gi" } } } }),
        change,
    )
}

fn bound_to(volume: &str) -> Value {
    claim(json!({ "spec": { "volumeName": volume }, "status": { "phase": "Bound" } }))
}

fn volume(name: &str, zone: &str, change: Value) -> Value {
    merged(
        json!({ "metadata": { "name": name }, "status": { "phase": "Available" },
            "spec": { "capacity": { "storage": "10Gi" }, "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
                      "storageClassName": "sc", "nodeAffinity": { "required": { "nodeSelectorTerms": [
                          { "matchExpressions": [{ "key": ZONE, "operator": "In", "values": [zone] }] }] } } } }),
        change,
    )
}

fn class(change: Value) -> Value {
    merged(
        json!({ "metadata": { "name": "sc" }, "provisioner": "disk", "volumeBindingMode": "WaitForFirstConsumer" }),
        change,
    )
}

fn storage(claims: &[Value], volumes: &[Value], classes: &[Value]) -> Observed {
    Observed {
        claims: claims.iter().cloned().map(object).collect(),
        volumes: volumes.iter().cloned().map(object).collect(),
        storage_classes: classes.iter().cloned().map(object).collect(),
        ..Observed::default()
    }
}

/// The zones, of `a`, `b`, `c` and none, in which `pod` may run, or why it may not run anywhere.
fn zones(outcome: &Resolution, pod: &str) -> Result<Vec<&'static str>, Rejection> {
    let index = outcome.index(pod);
    if let Some((_, rejection)) = outcome.demand.waiting.iter().find(|(waiting, _)| *waiting == index) {
        return Err(rejection.clone());
    }
    let class = &outcome.demand.constraint_sets[outcome.class(pod).constraint_set];
    let node = |zone: &str| {
        let labels = [(ZONE.to_owned(), zone.to_owned())].into_iter().filter(|_| !zone.is_empty());
        NodeProfile { name: Some(format!("n{zone}")), labels: labels.collect(), taints: vec![] }
    };
    Ok(["a", "b", "c", ""]
        .into_iter()
        .filter(|zone| volumes::usable(&class.volumes, &node(zone)).is_ok())
        .collect())
}

fn zones_with(observed: &Observed) -> Result<Vec<&'static str>, Rejection> {
    zones(&read_with(observed, vec![user("p", "c")]), "p")
}

const EVERYWHERE: [&str; 4] = ["a", "b", "c", ""];

#[test]
fn a_bound_claim_binds_the_pod_to_where_the_volume_is() {
    let anywhere = json!({ "spec": { "nodeAffinity": null } });
    let labelled =
        |zones: &str| json!({ "metadata": { "labels": { ZONE: zones } }, "spec": { "nodeAffinity": null } });
    for (what, volume, expected) in [
        ("its node affinity", volume("v", "a", json!({})), vec!["a"]),
        ("none is everywhere", volume("v", "a", anywhere), EVERYWHERE.to_vec()),
        ("its zone label; nodes without zones are in all", volume("v", "", labelled("b")), vec!["b", ""]),
        ("its label may name several zones", volume("v", "", labelled("a__c")), vec!["a", "c", ""]),
        (
            "the older label is compared with the newer",
            volume(
                "v",
                "",
                json!({ "metadata": { "labels": { "failure-domain.beta.kubernetes.io/zone": "b" } },
                "spec": { "nodeAffinity": null } }),
            ),
            vec!["b", ""],
        ),
    ] {
        assert_eq!(zones_with(&storage(&[bound_to("v")], &[volume], &[])), Ok(expected), "{what}");
    }
}

#[test]
fn a_claim_without_a_volume_waits_for_the_pod_where_its_class_can_make_one() {
    let in_zone = |zone: &str| json!({ "matchLabelExpressions": [{ "key": ZONE, "values": [zone] }] });
    let both = json!([in_zone("a"), in_zone("b")]);
    let none = json!({ "provisioner": "kubernetes.io/no-provisioner" });
    for (what, claim, volumes, class, expected) in [
        ("a class without topologies", claim(json!({})), vec![], class(json!({})), EVERYWHERE.to_vec()),
        (
            "topologies are alternatives",
            claim(json!({})),
            vec![],
            class(json!({ "allowedTopologies": both })),
            vec!["a", "b"],
        ),
        (
            "or where one exists",
            claim(json!({})),
            vec![volume("v", "c", json!({}))],
            class(json!({ "allowedTopologies": [in_zone("a")] })),
            vec!["a", "c"],
        ),
        (
            "the node the scheduler has chosen",
            claim(json!({ "metadata": { "annotations": { "volume.kubernetes.io/selected-node": "n" } } })),
            vec![],
            class(json!({})),
            vec![""],
        ),
        (
            "the node the scheduler has chosen is gone",
            claim(json!({ "metadata": { "annotations": { "volume.kubernetes.io/selected-node": "nb" } } })),
            vec![],
            class(json!({ "allowedTopologies": both })),
            vec!["a", "b"],
        ),
        (
            "only where one exists",
            claim(json!({})),
            vec![volume("v", "a", json!({})), volume("w", "b", json!({}))],
            class(none.clone()),
            vec!["a", "b"],
        ),
        (
            "only one that fits",
            claim(json!({ "spec": { "selector": { "matchLabels": { "d": "1" } } } })),
            vec![
                volume("fits", "a", json!({ "metadata": { "labels": { "d": "1" } } })),
                volume("label", "b", json!({})),
                volume(
                    "size",
                    "b",
                    json!({ "metadata": { "labels": { "d": "1" } }, "spec": { "capacity": { "storage": "9Gi" } } }),
                ),
                volume(
                    "class",
                    "b",
                    json!({ "metadata": { "labels": { "d": "1" } }, "spec": { "storageClassName": "other" } }),
                ),
                volume(
                    "mode",
                    "b",
                    json!({ "metadata": { "labels": { "d": "1" } }, "spec": { "volumeMode": "Block" } }),
                ),
                volume(
                    "access",
                    "b",
                    json!({ "metadata": { "labels": { "d": "1" } }, "spec": { "accessModes": ["ReadOnlyMany"] } }),
                ),
                volume(
                    "bound",
                    "b",
                    json!({ "metadata": { "labels": { "d": "1" } }, "status": { "phase": "Released" } }),
                ),
                volume(
                    "going",
                    "b",
                    json!({ "metadata": { "labels": { "d": "1" }, "deletionTimestamp": "2026-01-01T00:00:00Z" } }),
                ),
                volume(
                    "other's",
                    "b",
                    json!({ "metadata": { "labels": { "d": "1" } },
                    "spec": { "claimRef": { "namespace": "y", "name": "c" } } }),
                ),
            ],
            class(none.clone()),
            vec!["a"],
        ),
        (
            "only the one that is meant for it",
            claim(json!({})),
            vec![
                volume("v", "a", json!({})),
                volume("w", "b", json!({ "spec": { "claimRef": { "namespace": "x", "name": "c" } } })),
            ],
            class(json!({})),
            vec!["b"],
        ),
    ] {
        assert_eq!(zones_with(&storage(&[claim], &volumes, &[class])), Ok(expected), "{what}");
    }
}

#[test]
fn a_pod_whose_claim_no_node_can_help_waits() {
    let name = || "c".to_owned();
    let lost = claim(json!({ "status": { "phase": "Lost" } }));
    let deleted = claim(json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }));
    let immediate = class(json!({ "volumeBindingMode": "Immediate" }));
    let none = class(json!({ "provisioner": "kubernetes.io/no-provisioner" }));
    let without_class = claim(json!({ "spec": { "storageClassName": "" } }));
    let half_bound = claim(json!({ "spec": { "volumeName": "v" } }));
    for (claims, volumes, classes, rejection) in [
        (vec![], vec![], vec![], Rejection::ClaimNotFound(name())),
        (vec![lost], vec![], vec![class(json!({}))], Rejection::ClaimLost(name())),
        (vec![deleted], vec![], vec![class(json!({}))], Rejection::ClaimBeingDeleted(name())),
        (vec![claim(json!({}))], vec![], vec![immediate], Rejection::UnboundImmediateClaim(name())),
        (vec![without_class], vec![], vec![class(json!({}))], Rejection::UnboundImmediateClaim(name())),
        (
            vec![half_bound],
            vec![volume("v", "a", json!({}))],
            vec![class(json!({}))],
            Rejection::UnboundImmediateClaim(name()),
        ),
        (vec![claim(json!({}))], vec![], vec![], Rejection::StorageClassNotFound("sc".to_owned())),
        (vec![bound_to("v")], vec![], vec![class(json!({}))], Rejection::VolumeNotFound("v".to_owned())),
        (vec![claim(json!({}))], vec![], vec![none], Rejection::NoVolumeAvailable(name())),
    ] {
        let outcome = read_with(&storage(&claims, &volumes, &classes), vec![user("p", "c")]);
        assert_eq!(zones(&outcome, "p"), Err(rejection));
        assert!(outcome.demand.groups.is_empty());
    }
}

#[test]
fn a_claim_that_names_no_class_takes_the_default_one() {
    let unnamed = claim(json!({ "spec": { "storageClassName": null } }));
    let marked = |name: &str, created: &str, fork: &str, zone: &str| {
        class(
            json!({ "metadata": { "name": name, "creationTimestamp": created, "annotations": { fork: "true" } },
            "allowedTopologies": [{ "matchLabelExpressions": [{ "key": ZONE, "values": [zone] }] }] }),
        )
    };
    for fork in DEFAULT_CLASS {
        let young = marked("a", "2026-01-02T00:00:00Z", fork, "a");
        let old = marked("b", "2026-01-01T00:00:00Z", DEFAULT_CLASS[0], "b");
        let observed = storage(std::slice::from_ref(&unnamed), &[], &[old, class(json!({})), young]);
        assert_eq!(zones_with(&observed), Ok(vec!["a"]), "{fork}");
    }
    let observed = storage(&[unnamed], &[], &[class(json!({}))]);
    assert_eq!(zones_with(&observed), Err(Rejection::UnboundImmediateClaim("c".to_owned())));
}

#[test]
fn the_claim_of_an_ephemeral_volume_is_planned_before_it_is_made() {
    let template = json!({ "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "sc" } });
    let ephemeral = |name: &str| {
        pending(
            name,
            json!({ "spec": { "volumes": [{ "name": "v", "ephemeral": { "volumeClaimTemplate": template } }] } }),
        )
    };
    let topologies = json!([{ "matchLabelExpressions": [{ "key": ZONE, "values": ["a"] }] }]);
    let made = claim(
        json!({ "metadata": { "name": "made-v" }, "spec": { "volumeName": "v" }, "status": { "phase": "Bound" } }),
    );
    let observed = storage(
        &[made],
        &[volume("v", "b", json!({ "status": { "phase": "Bound" } }))],
        &[class(json!({ "allowedTopologies": topologies }))],
    );
    let outcome = read_with(&observed, vec![ephemeral("made"), ephemeral("new")]);
    assert_eq!(zones(&outcome, "made"), Ok(vec!["b"]));
    assert_eq!(zones(&outcome, "new"), Ok(vec!["a"]));
}

#[test]
fn every_claim_must_have_its_place() {
    let named = |name: &str, volume: &str| merged(bound_to(volume), json!({ "metadata": { "name": name } }));
    let both = pending(
        "p",
        json!({ "spec": { "volumes": [
            { "name": "v", "persistentVolumeClaim": { "claimName": "c" } },
            { "name": "w", "persistentVolumeClaim": { "claimName": "d" } },
        ] } }),
    );
    let places = |second: &str| {
        let volumes = [volume("v", "a", json!({})), volume("w", second, json!({}))];
        let observed = storage(&[named("c", "v"), named("d", "w")], &volumes, &[]);
        zones(&read_with(&observed, vec![both.clone()]), "p")
    };
    assert_eq!(places("a"), Ok(vec!["a"]));
    assert_eq!(places("b"), Ok(vec![]));
}

#[test]
fn a_claim_for_one_pod_is_not_shared() {
    let exclusive = merged(bound_to("v"), json!({ "spec": { "accessModes": ["ReadWriteOncePod"] } }));
    let user_on_node = || merged(placed("q", json!({})), user("q", "c"));
    let volumes = [volume("v", "a", json!({}))];
    let of = |claim: &Value, others: Vec<Value>| {
        let pods = [vec![user("p", "c")], others].concat();
        zones(&read_with(&storage(std::slice::from_ref(claim), &volumes, &[]), pods), "p")
    };
    assert_eq!(of(&exclusive, vec![]), Ok(vec!["a"]));
    assert_eq!(of(&exclusive, vec![user_on_node()]), Err(Rejection::ClaimInUse("c".to_owned())));
    assert_eq!(of(&bound_to("v"), vec![user_on_node()]), Ok(vec!["a"]));
}

#[test]
fn a_pod_with_a_node_and_a_broken_claim_stays_where_it_is() {
    let outcome =
        read_with(&Observed::default(), vec![merged(user("q", "c"), json!({ "spec": { "nodeName": "n" } }))]);
    assert_eq!(zones(&outcome, "q"), Ok(vec![]));
    assert!(outcome.demand.waiting.is_empty());
}

#[test]
fn pods_with_volumes_in_one_place_are_one_class() {
    let named = |name: &str, volume: &str| merged(bound_to(volume), json!({ "metadata": { "name": name } }));
    let observed = storage(
        &[named("c", "v"), named("d", "w"), named("e", "u")],
        &[volume("v", "a", json!({})), volume("w", "a", json!({})), volume("u", "b", json!({}))],
        &[],
    );
    let outcome = read_with(&observed, vec![user("1", "c"), user("2", "d"), user("3", "e")]);
    let groups: Vec<_> = outcome.demand.groups.iter().map(|g| g.pods.len()).collect();
    assert_eq!(groups, [2, 1]);
}
