//! What a plan comes to, as numbers.

use planner::{ScalingPlan, SchedulingResult};

/// Nodes and pods of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) added: usize,
    pub(crate) removed: usize,
    /// Pending pods that have a place.
    pub(crate) placed: usize,
}

impl Counts {
    pub(crate) fn of(plan: &ScalingPlan) -> Self {
        let growth = |p: &planner::PoolDecision| usize::try_from(p.desired - p.current).unwrap_or(0);
        let has_place =
            |p: &&planner::PodDecision| !matches!(p.result, SchedulingResult::Unschedulable { .. });
        Self {
            added: plan.pools.iter().map(growth).sum(),
            removed: plan.pools.iter().map(|p| p.victims.len()).sum(),
            placed: plan.pods.iter().filter(has_place).count(),
        }
    }
}
