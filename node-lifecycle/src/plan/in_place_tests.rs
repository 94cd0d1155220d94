//! What of a changed template reaches a node, and what stays as others have left it.

use std::sync::Arc;

use json_patch::{Patch, PatchOperation};
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use shared_crds::places::EXAMPLES;

use super::*;
use crate::template::Blueprint;
use crate::template::earlier::tests::{of_version_2, of_version_3};
use crate::testing::{ALWAYS, SOURCE, annotate, key, pool};

fn pool_with(labels: &Value, annotations: &Value, taints: &Value) -> NodePool {
    let mut pool = pool(1);
    pool.spec.template.metadata =
        serde_json::from_value(json!({ "labels": labels, "annotations": annotations })).unwrap();
    pool.spec.template.spec.taints = serde_json::from_value(taints.clone()).unwrap();
    pool
}

fn made(pool: &NodePool) -> Node {
    let mut node = Blueprint::of(&key(), pool, &SOURCE).unwrap().node("n-0", None).unwrap();
    node.metadata.uid = Some("uid".into());
    node
}

fn update_of(node: &Node, pool: &NodePool, is_outdated: bool) -> Option<Value> {
    let member = Member::read(&Arc::new(node.clone()), Timestamp::UNIX_EPOCH, ALWAYS);
    InPlace::new(pool, &NodeMetadata::of(&key(), pool).unwrap()).update(&member, is_outdated)
}

/// The node after its update, which must be applicable, and which is the only one that is due.
fn updated(node: &Node, pool: &NodePool) -> Node {
    let Some(patch) = update_of(node, pool, false) else { return node.clone() };
    let Patch(operations) = serde_json::from_value(patch).unwrap();
    let absent =
        |operation: &PatchOperation| matches!(operation, PatchOperation::Test(test) if test.value.is_null());
    let mut json = serde_json::to_value(node).unwrap();
    for operation in operations.iter().filter(|it| absent(it)) {
        assert!(json.pointer(operation.path().as_str()).is_none(), "{operation}");
    }
    let rest: Vec<_> = operations.into_iter().filter(|operation| !absent(operation)).collect();
    json_patch::patch(&mut json, &rest).unwrap();
    let node: Node = serde_json::from_value(json).unwrap();
    assert_eq!(update_of(&node, pool, false), None, "nothing is left to do");
    node
}

/// Label, annotation and taints of a node.
type Given<'a> = (Option<&'a String>, Option<&'a String>, Vec<(&'a str, Option<&'a str>)>);

fn of(node: &Node) -> Given<'_> {
    let metadata = &node.metadata;
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    (
        metadata.labels.as_ref().and_then(|all| all.get("a")),
        metadata.annotations.as_ref().and_then(|all| all.get("b")),
        taints.map(|taint| (taint.key.as_str(), taint.value.as_deref())).collect(),
    )
}

fn first() -> NodePool {
    pool_with(
        &json!({ "a": "1" }),
        &json!({ "b": "1" }),
        &json!([{ "key": "t", "value": "1", "effect": "NoSchedule" }]),
    )
}

fn empty() -> NodePool {
    pool_with(&json!({}), &json!({}), &json!([]))
}

fn second() -> NodePool {
    pool_with(
        &json!({ "a": "2" }),
        &json!({ "b": "2" }),
        &json!([{ "key": "t", "value": "2", "effect": "NoSchedule" }]),
    )
}

#[test]
fn what_the_template_has_changed_added_or_taken_off_is_so_on_the_node() {
    let [one, two] = ["1".to_owned(), "2".to_owned()];
    let node = made(&first());
    assert_eq!(update_of(&node, &first(), false), None);
    assert_eq!(of(&node), (Some(&one), Some(&one), vec![("t", Some("1"))]));
    let node = updated(&node, &second());
    assert_eq!(of(&node), (Some(&two), Some(&two), vec![("t", Some("2"))]));
    let node = updated(&node, &empty());
    assert_eq!(of(&node), (None, None, vec![]));
    let node = updated(&node, &first());
    assert_eq!(of(&node), (Some(&one), Some(&one), vec![("t", Some("1"))]));
}

#[test]
fn what_others_have_done_to_a_node_stays_unless_the_template_changes_it() {
    let mut node = made(&first());
    node.metadata.labels.get_or_insert_default().insert("a".into(), "mine".into());
    annotate(&mut node, "b", "mine");
    let taint = |key: &str, value: &str| Taint {
        key: key.into(),
        value: Some(value.into()),
        effect: "NoSchedule".into(),
        ..Taint::default()
    };
    node.spec.as_mut().unwrap().taints = Some(vec![taint("other", "x"), taint("t", "mine")]);
    assert_eq!(update_of(&node, &first(), false), None, "the template is the same");
    let mine = "mine".to_owned();
    let left = updated(&node, &empty());
    assert_eq!(of(&left), (Some(&mine), Some(&mine), vec![("other", Some("x")), ("t", Some("mine"))]));
    let set = updated(&node, &second());
    let two = "2".to_owned();
    assert_eq!(of(&set), (Some(&two), Some(&two), vec![("other", Some("x")), ("t", Some("2"))]));
}

