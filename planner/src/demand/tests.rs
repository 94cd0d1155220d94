//! Tests of how pods relate to other pods, rule by rule.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::cases::{app, labels, object, pending, placed, read, read_with, required};
use crate::demand::pod_requirements::PodRequirements;
use crate::fixtures::merged;
use crate::index::{PassNodeIndex, PodIndex};
use crate::input::observed::Observed;
use crate::input::pod_info::PodInfo;

#[test]
fn pods_without_a_difference_are_one_class() {
    let numbered = |name: &str| pending(name, labels(json!({ "app": "a", "pod-name": name })));
    let read_alone = read(vec![numbered("a"), numbered("b")]);
    assert_eq!(read_alone.demand.classes.len(), 1);
    assert_eq!(read_alone.demand.groups.len(), 1);
    let anti = required("podAntiAffinity", json!([{ "labelSelector": app("a"), "topologyKey": "h" }]));
    let unasked = read(vec![numbered("a"), numbered("b"), pending("c", anti)]);
    assert_eq!(unasked.demand.classes.len(), 2, "no selector asks for their names");
    let by_name = json!([{ "labelSelector": { "matchLabels": { "pod-name": "a" } }, "topologyKey": "h" }]);
    let asked = read(vec![numbered("a"), numbered("b"), pending("c", required("podAntiAffinity", by_name))]);
    assert_eq!(asked.demand.classes.len(), 3, "one of them is asked for by name");
}

#[test]
fn groups_come_by_priority_then_size_then_name() {
    let sized = |name: &str, cpu: &str, priority: i32| {
        pending(
            name,
            json!({ "spec": { "priority": priority,
            "containers": [{ "name": "c", "resources": { "requests": { "cpu": cpu } } }] } }),
        )
    };
    let outcome = read(vec![
        sized("a", "100m", 0),
        sized("b", "2", 0),
        sized("c", "0.1", 0),
        sized("d", "50m", 10),
        sized("e", "nonsense", 0),
    ]);
    let numbers = |pods: &[PodIndex]| pods.iter().map(|pod| pod.0).collect::<Vec<_>>();
    let groups: Vec<_> = outcome.demand.groups.iter().map(|g| numbers(&g.pods)).collect();
    assert_eq!(groups, [vec![3], vec![1], vec![0, 2]]);
    assert_eq!(outcome.demand.unreadable, [(PodIndex(4), "cpu \"nonsense\" is not a quantity".to_owned())]);
}

#[test]
fn affinity_means_pods_that_match_all_terms() {
    let terms = json!([
        { "labelSelector": app("a"), "topologyKey": "zone" },
        { "labelSelector": { "matchLabels": { "tier": "t" } }, "topologyKey": "host" },
    ]);
    let outcome = read(vec![
        pending("p", required("podAffinity", terms)),
        placed("both", labels(json!({ "app": "a", "tier": "t" }))),
        placed("one", labels(json!({ "app": "a" }))),
    ]);
    let affinity = outcome.class("p").affinity.clone().unwrap();
    let keys: Vec<_> =
        affinity.topology_counts.iter().map(|&t| outcome.demand.topology_counts[t].key.as_str()).collect();
    assert_eq!(keys, ["host", "zone"]);
    assert!(!affinity.matches_itself);
    assert!(outcome.wants("p", "both"));
    assert!(!outcome.wants("p", "one"));
}

#[test]
fn a_pod_may_satisfy_its_own_affinity() {
    let to_a = required("podAffinity", json!([{ "labelSelector": app("a"), "topologyKey": "zone" }]));
    let outcome = read(vec![
        pending("same", merged(labels(json!({ "app": "a" })), to_a.clone())),
        pending("other", to_a),
    ]);
    assert!(outcome.class("same").affinity.as_ref().unwrap().matches_itself);
    assert!(!outcome.class("other").affinity.as_ref().unwrap().matches_itself);
    assert!(outcome.wants("same", "same"));
}

