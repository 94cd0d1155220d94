//! What happens to the nodes and machines of a pool that no longer exists.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;

use crate::assess::drain_limits::DrainLimits;
use crate::assess::membership::Member;
use crate::drain;
use crate::input::supply::{Machine, MachineState};
use crate::plan::decision::Plan;
use crate::plan::same_step::{UNREADABLE_POLL, steps};
use crate::plan::{orphaning_pool, visits};
use crate::{NodeAction, Observed, ObservedPods};

/// Nodes that are being deleted are drained and their finalizer is removed; the others are left alone, with their pods, unless they
/// were created after the deletion of their pool had ended: these are deleted.
pub(crate) fn plan(observed: &Observed, members: Vec<Member>, pods: &ObservedPods) -> Plan {
    // A Node that cannot be read may be that of such a machine.
    let withdraw: Vec<String> = if observed.leaves_machines() || observed.may_be_hidden {
        Vec::new()
    } else {
        observed.withdrawable().map(|machine| machine.name.clone()).collect()
    };
    let again = again(observed, &withdraw, &members);
    let requeue_at = visits::next(observed, &members, None).into_iter().chain(again).min();
    let action = |member: &Member| {
        if orphaning_pool::is_deleted(member) {
            drain::leave(member, pods, DrainLimits::default(), observed.now)
        } else {
            NodeAction::Keep
        }
    };
    let is_late = |node: &&Arc<Node>| observed.has_come_late(node);
    Plan {
        left_over: observed.nodes.iter().filter(is_late).cloned().collect(),
        nodes: steps(observed, members, action),
        withdraw,
        requeue_at,
        ..Plan::default()
    }
}

/// When to look whether machines are left: no event says that one is gone, or that they can be listed. A pool with nodes has the visits
/// of these, and of its provider's backoff.
fn again(observed: &Observed, withdraw: &[String], members: &[Member]) -> Option<Timestamp> {
    if !withdraw.is_empty() {
        return Some(visits::withdrawn(observed.now));
    }
    let is_due = members.is_empty() && observed.may_have_machines_left();
    is_due.then(|| observed.now.checked_add(UNREADABLE_POLL).unwrap_or(Timestamp::MAX))
}

impl Observed {
    /// Whether a machine of the pool, which is gone, may still have to be ended. Where this process has just let the pool go, because
    /// there was none, those that are listed tell it alone.
    pub fn may_have_machines_left(&self) -> bool {
        let is_ending = |machine: &Machine| machine.state == MachineState::Deleting;
        let is_listed = self.withdrawable().next().is_some() || self.supply.machines.iter().any(is_ending);
        let is_uncertain = self.supply.is_unknown || self.supply.uncertain_until.is_some();
        !self.leaves_machines() && (is_listed || (is_uncertain && self.just_ended.is_none()))
    }
}
