//! How many nodes more than wanted there may be while nodes are replaced, and how many fewer available ones.

use shared_crds::NodePool;
use shared_crds::conditions::Reason;
use shared_crds::v1alpha1::RolloutSpec;

use crate::Observed;

/// The nodes that there are, counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RolloutCounts {
    /// Number of nodes wanted.
    pub wanted: usize,
    /// Number of nodes that stay.
    pub staying: usize,
    /// Number of machines without a Node.
    pub others: usize,
    /// Number of nodes that are drained because they were out of date.
    pub draining: usize,
    /// Number of nodes that are drained because they were too many, and are stuck.
    pub stuck: usize,
}

/// How far the numbers of nodes may be from what is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RolloutBounds {
    /// How many nodes more there may be, those included that are being drained.
    pub most_surge: usize,
    /// How many available nodes fewer there may be.
    pub unavailable: usize,
}

impl RolloutBounds {
    /// The bounds of a rollout that follows `spec`.
    pub(crate) fn of(
        observed: &Observed,
        pool: &NodePool,
        spec: &RolloutSpec,
        RolloutCounts { wanted, staying, others, draining, stuck }: RolloutCounts,
    ) -> Self {
        let failure = observed.supply.failure.as_ref();
        let has_no_quota = failure.is_some_and(|failure| failure.reason == Reason::QuotaExceeded);
        let backs_off = failure.is_some_and(|failure| failure.retry_at > observed.now);
        let is_full = has_no_quota && (backs_off || draining > 0) && staying + others + draining <= wanted;
        let room = usize::try_from(pool.spec.max_replicas).unwrap_or_default().saturating_sub(wanted);
        let most_surge = if is_full || wanted == 0 { 0 } else { spec.surge(wanted).min(room) };
        // Those that are too many and do not go use the places of new nodes, which are then as good as none.
        let is_used_up = stuck >= most_surge && staying + others <= wanted;
        let unavailable = match spec.unavailable(wanted).min(wanted) {
            // Nothing is taken away while nothing can be made in its place, unless only its going makes room.
            _ if backs_off && !has_no_quota => 0,
            0 if most_surge == 0 || is_used_up => 1,
            unavailable => unavailable,
        };
        Self { most_surge, unavailable }
    }
}
