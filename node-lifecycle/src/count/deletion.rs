//! How fast the nodes of a pool go that is deleted: the rule is [`DeletionPace::of`] and [`goes_at_once`], and nothing else.
//!
//! As many Ready nodes leave at a time as the least budget of `spec.disruption` allows that limits scale-down without a
//! schedule, or a tenth of the nodes where there is none, and at least one. Empty nodes, nodes that are not Ready and nodes
//! that have never been Ready go at once, and nothing waits for a window.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use k8s_openapi::jiff::Timestamp;
use shared_crds::NodePool;
use shared_crds::disruption::Account;
use shared_crds::v1alpha1::{DisruptionBudget, DisruptionEffect, DisruptionReason};

use crate::assess::membership::Member;
use crate::assess::node_states::NodeReadiness;
use crate::input::numbers::{nodes, number};
use crate::input::pods::blocks_removal;

/// The share of a pool's nodes that leaves at a time where no budget says so, in percent.
const DEFAULT_PERCENT: usize = 10;

/// How many nodes of a pool that is deleted leave at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeletionPace {
    /// The number of nodes, 1 or more.
    pub most: usize,
    /// The place in `spec.disruption.budgets` of the budget that says so; `None` for the share that holds without one.
    budget: Option<usize>,
}

impl DeletionPace {
    /// The pace of `pool`, in which percentages are of `pool_size` nodes. Budgets for rollouts, repair or expiry alone are about
    /// something else, and one that cannot be followed says no number.
    pub(crate) fn of(pool: &NodePool, pool_size: usize) -> Self {
        let always = pool.spec.disruption_budgets().iter().enumerate().filter(|(_, budget)| is_asked(budget));
        let least = always.filter_map(|(index, budget)| Some((budget.nodes_of(pool_size)?, index))).min();
        if let Some((most, index)) = least {
            // A deletion that waits for ever helps no pod: it ends with a finalizer that is removed by hand.
            return Self { most: most.max(1), budget: Some(index) };
        }
        let most = pool_size.saturating_mul(DEFAULT_PERCENT).div_ceil(100).max(1);
        Self { most, budget: None }
    }

    /// The account of the pool's nodes, of which these are its `members`. A node that is leaving counts as long as it is Ready.
    pub(crate) fn account(&self, members: &[Member], now: Timestamp) -> Account {
        let limit = DisruptionBudget {
            nodes: IntOrString::Int(number(self.most)),
            reasons: Vec::new(),
            effect: DisruptionEffect::Limit,
            schedule: None,
            time_zone: None,
            duration_seconds: None,
        };
        let leaving = members.iter().filter(|it| !it.stays() && it.readiness == NodeReadiness::Ready).count();
        let none_disrupted = Account::new(&[limit], self.most, [], now);
        none_disrupted.with(DisruptionReason::ScaleDown, leaving)
    }
}

/// Why a node waits, as the end of a sentence about it.
impl fmt::Display for DeletionPace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (most, leave) = (nodes(self.most), if self.most == 1 { "leaves" } else { "leave" });
        write!(f, "has to wait: of a pool that is deleted {most} {leave} at a time")?;
        match self.budget {
            Some(index) => write!(f, " (spec.disruption.budgets[{index}])"),
            None => write!(f, " (a tenth, because no budget of spec.disruption says otherwise)"),
        }
    }
}

/// Whether the node leaves whatever the pace, because its going disturbs no pod that works. `pods` are `None` where they were
/// not listed.
pub(crate) fn goes_at_once(member: &Member, pods: Option<&[Arc<Pod>]>) -> bool {
    member.readiness != NodeReadiness::Ready
        || pods.is_some_and(|pods| !pods.iter().any(|pod| blocks_removal(pod)))
}

/// Whether the budget has a say when a pool is deleted: it bounds, at all times, the nodes that are too many.
fn is_asked(budget: &DisruptionBudget) -> bool {
    let DisruptionBudget { nodes: _, reasons: _, effect, schedule, time_zone, duration_seconds } = budget;
    *effect == DisruptionEffect::Limit
        && schedule.is_none()
        && time_zone.is_none()
        && duration_seconds.is_none()
        && budget.concerns(DisruptionReason::ScaleDown)
}

#[cfg(test)]
#[path = "deletion_tests.rs"]
mod tests;
