//! Machines that a provider lists for a pool and was not asked for: something is wrong there. While there are such, no more are
//! requested and none without a Node is removed, because it is not known which of them are the pool's. Nodes are the pool's whatever
//! its provider lists: they are drained, removed and counted as ever.

use shared_crds::NodePool;

use crate::Observed;
use crate::assess::membership::Member;
use crate::assess::outdated::OutdatedCriteria;

/// How many machines more than it was asked for a provider may have before growth waits: what a request whose answer was lost may
/// add. Machine Controller Manager allows two as well (its `safety-up`).
const TOLERATED_SURPLUS: usize = 2;

/// The number of machines without a Node of the pool that were not asked for, where there are more than [`TOLERATED_SURPLUS`] of them;
/// `None` where there are not. A number that the provider keeps is judged by its writer instead, and all machines of a pool that is
/// being deleted go. `wanted` is the number of nodes that the pool should have.
pub(crate) fn unasked(
    observed: &Observed,
    pool: &NodePool,
    members: &[Member],
    wanted: usize,
) -> Option<usize> {
    if observed.supply.size.is_some() || pool.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let recorded = pool.status.as_ref().and_then(|status| status.provisioning.as_ref()?.machines);
    // A pool without a record has asked for none.
    let recorded = usize::try_from(recorded.unwrap_or_default()).unwrap_or_default();
    let criteria = OutdatedCriteria::of(pool, observed.now);
    let is_rolling = members.iter().any(|member| criteria.replaces(member));
    let surge = if is_rolling { criteria.surge(wanted) } else { 0 };
    let asked = recorded.max(wanted + surge);
    let without_node = observed.in_flight().count() + observed.joining().len();
    let staying = members.iter().filter(|member| member.stays()).count() + observed.unread().count();
    let unasked = (staying + without_node).saturating_sub(asked).min(without_node);
    Some(unasked).filter(|unasked| *unasked > TOLERATED_SURPLUS)
}
