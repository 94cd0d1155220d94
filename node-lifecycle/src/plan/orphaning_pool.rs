//! What happens to a pool that is being deleted and whose annotation keeps its nodes: they leave the pool, and not the cluster.
//!
//! No machine is deleted here, and nothing waits for a provider: what it lists does not matter to nodes that stay.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use shared_crds::conditions::Reason;
use shared_crds::{NodePool, names};

use crate::assess::drain_limits::DrainLimits;
use crate::assess::membership::Member;
use crate::drain;
use crate::plan::decision::{Plan, Stall};
use crate::plan::same_step::{UNREADABLE_POLL, steps};
use crate::plan::{machines, pool_finalizer, visits};
use crate::{NodeAction, Observed, ObservedPods};

/// When it is looked whether the last node has left the pool, although an event says so.
const RELEASED_POLL: SignedDuration = SignedDuration::from_secs(1);

/// Longest part of an unknown value that is quoted, in characters.
const MAX_QUOTED: usize = 40;

/// Releases every node but those that are being deleted themselves: these are drained as ever, and the pool waits for them. Then
/// the pool goes, whatever machines it has.
pub(crate) fn plan(observed: &Observed, pool: &NodePool, members: Vec<Member>, pods: &ObservedPods) -> Plan {
    let leaving = machines::leaving(&members);
    let may_have_nodes = !members.is_empty() || observed.unread().next().is_some();
    let requeue_at = requeue_at(observed, &members);
    let limits = DrainLimits::of(pool);
    let action = |member: &Member| {
        if is_deleted(member) {
            drain::leave(member, pods, limits, observed.now)
        } else {
            NodeAction::Release
        }
    };
    Plan {
        pool: pool_finalizer::step(pool, may_have_nodes),
        nodes: steps(observed, members, action),
        // A machine with a mark would be the first to go when another client lowers the number.
        unmark: machines::marked_for_nothing(observed, &leaving, &[], &[]),
        requeue_at,
        ..Plan::default()
    }
}

/// Whether the Node is being deleted: it would vanish with its finalizer, and its pods with it.
pub(crate) fn is_deleted(member: &Member) -> bool {
    member.leaving.is_some_and(|leaving| leaving.deleting)
}

/// Why the deletion of a pool waits whose annotation has this `value`.
pub(crate) fn unknown(value: &str) -> Stall {
    let quoted: String = value.chars().take(MAX_QUOTED).collect();
    let message = format!(
        "the annotation {} of the pool is {quoted:?}: set it to Orphan, and the nodes keep running, or to Drain, and they are \
         drained and deleted; until then the deletion of the pool waits",
        names::ON_DELETE_ANNOTATION
    );
    Stall { reason: Reason::UnknownOnDelete, message }
}

fn requeue_at(observed: &Observed, members: &[Member]) -> Option<Timestamp> {
    let after = |interval| observed.now.checked_add(interval).unwrap_or(Timestamp::MAX);
    let released = members.iter().any(|member| !is_deleted(member)).then(|| after(RELEASED_POLL));
    let unread = observed.unread().next().map(|_node| after(UNREADABLE_POLL));
    visits::next(observed, members, None).into_iter().chain(released).chain(unread).min()
}
