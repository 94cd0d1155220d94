//! The bounds of a pool, applied by the planner itself: above max plans max, below min plans min, unset plans min.

use shared_crds::NodePool;

use super::reasons::PoolReason;

/// The bounds of a pool and where its replicas stand towards them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Lower bound.
    pub min: usize,
    /// Upper bound.
    pub max: usize,
    /// `spec.replicas` within the bounds: how many nodes the `NodePool` operator keeps now.
    pub base: usize,
    /// What is wrong with `spec.replicas`, when the planner has to correct it.
    pub correction: Option<PoolReason>,
}

impl Bounds {
    /// The bounds of `pool`. Where they cross (which the schema refuses), the upper one wins, as it does in the
    /// `NodePool` operator.
    pub fn of(pool: &NodePool) -> Self {
        let max = count(pool.spec.max_replicas);
        let min = count(pool.spec.min_replicas).min(max);
        let base = count(pool.spec.effective_replicas());
        let correction = match pool.spec.replicas {
            None => Some(PoolReason::ReplicasUnset),
            Some(replicas) if count(replicas) > max => Some(PoolReason::AboveMaxReplicas),
            Some(replicas) if count(replicas) < min || replicas < 0 => Some(PoolReason::BelowMinReplicas),
            Some(_) => None,
        };
        Self { min, max, base, correction }
    }

    /// How many nodes may go.
    pub const fn spare(&self) -> usize {
        self.base.saturating_sub(self.min)
    }
}

/// A number of nodes; one below zero is none.
pub fn count(replicas: i32) -> usize {
    usize::try_from(replicas).unwrap_or(0)
}

/// A number of nodes as the API has it.
pub fn replicas(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use shared_crds::v1alpha1::NodePoolSpec;

    use super::*;

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
            let spec =
                NodePoolSpec { replicas, min_replicas: min, max_replicas: max, ..NodePoolSpec::default() };
            let bounds = Bounds::of(&NodePool { spec, ..NodePool::default() });
            assert_eq!((bounds.base, bounds.correction), (base, correction), "{replicas:?} in {min}..{max}");
        }
    }
}
