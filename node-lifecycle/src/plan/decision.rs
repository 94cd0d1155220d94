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

/// Why nothing is made, or nothing is made or removed.
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
    /// Why nothing is made, or nothing is made or removed, until the user changes something; `None` when that is not so.
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
    /// Nodes that are out of date and on which this pass was the first to find that no pod asks to be left alone, by name.
    pub unprotected: BTreeSet<String>,
    /// Nodes among which there was a choice to make and whose pods could not be listed for it in this pass, by name.
    pub unread: BTreeSet<String>,
    /// Machines to request from the provider, by node name.
    pub request: Vec<String>,
    /// Machines that will never run, or have to be asked to go again, to delete before anything else.
    pub failed: Vec<FailedMachine>,
    /// Requests to withdraw, by node name.
    pub withdraw: Vec<String>,
    /// Machines that their provider would remove first and that stay, by name.
    pub unmark: Vec<String>,
    /// Machines to delete because their Node did not come in time, by name.
    pub timed_out: Vec<String>,
    /// Node objects to create for machines that run now.
    pub register: Vec<Node>,
    /// Nodes to delete that are no nodes of the pool: in no pool, and left of machines that were deleted; or of a pool that is gone, and
    /// created after it.
    pub left_over: Vec<Arc<Node>>,
    /// Nodes that registered themselves, to make nodes of the pool.
    pub join: Vec<JoinStep>,
    /// When to reconcile again without an event; `None` when only an event can change anything.
    pub requeue_at: Option<Timestamp>,
}

impl Plan {
    /// Whether it changes neither the pool nor a node nor a machine: nodes whose drain has begun go on with it, within the budgets of
    /// their pods, and everything else waits. Such a plan may be made from what a provider said a moment ago.
    pub fn only_waits(&self) -> bool {
        let Self {
            pool,
            fill,
            wanted: _,
            template_hash: _,
            stalled: _,
            nodes,
            held: _,
            repair_waits: _,
            not_updated: _,
            budget_problems: _,
            protected: _,
            unprotected: _,
            unread: _,
            request,
            failed,
            withdraw,
            unmark,
            timed_out,
            register,
            left_over,
            join,
            requeue_at: _,
        } = self;
        *pool == PoolStep::Keep
            && fill.is_none()
            && [request, withdraw, unmark, timed_out].into_iter().all(Vec::is_empty)
            && failed.is_empty()
            && register.is_empty()
            && left_over.is_empty()
            && join.is_empty()
            && nodes.iter().all(|step| step.action.only_waits())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{draining, node, pod, step};
    use crate::{DrainStep, NodeAction};

    fn of_node(action: NodeAction) -> Plan {
        Plan { nodes: vec![step(draining(0, 5), action)], ..Plan::default() }
    }

    #[test]
    fn a_plan_that_does_nothing_but_evict_pods_of_nodes_that_are_drained_only_waits() {
        let evict = DrainStep { evict: vec![Arc::new(pod("p"))], ..DrainStep::default() };
        for plan in [
            Plan::default(),
            Plan { wanted: 3, requeue_at: Some(Timestamp::UNIX_EPOCH), ..Plan::default() },
            of_node(NodeAction::Keep),
            of_node(NodeAction::Wait),
            of_node(NodeAction::Drain(DrainStep::default())),
            of_node(NodeAction::Drain(evict)),
        ] {
            assert!(plan.only_waits(), "{plan:?}");
        }
    }

    #[test]
    fn everything_else_is_decided_from_what_the_provider_says_now() {
        let delete = DrainStep { delete: vec![Arc::new(pod("p"))], ..DrainStep::default() };
        let names = || vec!["m".to_owned()];
        let failed = FailedMachine { name: "m".to_owned(), provider: "exec.p".to_owned(), is_new: false };
        let registered = || Arc::new(node(0));
        let join = JoinStep { node: registered(), patch: json!([]), template_hash: String::new() };
        for plan in [
            of_node(NodeAction::Drain(delete)),
            of_node(NodeAction::Adopt),
            of_node(NodeAction::MarkReady),
            of_node(NodeAction::Update(json!([]))),
            of_node(NodeAction::Uncordon),
            of_node(NodeAction::GiveBack),
            of_node(NodeAction::Tidy),
            of_node(NodeAction::Cordon),
            of_node(NodeAction::Remove),
            of_node(NodeAction::Replace),
            of_node(NodeAction::ReplaceLost),
            of_node(NodeAction::Repair),
            of_node(NodeAction::EndMachine),
            of_node(NodeAction::Release),
            Plan { pool: PoolStep::AddFinalizer, ..Plan::default() },
            Plan { fill: Some(1), ..Plan::default() },
            Plan { request: names(), ..Plan::default() },
            Plan { withdraw: names(), ..Plan::default() },
            Plan { unmark: names(), ..Plan::default() },
            Plan { timed_out: names(), ..Plan::default() },
            Plan { failed: vec![failed], ..Plan::default() },
            Plan { register: vec![node(0)], ..Plan::default() },
            Plan { left_over: vec![registered()], ..Plan::default() },
            Plan { join: vec![join], ..Plan::default() },
        ] {
            assert!(!plan.only_waits(), "{plan:?}");
        }
    }
}
