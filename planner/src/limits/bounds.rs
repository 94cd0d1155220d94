//! The bounds of a pool, applied by the planner itself: above max it plans max, below min it plans min, unset it plans
//! the existing nodes. While a schedule is active, its bounds replace the pool's own.

use shared_crds::NodePool;

use super::schedules::ScheduledBounds;
use crate::input::observed::ScheduleClamp;
use crate::numbers::count;
use crate::reasons::PoolReason;

/// The bounds of a pool, and how its replicas compare to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// The lower bound.
    pub min: usize,
    /// The upper bound.
    pub max: usize,
    /// `spec.replicas` within the bounds: how many nodes the `NodePool` operator maintains now.
    pub base: usize,
    /// The fewest nodes that this pass may leave for another reason than a bound; `min` if there is no such limit.
    pub floor: usize,
    /// What is wrong with `spec.replicas`, if the planner has to correct it.
    pub correction: Option<PoolReason>,
    /// Which part of the active schedules cannot be followed; `None` if all of it can.
    pub conflict: Option<BoundsConflict>,
}

/// Which part of the active schedules cannot be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BoundsConflict {
    /// The lower bound is above the upper one, so the lower one is used for both.
    Cross,
    /// They go beyond the pool's own bounds, which the API server enforces against every writer.
    BeyondPool,
}

impl Bounds {
    /// The bounds of `pool` while no schedule is active.
    pub(crate) fn of(pool: &NodePool) -> Self {
        Self::within(pool, &ScheduledBounds::default(), ScheduleClamp::Replace)
    }

    /// The bounds of `pool` inside `window`. If the pool's own bounds cross (which the schema rejects), the upper one
    /// wins, as in the `NodePool` operator; if those of schedules cross with each other or with the pool's, the lower
    /// one wins.
    pub(crate) fn within(pool: &NodePool, window: &ScheduledBounds, scheduled: ScheduleClamp) -> Self {
        let own_max = count(pool.spec.max_replicas);
        let own_min = count(pool.spec.min_replicas).min(own_max);
        let (mut min, mut max) = (window.min.unwrap_or(own_min), window.max.unwrap_or(own_max));
        let mut conflict = (min > max).then_some(BoundsConflict::Cross);
        max = max.max(min);
        if scheduled == ScheduleClamp::WithinPool {
            let allowed = |bound: usize| bound.clamp(own_min, own_max);
            if (allowed(min), allowed(max)) != (min, max) {
                conflict = conflict.or(Some(BoundsConflict::BeyondPool));
            }
            (min, max) = (allowed(min), allowed(max));
        }
        let replicas = pool.spec.replicas;
        let correction = match replicas {
            None => Some(PoolReason::ReplicasUnset),
            Some(replicas) if count(replicas) > max => Some(PoolReason::AboveMaxReplicas),
            Some(replicas) if count(replicas) < min || replicas < 0 => Some(PoolReason::BelowMinReplicas),
            Some(_) => None,
        };
        let base = replicas.map_or(min, count).clamp(min, max);
        Self { min, max, base, floor: min, correction, conflict }
    }

    /// Plans from the existing nodes: the number that the `NodePool` operator fills in if it is unset.
    pub(crate) fn fill(&mut self, nodes: usize) {
        self.base = nodes.clamp(self.min, self.max);
    }

    /// Plans from the Autoscaler's own number instead of another writer's. Of the additional nodes that the other
    /// writer requested, those that exist by now stay until they are unneeded.
    pub(crate) fn reclaim(&mut self, ours: usize, nodes: usize) {
        let base = ours.max(self.base.min(nodes)).clamp(self.min, self.max);
        if base != self.base {
            self.base = base;
            self.correction = self.correction.or(Some(PoolReason::ReplicasReclaimed));
        }
    }

    /// How many nodes may be removed.
    pub(crate) fn spare(&self) -> usize {
        self.base.saturating_sub(self.min.max(self.floor))
    }
}

#[cfg(test)]
mod tests {
    use shared_crds::v1alpha1::NodePoolSpec;

    use super::*;

    fn pool(replicas: Option<i32>, min: i32, max: i32) -> NodePool {
        let spec = NodePoolSpec { replicas, min_replicas: min, max_replicas: max, ..NodePoolSpec::default() };
        NodePool { spec, ..NodePool::default() }
    }

    #[test]
    fn replicas_are_brought_within_the_bounds() {
        for (replicas, min, max, base, correction) in [
            (Some(3), 1, 5, 3, None),
            (Some(0), 0, 0, 0, None),
            (Some(7), 1, 5, 5, Some(PoolReason::AboveMaxReplicas)),
            (Some(0), 1, 5, 1, Some(PoolReason::BelowMinReplicas)),
            (None, 2, 5, 2, Some(PoolReason::ReplicasUnset)),
            (Some(-3), 0, 5, 0, Some(PoolReason::BelowMinReplicas)),
            (Some(4), 6, 3, 3, Some(PoolReason::AboveMaxReplicas)),
            (Some(3), 6, 3, 3, None),
        ] {
            let bounds = Bounds::of(&pool(replicas, min, max));
            assert_eq!((bounds.base, bounds.correction), (base, correction), "{replicas:?} in {min}..{max}");
        }
    }

    #[test]
    fn the_bounds_of_a_window_stand_in_place_of_the_pools_own_and_the_lower_one_wins() {
        use ScheduleClamp::{Replace, WithinPool};
        for (window, scheduled, min, max, conflict) in [
            ((None, None), Replace, 2, 5, None),
            ((Some(3), None), Replace, 3, 5, None),
            ((Some(0), Some(1)), Replace, 0, 1, None),
            ((Some(8), Some(9)), Replace, 8, 9, None),
            ((Some(8), None), Replace, 8, 8, Some(BoundsConflict::Cross)),
            ((None, Some(1)), Replace, 2, 2, Some(BoundsConflict::Cross)),
            ((Some(4), Some(3)), Replace, 4, 4, Some(BoundsConflict::Cross)),
            ((Some(3), Some(4)), WithinPool, 3, 4, None),
            ((Some(0), Some(9)), WithinPool, 2, 5, Some(BoundsConflict::BeyondPool)),
            ((Some(8), Some(9)), WithinPool, 5, 5, Some(BoundsConflict::BeyondPool)),
            ((Some(8), None), WithinPool, 5, 5, Some(BoundsConflict::Cross)),
        ] {
            let window = ScheduledBounds { min: window.0, max: window.1, names: Vec::new() };
            let bounds = Bounds::within(&pool(Some(3), 2, 5), &window, scheduled);
            assert_eq!(
                (bounds.min, bounds.max, bounds.conflict),
                (min, max, conflict),
                "{window:?} {scheduled:?}"
            );
            assert_eq!(bounds.base, 3.clamp(min, max));
        }
    }
}
