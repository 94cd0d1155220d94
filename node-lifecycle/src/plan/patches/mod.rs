//! The JSON patches of the plan. Each one begins with `test` operations for the state the decision was made from, so
//! that it cannot be applied to another object, or to one that was changed meanwhile in a way that matters. Frequent
//! status updates, such as a kubelet's heartbeat, do not fail the tests.
//!
//! `test` with `null` holds where the field is absent (measured on kube-apiserver 1.36).

mod drain;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
use shared_crds::{NodePool, names};

pub use self::drain::{cordon, drain_waits, give_back, note_cause, out_of_service, uncordon};
use crate::template::Marks;
use crate::template::applied_template::KUBELETS_LABELS;

/// Adds the pool's finalizer.
pub fn add_pool_finalizer(pool: &NodePool) -> Value {
    add_finalizer(&pool.metadata, names::POOL_FINALIZER)
}

/// Removes the pool's finalizer; `None` when it is absent.
pub fn remove_pool_finalizer(pool: &NodePool) -> Option<Value> {
    remove_finalizer(&pool.metadata, names::POOL_FINALIZER)
}

/// Sets an unset number of replicas, provided that the spec is still the observed one. The patch is made on the object
/// and not on `/scale`, which leaves no entry in `managedFields` where the number is unset: so `managedFields` shows
/// which manager set it, and which one scales from then on.
pub fn fill_replicas(pool: &NodePool, replicas: i32) -> Value {
    let mut patch = is_same_object(&pool.metadata);
    patch.push(json!({ "op": "test", "path": "/metadata/generation", "value": pool.metadata.generation }));
    patch.push(json!({ "op": "test", "path": "/spec/replicas", "value": null }));
    patch.push(json!({ "op": "add", "path": "/spec/replicas", "value": replicas }));
    Value::Array(patch)
}

/// Adds the node's finalizer.
pub fn add_node_finalizer(node: &Node) -> Value {
    add_finalizer(&node.metadata, names::NODE_FINALIZER)
}

/// Removes the node's finalizer; `None` when it is absent.
pub fn remove_node_finalizer(node: &Node) -> Option<Value> {
    remove_finalizer(&node.metadata, names::NODE_FINALIZER)
}

/// Annotates the node as having been Ready.
pub fn mark_ready(node: &Node, now: Timestamp) -> Value {
    let mut patch = is_same_object(&node.metadata);
    patch.extend(annotate(&node.metadata, &[(names::READY_TIME_ANNOTATION, second(now).to_string())]));
    Value::Array(patch)
}

/// Makes a Node that registered itself a node of the pool with these `marks`, as the one of `machine`: labels,
/// annotations, taints and the finalizer in one write, provided that it is in no pool and has not been deleted. Taints
/// that others set stay.
pub(crate) fn join(node: &Node, machine: &str, marks: &Marks) -> Value {
    let metadata = &node.metadata;
    let id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_ref());
    let mut patch = is_same_object(metadata);
    patch.push(json!({ "op": "test", "path": "/spec/providerID", "value": id }));
    patch.push(json!({ "op": "test", "path": "/metadata/deletionTimestamp", "value": null }));
    let own = |(key, _): &(&String, &String)| !KUBELETS_LABELS.contains(&key.as_str());
    let mut labels: BTreeMap<&str, &str> =
        marks.labels.iter().filter(own).map(|(key, value)| (key.as_str(), value.as_str())).collect();
    labels.insert(names::MACHINE_LABEL, machine);
    if metadata.labels.is_some() {
        patch.push(json!({ "op": "test", "path": label_path(names::MEMBER_LABEL), "value": null }));
        let add = |(key, value)| json!({ "op": "add", "path": label_path(key), "value": value });
        patch.extend(labels.into_iter().map(add));
    } else {
        patch.push(json!({ "op": "test", "path": "/metadata/labels", "value": null }));
        patch.push(json!({ "op": "add", "path": "/metadata/labels", "value": labels }));
    }
    if metadata.annotations.is_some() {
        // A machine that was requested with another template has what that says, and a note of it.
        let is_noted =
            |key: &str| key == names::TEMPLATE_APPLIED_ANNOTATION && annotation(metadata, key).is_some();
        let add =
            |(key, value): (&String, _)| json!({ "op": "add", "path": annotation_path(key), "value": value });
        patch.extend(marks.annotations.iter().filter(|(key, _)| !is_noted(key)).map(add));
    } else {
        patch.push(json!({ "op": "test", "path": "/metadata/annotations", "value": null }));
        patch.push(json!({ "op": "add", "path": "/metadata/annotations", "value": marks.annotations }));
    }
    patch.extend(add_taints(node, &marks.taints));
    if !metadata.finalizers.iter().flatten().any(|name| name == names::NODE_FINALIZER) {
        patch.extend(with_finalizer(metadata, names::NODE_FINALIZER));
    }
    Value::Array(patch)
}

