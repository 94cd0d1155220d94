//! The pool's nodes, as the writes to them leave them.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use shared_crds::names::{
    DRAIN_STARTED_ANNOTATION, MEMBER_LABEL, MEMBER_NAMESPACE_LABEL, OUT_OF_SERVICE_TAINT,
    TEMPLATE_HASH_ANNOTATION,
};

use super::order;
use super::pool::{CLOCKS, VIEW_AGE};
use crate::audit::{Event, ObjectKey};

/// A simulated kubelet runs while its Node has this label.
const KUBELET_LABEL: &str = "kwok.x-k8s.io/node";

/// How long pods stay on a node that is not Ready: `--default-unreachable-toleration-seconds` of the API server.
const TOLERATED: SignedDuration = SignedDuration::from_secs(300);

/// A node of the pool.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is stated by itself on a Node")]
pub(super) struct NodeState {
    hash: String,
    pub(super) is_ready: bool,
    /// Since when it is not, if it once was.
    broke: Option<Timestamp>,
    is_cordoned: bool,
    pub(super) is_deleted: bool,
    pub(super) has_kubelet: bool,
    /// It has a taint by which Kubernetes gives up the pods of a machine that is off.
    pub(super) gives_up_pods: bool,
    pub(super) drain_started: Option<Timestamp>,
}

impl NodeState {
    /// Whether pods can use it: what a rollout must not take away.
    pub(super) fn is_usable(&self) -> bool {
        self.is_ready && self.stays()
    }

    /// Whether it has not been Ready for as long as the pods tolerate that by default.
    pub(super) fn is_given_up_by_kubernetes(&self, at: Timestamp) -> bool {
        !self.has_kubelet && self.broke.is_some_and(|broke| at + CLOCKS >= broke + TOLERATED)
    }

    /// Whether its removal has not begun.
    pub(super) fn stays(&self) -> bool {
        !self.is_cordoned && !self.is_deleted
    }

    fn of(object: &Value, before: Option<&Self>, at: Timestamp) -> Self {
        let metadata = &object["metadata"];
        let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        let is_ready = conditions.into_iter().any(|it| it["type"] == "Ready" && it["status"] == "True");
        let broke = match before {
            Some(before) if before.is_ready && !is_ready => Some(at),
            Some(before) => before.broke.filter(|_| !is_ready),
            None => None,
        };
        let mut taints = object["spec"]["taints"].as_array().into_iter().flatten();
        let annotation = |name: &str| metadata["annotations"][name].as_str();
        Self {
            hash: annotation(TEMPLATE_HASH_ANNOTATION).unwrap_or_default().to_owned(),
            is_ready,
            broke,
            is_cordoned: object["spec"]["unschedulable"] == true,
            is_deleted: !metadata["deletionTimestamp"].is_null(),
            has_kubelet: !metadata["labels"][KUBELET_LABEL].is_null(),
            gives_up_pods: taints.any(|it| it["key"] == OUT_OF_SERVICE_TAINT),
            drain_started: annotation(DRAIN_STARTED_ANNOTATION).and_then(|text| text.parse().ok()),
        }
    }
}

/// What a write did to the nodes.
pub(super) enum NodeChange {
    Created,
    /// A Ready node was cordoned or deleted.
    Taken,
    Gone,
    Other,
}

/// All nodes of the pool that exist.
pub(super) struct PoolNodes {
    pool: ObjectKey,
    nodes: BTreeMap<String, NodeState>,
    /// Every template that a node was made from, in the order of their first nodes.
    hashes: Vec<String>,
    /// The template of the pool; `None` while it has not been read.
    wanted: Option<String>,
}

impl PoolNodes {
    pub(super) fn of(pool: &ObjectKey) -> Self {
        Self { pool: pool.clone(), nodes: BTreeMap::new(), hashes: Vec::new(), wanted: None }
    }

    pub(super) fn get(&self, name: &str) -> Option<&NodeState> {
        self.nodes.get(name)
    }

    /// Reads a write of a node; `None` when it is not one of the pool.
    pub(super) fn read(&mut self, event: &Event) -> Option<NodeChange> {
        let name = event.object.as_ref()?.name.clone();
        let answer = event.response.as_ref()?;
        let metadata = &answer["metadata"];
        if answer["kind"] == "Status" {
            return (event.verb == "delete").then(|| self.nodes.remove(&name).map(|_| NodeChange::Gone))?;
        }
        let labels = &metadata["labels"];
        let is_member =
            labels[MEMBER_LABEL] == *self.pool.name && labels[MEMBER_NAMESPACE_LABEL] == *self.pool.namespace;
        if !is_member {
            return None;
        }
        let before = self.nodes.get(&name);
        if order::is_end_of_node(event) {
            return Some(self.nodes.remove(&name).map_or(NodeChange::Other, |_| NodeChange::Gone));
        }
        let now = NodeState::of(answer, before, event.completed);
        let change = match before {
            None => NodeChange::Created,
            Some(before) if before.is_usable() && now.is_ready && !now.is_usable() => NodeChange::Taken,
            Some(_) => NodeChange::Other,
        };
        if !self.hashes.contains(&now.hash) {
            self.hashes.push(now.hash.clone());
        }
        self.nodes.insert(name, now);
        Some(change)
    }

    /// Takes in from which template nodes are to be from now on.
    pub(super) fn want(&mut self, hash: String) {
        self.wanted = Some(hash);
    }

    /// Whether some node is not from the pool's template: from the change of that on, also before the first new node is made.
    pub(super) fn roll(&self) -> bool {
        self.nodes.values().any(|node| !self.is_current(node))
    }

    fn is_current(&self, node: &NodeState) -> bool {
        self.wanted.as_ref().or_else(|| self.hashes.last()) == Some(&node.hash)
    }

    pub(super) fn current(&self) -> usize {
        self.nodes.values().filter(|node| self.is_current(node)).count()
    }

    pub(super) fn all(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn dead(&self) -> usize {
        self.nodes.values().filter(|node| !node.has_kubelet).count()
    }

    pub(super) fn usable(&self) -> usize {
        self.nodes.values().filter(|node| node.is_usable()).count()
    }

    /// Those that are not Ready yet, and stay.
    pub(super) fn starting(&self) -> usize {
        self.nodes.values().filter(|node| node.has_kubelet && node.stays() && !node.is_ready).count()
    }

    /// Those that are about to go while their kubelets run.
    pub(super) fn leaving(&self) -> usize {
        self.nodes.values().filter(|node| node.has_kubelet && !node.stays()).count()
    }

    /// The nodes that count towards the upper bound. In a rollout a node counts until it is gone, but for one whose machine is
    /// off and whose Node is deleted already; otherwise until its removal begins.
    pub(super) fn counted(&self, rolls: bool) -> usize {
        let counts = |node: &&NodeState| if rolls { node.is_ready || !node.is_deleted } else { node.stays() };
        self.nodes.values().filter(counts).count()
    }

    /// The nodes that count towards the lower bound. In a rollout those that pods can use, and those that broke so lately that
    /// an operator cannot have known; otherwise also those that are about to be replaced or to become Ready.
    pub(super) fn relied_on(&self, rolls: bool, at: Timestamp) -> usize {
        let counts = |node: &&NodeState| {
            let broke_lately = node.broke.is_some_and(|broke| broke >= at - VIEW_AGE);
            if rolls {
                node.is_usable() || (node.stays() && broke_lately)
            } else {
                node.stays() || !node.is_ready
            }
        };
        self.nodes.values().filter(counts).count()
    }
}
