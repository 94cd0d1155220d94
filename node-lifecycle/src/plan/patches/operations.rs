//! The operations that the patches are made of.

use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

/// Adds the taints that the node lacks. One of the same key and effect keeps its value: the API server accepts no second
/// one.
pub(super) fn add_taints(node: &Node, taints: &[Taint]) -> Vec<Value> {
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

/// Provided that the object is the one that was observed.
pub(crate) fn is_same_object(metadata: &ObjectMeta) -> Vec<Value> {
    vec![json!({ "op": "test", "path": "/metadata/uid", "value": metadata.uid })]
}

pub(super) fn label<'a>(metadata: &'a ObjectMeta, name: &str) -> Option<&'a String> {
    metadata.labels.as_ref().and_then(|all| all.get(name))
}

/// Adds a label that the object does not have.
pub(super) fn add_label(metadata: &ObjectMeta, name: &str, value: &str) -> [Value; 2] {
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

pub(super) fn annotation<'a>(metadata: &'a ObjectMeta, name: &str) -> Option<&'a String> {
    metadata.annotations.as_ref().and_then(|all| all.get(name))
}

/// Writes annotations, provided that their old values are unchanged.
pub(super) fn annotate(metadata: &ObjectMeta, notes: &[(&str, String)]) -> Vec<Value> {
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
pub(super) fn remove_annotation(metadata: &ObjectMeta, name: &str) -> [Value; 2] {
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
pub(super) fn second(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

/// `now` rounded up to a second, so that nothing that counts from it comes too early.
pub(super) fn later_second(now: Timestamp) -> Timestamp {
    let begun = second(now);
    if begun == now { now } else { begun.checked_add(SignedDuration::from_secs(1)).unwrap_or(now) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    #[test]
    fn the_annotation_of_a_drain_is_never_earlier_than_its_start() {
        let half = Timestamp::from_millisecond(5_500).unwrap();
        assert_eq!((later_second(half), later_second(at(5))), (at(6), at(5)));
        assert_eq!(second(half), at(5));
    }
}