#[test]
fn terms_mean_the_namespaces_they_say() {
    let namespaces = ["x", "y", "z"].map(|name| {
        let team = json!({ "metadata": { "name": name, "labels": { "team": if name == "x" { "1" } else { "2" } } } });
        object(team)
    });
    for (what, term, wanted) in [
        ("its own by default", json!({}), vec!["x"]),
        ("those it lists", json!({ "namespaces": ["y", "w"] }), vec!["w", "y"]),
        ("an empty selector is all", json!({ "namespaceSelector": {} }), vec!["w", "x", "y", "z"]),
        ("by label", json!({ "namespaceSelector": { "matchLabels": { "team": "2" } } }), vec!["y", "z"]),
        (
            "listed or selected",
            json!({ "namespaces": ["w"], "namespaceSelector": { "matchLabels": { "team": "1" } } }),
            vec!["w", "x"],
        ),
        (
            "every namespace has its name as a label",
            json!({ "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "w" } } }),
            vec!["w"],
        ),
        ("no labels selector is no pod", json!({ "labelSelector": null }), vec![]),
    ] {
        let term = merged(json!({ "labelSelector": app("a"), "topologyKey": "zone" }), term);
        let in_namespace = |name: &&str| {
            placed(name, json!({ "metadata": { "namespace": name, "labels": { "app": "a" } } }))
        };
        let others = ["w", "x", "y", "z"];
        let mut pods: Vec<_> = others.iter().map(in_namespace).collect();
        pods.push(pending("p", required("podAffinity", json!([term]))));
        let outcome = read_with(&Observed { namespaces: namespaces.to_vec(), ..Observed::default() }, pods);
        let found: Vec<_> = others.into_iter().filter(|other| outcome.wants("p", other)).collect();
        assert_eq!(found, wanted, "{what}");
    }
}

#[test]
fn match_label_keys_narrow_a_term_to_the_pods_own_values() {
    let own = |name: &str, version: &str| placed(name, labels(json!({ "app": "a", "v": version })));
    for (what, term, wanted) in [
        ("neither", json!({}), vec!["one", "two"]),
        ("the same value", json!({ "matchLabelKeys": ["v"] }), vec!["one"]),
        ("another value", json!({ "mismatchLabelKeys": ["v"] }), vec!["two"]),
        ("keys it does not have say nothing", json!({ "matchLabelKeys": ["w"] }), vec!["one", "two"]),
        (
            "merged by the API server already",
            json!({ "matchLabelKeys": ["v"], "labelSelector": {
                "matchExpressions": [{ "key": "v", "operator": "In", "values": ["1"] }] } }),
            vec!["one"],
        ),
    ] {
        let term = merged(json!({ "labelSelector": app("a"), "topologyKey": "zone" }), term);
        let change = merged(labels(json!({ "v": "1" })), required("podAffinity", json!([term])));
        let outcome = read(vec![own("one", "1"), own("two", "2"), pending("p", change)]);
        let found: Vec<_> = ["one", "two"].into_iter().filter(|other| outcome.wants("p", other)).collect();
        assert_eq!(found, wanted, "{what}");
    }
}

#[test]
fn anti_affinity_keeps_both_sides_apart() {
    let from_a = required(
        "podAntiAffinity",
        json!([
            { "labelSelector": app("a"), "topologyKey": "host" },
            { "labelSelector": { "matchLabels": { "tier": "t" } }, "topologyKey": "zone" },
        ]),
    );
    let outcome = read(vec![
        pending("holder", from_a.clone()),
        placed("matches", labels(json!({ "app": "a" }))),
        placed("matches-both", labels(json!({ "app": "a", "tier": "t" }))),
        placed("neither", labels(json!({ "app": "b" }))),
    ]);
    for (other, keys) in [
        ("matches", vec!["host"]),
        ("matches-both", vec!["host", "zone"]),
        ("neither", vec![]),
        ("holder", vec![]),
    ] {
        assert_eq!(outcome.keeps_from("holder", other), keys, "{other}");
        assert_eq!(outcome.keeps_from(other, "holder"), keys, "from {other}");
    }
    assert_eq!(outcome.keeps_from("matches", "matches-both"), Vec::<&str>::new(), "they have no terms");
}

#[test]
fn one_count_is_enough_where_those_with_the_term_are_those_it_means() {
    let anti_affinity = |name: &str| {
        let term = json!([{ "labelSelector": app("a"), "topologyKey": "host" }]);
        pending(name, merged(labels(json!({ "app": "a" })), required("podAntiAffinity", term)))
    };
    let outcome = read(vec![anti_affinity("a"), anti_affinity("b")]);
    assert_eq!(outcome.demand.topology_counts.len(), 1);
    assert_eq!(outcome.keeps_from("a", "b"), ["host"]);
    let outcome =
        read(vec![anti_affinity("a"), anti_affinity("b"), placed("c", labels(json!({ "app": "a" })))]);
    assert_eq!(outcome.demand.topology_counts.len(), 2);
    assert_eq!(outcome.keeps_from("c", "a"), ["host"]);
    assert_eq!(outcome.keeps_from("a", "c"), ["host"]);
}

#[test]
fn an_anti_affinity_that_selects_no_pod_costs_nothing() {
    let term = json!([{ "labelSelector": app("gone"), "topologyKey": "host" }]);
    let outcome = read(vec![pending("p", required("podAntiAffinity", term))]);
    assert!(outcome.demand.topology_counts.is_empty());
    assert!(outcome.class("p").anti_affinity.is_empty());
}

#[test]
fn a_pod_that_is_being_deleted_still_counts_for_affinity() {
    let going =
        json!({ "metadata": { "labels": { "app": "a" }, "deletionTimestamp": "2026-01-01T00:00:00Z" } });
    let to_a = required("podAffinity", json!([{ "labelSelector": app("a"), "topologyKey": "zone" }]));
    let outcome = read(vec![pending("p", to_a), placed("going", going)]);
    assert!(outcome.wants("p", "going"));
}

#[test]
fn a_selector_that_cannot_be_read_is_said() {
    let term = json!([{ "topologyKey": "zone", "labelSelector": { "matchExpressions": [
        { "key": "app", "operator": "Like", "values": ["a"] }] } }]);
    let problem = "the selector's rule over \"app\" has the operator \"Like\" with 1 values";
    let outcome = read(vec![
        pending("p", required("podAntiAffinity", term.clone())),
        placed("q", required("podAffinity", term)),
        placed(
            "r",
            json!({ "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": "-1" } } }] } }),
        ),
    ]);
    assert_eq!(outcome.demand.unreadable, [(PodIndex(0), problem.to_owned())]);
    assert_eq!(
        outcome.demand.warnings,
        [
            format!("pod x/q is planned without one of its constraints: {problem}"),
            "pod x/r counts as asking for nothing: cpu \"-1\" is below zero in its requests".to_owned(),
        ]
    );
    assert!(outcome.demand.placed[outcome.index("q")].is_some());
    assert_eq!(outcome.demand.misread, [outcome.index("q"), outcome.index("r")], "both stay where they are");
}

