//! Which nodes are of the present template, with the hash of this version and with that of an earlier one.

use std::sync::Arc;

use serde_json::{Value, json};
use shared_crds::names::KUBELETS_LABELS;
use shared_crds::places::EXAMPLES;
use shared_crds::{NodePool, names};

use super::*;
use crate::assess::membership::Member;
use crate::assess::outdated::OutdatedCriteria;
use crate::template::Blueprint;
use crate::testing::{ALWAYS, SOURCE, annotate, at, key};

const ZONE: &str = "topology.kubernetes.io/zone";
const TYPE: &str = "node.kubernetes.io/instance-type";
const ARCH: &str = "kubernetes.io/arch";

/// A node of the pool as this version makes it.
fn made(pool: &NodePool) -> Node {
    Blueprint::of(&key(), pool, &SOURCE).unwrap().node("n-0", None).unwrap()
}

/// A node of the pool as version 2 made it, which hashed no places and no taints that end pods, and noted them.
pub(crate) fn of_version_2(pool: &NodePool) -> Node {
    let mut taints = pool.spec.template.spec.taints.clone();
    taints.sort();
    of_version(pool, 1, &AppliedTemplate { taints, ..noted(pool, &KUBELETS_LABELS) })
}

/// A node of the pool as version 3 made it, which knew fewer labels as places, and noted the others.
pub(crate) fn of_version_3(pool: &NodePool) -> Node {
    let known = [ZONE, "topology.kubernetes.io/region", TYPE];
    of_version(pool, 0, &noted(pool, &[&KUBELETS_LABELS[..], &known].concat()))
}

/// What of the template such versions noted, with all labels but `without`.
fn noted(pool: &NodePool, without: &[&str]) -> AppliedTemplate {
    let mut labels = pool.spec.template.metadata.clone().unwrap_or_default().labels;
    labels.retain(|key, _| !without.contains(&key.as_str()));
    AppliedTemplate { labels, ..AppliedTemplate::of(&pool.spec) }
}

/// A node with this note and that of the earlier hashes.
fn of_version(pool: &NodePool, earlier: usize, noted: &AppliedTemplate) -> Node {
    let mut node = made(pool);
    node.metadata.uid = Some("uid".into());
    node.metadata.annotations.as_mut().unwrap().remove(names::TEMPLATE_APPLIED_ANNOTATION);
    if let Some(text) = noted.text() {
        annotate(&mut node, names::TEMPLATE_APPLIED_ANNOTATION, &text);
    }
    let hash = pool.spec.earlier_template_hashes()[earlier].hash.clone();
    annotate(&mut node, names::TEMPLATE_HASH_ANNOTATION, &hash);
    node
}

fn pool_with(labels: &Value, taints: &Value) -> NodePool {
    let mut pool = crate::testing::pool(1);
    pool.spec.template.metadata = serde_json::from_value(json!({ "labels": labels })).unwrap();
    pool.spec.template.spec.taints = serde_json::from_value(taints.clone()).unwrap();
    pool
}

fn ends_pods(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": value, "effect": "NoExecute" })
}

fn is_outdated(node: &Node, pool: &NodePool) -> bool {
    let member = Member::read(&Arc::new(node.clone()), at(100), ALWAYS);
    OutdatedCriteria::of(pool, at(100)).outdated(&member).is_some()
}

#[test]
fn another_place_or_taint_that_ends_pods_makes_a_node_outdated() {
    let none = pool_with(&json!({}), &json!([]));
    let place = |place: &str| pool_with(&json!({ ZONE: place }), &json!([]));
    let ends = |value: &str| pool_with(&json!({}), &json!([ends_pods("e", value)]));
    let keeps_off = pool_with(&json!({}), &json!([{ "key": "e", "effect": "NoSchedule" }]));
    for (what, before, after, expected) in [
        ("no place, then one", &none, &place("a"), true),
        ("another place", &place("a"), &place("b"), true),
        ("a place, then none", &place("a"), &none, true),
        ("the same place", &place("a"), &place("a"), false),
        ("no taint, then one", &none, &ends("1"), true),
        ("another value", &ends("1"), &ends("2"), true),
        ("a taint, then none", &ends("1"), &none, true),
        ("one that only keeps pods off", &none, &keeps_off, false),
        ("it ends pods now", &keeps_off, &ends("1"), true),
    ] {
        assert_eq!(is_outdated(&made(before), after), expected, "{what}");
    }
}

#[test]
fn a_place_that_the_node_is_at_anyway_does_not_make_it_outdated() {
    let mut node = made(&pool_with(&json!({}), &json!([])));
    node.metadata.labels.get_or_insert_default().insert(ZONE.to_owned(), "a".to_owned());
    for (zone, expected) in [("a", false), ("b", true)] {
        assert_eq!(is_outdated(&node, &pool_with(&json!({ ZONE: zone }), &json!([]))), expected, "{zone}");
    }
}

