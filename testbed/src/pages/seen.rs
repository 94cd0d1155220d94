//! What the audit log says that the operators asked for. Nothing here believes what an operator reports.

use kube::ResourceExt as _;
use shared_crds::names::DRAIN_WAITS_ANNOTATION;

use crate::audit::Event;
use crate::test_env::RELEASE_NAMESPACE;

/// What is said of a pod that no operator asked anything about.
pub const NOTHING: &str = "nothing";

/// What the operators asked the API server to do with a pod, in this order, each only once.
pub fn asked_of_pod(events: &[Event], namespace: &str, pod: &str) -> String {
    let mut asked: Vec<&str> = Vec::new();
    for event in of_operators(events) {
        let is_it = event.object.as_ref().is_some_and(|object| {
            object.resource == "pods" && object.namespace == namespace && object.name == pod
        });
        let word = match (event.verb.as_str(), event.subresource.as_str(), event.code) {
            _ if !is_it => continue,
            ("create", "eviction", 200..=299) => "evicted",
            ("create", "eviction", 429) => "eviction refused",
            ("delete", "", 200..=299) => "deleted",
            _ => continue,
        };
        if !asked.contains(&word) {
            asked.push(word);
        }
    }
    if asked.is_empty() { NOTHING.to_owned() } else { asked.join(", then ") }
}

/// What the operators noted on a node about what its drain waits for, in this order.
pub fn noted_on_node(events: &[Event], node: &str) -> Vec<String> {
    let pointer = format!("/metadata/annotations/{}", DRAIN_WAITS_ANNOTATION.replace('/', "~1"));
    let mut noted: Vec<String> = Vec::new();
    for event in of_operators(events) {
        let is_it =
            event.object.as_ref().is_some_and(|object| object.resource == "nodes" && object.name == node);
        let answer = event.response.as_ref().filter(|_| is_it && event.is_write() && event.succeeded());
        let Some(text) = answer.and_then(|answer| answer.pointer(&pointer)?.as_str()) else { continue };
        if noted.last().is_none_or(|last| last != text) {
            noted.push(text.to_owned());
        }
    }
    noted
}

/// Whether an operator's deletion of this node is in the log, and so all that it asked for before.
pub fn has_deleted_node(events: &[Event], node: &str) -> bool {
    of_operators(events).any(|event| {
        let is_it =
            event.object.as_ref().is_some_and(|object| object.resource == "nodes" && object.name == node);
        is_it && event.verb == "delete" && event.succeeded()
    })
}

fn of_operators(events: &[Event]) -> impl Iterator<Item = &Event> {
    events.iter().filter(|event| event.user.contains(RELEASE_NAMESPACE))
}

/// A finalizer of an object, in words.
pub fn finalizer<K: kube::Resource>(object: Option<&K>, finalizer: &str) -> &'static str {
    match object {
        None => "removed",
        Some(object) if object.finalizers().iter().any(|it| it == finalizer) => "stays",
        Some(_) => "taken off",
    }
}
