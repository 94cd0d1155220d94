//! The planner's input, and what can happen to a pool and its nodes, as data. Nothing is decided here.

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
pub struct Observed {
    /// The pool's name, also when it no longer exists.
    pub key: PoolKey,
    /// The pool; `None` when it is gone and only nodes are left.
    pub pool: Option<Arc<NodePool>>,
    /// Every Node that carries the pool's labels.
    pub nodes: Vec<Arc<Node>>,
    /// Names of nodes that seem to be the pool's and cannot be read. Nothing is done about them, and nothing that they stand against.
    pub unreadable: BTreeSet<String>,
    /// Pods by node, for the nodes that [`pods_needed`](super::pods_needed) named.
    pub pods: BTreeMap<String, Vec<Pod>>,
    /// What the provider is doing.
    pub supply: Supply,
    /// The time of the decision, by a clock that somebody may have set.
    pub now: Timestamp,
    /// For how long this process itself has seen what is there.
    pub time: ObservedTime,
}

impl Observed {
    /// The names of the pool's nodes that cannot be read, without those that are known to be somebody else's.
    pub fn unread(&self) -> impl Iterator<Item = &str> {
        self.unreadable.difference(&self.supply.taken).map(String::as_str)
    }
}

/// The one thing that happens to a node in a pass.
#[derive(Clone, Debug, PartialEq)]
pub enum Fate {
    /// It stays as it is.
    Keep,
    /// It gets the finalizer: it carries the pool's labels and nobody holds it yet.
    Adopt,
    /// It is Ready for the first time, or shows that it was; which is written on it.
    MarkReady,
    /// Its drain is called off.
    Rescue,
    /// It is closed to new pods and its drain begins.
    Close,
    /// Its pods are asked to go, or told to.
    Drain {
        /// Pods to evict.
        evict: Vec<Pod>,
        /// Pods that outlasted the drain's timeout: to delete without asking their budgets, each with its own grace period.
        delete: Vec<Pod>,
        /// A pod that was asked to go and has outlived its grace period, the first by name.
        overdue: Option<PodName>,
    },
    /// Nothing holds it any more: it is deleted and let go of.
    Remove,
    /// It did not become Ready in time and is deleted; the finalizer then makes this a drain like any other.
    Replace,
    /// It is on its way out and nothing can be done about it in this pass.
    Wait,
}

impl Fate {
    /// Whether the fate takes a node that counts out of the count. Such steps are carried out first, and nothing is
    /// rescued or created unless they worked: else a pass that is cut short would leave more nodes than wanted.
    pub const fn departs(&self) -> bool {
        matches!(self, Self::Close | Self::Replace)
    }

    /// Whether a node with this fate counts as one of the pool's replicas.
    pub const fn stays(&self) -> bool {
        matches!(self, Self::Keep | Self::Adopt | Self::MarkReady | Self::Rescue)
    }
}

/// A node and its fate.
#[derive(Clone, Debug)]
pub struct NodeStep {
    /// The node.
    pub node: Arc<Node>,
    /// What happens to it.
    pub fate: Fate,
}

/// What happens to the pool's finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolStep {
    /// Nothing.
    Keep,
    /// It is added, before anything is made that would outlive the pool.
    Hold,
    /// It is removed: the pool is being deleted and its last node has gone.
    Release,
}

/// The nodes whose pods a plan needs to know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodsNeeded {
    /// Closed and on their way out.
    pub draining: Vec<String>,
    /// Those among which it has to choose.
    pub undecided: Vec<String>,
    /// Those of which it has to know whether they ever ran a pod.
    pub in_doubt: Vec<String>,
}