#[test]
fn a_node_of_an_earlier_version_is_up_to_date_while_its_template_is_the_same() {
    let of = |zone: &str, kind: &str, arch: &str, taints: Value| {
        pool_with(&json!({ ZONE: zone, TYPE: kind, ARCH: arch, "a": "1" }), &taints)
    };
    let node = of_version_2(&of("a", "large", "arm64", json!([ends_pods("e", "1")])));
    let same = || json!([ends_pods("e", "1")]);
    let mut larger = of("a", "large", "arm64", same());
    larger.spec.template.spec.capacity.insert("cpu".to_owned(), serde_json::from_value(json!("8")).unwrap());
    for (what, pool, expected) in [
        ("as it was", of("a", "large", "arm64", same()), false),
        ("another zone", of("b", "large", "arm64", same()), true),
        ("another type", of("a", "small", "arm64", same()), true),
        ("another architecture", of("a", "large", "amd64", same()), true),
        ("another value", of("a", "large", "arm64", json!([ends_pods("e", "2")])), true),
        ("one more", of("a", "large", "arm64", json!([ends_pods("e", "1"), ends_pods("f", "1")])), true),
        ("no longer asked for", pool_with(&json!({ ARCH: "arm64" }), &json!([])), false),
        ("capacity", larger, true),
    ] {
        assert_eq!(is_outdated(&node, &pool), expected, "{what}");
    }
}

#[test]
fn what_a_node_of_an_earlier_version_was_made_with_or_has_now_is_enough() {
    let pool = pool_with(&json!({ ZONE: "a" }), &json!([ends_pods("e", "1")]));
    let corrected = |node: &mut Node| {
        node.metadata.labels.as_mut().unwrap().insert(ZONE.to_owned(), "b".to_owned());
        node.spec.as_mut().unwrap().taints = None;
    };
    let without_note = |node: &mut Node| {
        node.metadata.annotations.as_mut().unwrap().remove(names::TEMPLATE_APPLIED_ANNOTATION);
    };
    let [mut noted, mut has, mut neither] = [(); 3].map(|()| of_version_2(&pool));
    corrected(&mut noted);
    without_note(&mut has);
    corrected(&mut neither);
    without_note(&mut neither);
    let found = [&noted, &has, &neither].map(|node| is_outdated(node, &pool));
    assert_eq!(found, [false, false, true]);
}

#[test]
fn an_upgrade_from_version_3_makes_no_node_outdated_and_another_place_does() {
    let set = |node: &mut Node, label: &str, value: &str| {
        node.metadata.labels.as_mut().unwrap().insert(label.to_owned(), value.to_owned());
    };
    for label in EXAMPLES.into_iter().filter(|label| *label != ZONE) {
        let of = |place: &str| {
            let taints = json!([ends_pods("e", "1"), { "key": "t", "effect": "NoSchedule" }]);
            pool_with(&json!({ ZONE: "a", label: place, "a": "1" }), &taints)
        };
        let node = of_version_3(&of("x"));
        let (mut elsewhere, mut corrected) = (node.clone(), node.clone());
        // It kept the zone that it brought when it joined.
        set(&mut elsewhere, ZONE, "b");
        set(&mut corrected, label, "y");
        for (what, node) in [("made", &node), ("elsewhere", &elsewhere), ("corrected", &corrected)] {
            assert!(!is_outdated(node, &of("x")), "{label} {what}");
        }
        assert!(is_outdated(&node, &of("z")), "{label} changed");
        // With no other place, version 3 made the hash of version 2.
        let alone = |place: &str| pool_with(&json!({ label: place }), &json!([]));
        let node = of_version_3(&alone("x"));
        assert!(!is_outdated(&node, &alone("x")) && is_outdated(&node, &alone("z")), "{label} alone");
    }
}

#[test]
fn a_template_without_labels_of_the_next_version_keeps_the_hash_that_its_nodes_have() {
    for (labels, taints) in [
        (json!({}), json!([])),
        (json!({ "tier": "gpu", "kubernetes.io/hostname": "h" }), json!([])),
        (json!({ ZONE: "a", TYPE: "large", ARCH: "arm64" }), json!([ends_pods("e", "1")])),
    ] {
        let pool = pool_with(&labels, &taints);
        let (before, now) = (of_version_3(&pool), made(&pool));
        let hash = |node: &Node| {
            node.metadata.annotations.as_ref().unwrap()[names::TEMPLATE_HASH_ANNOTATION].clone()
        };
        assert_eq!(hash(&before), hash(&now), "{labels}");
    }
}
