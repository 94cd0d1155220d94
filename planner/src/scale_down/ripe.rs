//! Which unneeded nodes have been unneeded for long enough, and why the others have to wait.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use shared_crds::v1alpha1::UnneededNode;

use super::input::ScaleDownInput;
use super::model::{Candidate, ScaleDown};
use super::timing::{blocked_until, sooner};
use crate::index::{Indexed, PoolIndex};
use crate::input::nodes;
use crate::pools::{Pool, Pools};
use crate::reasons::NodeReason;
use crate::time::later;

/// Records unneeded nodes and the reasons of those that have to wait, and returns the others.
pub(super) fn ripe(
    input: &ScaleDownInput<'_>,
    pools: &Pools,
    unneeded: Vec<Candidate>,
    scale_down: &mut ScaleDown,
) -> Vec<Candidate> {
    let blocked: Indexed<PoolIndex, _> = pools.iter().map(|pool| blocked_until(pool, input.nodes)).collect();
    let mut ripe = Vec::new();
    for candidate in unneeded {
        let Candidate { pool, node, since, .. } = candidate;
        let name = input.nodes[node].metadata.name.clone().unwrap_or_default();
        scale_down.unneeded[pool].push(UnneededNode { name, since_time: Time(since) });
        let ripens = later(since, pools[pool].assignment.scale_down().unneeded_seconds);
        let allowed = ripens.max(blocked[pool].unwrap_or(ripens));
        sooner(&mut scale_down.next, allowed, input.now);
        // Reasons of the node itself come first, then those of its pool.
        let reason = if ripens > input.now {
            NodeReason::NotUnneededLongEnough
        } else if allowed > input.now {
            NodeReason::ScaleDownDelayAfterAdd
        } else if nodes::is_rolling_out(&pools[pool].object) {
            NodeReason::RolloutInProgress
        } else if input.growing[pool] || pools[pool].missing() > 0 {
            // Also while nodes are upcoming: the two operators count missing nodes in different ways.
            NodeReason::ScaleUpInProgress
        } else if has_excess(&pools[pool]) {
            NodeReason::ScaleDownInProgress
        } else {
            ripe.push(candidate);
            continue;
        };
        scale_down.verdicts[node] = Some(reason.into());
    }
    for of_pool in &mut scale_down.unneeded {
        of_pool.sort_by(|a, b| a.name.cmp(&b.name));
    }
    ripe
}

/// Whether the pool has nodes that are about to be removed. Those that a rollout keeps while it waits are not.
fn has_excess(pool: &Pool) -> bool {
    let base = pool.bounds.base;
    pool.staying.len() > base + nodes::kept_by_rollout(&pool.object, base)
}