#[test]
fn labels_of_the_pool_the_provider_and_the_kubelet_are_not_the_templates() {
    let claims = |value: &str| {
        pool_with(
            &json!({ names::NODEPOOL_LABEL: value, "kwok.x-k8s.io/node": value, "kubernetes.io/arch": value }),
            &json!({ names::TEMPLATE_HASH_ANNOTATION: value }),
            &json!([]),
        )
    };
    let node = made(&claims("x"));
    // Another architecture makes it outdated.
    assert_eq!(update_of(&node, &claims("y"), true), None);
}

#[test]
fn a_node_that_is_replaced_keeps_its_hash_and_one_that_was_not_made_for_the_pool_is_left_alone() {
    let mut other = made(&first());
    annotate(&mut other, names::TEMPLATE_HASH_ANNOTATION, "v2-other");
    assert_eq!(update_of(&other, &first(), true), None);
    // The provider replaces its machines itself, so the node is not out of date.
    assert!(update_of(&other, &first(), false).unwrap().to_string().contains("template-hash"));
    // That of a version which this one does not know may be of a rollout that runs.
    annotate(&mut other, names::TEMPLATE_HASH_ANNOTATION, "v5-other");
    assert_eq!(update_of(&other, &first(), false), None);
    other.metadata.annotations.as_mut().unwrap().remove(names::TEMPLATE_HASH_ANNOTATION);
    assert_eq!(update_of(&other, &second(), false), None);
}

#[test]
fn where_and_what_a_machine_is_is_not_written_to_a_live_node() {
    for label in EXAMPLES {
        let at = |place: &str| pool_with(&json!({ label: place }), &json!({}), &json!([]));
        let node = made(&at("x"));
        for (what, then) in [("changed", at("y")), ("taken off", empty())] {
            assert_eq!(update_of(&node, &then, true), None, "{label} {what}");
        }
        assert_eq!(update_of(&made(&empty()), &at("x"), true), None, "{label} added");
    }
}

#[test]
fn the_note_of_an_earlier_version_changes_no_place() {
    for label in EXAMPLES {
        let at = |place: &str| pool_with(&json!({ label: place, "a": "1" }), &json!({}), &json!([]));
        let nodes = [of_version_2(&at("x")), of_version_3(&at("x"))];
        let pools = [("the same", at("x"), false), ("changed", at("y"), true), ("taken off", first(), true)];
        for (node, (what, pool, is_outdated)) in
            nodes.iter().flat_map(|node| pools.iter().map(move |it| (node, it)))
        {
            let written =
                update_of(node, pool, *is_outdated).map_or(String::new(), |patch| patch.to_string());
            let path = patches::label_path(label);
            assert!(!written.contains(&path), "{label} {what}: {written}");
            if !is_outdated {
                let after = updated(node, pool);
                assert_eq!(after.metadata.labels, node.metadata.labels, "{label}");
                let annotations = after.metadata.annotations.unwrap();
                let hash = annotations.get(names::TEMPLATE_HASH_ANNOTATION);
                assert_eq!(hash, pool.spec.template_hash().as_ref(), "{label}");
            }
        }
    }
}

/// A template with these taints, each a key, a value and an effect.
fn tainted(taints: &[(&str, &str, &str)]) -> NodePool {
    let taint =
        |(key, value, effect): &(&str, &str, &str)| json!({ "key": key, "value": value, "effect": effect });
    let taints: Vec<Value> = taints.iter().map(taint).collect();
    pool_with(&json!({}), &json!({}), &json!(taints))
}

#[test]
fn a_taint_that_ends_pods_is_neither_added_nor_changed_nor_taken_off() {
    let ends = |value: &str| tainted(&[("e", value, "NoExecute")]);
    for (what, before, after) in [
        ("added", tainted(&[]), ends("1")),
        ("changed", ends("1"), ends("2")),
        ("taken off", ends("1"), empty()),
    ] {
        assert_eq!(update_of(&made(&before), &after, true), None, "{what}");
    }
}

#[test]
fn a_node_keeps_the_taint_in_whose_place_one_that_ends_pods_comes() {
    let ends = tainted(&[("t", "1", "NoExecute"), ("other", "1", "NoSchedule")]);
    let node = made(&tainted(&[("t", "1", "NoSchedule")]));
    let update = update_of(&node, &ends, true).unwrap();
    let keys = |node: &Node| of(node).2.into_iter().map(|(key, _)| key.to_owned()).collect::<Vec<_>>();
    // As if its provider replaced it.
    let kept = updated(&node, &ends);
    assert!(update.to_string().contains("other"), "{update}");
    assert_eq!(keys(&kept), ["t", "other"]);
    assert!(!format!("{:?}", kept.spec).contains("NoExecute"), "{:?}", kept.spec);
    assert!(keys(&updated(&kept, &empty())).is_empty(), "it is known to be the template's");
}

#[test]
fn the_note_of_an_earlier_version_takes_no_taint_off_that_the_template_still_has() {
    let pool = tainted(&[("e", "1", "NoExecute"), ("t", "1", "NoSchedule")]);
    let node = of_version_2(&pool);
    let after = updated(&node, &pool);
    assert_eq!(after.spec, node.spec);
    assert_eq!(
        after.metadata.annotations.as_ref().unwrap()[names::TEMPLATE_HASH_ANNOTATION],
        pool.spec.template_hash().unwrap()
    );
    // A node that nothing else can free of it.
    let freed = updated(&of_version_2(&tainted(&[("e", "1", "NoExecute")])), &empty());
    assert!(of(&freed).2.is_empty());
}
