//! The planner's input, and the possible steps for a pool and its nodes, as data. Nothing is decided here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use shared_crds::NodePool;

use super::keys::{PodName, PoolKey};
use super::observed_time::ObservedTime;
use super::supply::Supply;

/// Everything a decision is made from.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    /// The pool's key, also when the pool no longer exists.
    pub key: PoolKey,
    /// The pool; `None` when it is gone and only nodes are left.
    pub pool: Option<Arc<NodePool>>,
    /// Every Node that carries the pool's labels.
    pub nodes: Vec<Arc<Node>>,
    /// Names of nodes that seem to belong to the pool and cannot be read. Nothing is done to them, and nothing that
    /// depends on their absence.
    pub unreadable: BTreeSet<String>,
    /// Pods by node, for the nodes that [`pods_needed`](super::pods_needed) returned.
    pub pods: BTreeMap<String, Vec<Pod>>,
    /// The state of the provider's requests.
    pub supply: Supply,
    /// The time of the decision, from the wall clock, which may be adjusted.
    pub now: Timestamp,
    /// For how long this process itself has observed the current state.
    pub time: ObservedTime,
}

impl Observed {
    /// The names of the pool's unreadable nodes, without those that are known to be foreign.
    pub(crate) fn unread(&self) -> impl Iterator<Item = &str> {
        self.unreadable.difference(&self.supply.taken).map(String::as_str)
    }
}

/// The single step for a node in a pass.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fate {
    /// No change.
    Keep,
    /// Add the finalizer: the node carries the pool's labels and has no finalizer of the operator yet.
    Adopt,
    /// Annotate the node as Ready: it is Ready for the first time, or shows that it was.
    MarkReady,
    /// Cancel the drain and uncordon.
    Rescue,
    /// Cordon and start the drain.
    Close,
    /// Evict or delete its pods.
    Drain {
        /// Pods to evict.
        evict: Vec<Pod>,
        /// Pods that are still there after the drain timeout: to be deleted without regard to their
        /// `PodDisruptionBudget`s, each with its own grace period.
        delete: Vec<Pod>,
        /// A terminating pod that has exceeded its grace period, the first by name.
        overdue: Option<PodName>,
    },
    /// No pod keeps the node any more: delete it and remove the finalizer.
    Remove,
    /// It did not become Ready in time: delete it. The finalizer then turns this into a normal drain.
    Replace,
    /// It is leaving and nothing can be done about it in this pass.
    Wait,
}

impl Fate {
    /// Whether this step takes a counted node out of the count. Such steps are carried out first, and no node is
    /// uncordoned or created unless they succeeded: otherwise a pass that is cut short would leave more nodes than
    /// wanted.
    pub(crate) const fn departs(&self) -> bool {
        matches!(self, Self::Close | Self::Replace)
    }

    /// Whether a node with this step counts as one of the pool's replicas.
    pub(crate) const fn stays(&self) -> bool {
        matches!(self, Self::Keep | Self::Adopt | Self::MarkReady | Self::Rescue)
    }
}

/// A node and its step.
#[derive(Clone, Debug)]
pub(crate) struct NodeStep {
    /// The node.
    pub node: Arc<Node>,
    /// The step for the node.
    pub fate: Fate,
}

/// What happens to the pool's finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolStep {
    /// Nothing.
    Keep,
    /// Add it, before anything is made that would outlive the pool.
    Hold,
    /// Remove it: the pool is being deleted and its last node is gone.
    Release,
}

/// The nodes whose pods a plan needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodsNeeded {
    /// Nodes that are cordoned and leaving.
    pub draining: Vec<String>,
    /// Nodes among which victims are chosen.
    pub undecided: Vec<String>,
    /// Nodes for which it must be known whether they ever ran a pod.
    pub in_doubt: Vec<String>,
}
