//! The planner's output, as data.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use shared_crds::conditions::Reason;

use crate::input::supply::FailedMachine;
use crate::{NodeStep, PoolStep, RepairWait};

/// A Node that registered itself and becomes a node of the pool.
#[derive(Clone, Debug)]
pub struct JoinStep {
    /// The Node, as it was observed.
    pub node: Arc<Node>,
    /// The JSON patch that makes it one.
    pub patch: Value,
    /// Hash of the template it was made from.
    pub template_hash: String,
}

/// Why nothing is made or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    /// Machine-readable reason.
    pub reason: Reason,
    /// What is wrong and what to do about it.
    pub message: String,
}

/// What should happen to a pool.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// What happens to the pool's finalizer.
    pub pool: PoolStep,
    /// Value for an unset `spec.replicas`; `None` when it is set or unknown.
    pub fill: Option<i32>,
    /// Number of nodes wanted; 0 while the pool is being deleted.
    pub wanted: usize,
    /// Hash of the template that new nodes are made from; `None` when the spec cannot be acted on.
    pub template_hash: Option<String>,
    /// Why nothing is made or removed until the user changes something; `None` when that is not so.
    pub stalled: Option<Stall>,
    /// Every node, once.
    pub nodes: Vec<NodeStep>,
    /// Nodes that are too many and stay as long as they ask for it, by name, and why.
    pub held: Vec<(String, String)>,
    /// Why nodes stay that are unhealthy or have lost their machines; `None` when none does.
    pub repair_waits: Option<RepairWait>,
    /// Nodes that lack something of the template that can be changed on them, by name.
    pub not_updated: BTreeSet<String>,
    /// What is wrong with the budgets of `spec.disruption`.
    pub budget_problems: Vec<String>,
    /// Nodes that ask to be left alone, as far as their pods were listed in this pass, by name, and why.
    pub protected: Vec<(String, String)>,
    /// Machines to request from the provider, by node name.
    pub request: Vec<String>,
    /// Machines that will never run, to delete before anything else.
    pub failed: Vec<FailedMachine>,
    /// Requests to withdraw, by node name.
    pub withdraw: Vec<String>,
    /// Machines that their provider would remove first and that stay, by name.
    pub unmark: Vec<String>,
    /// Machines to delete because their Node did not come in time, by name.
    pub timed_out: Vec<String>,
    /// Node objects to create for machines that run now.
    pub register: Vec<Node>,
    /// Nodes in no pool that are left of machines that were deleted, to delete.
    pub left_over: Vec<Arc<Node>>,
    /// Nodes that registered themselves, to make nodes of the pool.
    pub join: Vec<JoinStep>,
    /// When to reconcile again without an event; `None` when only an event can change anything.
    pub requeue_at: Option<Timestamp>,
}