/// Adds the taints that the node lacks. One of the same key and effect keeps its value: the API server accepts no second
/// one.
fn add_taints(node: &Node, taints: &[Taint]) -> Vec<Value> {
    let present = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let is_present = |taint: &&Taint| {
        present.iter().any(|other| (&other.key, &other.effect) == (&taint.key, &taint.effect))
    };
    let missing: Vec<&Taint> = taints.iter().filter(|taint| !is_present(taint)).collect();
    if present.is_empty() && !missing.is_empty() {
        return vec![
            json!({ "op": "test", "path": "/spec/taints", "value": null }),
            json!({ "op": "add", "path": "/spec/taints", "value": missing }),
        ];
    }
    missing
        .into_iter()
        .map(|taint| json!({ "op": "add", "path": "/spec/taints/-", "value": taint }))
        .collect()
}

pub(crate) fn is_same_object(metadata: &ObjectMeta) -> Vec<Value> {
    vec![json!({ "op": "test", "path": "/metadata/uid", "value": metadata.uid })]
}

fn label<'a>(metadata: &'a ObjectMeta, name: &str) -> Option<&'a String> {
    metadata.labels.as_ref().and_then(|all| all.get(name))
}

/// Adds a label that the object does not have.
fn add_label(metadata: &ObjectMeta, name: &str, value: &str) -> [Value; 2] {
    if metadata.labels.is_none() {
        let mut all = Map::new();
        all.insert(name.to_owned(), json!(value));
        return [
            json!({ "op": "test", "path": "/metadata/labels", "value": null }),
            json!({ "op": "add", "path": "/metadata/labels", "value": all }),
        ];
    }
    let path = label_path(name);
    [
        json!({ "op": "test", "path": path, "value": null }),
        json!({ "op": "add", "path": path, "value": value }),
    ]
}

fn annotation<'a>(metadata: &'a ObjectMeta, name: &str) -> Option<&'a String> {
    metadata.annotations.as_ref().and_then(|all| all.get(name))
}

/// Writes annotations, provided that their old values are unchanged.
fn annotate(metadata: &ObjectMeta, notes: &[(&str, String)]) -> Vec<Value> {
    if metadata.annotations.is_none() {
        let all: Map<String, Value> =
            notes.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        return vec![
            json!({ "op": "test", "path": "/metadata/annotations", "value": null }),
            json!({ "op": "add", "path": "/metadata/annotations", "value": all }),
        ];
    }
    let write = |(name, value): &(&str, String)| {
        let path = annotation_path(name);
        [
            json!({ "op": "test", "path": path, "value": annotation(metadata, name) }),
            json!({ "op": "add", "path": path, "value": value }),
        ]
    };
    notes.iter().flat_map(write).collect()
}

/// Removes an annotation, provided that its value is unchanged.
fn remove_annotation(metadata: &ObjectMeta, name: &str) -> [Value; 2] {
    let path = annotation_path(name);
    [
        json!({ "op": "test", "path": path, "value": annotation(metadata, name) }),
        json!({ "op": "remove", "path": path }),
    ]
}

