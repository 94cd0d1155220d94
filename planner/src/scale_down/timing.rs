//! How long nodes have been unneeded, when their pools last scaled up, and when to plan again.

use std::collections::BTreeMap;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use shared_crds::v1alpha1::AutoscalingStatus;

use super::input::ScaleDownInput;
use crate::index::PassNodeIndex;
use crate::input::observed::PassNodes;
use crate::input::{nodes, pods};
use crate::pools::Pool;
use crate::time::later;

/// Since when nodes have been unneeded, as status remembers it.
pub(super) fn history(pool: &Pool) -> BTreeMap<&str, Timestamp> {
    let remembered = autoscaling(pool).map(|a| a.unneeded_nodes.as_slice()).unwrap_or_default();
    remembered.iter().map(|node| (node.name.as_str(), node.since_time.0)).collect()
}

/// Since when a node has been unneeded, if it is unneeded now. It may have the name of a removed node, whose history
/// does not apply to it.
pub(super) fn since(
    input: &ScaleDownInput<'_>,
    history: &BTreeMap<&str, Timestamp>,
    node: PassNodeIndex,
) -> Timestamp {
    let node = &input.nodes[node];
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let born = nodes::created(node).unwrap_or(Timestamp::MIN);
    history.get(name).copied().unwrap_or(input.now).max(born).min(input.now)
}

/// Until when no node of the pool is removed because of a scale-up.
pub(super) fn blocked_until(pool: &Pool, nodes: &PassNodes) -> Option<Timestamp> {
    let recorded = autoscaling(pool).and_then(|a| a.last_scale_up_time.as_ref()).map(|time| time.0);
    let youngest = pool.staying.iter().filter_map(|&n| nodes::created(&nodes[n])).max();
    recorded.max(youngest).map(|added| later(added, pool.assignment.scale_down().delay_after_add_seconds))
}

/// Plans again when the next pod of the node that is being deleted should have terminated.
pub(super) fn when_pods_end(input: &ScaleDownInput<'_>, node: PassNodeIndex, next: &mut Option<Timestamp>) {
    for &pod in &input.workload_pods[node].pods {
        if let Some(until) = pods::keeps_until(&input.pods[pod]) {
            // At that very moment it still keeps the node.
            let after = until.checked_add(SignedDuration::from_millis(1)).unwrap_or(until);
            sooner(next, after, input.now);
        }
    }
}

/// Keeps the earliest moment in the future.
pub(super) fn sooner(next: &mut Option<Timestamp>, moment: Timestamp, now: Timestamp) {
    if moment > now && next.is_none_or(|earliest| moment < earliest) {
        *next = Some(moment);
    }
}

const fn autoscaling(pool: &Pool) -> Option<&AutoscalingStatus> {
    pool.remembered.as_ref()
}
