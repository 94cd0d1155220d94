//! Nodes and pending pods over time, from the creates, bindings and deletes in the log.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use serde_json::Value;

use crate::line::{Head, ObjectRef};

/// Maximum number of points of a curve; further changes are left out.
const MOST: usize = 5_000;

/// A number that changes.
#[derive(Debug, Default)]
pub(crate) struct Curve {
    /// When, and what it is from then on.
    pub(crate) points: Vec<(Timestamp, usize)>,
}

impl Curve {
    fn set(&mut self, at: Timestamp, value: usize) {
        if self.points.len() < MOST && self.points.last().map_or(0, |(_, last)| *last) != value {
            self.points.push((at, value));
        }
    }
}

/// Counts while the log is read. Objects from before the beginning of the log are unknown and not counted.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    nodes: HashSet<String>,
    /// Pods that were bound, or deleted before. A create with `generateName` is logged without a name, so pending pods
    /// are only a number.
    settled: HashSet<(String, String)>,
    /// Pods created and settled, by namespace.
    pods: HashMap<String, (usize, usize)>,
    pub(crate) node_curve: Curve,
    pub(crate) pod_curve: Curve,
}

impl Counts {
    /// Counts a granted request about a node or a pod; `line` is parsed where the body matters.
    pub(crate) fn add(&mut self, head: &Head, object: &ObjectRef, at: Timestamp, line: &[u8]) {
        if !object.api_group.is_empty() || !(200..300).contains(&head.code()) || head.is_dry_run() {
            return;
        }
        match (object.resource.as_str(), object.subresource.as_str(), head.verb()) {
            ("nodes", "", verb @ ("create" | "delete" | "update" | "patch")) => {
                self.node(verb, object, at, line);
            }
            ("pods", "", "create") => self.pods.entry(object.namespace.clone()).or_default().0 += 1,
            ("pods", "", "delete") | ("pods", "binding" | "eviction", "create") => {
                if self.settled.insert((object.namespace.clone(), object.name.clone())) {
                    self.pods.entry(object.namespace.clone()).or_default().1 += 1;
                }
            }
            _ => return,
        }
        if object.resource == "pods" {
            self.pod_curve.set(at, self.pending());
        }
    }

    fn node(&mut self, verb: &str, object: &ObjectRef, at: Timestamp, line: &[u8]) {
        if verb == "create" {
            self.nodes.insert(object.name.clone());
        } else if self.nodes.contains(&object.name) && is_gone(verb, line) {
            self.nodes.remove(&object.name);
        }
        self.node_curve.set(at, self.nodes.len());
    }

    /// Per namespace, because pods from before the log in one namespace would otherwise hide pending ones in another.
    fn pending(&self) -> usize {
        self.pods.values().map(|(created, settled)| created.saturating_sub(*settled)).sum()
    }
}

/// Whether the object is gone after this request: either a delete without finalizers, or the write that removes the last
/// finalizer of a deleted object.
fn is_gone(verb: &str, line: &[u8]) -> bool {
    let body = serde_json::from_slice::<Value>(line).unwrap_or_default();
    let metadata = &body["responseObject"]["metadata"];
    let is_held = metadata["finalizers"].as_array().is_some_and(|all| !all.is_empty());
    match verb {
        "delete" => !is_held,
        _ => metadata["deletionTimestamp"].is_string() && !is_held,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::line::tests::line;

    fn count(lines: &[Value]) -> Counts {
        let mut counts = Counts::default();
        for line in lines {
            let text = line.to_string();
            let head = Head::parse(text.as_bytes()).unwrap();
            let (_, at) = head.times().unwrap();
            counts.add(&head, head.object().unwrap(), at, text.as_bytes());
        }
        counts
    }

    fn values(curve: &Curve) -> Vec<usize> {
        curve.points.iter().map(|(_, value)| *value).collect()
    }

    fn core(resource: &str, subresource: &str, name: &str) -> Value {
        json!({"objectRef": {"apiGroup": "", "resource": resource, "subresource": subresource, "name": name}})
    }

    #[test]
    fn a_node_goes_when_its_last_finalizer_does() {
        let node = |verb, metadata: Value| {
            let mut with = core("nodes", "", "n");
            with["responseObject"] = json!({"metadata": metadata});
            line(0, "u", verb, 200, with)
        };
        let counts = count(&[
            node("create", json!({"finalizers": ["x"]})),
            node("delete", json!({"finalizers": ["x"], "deletionTimestamp": "t"})),
            node("patch", json!({"deletionTimestamp": "t"})),
        ]);
        assert_eq!(values(&counts.node_curve), [1, 0]);
        let held = count(&[node("create", json!({})), node("delete", json!({"finalizers": ["x"]}))]);
        assert_eq!(values(&held.node_curve), [1]);
    }

    #[test]
    fn pending_pods_are_those_created_and_neither_bound_nor_deleted() {
        let counts = count(&[
            line(0, "u", "create", 201, core("pods", "", "")),
            line(1, "u", "create", 201, core("pods", "", "")),
            line(2, "u", "create", 201, core("pods", "binding", "p1")),
            line(3, "u", "delete", 200, core("pods", "", "p2")),
            line(4, "u", "delete", 200, core("pods", "", "p1")),
            line(5, "u", "delete", 200, core("pods", "", "p1")),
        ]);
        assert_eq!(values(&counts.pod_curve), [1, 2, 1, 0]);
    }

    #[test]
    fn objects_from_before_the_log_do_not_make_counts_negative() {
        let counts = count(&[
            line(0, "u", "delete", 200, core("nodes", "", "n")),
            line(1, "u", "create", 201, core("pods", "binding", "p1")),
            line(2, "u", "create", 409, core("nodes", "", "n2")),
        ]);
        assert!(counts.node_curve.points.is_empty() && counts.pod_curve.points.is_empty());
    }
}
