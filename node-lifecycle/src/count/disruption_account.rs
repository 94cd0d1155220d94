//! The account of a pool's `spec.disruption`: which nodes are being disrupted, and for which reason. What the budgets allow,
//! `shared_crds::disruption` decides, for both operators.

use shared_crds::NodePool;
use shared_crds::disruption::{Account, BudgetBase};
use shared_crds::v1alpha1::DisruptionReason;

use crate::Observed;
use crate::assess::membership::Member;
use crate::assess::node_states::{NodeReadiness, ProviderDuty};
use crate::assess::outdated::OutdatedCriteria;
use crate::count::deletion::DeletionPace;

/// The account before anything is decided. `wanted` is the number of nodes that the pool should have. That of a pool that is deleted
/// has the pace of the deletion, and nothing else.
pub(crate) fn account(observed: &Observed, pool: &NodePool, members: &[Member], wanted: usize) -> Account {
    if let Some(pace) = deletion_pace(observed, pool, members) {
        return pace.account(members, observed.now);
    }
    let disrupted = members
        .iter()
        .filter_map(|member| reason(pool, member, member.cause.reason(), member.leaving?.deleting));
    let staying = members.iter().filter(|member| member.stays());
    let pool_size = pool_size(observed, pool, staying, wanted);
    let account = Account::new(pool.spec.disruption_budgets(), pool_size, disrupted, observed.now);
    account.with_unknown(DisruptionReason::ScaleDown, of_provider(pool, members))
}

/// How many nodes of the pool leave at a time because it is deleted; `None` for one that is not. A percentage is of what it is of in
/// other budgets too: of the nodes that are there, or of those that the spec asks for if these are more.
pub(crate) fn deletion_pace(
    observed: &Observed,
    pool: &NodePool,
    members: &[Member],
) -> Option<DeletionPace> {
    pool.metadata.deletion_timestamp.as_ref()?;
    let wanted = usize::try_from(pool.spec.replicas.unwrap_or_default()).unwrap_or_default();
    let staying = members.iter().filter(|member| member.stays());
    Some(DeletionPace::of(pool, pool_size(observed, pool, staying, wanted)))
}

/// The number of nodes that percentages are of, in a pool of which these nodes are `staying`.
pub(crate) fn pool_size<'a>(
    observed: &Observed,
    pool: &NodePool,
    staying: impl IntoIterator<Item = &'a Member>,
    wanted: usize,
) -> usize {
    let staying: Vec<&Member> = staying.into_iter().collect();
    let have_run = staying.iter().filter(|member| member.readiness != NodeReadiness::Starting).count();
    let surge = || {
        let criteria = OutdatedCriteria::of(pool, observed.now);
        let is_rolling = staying.iter().any(|member| criteria.replaces(member));
        if is_rolling { criteria.surge(wanted) } else { 0 }
    };
    // The template is hashed for it.
    let surge = if have_run > wanted { surge() } else { 0 };
    BudgetBase { wanted, staying: have_run, surge }.nodes()
}

/// What is wrong with the budgets, in words for the user. That does not depend on what percentages are of: above 0% they are at
/// least one node.
pub(crate) fn problems(observed: &Observed, pool: &NodePool, wanted: usize) -> Vec<String> {
    let account = Account::new(pool.spec.disruption_budgets(), wanted, [], observed.now);
    account.problems().iter().map(ToString::to_string).collect()
}

/// For which reason a leaving node is being disrupted; `None` where another client has deleted it or its pool, and for one that
/// has never run pods. `noted` is what its annotation says; without one the node counts as one that was too many.
pub(crate) fn reason(
    pool: &NodePool,
    member: &Member,
    noted: Option<DisruptionReason>,
    is_deleted: bool,
) -> Option<DisruptionReason> {
    if pool.metadata.deletion_timestamp.is_some() || member.readiness == NodeReadiness::Starting {
        return None;
    }
    noted.or_else(|| (!is_deleted).then_some(DisruptionReason::ScaleDown))
}

/// How many of the `members` their provider disrupts for a reason that it alone knows. [`reason`] counts each as one that was too many;
/// the budgets for other reasons have to know of it, too.
pub(crate) fn of_provider<'a>(pool: &NodePool, members: impl IntoIterator<Item = &'a Member>) -> usize {
    let is_so = |member: &&Member| {
        let is_unknown = member.provider_duty == ProviderDuty::Drains && member.cause.reason().is_none();
        is_unknown && reason(pool, member, None, false).is_some()
    };
    members.into_iter().filter(is_so).count()
}

#[cfg(test)]
#[path = "disruption_account_tests.rs"]
mod tests;
