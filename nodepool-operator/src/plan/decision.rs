//! The planner's output, as data.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;

use super::facts::Facts;
use super::{NodeStep, PoolStep};

/// What should happen to a pool.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// What happens to the pool's finalizer.
    pub pool: PoolStep,
    /// Value for an unset `spec.replicas`; `None` when it is set or unknown.
    pub fill: Option<i32>,
    /// Every node, once.
    pub nodes: Vec<NodeStep>,
    /// Machines to request from the provider, by node name.
    pub request: Vec<String>,
    /// Requests to withdraw, by node name.
    pub withdraw: Vec<String>,
    /// Requests whose Node exists, by node name.
    pub fulfilled: Vec<String>,
    /// Node objects to create for machines that run now.
    pub register: Vec<Node>,
    /// Nodes whose pods would help to choose victims, but are not known.
    pub undecided: Vec<String>,
    /// Nodes that would be replaced because they never started, unless a pod on them shows otherwise, and whose pods
    /// are not known.
    pub in_doubt: Vec<String>,
    /// Input of the status; `None` when the pool does not exist.
    pub facts: Option<Facts>,
    /// When to reconcile again without an event; `None` when only an event can change anything.
    pub requeue_at: Option<Timestamp>,
}
