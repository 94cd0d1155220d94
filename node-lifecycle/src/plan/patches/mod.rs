//! The JSON patches of the plan. Each one begins with `test` operations for the state the decision was made from, so
//! that it cannot be applied to another object, or to one that was changed meanwhile in a way that matters. Frequent
//! status updates, such as a kubelet's heartbeat, do not fail the tests.
//!
//! `test` with `null` holds where the field is absent (measured on kube-apiserver 1.36).

mod drain;
mod operations;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use shared_crds::names::KUBELETS_LABELS;
use shared_crds::places::is_place;
use shared_crds::{NodePool, names};

use self::drain::undone;
pub use self::drain::{DrainNote, cordon, drain_waits, give_back, note_cause, out_of_service, uncordon};
use self::operations::{add_taints, annotate, annotation, second};
pub(crate) use self::operations::{annotation_path, is_same_object, label_path};
use crate::template::NodeMetadata;

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

/// Takes the node out of its pool and lets it run: removes the labels that make it a node of the pool and the operator's finalizer, and
/// undoes a drain, except for what another writer had done before it. The labels that name its machine and its provider stay, for
/// the user who ends the machine one day. The API server's `test` refuses it if the node was deleted meanwhile.
pub fn release(node: &Node) -> Value {
    let metadata = &node.metadata;
    let mut patch = undone(node);
    for (name, value) in metadata.labels.iter().flatten().filter(|(name, _)| names::names_a_pool(name)) {
        let place = label_path(name);
        patch.push(json!({ "op": "test", "path": place, "value": value }));
        patch.push(json!({ "op": "remove", "path": place }));
    }
    patch.extend(without_finalizer(metadata, names::NODE_FINALIZER).into_iter().flatten());
    Value::Array(patch)
}

/// Annotates the node as having been Ready.
pub fn mark_ready(node: &Node, now: Timestamp) -> Value {
    let mut patch = is_same_object(&node.metadata);
    patch.extend(annotate(&node.metadata, &[(names::READY_TIME_ANNOTATION, second(now).to_string())]));
    Value::Array(patch)
}

/// Annotates a Node that is deleted although it never was one of a pool.
pub fn mark_left_over(node: &Node) -> Value {
    let mut patch = is_same_object(&node.metadata);
    patch.extend(annotate(&node.metadata, &[(names::LEFT_OVER_ANNOTATION, "true".to_owned())]));
    Value::Array(patch)
}

/// Makes a Node that registered itself a node of the pool, as the one of `machine`: what it should carry of labels,
/// annotations and taints, and the finalizer, in one write, provided that it is in no pool and has not been deleted. Taints
/// that others set stay.
pub(crate) fn join(node: &Node, machine: &str, wanted: &NodeMetadata) -> Value {
    let metadata = &node.metadata;
    let id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_ref());
    let mut patch = is_same_object(metadata);
    patch.push(json!({ "op": "test", "path": "/spec/providerID", "value": id }));
    patch.push(json!({ "op": "test", "path": "/metadata/deletionTimestamp", "value": null }));
    // Where and what the machine is, its Node's own label says: it may have been requested with another template.
    let is_known =
        |key: &str| is_place(key) && metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(key));
    let own =
        |(key, _): &(&String, &String)| !KUBELETS_LABELS.contains(&key.as_str()) && !is_known(key.as_str());
    let mut labels: BTreeMap<&str, &str> =
        wanted.labels.iter().filter(own).map(|(key, value)| (key.as_str(), value.as_str())).collect();
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
        patch.extend(wanted.annotations.iter().filter(|(key, _)| !is_noted(key)).map(add));
    } else {
        patch.push(json!({ "op": "test", "path": "/metadata/annotations", "value": null }));
        patch.push(json!({ "op": "add", "path": "/metadata/annotations", "value": wanted.annotations }));
    }
    patch.extend(add_taints(node, &wanted.taints));
    if !metadata.finalizers.iter().flatten().any(|name| name == names::NODE_FINALIZER) {
        patch.extend(with_finalizer(metadata, names::NODE_FINALIZER));
    }
    Value::Array(patch)
}

// Why not `conflict_retry::add_finalizer` and `remove_finalizer`: they guard with the resourceVersion, so every write in
// between, such as a kubelet's status, costs a conflict, a read and a second patch; and after it they decide from the
// finalizers alone. These patches are one request that fails only if the object is another one or its finalizers have
// changed, and then the next pass decides again, from the pool and its nodes, whether the finalizer is still due.

/// Adds a finalizer, provided that the object has not been deleted since: the API server takes no new one then, and calls that invalid.
fn add_finalizer(metadata: &ObjectMeta, name: &str) -> Value {
    let mut patch = is_same_object(metadata);
    patch.push(json!({ "op": "test", "path": "/metadata/deletionTimestamp", "value": null }));
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
    let mut patch = is_same_object(metadata);
    patch.extend(without_finalizer(metadata, name)?);
    Some(Value::Array(patch))
}

/// Removes a finalizer, provided that it is still in its place among the others; `None` when it is absent.
fn without_finalizer(metadata: &ObjectMeta, name: &str) -> Option<[Value; 2]> {
    let place = metadata.finalizers.iter().flatten().position(|finalizer| finalizer == name)?;
    let entry = format!("/metadata/finalizers/{place}");
    Some([json!({ "op": "test", "path": entry, "value": name }), json!({ "op": "remove", "path": entry })])
}

#[cfg(test)]
mod tests {
    use shared_crds::v1alpha1::DisruptionReason;

    use super::*;
    use crate::testing::{self, node, pool};

    #[test]
    fn a_finalizer_is_added_only_to_an_object_that_has_not_been_deleted() {
        let is_there = json!({ "op": "test", "path": "/metadata/deletionTimestamp", "value": null });
        for patch in [add_pool_finalizer(&pool(1)), add_node_finalizer(&node(1))] {
            assert!(patch.as_array().unwrap().contains(&is_there), "{patch}");
        }
        let removes = remove_pool_finalizer(&pool(1)).unwrap();
        assert!(!removes.as_array().unwrap().contains(&is_there), "that is when it is removed");
    }

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
}
