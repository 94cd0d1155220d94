//! The planner's input and output, as data. Nothing is decided here.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::{
    api::core::v1::{Node, Pod},
    jiff::Timestamp,
};
use shared_crds::NodePool;

use super::{PoolKey, observed_time::ObservedTime, status::Facts, supply::Supply};

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

/// Namespace and name of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl PodName {
    /// The name of `pod`.
    pub fn of(pod: &Pod) -> Self {
        Self {
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name: pod.metadata.name.clone().unwrap_or_default(),
        }
    }
}

impl std::fmt::Display for PodName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
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

/// What should happen.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What happens to the pool's finalizer.
    pub pool: PoolStep,
    /// What an unset `spec.replicas` is filled with.
    pub fill: Option<i32>,
    /// Every node, once.
    pub nodes: Vec<NodeStep>,
    /// Machines to ask the provider for, by node name.
    pub request: Vec<String>,
    /// Requests to take back.
    pub withdraw: Vec<String>,
    /// Requests whose Node exists.
    pub fulfilled: Vec<String>,
    /// Node objects of machines that run now.
    pub register: Vec<Node>,
    /// Nodes whose pods would help to choose victims, and are not known.
    pub undecided: Vec<String>,
    /// Nodes that would be replaced as never started, should no pod on them show otherwise, and whose pods are not known.
    pub in_doubt: Vec<String>,
    /// What the status tells; `None` when there is no pool to tell it on.
    pub facts: Option<Facts>,
    /// When to look again if nothing happens until then.
    pub requeue_at: Option<Timestamp>,
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