pub(crate) fn annotation_path(name: &str) -> String {
    format!("/metadata/annotations/{}", escaped(name))
}

pub(crate) fn label_path(name: &str) -> String {
    format!("/metadata/labels/{}", escaped(name))
}

/// `name` as one part of a JSON Pointer (RFC 6901).
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// `now` rounded down to a second. Kubernetes writes times as whole seconds.
fn second(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

/// `now` rounded up to a second, so that nothing that counts from it comes too early.
fn later_second(now: Timestamp) -> Timestamp {
    let begun = second(now);
    if begun == now { now } else { begun.checked_add(SignedDuration::from_secs(1)).unwrap_or(now) }
}

// Why not `conflict_retry::add_finalizer` and `remove_finalizer`: they guard with the resourceVersion, so every write in
// between, such as a kubelet's status, costs a conflict, a read and a second patch; and after it they decide from the
// finalizers alone. These patches are one request that fails only if the object is another one or its finalizers have
// changed, and then the next pass decides again, from the pool and its nodes, whether the finalizer is still due.

fn add_finalizer(metadata: &ObjectMeta, name: &str) -> Value {
    let mut patch = is_same_object(metadata);
    patch.extend(with_finalizer(metadata, name));
    Value::Array(patch)
}

/// Adds a finalizer, provided that there are no others than those that were observed.
fn with_finalizer(metadata: &ObjectMeta, name: &str) -> [Value; 2] {
    if let Some(finalizers) = metadata.finalizers.as_ref().filter(|list| !list.is_empty()) {
        [
            json!({ "op": "test", "path": "/metadata/finalizers", "value": finalizers }),
            json!({ "op": "add", "path": "/metadata/finalizers/-", "value": name }),
        ]
    } else {
        [
            json!({ "op": "test", "path": "/metadata/finalizers", "value": null }),
            json!({ "op": "add", "path": "/metadata/finalizers", "value": [name] }),
        ]
    }
}

fn remove_finalizer(metadata: &ObjectMeta, name: &str) -> Option<Value> {
    let place = metadata.finalizers.iter().flatten().position(|finalizer| finalizer == name)?;
    let entry = format!("/metadata/finalizers/{place}");
    let mut patch = is_same_object(metadata);
    patch.push(json!({ "op": "test", "path": entry, "value": name }));
    patch.push(json!({ "op": "remove", "path": entry }));
    Some(Value::Array(patch))
}

#[cfg(test)]
mod tests {
    use shared_crds::v1alpha1::DisruptionReason;

    use super::*;
    use crate::testing::{self, at, node};

    #[test]
    fn why_a_node_leaves_is_noted_once_and_only_in_the_version_that_was_observed() {
        let mut node = node(1);
        node.metadata.resource_version = Some("7".to_owned());
        let patch = note_cause(&node, DisruptionReason::Repair).unwrap();
        let has = |operation: Value| patch.as_array().unwrap().contains(&operation);
        let reason = annotation_path(names::DISRUPTION_REASON_ANNOTATION);
        assert!(has(json!({ "op": "test", "path": "/metadata/resourceVersion", "value": "7" })));
        assert!(has(json!({ "op": "add", "path": reason, "value": "Repair" })));
        testing::annotate(&mut node, names::DISRUPTION_REASON_ANNOTATION, "Repair");
        assert_eq!(note_cause(&node, DisruptionReason::Repair), None);
        assert!(note_cause(&node, DisruptionReason::Rollout).is_some());
    }

    #[test]
    fn the_annotation_of_a_drain_is_never_earlier_than_its_start() {
        let half = Timestamp::from_millisecond(5_500).unwrap();
        assert_eq!((later_second(half), later_second(at(5))), (at(6), at(5)));
        assert_eq!(second(half), at(5));
    }
}
