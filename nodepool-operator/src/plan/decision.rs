//! The planner's output, as data.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;

use super::facts::Facts;
use super::{NodeStep, PoolStep};

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
