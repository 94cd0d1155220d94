//! The JSON patches that the plan stands for. Each one begins with `test` operations for what the decision was made
//! from, so that it cannot fall on another object, or on one that somebody has changed meanwhile in a way that
//! matters. Status churn, such as a kubelet's heartbeat, does not trip them.
//!
//! `test` with `null` holds where the field is absent (measured on kube-apiserver 1.36).

use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::ObjectMeta, jiff::Timestamp};
use serde_json::{Value, json};
use shared_crds::{NodePool, names};

/// Adds the pool's finalizer.
pub fn hold_pool(pool: &NodePool) -> Value {
    add_finalizer(&pool.metadata, names::POOL_FINALIZER)
}

/// Takes the pool's finalizer away; `None` when it is not there.
pub fn release_pool(pool: &NodePool) -> Option<Value> {
    remove_finalizer(&pool.metadata, names::POOL_FINALIZER)
}

/// Adds the node's finalizer.
pub fn hold_node(node: &Node) -> Value {
    add_finalizer(&node.metadata, names::NODE_FINALIZER)
}

/// Takes the node's finalizer away; `None` when it is not there.
pub fn release_node(node: &Node) -> Option<Value> {
    remove_finalizer(&node.metadata, names::NODE_FINALIZER)
}

/// Marks that the node has been Ready.
pub fn mark_ready(node: &Node, now: Timestamp) -> Value {
    let mut patch = same(&node.metadata);
    patch.extend(annotate(&node.metadata, names::READY_TIME_ANNOTATION, now));
    Value::Array(patch)
}

/// Closes the node to new pods and marks the beginning of its drain.
pub fn close(node: &Node, now: Timestamp) -> Value {
    let mut patch = same(&node.metadata);
    patch.extend(annotate(&node.metadata, names::DRAIN_STARTED_ANNOTATION, now));
    patch.push(json!({ "op": "add", "path": "/spec/unschedulable", "value": true }));
    Value::Array(patch)
}

/// Calls the drain off: open to pods again, mark gone. Refused by the API server's `test` if somebody deleted the node
/// meanwhile.
pub fn rescue(node: &Node) -> Value {
    let mark = annotation_path(names::DRAIN_STARTED_ANNOTATION);
    let mut patch = same(&node.metadata);
    patch.push(json!({ "op": "test", "path": "/metadata/deletionTimestamp", "value": null }));
    patch.push(json!({ "op": "test", "path": mark, "value": annotation(&node.metadata, names::DRAIN_STARTED_ANNOTATION) }));
    patch.push(json!({ "op": "remove", "path": mark }));
    patch.push(json!({ "op": "add", "path": "/spec/unschedulable", "value": false }));
    Value::Array(patch)
}

fn same(metadata: &ObjectMeta) -> Vec<Value> {
    vec![json!({ "op": "test", "path": "/metadata/uid", "value": metadata.uid })]
}

fn annotation<'a>(metadata: &'a ObjectMeta, name: &str) -> Option<&'a String> {
    metadata.annotations.as_ref().and_then(|all| all.get(name))
}

/// Writes a time into an annotation, provided that the annotation still is what it was.
fn annotate(metadata: &ObjectMeta, name: &str, now: Timestamp) -> Vec<Value> {
    let time = seconds(now);
    if metadata.annotations.is_none() {
        return vec![
            json!({ "op": "test", "path": "/metadata/annotations", "value": null }),
            json!({ "op": "add", "path": "/metadata/annotations", "value": { name: time } }),
        ];
    }
    let path = annotation_path(name);
    vec![
        json!({ "op": "test", "path": path, "value": annotation(metadata, name) }),
        json!({ "op": "add", "path": path, "value": time }),
    ]
}

fn annotation_path(name: &str) -> String {
    format!("/metadata/annotations/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// RFC 3339 in whole seconds, as Kubernetes writes times.
fn seconds(now: Timestamp) -> String {
    Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}

fn add_finalizer(metadata: &ObjectMeta, name: &str) -> Value {
    let mut patch = same(metadata);
    if let Some(finalizers) = metadata.finalizers.as_ref().filter(|list| !list.is_empty()) {
        patch.push(json!({ "op": "test", "path": "/metadata/finalizers", "value": finalizers }));
        patch.push(json!({ "op": "add", "path": "/metadata/finalizers/-", "value": name }));
    } else {
        patch.push(json!({ "op": "test", "path": "/metadata/finalizers", "value": null }));
        patch.push(json!({ "op": "add", "path": "/metadata/finalizers", "value": [name] }));
    }
    Value::Array(patch)
}

fn remove_finalizer(metadata: &ObjectMeta, name: &str) -> Option<Value> {
    let place = metadata.finalizers.iter().flatten().position(|finalizer| finalizer == name)?;
    let entry = format!("/metadata/finalizers/{place}");
    let mut patch = same(metadata);
    patch.push(json!({ "op": "test", "path": entry, "value": name }));
    patch.push(json!({ "op": "remove", "path": entry }));
    Some(Value::Array(patch))
}
