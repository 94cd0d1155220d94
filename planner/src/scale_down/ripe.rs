//! Which unneeded nodes have been unneeded for long enough, and why the others have to wait.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use shared_crds::v1alpha1::UnneededNode;

use super::input::ScaleDownInput;
use super::model::{Candidate, RemovalVerdict, ScaleDown};
use super::shown_taints;
use super::timing::{blocked_until, sooner};
use crate::index::{Indexed, PassNodeIndex, PoolIndex};
use crate::input::nodes;
use crate::pools::stuck_taints::StuckTaints;
use crate::pools::{Pool, Pools};
use crate::reasons::NodeReason;
use crate::steps;
use crate::time::later;

/// Records unneeded nodes and the reasons of those that have to wait, and returns the others.
pub(super) fn ripe(
    input: &ScaleDownInput<'_>,
    pools: &Pools,
    unneeded: Vec<Candidate>,
    scale_down: &mut ScaleDown,
) -> Vec<Candidate> {
    let blocked: Indexed<PoolIndex, _> = pools.iter().map(|pool| blocked_until(pool, input.nodes)).collect();
    // Then the node that has shown the taints may go.
    let stuck = pools.iter().filter_map(stuck_taints);
    stuck.for_each(|stuck| sooner(&mut scale_down.next, stuck.kept_until, input.now));
    let showing = shown_taints::showing(input, pools, &unneeded, scale_down);
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
        } else if waits_for_second(input, &pools[pool], node) {
            let message = "the node lacks a part of what its template promises, and one that is starting may lack it too";
            scale_down.verdicts[node] =
                Some(RemovalVerdict { reason: NodeReason::ScaleUpInProgress, message: message.to_owned() });
            continue;
        } else if let Some(stuck) = stuck_taints(&pools[pool]).filter(|stuck| stuck.shown_by == Some(node)) {
            let message = format!(
                "the node still has {}, and a new one of the pool would have it as well; it stays until {}, as it may \
                 lose it after all",
                stuck.text(),
                stuck.kept_until
            );
            scale_down.verdicts[node] = Some(RemovalVerdict { reason: NodeReason::NotStartedYet, message });
            continue;
        } else if let Some(message) = showing.get(&node) {
            scale_down.verdicts[node] =
                Some(RemovalVerdict { reason: NodeReason::ScaleUpInProgress, message: message.clone() });
            continue;
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

/// The startup taints that the nodes of the pool keep. The node that shows them is not removed for a while: if they are removed after
/// all, it takes the pods that wait.
fn stuck_taints(pool: &Pool) -> Option<&StuckTaints> {
    pool.template.as_ref().ok()?.stuck_taints.as_ref()
}

/// Whether the pool has nodes that are about to be removed. Those that a rollout keeps while it waits are not.
fn has_excess(pool: &Pool) -> bool {
    let base = pool.bounds.base;
    pool.staying.len() > base + nodes::kept_by_rollout(&pool.object, base)
}

/// Whether the node is the only one past its provisioning timeout, lacks a part of what its template promises, and another one is
/// starting. Two such nodes show that new ones lack it as well. Without the first, the second would be alone again when its time is
/// over, and the pool would grow for the same pod each time.
fn waits_for_second(input: &ScaleDownInput<'_>, pool: &Pool, node: PassNodeIndex) -> bool {
    let Ok(template) = &pool.template else { return false };
    let teachers = &template.teachers;
    if teachers.settled != [node]
        || !teachers.young.is_empty()
        || template.promise.is_kept_by(&input.nodes[node])
    {
        return false;
    }
    steps::count(pool.staying.len());
    let is_starting =
        |&other: &PassNodeIndex| pool.starting_until(other).is_some_and(|until| until > input.now);
    pool.staying.iter().any(is_starting)
}
