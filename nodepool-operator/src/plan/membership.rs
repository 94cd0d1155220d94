//! What each node of the pool is doing, told from the Node object, so that a restart forgets nothing; and from what this
//! process has seen, where the object alone could mislead.
//!
//! Nothing is decided here; `sizing`, `victims` and `drain` do that.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use shared_crds::names;

use super::observed_time::{NodeTime, due};
use super::pods;

/// By how much a node's clock may lag behind the API server's.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(60);

/// How far a node has come in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// It has not been Ready yet.
    Starting,
    /// It is Ready.
    Ready,
    /// It was Ready and is not now.
    NotReady,
}

/// A node on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// Somebody deleted the Node object, so there is no way back.
    pub deleting: bool,
    /// When its drain began; absent until the operator has marked it.
    pub drain_started: Option<Timestamp>,
    /// No new pods are placed on it.
    pub cordoned: bool,
    /// It was Ready at some time, so pods may have come to it.
    pub was_ready: bool,
    /// For how long this process has seen it draining.
    pub observed: SignedDuration,
}

impl Leaving {
    /// Whether the node is closed to new pods and marked, so that its pods may be asked to go.
    pub const fn closed(&self) -> bool {
        self.cordoned && self.drain_started.is_some()
    }
}

/// One node of the pool.
#[derive(Clone, Debug)]
pub struct Member {
    /// The Node object.
    pub node: Arc<Node>,
    /// How far it has come.
    pub readiness: Readiness,
    /// Whether the mark that it was Ready once is on it.
    pub marked_ready: bool,
    /// Set when the node is on its way out; such a node does not count.
    pub leaving: Option<Leaving>,
    /// The template it was made from; absent on nodes that somebody else made.
    pub template_hash: Option<String>,
    /// No new pods are placed on it.
    pub cordoned: bool,
    /// Whether it carries the operator's finalizer.
    pub held: bool,
    /// When the Node object was created.
    pub created: Timestamp,
    /// For how long this process has seen it without being Ready.
    pub not_ready: SignedDuration,
}

impl Member {
    /// Reads `node`. A Node without a creation time (which the API server never serves) counts as created at `now`.
    ///
    /// That a node has never been Ready is said only where neither its mark nor `time` says otherwise.
    pub fn read(node: &Arc<Node>, now: Timestamp, time: NodeTime) -> Self {
        let metadata = &node.metadata;
        let annotation = |key: &str| metadata.annotations.as_ref().and_then(|all| all.get(key));
        let marked_ready = annotation(names::READY_TIME_ANNOTATION).is_some();
        let readiness = match (is_ready(node), marked_ready || time.was_ready) {
            (true, _) => Readiness::Ready,
            (false, true) => Readiness::NotReady,
            (false, false) => Readiness::Starting,
        };
        let drain = annotation(names::DRAIN_STARTED_ANNOTATION);
        let template_hash = annotation(names::TEMPLATE_HASH_ANNOTATION).cloned();
        let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
        let deleting = metadata.deletion_timestamp.is_some();
        let leaving = (deleting || drain.is_some()).then(|| Leaving {
            deleting,
            drain_started: drain.and_then(|time| time.parse().ok()),
            cordoned,
            // What a node of somebody else did before it was adopted is not known.
            was_ready: readiness != Readiness::Starting || template_hash.is_none(),
            observed: time.draining,
        });
        Self {
            node: Arc::clone(node),
            readiness,
            marked_ready,
            leaving,
            template_hash,
            cordoned,
            held: metadata.finalizers.iter().flatten().any(|name| name == names::NODE_FINALIZER),
            created: metadata.creation_timestamp.as_ref().map_or(now, |time| time.0),
            not_ready: time.not_ready,
        }
    }

    /// The Node's name.
    pub fn name(&self) -> &str {
        self.node.metadata.name.as_deref().unwrap_or_default()
    }

    /// Whether the node counts, that is, is not on its way out.
    pub const fn stays(&self) -> bool {
        self.leaving.is_none()
    }

    /// Whether it has been Ready and does not say so yet.
    pub fn lacks_mark(&self) -> bool {
        self.readiness != Readiness::Starting && !self.marked_ready
    }

    /// When a node that was made here gives up its chance to become Ready: not after `now` when it has. A node that somebody
    /// else made and labelled has no such time: the operator must not delete a machine for what happened before it was asked
    /// to look after it.
    pub fn gives_up_at(&self, timeout: SignedDuration, now: Timestamp) -> Option<Timestamp> {
        (self.readiness == Readiness::Starting && self.template_hash.is_some())
            .then(|| due(self.created, timeout, self.not_ready, now))
    }
}

/// Whether the pod shows that `node` was Ready at some time: the node's kubelet has started it, and it is none of those
/// that run on a node before that, such as the network's `DaemonSet`. A pod that was started long before the node was made
/// belonged to an earlier node of its name.
pub fn shows_a_ready_node(node: &Node, pod: &Pod) -> bool {
    let created = node.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let begins = created.map(|time| time.checked_sub(CLOCK_SKEW).unwrap_or(Timestamp::MIN));
    let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
    started.is_some_and(|started| begins.is_none_or(|begins| begins <= started.0))
        && !pods::is_bound_to_its_node(pod)
}

/// Whether the Node's `Ready` condition is `True`.
pub fn is_ready(node: &Node) -> bool {
    let is_ready = |condition: &NodeCondition| condition.type_ == "Ready" && condition.status == "True";
    node.status.iter().flat_map(|status| status.conditions.iter().flatten()).any(is_ready)
}
