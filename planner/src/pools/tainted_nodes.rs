//! Nodes with taints, for the tests of what is learnt from those.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use shared_crds::NodePool;
use shared_crds::names::TEMPLATE_HASH_ANNOTATION;

use crate::input::observed::PassNodes;
use crate::input::promise::Promise;
use crate::pools::discovered::Teachers;

/// The time of the pass: noon of the day on which the nodes are created.
pub(super) fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

/// A pool whose nodes have ten minutes to start, with these keys of taints.
pub(super) fn pool(taints: [&str; 2], startup_taints: [&str; 2]) -> NodePool {
    let (taints, startup_taints) = (of_keys(&taints), of_keys(&startup_taints));
    serde_json::from_value(json!({ "metadata": { "name": "p", "namespace": "ns" }, "spec": {
        "maxReplicas": 9, "provider": { "simulated": {} }, "provisioningTimeoutSeconds": 600,
        "template": { "spec": {
            "capacity": { "cpu": "4" }, "taints": taints, "startupTaints": startup_taints } } } }))
    .unwrap()
}

/// Nodes of the pool's template, and what shows something among them. Of each: when it was created, and the keys of its taints; the
/// word `down` for one that is not Ready.
pub(super) fn nodes(pool: &NodePool, texts: &[&str]) -> (PassNodes, Teachers) {
    let nodes: PassNodes = texts.iter().map(|text| node(pool, text)).collect();
    let promise = Promise { template_hash: pool.spec.template_hash(), ..Promise::default() };
    let staying: Vec<_> = nodes.indexes().collect();
    let teachers = Teachers::of(pool, &promise, &staying, &nodes, now());
    (nodes, teachers)
}

fn node(pool: &NodePool, text: &str) -> Arc<Node> {
    let (created, words) = text.split_once(' ').unwrap_or((text, ""));
    let (down, keys): (Vec<&str>, Vec<&str>) = words.split_whitespace().partition(|word| *word == "down");
    let node = json!({
        "metadata": { "creationTimestamp": format!("2026-01-01T{created}:00Z"),
            "annotations": { TEMPLATE_HASH_ANNOTATION: pool.spec.template_hash() } },
        "spec": { "taints": of_keys(&keys) },
        "status": { "conditions": [
            { "type": "Ready", "status": if down.is_empty() { "True" } else { "False" } }] } });
    Arc::new(serde_json::from_value(node).unwrap())
}

fn of_keys(keys: &[&str]) -> Vec<Value> {
    keys.iter().map(|key| json!({ "key": key, "effect": "NoSchedule" })).collect()
}
