//! What happens to the nodes and machines of a pool that no longer exists.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;

use crate::assess::drain_limits::DrainLimits;
use crate::assess::membership::Member;
use crate::drain;
use crate::plan::decision::Plan;
use crate::plan::same_step::steps;
use crate::plan::{orphaning_pool, visits};
use crate::{NodeAction, Observed, ObservedPods};

/// Nodes that are being deleted are drained and their finalizer is removed; the others are left alone, with their pods, unless they
/// were created after the deletion of their pool had ended: these are deleted.
pub(crate) fn plan(observed: &Observed, members: Vec<Member>, pods: &ObservedPods) -> Plan {
    let requeue_at = visits::next(observed, &members, None);
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
        // A Node that cannot be read may be that of such a machine.
        withdraw: if observed.leaves_machines() || observed.may_be_hidden {
            Vec::new()
        } else {
            observed.withdrawable().map(|machine| machine.name.clone()).collect()
        },
        requeue_at,
        ..Plan::default()
    }
}
