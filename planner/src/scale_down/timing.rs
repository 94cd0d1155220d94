//! How long nodes have been unneeded, when their pools last grew, and when to look again.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::core::v1::Node,
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::{SignedDuration, Timestamp},
};
use shared_crds::v1alpha1::{AutoscalingStatus, UnneededNode};

use super::{Removal, Situation, candidates::Candidate};
use crate::{
    nodes::{self, later},
    pods,
    pools::Pool,
    reasons::NodeReason,
};

/// Records unneeded nodes, says why those that have to wait do, and gives back the others.
pub(super) fn ripe(
    situation: &Situation<'_>,
    pools: &[Pool],
    unneeded: Vec<Candidate>,
    removal: &mut Removal,
) -> Vec<Candidate> {
    let blocked: Vec<_> = pools.iter().map(|pool| blocked_until(pool, situation.nodes)).collect();
    let mut ripe = Vec::new();
    for candidate in unneeded {
        let Candidate { pool, node, since, .. } = candidate;
        let name = situation.nodes[node].metadata.name.clone().unwrap_or_default();
        removal.unneeded[pool].push(UnneededNode { name, since_time: Time(since) });
        let ripens = later(since, pools[pool].standing.scale_down().unneeded_seconds);
        let allowed = ripens.max(blocked[pool].unwrap_or(ripens));
        sooner(&mut removal.next, allowed, situation.now);
        // What speaks against the node itself comes first, then what only its pool is busy with.
        let reason = if ripens > situation.now {
            NodeReason::NotUnneededLongEnough
        } else if allowed > situation.now {
            NodeReason::ScaleDownDelayAfterAdd
        } else if nodes::is_rolling_out(&pools[pool].object) {
            NodeReason::RolloutInProgress
        } else if situation.growing[pool] || pools[pool].missing() > 0 {
            // Also while nodes are on their way: the two operators count nodes that are owed in different ways.
            NodeReason::ScaleUpInProgress
        } else if pools[pool].staying.len() > pools[pool].bounds.base {
            NodeReason::ScaleDownInProgress
        } else {
            ripe.push(candidate);
            continue;
        };
        removal.verdicts[node] = Some(reason.into());
    }
    for of_pool in &mut removal.unneeded {
        of_pool.sort_by(|a, b| a.name.cmp(&b.name));
    }
    ripe
}

/// Since when nodes have been unneeded, as status remembers it.
pub(super) fn history(pool: &Pool) -> BTreeMap<&str, Timestamp> {
    let remembered = autoscaling(pool).map(|a| a.unneeded_nodes.as_slice()).unwrap_or_default();
    remembered.iter().map(|node| (node.name.as_str(), node.since_time.0)).collect()
}

/// Since when a node has been unneeded, if it is now. It can have the name of one that went; what was remembered of that
/// one says nothing about it.
pub(super) fn since(
    situation: &Situation<'_>,
    history: &BTreeMap<&str, Timestamp>,
    node: usize,
) -> Timestamp {
    let node = &situation.nodes[node];
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let born = nodes::created(node).unwrap_or(Timestamp::MIN);
    history.get(name).copied().unwrap_or(situation.now).max(born).min(situation.now)
}

/// Until when no node of the pool goes because it grew.
fn blocked_until(pool: &Pool, nodes: &[Arc<Node>]) -> Option<Timestamp> {
    let recorded = autoscaling(pool).and_then(|a| a.last_scale_up_time.as_ref()).map(|time| time.0);
    let youngest = pool.staying.iter().filter_map(|&n| nodes::created(&nodes[n])).max();
    recorded.max(youngest).map(|added| later(added, pool.standing.scale_down().delay_after_add_seconds))
}

/// Looks again when the next pod of the node that is being deleted should have ended.
pub(super) fn when_pods_end(situation: &Situation<'_>, node: usize, next: &mut Option<Timestamp>) {
    for &pod in &situation.keepers[node].pods {
        if let Some(until) = pods::keeps_until(&situation.pods[pod]) {
            // At that moment it still keeps the node.
            let after = until.checked_add(SignedDuration::from_millis(1)).unwrap_or(until);
            sooner(next, after, situation.now);
        }
    }
}

/// Keeps the earliest moment that is still to come.
pub(super) fn sooner(next: &mut Option<Timestamp>, moment: Timestamp, now: Timestamp) {
    if moment > now && next.is_none_or(|earliest| moment < earliest) {
        *next = Some(moment);
    }
}

const fn autoscaling(pool: &Pool) -> Option<&AutoscalingStatus> {
    pool.remembered.as_ref()
}