#[test]
fn only_pending_pods_and_those_with_a_node_play_a_part() {
    let outcome = read(vec![
        placed("bound", json!({})),
        pending("nominated", json!({ "status": { "nominatedNodeName": "n" } })),
        pending("gated", json!({ "spec": { "schedulingGates": [{ "name": "g" }] } })),
        placed("lost", json!({ "spec": { "nodeName": "gone" } })),
        placed("finished", json!({ "status": { "phase": "Succeeded" } })),
        pending("waits", json!({})),
    ]);
    let here = Some(PassNodeIndex(0));
    let placed: Vec<_> = ["bound", "nominated", "gated", "lost", "finished", "waits"]
        .map(|pod| outcome.demand.placed[outcome.index(pod)].map(|(_, node)| node))
        .to_vec();
    assert_eq!(placed, [here, here, None, None, None, None]);
    assert_eq!(outcome.demand.groups.len(), 1);
    assert_eq!(outcome.demand.groups[0].pods, [outcome.index("waits")]);
}

#[test]
fn preferred_node_affinity_is_kept_for_ties() {
    let rule =
        |value: &str| json!({ "matchExpressions": [{ "key": "d", "operator": "In", "values": [value] }] });
    let preferred = json!([
        { "weight": 9, "preference": rule("a") }, { "weight": 1, "preference": rule("b") }, { "weight": 50, "preference": {} }
    ]);
    let change = json!({ "spec": { "affinity": { "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": preferred } } } });
    let outcome = read(vec![pending("p", change)]);
    let weights: Vec<_> = outcome.class("p").preferred.iter().map(|p| p.weight).collect();
    assert_eq!(weights, [1, 9], "what has no rules is no preference");
}

#[test]
fn what_the_caches_keep_of_a_pod_is_all_that_is_read() {
    let whole: Arc<Pod> = object(pending(
        "p",
        json!({
            "metadata": { "labels": { "app": "a" }, "annotations": { "x": "y" } },
            "spec": {
                "hostNetwork": true, "nodeSelector": { "d": "1" }, "overhead": { "cpu": "1" },
                "tolerations": [{ "key": "k", "operator": "Exists" }],
                "resources": { "requests": { "memory": "1Gi" } },
                "volumes": [{ "name": "v", "ephemeral": {} }, { "name": "e", "emptyDir": {} }],
                "containers": [{ "name": "c", "image": "i", "ports": [{ "containerPort": 80 }] }],
                "initContainers": [{ "name": "s", "restartPolicy": "Always", "ports": [{ "containerPort": 81 }] }],
                "topologySpreadConstraints": [{ "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": app("a"), "matchLabelKeys": ["app"] }],
                "affinity": {
                    "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [
                        { "weight": 1, "preference": { "matchExpressions": [{ "key": "d", "operator": "Exists" }] } }] },
                    "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
                        { "labelSelector": app("a"), "topologyKey": "zone" }] },
                },
            },
            "status": { "containerStatuses": [{ "name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
                "resources": { "requests": { "cpu": "3" } } }] },
        }),
    ));
    let mut pruned = Pod::clone(&whole);
    crate::input::transform::pod(&mut pruned);
    assert_ne!(pruned, *whole);
    let read = |pod: &Pod| PodRequirements::of(PodInfo::from(pod.clone()).shape());
    assert_eq!(read(&pruned), read(&whole));
    assert_eq!(read(&whole).ports.len(), 2);
    let claims = |pod: &Pod| pod.spec.clone().unwrap().volumes.unwrap()[0].clone();
    assert_eq!(claims(&pruned), claims(&whole));
}
