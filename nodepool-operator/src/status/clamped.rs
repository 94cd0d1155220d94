//! The condition about a pool's replica count and its bounds.

use node_lifecycle::facts::Facts;
use node_lifecycle::numbers::nodes;
use shared_crds::NodePool;
use shared_crds::conditions::{ConditionType, Reason, Statement};

use super::unreadable;

/// Whether the count is within the bounds, and how many nodes the pool runs.
pub(super) fn replicas_clamped(pool: &NodePool, facts: &Facts) -> Statement {
    let type_ = ConditionType::ReplicasClamped;
    let say = |status: bool, reason, message| Statement::new(type_, status, reason, message);
    let (min, max) = (pool.spec.min_replicas, pool.spec.max_replicas);
    let runs = nodes(usize::try_from(pool.spec.effective_replicas()).unwrap_or_default());
    match pool.spec.replicas {
        None => {
            let runs = nodes(facts.wanted);
            let unread = unreadable::of_nodes(&facts.unreadable);
            let why = unread.map(|why| format!("; it is not filled in: {why}")).unwrap_or_default();
            say(false, Reason::ReplicasUnset, format!("replicas is not set, so the pool runs {runs}{why}"))
        }
        Some(asked) if asked > max => say(
            true,
            Reason::AboveMaxReplicas,
            format!("replicas is {asked} and maxReplicas is {max}, so the pool runs {runs}"),
        ),
        Some(asked) if asked < min => say(
            true,
            Reason::BelowMinReplicas,
            format!("replicas is {asked} and minReplicas is {min}, so the pool runs {runs}"),
        ),
        Some(asked) => {
            say(false, Reason::WithinBounds, format!("replicas is {asked}, within {min} to {max}"))
        }
    }
}
