//! The account of a pool's `spec.disruption`: which nodes are being disrupted, and for which reason. What the budgets allow,
//! `shared_crds::disruption` decides, for both operators.

use std::collections::BTreeSet;

use shared_crds::NodePool;
use shared_crds::disruption::Account;
use shared_crds::v1alpha1::DisruptionReason;

use super::membership::{Member, Readiness};
use super::{Observed, repair};

/// The account before anything is decided. `wanted` is the number of nodes that the pool should have.
pub(super) fn account(observed: &Observed, pool: &NodePool, members: &[Member], wanted: usize) -> Account {
    let sick = repair::unhealthy(pool, members);
    let disrupted = members.iter().filter_map(|member| {
        let leaving = member.leaving?;
        reason(member, member.cause, leaving.deleting, &sick)
    });
    Account::new(pool.spec.disruption_budgets(), wanted, disrupted, observed.now)
}

/// What is wrong with the budgets, in words for the user.
pub(super) fn problems(observed: &Observed, pool: &NodePool, wanted: usize) -> Vec<String> {
    let account = Account::new(pool.spec.disruption_budgets(), wanted, [], observed.now);
    account.problems().iter().map(ToString::to_string).collect()
}

/// For which reason a leaving node is being disrupted; `None` where somebody has deleted it. `noted` is what its annotation
/// says. Version 0.1 did not note it and drained only nodes that were too many; a repair begins with the deletion.
pub(crate) fn reason(
    member: &Member,
    noted: Option<DisruptionReason>,
    is_deleted: bool,
    sick: &BTreeSet<&str>,
) -> Option<DisruptionReason> {
    let is_sick = member.readiness != Readiness::Starting && sick.contains(member.name());
    noted.or(match (is_deleted, is_sick) {
        (false, _) => Some(DisruptionReason::ScaleDown),
        (true, true) => Some(DisruptionReason::Repair),
        (true, false) => None,
    })
}

#[cfg(test)]
#[path = "budgets_tests.rs"]
mod tests;
