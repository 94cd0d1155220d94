//! Which nominations (`status.nominatedNodeName`) are believed.
//!
//! kube-scheduler, and since 1.35 other components too, write there on which node a pod is expected to run. It is a
//! hint, and may stay there when it is no longer true: kube-scheduler tries that node first, and then all others. So it counts only
//! while the pod could run there: the node takes pods, its labels and taints suit the pod, and it has room once the pods
//! that are being deleted, or that the pod preempts, are gone. Host ports, volumes and other pods' constraints are not
//! looked at. A pod whose nomination is not believed is planned like any other.
//! <https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/#user-exposed-information>

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;

use crate::input::observed::key;
use crate::input::pod_info::PodInfo;
use crate::input::{nodes, pods};
use crate::pools::allocatable;
use crate::requirements::constraints::Constraints;
use crate::requirements::node_profile::NodeProfile;
use crate::requirements::{predicates, requests};
use crate::resources::{Amounts, ResourceNames};

/// The nominations that are believed.
#[derive(Debug, Default)]
pub struct Nominations<'a> {
    /// The name of the node, by namespace and name of the pod.
    nodes: HashMap<(&'a str, &'a str), &'a str>,
}

impl<'a> Nominations<'a> {
    /// Reads the nominations of all pods. Only pods of nodes that some pod is nominated to are looked at closely.
    pub fn of(all_nodes: &[Arc<Node>], all_pods: &'a [Arc<PodInfo>]) -> Self {
        Self::among(all_pods.iter(), all_nodes, all_pods)
    }

    /// Like [`Self::of`]. `unbound` are those of `all_pods` that are not bound to a node: no other pod can be nominated to one.
    pub(super) fn among(
        unbound: impl Iterator<Item = &'a Arc<PodInfo>>,
        all_nodes: &[Arc<Node>],
        all_pods: &[Arc<PodInfo>],
    ) -> Self {
        let mut believed = Self::default();
        let nominated = |pod: &'a Arc<PodInfo>| Some((&**pod, pods::nominated_node(pod)?));
        let mut nominated: Vec<(&'a PodInfo, &'a str)> = unbound.filter_map(nominated).collect();
        if nominated.is_empty() {
            return believed;
        }
        let mut names = ResourceNames::default();
        let mut rooms = rooms(all_nodes, all_pods, &nominated, &mut names);
        // A pod sees the nominated pods of its own and of a higher priority.
        nominated.sort_by(|(a, _), (b, _)| {
            (Reverse(pods::priority(a)), a.key()).cmp(&(Reverse(pods::priority(b)), b.key()))
        });
        for (pod, node) in nominated {
            let Some(room) = rooms.get_mut(node) else { continue };
            let request = request(pod, &mut names);
            if room.takes(pod, &request) {
                room.staying.push((pods::priority(pod), request));
                believed.nodes.insert(pod.key(), node);
            }
        }
        believed
    }

    /// The node that a pod is nominated to, if that is believed.
    pub fn node_of(&self, pod: &PodInfo) -> Option<&'a str> {
        if self.nodes.is_empty() { None } else { self.nodes.get(&pod.key()).copied() }
    }
}

/// A node that pods are nominated to.
struct Room {
    profile: NodeProfile,
    allocatable: Amounts,
    /// Priority and request of the pods that stay there.
    staying: Vec<(i32, Amounts)>,
}

impl Room {
    fn takes(&self, pod: &PodInfo, request: &Amounts) -> bool {
        let preempts = pod.spec().is_none_or(|spec| spec.preemption_policy.as_deref() != Some("Never"));
        let priority = pods::priority(pod);
        let mut free = self.allocatable.clone();
        let beside = self.staying.iter().filter(|(other, _)| !preempts || *other >= priority);
        beside.for_each(|(_, asked)| free.take(asked, 1));
        free.fits(request, 1) == 1
            && predicates::admits(&Constraints::of(pod.shape().pod()), &self.profile).is_ok()
    }
}

/// Those nodes with a nominated pod that take pods, by name.
fn rooms<'n>(
    all_nodes: &'n [Arc<Node>],
    all_pods: &[Arc<PodInfo>],
    nominated: &[(&PodInfo, &str)],
    names: &mut ResourceNames,
) -> HashMap<&'n str, Room> {
    let wanted: HashSet<&str> = nominated.iter().map(|(_, node)| *node).collect();
    let mut rooms = HashMap::new();
    for node in all_nodes {
        let name = key(&node.metadata).1;
        let takes_pods = nodes::is_ready(node) && !nodes::is_cordoned(node) && !nodes::is_leaving(node);
        if !wanted.contains(name) || !takes_pods {
            continue;
        }
        if let Ok(allocatable) = allocatable(node, names) {
            let profile = NodeProfile::of_node(node);
            rooms.insert(name, Room { profile, allocatable, staying: Vec::new() });
        }
    }
    if rooms.is_empty() {
        return rooms;
    }
    for pod in all_pods {
        let room = pods::bound_node(pod).and_then(|node| rooms.get_mut(node));
        if let Some(room) = room.filter(|_| pod.deleted().is_none()) {
            room.staying.push((pods::priority(pod), request(pod, names)));
        }
    }
    rooms
}

/// One that cannot be read asks for nothing.
fn request(pod: &PodInfo, names: &mut ResourceNames) -> Amounts {
    requests::of(pod.shape().pod(), names).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use shared_crds::names::DRAIN_STARTED_ANNOTATION;

    use super::*;
    use crate::fixtures::merged;

    fn node(change: Value) -> Arc<Node> {
        let base = json!({ "metadata": { "name": "n", "labels": { "disk": "ssd" } },
            "status": { "allocatable": { "cpu": "4", "pods": "10" }, "conditions": [{ "type": "Ready", "status": "True" }] } });
        Arc::new(serde_json::from_value(merged(base, change)).unwrap())
    }

    /// A pod of priority 10 that asks for two cores.
    fn pod(name: &str, change: Value) -> Arc<PodInfo> {
        let base = json!({ "metadata": { "name": name, "namespace": "x" },
            "spec": { "priority": 10, "containers": [{ "name": "c", "resources": { "requests": { "cpu": "2" } } }] } });
        Arc::new(serde_json::from_value(merged(base, change)).unwrap())
    }

    fn nominated(name: &str, change: Value) -> Arc<PodInfo> {
        pod(name, merged(json!({ "status": { "nominatedNodeName": "n" } }), change))
    }

    fn on_node(name: &str, change: Value) -> Arc<PodInfo> {
        pod(name, merged(json!({ "spec": { "nodeName": "n" } }), change))
    }

    fn believed(nodes: &[Arc<Node>], pods: &[Arc<PodInfo>]) -> Vec<String> {
        let nominations = Nominations::of(nodes, pods);
        let names = pods.iter().filter(|pod| nominations.node_of(pod) == Some("n"));
        names.map(|pod| pod.key().1.to_owned()).collect()
    }

    #[test]
    fn a_nomination_counts_while_its_node_takes_pods() {
        let pods = [nominated("p", json!({}))];
        assert_eq!(believed(&[node(json!({}))], &pods), ["p"]);
        assert!(believed(&[], &pods).is_empty(), "gone");
        for (what, change) in [
            ("another node", json!({ "metadata": { "name": "m" } })),
            ("not ready", json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } })),
            ("no condition", json!({ "status": { "conditions": null } })),
            ("unschedulable", json!({ "spec": { "unschedulable": true } })),
            ("being deleted", json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } })),
            ("being drained", json!({ "metadata": { "annotations": { DRAIN_STARTED_ANNOTATION: "x" } } })),
            ("tainted", json!({ "spec": { "taints": [{ "key": "k", "effect": "NoSchedule" }] } })),
            ("too small", json!({ "status": { "allocatable": { "cpu": "1" } } })),
            ("unreadable", json!({ "status": { "allocatable": { "cpu": "lots" } } })),
        ] {
            assert!(believed(&[node(change)], &pods).is_empty(), "{what}");
        }
    }

    #[test]
    fn it_counts_while_the_pod_could_run_there() {
        let full = |change: Value| [on_node("a", change.clone()), on_node("b", change)];
        let never = json!({ "spec": { "preemptionPolicy": "Never" } });
        let low = json!({ "spec": { "priority": 9 } });
        let high = json!({ "spec": { "priority": 11 } });
        let going = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
        for (what, change, others, expected) in [
            ("pods of its own priority", json!({}), full(json!({})), false),
            ("of a higher one", json!({}), full(high), false),
            ("of a lower one, which it preempts", json!({}), full(low.clone()), true),
            ("or may not preempt", never.clone(), full(low), false),
            ("pods that are going", json!({}), full(going.clone()), true),
            ("also for one that does not preempt", never, full(going.clone()), true),
            ("pods that have ended", json!({}), full(json!({ "status": { "phase": "Failed" } })), true),
            ("it is going itself", going, full(json!({ "spec": { "nodeName": "m" } })), false),
            (
                "another label",
                json!({ "spec": { "nodeSelector": { "disk": "hdd" } } }),
                full(json!({ "spec": { "nodeName": "m" } })),
                false,
            ),
        ] {
            let pods = [&others[..], &[nominated("p", change)][..]].concat();
            assert_eq!(believed(&[node(json!({}))], &pods).contains(&"p".to_owned()), expected, "{what}");
        }
    }

    #[test]
    fn of_several_pods_those_of_a_higher_priority_come_first() {
        let high = json!({ "spec": { "priority": 11 } });
        let pods = [
            nominated("a", json!({})),
            nominated("b", json!({})),
            nominated("c", json!({})),
            nominated("z", high),
        ];
        assert_eq!(believed(&[node(json!({}))], &pods), ["a", "z"]);
    }
}
