//! Which nodes go because nothing has needed them for long enough: empty ones. Those that a bound leaves no place for are
//! not decided about here.
//!
//! Victims are always named together with the number of nodes that remains, so both operators mean the same nodes.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::core::v1::Node,
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::{SignedDuration, Timestamp},
};
use shared_crds::v1alpha1::{AutoscalingStatus, UnneededNode};

use super::{
    keepers::Keepers,
    nodes::{self, later},
    pools::Pool,
    reasons::NodeReason,
};

/// What a pass knows of the nodes when it decides which go.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The time.
    pub now: Timestamp,
    /// All nodes, by name.
    pub nodes: &'a [Arc<Node>],
    /// What keeps each node.
    pub keepers: &'a [Keepers],
    /// Pending pods that this pass planned onto each node.
    pub planned: &'a [usize],
    /// Whether each pool grows in this pass.
    pub growing: &'a [bool],
}

/// What becomes of the nodes.
#[derive(Clone, Debug, Default)]
pub struct Removal {
    /// The verdict on each node.
    pub verdicts: Vec<Option<NodeReason>>,
    /// The nodes of each pool that go.
    pub victims: Vec<Vec<usize>>,
    /// The nodes of each pool that nothing needs, and since when.
    pub unneeded: Vec<Vec<UnneededNode>>,
    /// When the next node may go, or stops counting as starting, if nothing else happens.
    pub next: Option<Timestamp>,
}

/// Decides about every node. `pools` have had their surplus taken out.
pub fn scale_down(situation: &Situation<'_>, pools: &[Pool]) -> Removal {
    let mut removal = Removal {
        verdicts: vec![None; situation.nodes.len()],
        victims: vec![Vec::new(); pools.len()],
        unneeded: vec![Vec::new(); pools.len()],
        next: None,
    };
    let mut ripe: BTreeMap<(&str, &str), Vec<Ripe>> = BTreeMap::new();
    for (index, pool) in pools.iter().enumerate() {
        pool.leaving.iter().for_each(|&n| removal.verdicts[n] = Some(NodeReason::CurrentlyBeingDeleted));
        let candidates = candidates(situation, index, pool, &mut removal);
        if let Some(autoscaler) = pool.standing.autoscaler() {
            let namespace = pool.object.metadata.namespace.as_deref().unwrap_or_default();
            ripe.entry((namespace, autoscaler)).or_default().extend(candidates);
        }
    }
    for (_, mut candidates) in ripe {
        candidates.sort_unstable();
        choose(&candidates, pools, &mut removal);
    }
    removal
}

/// A node that may go now, in the order in which they do: longest unneeded first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Ripe {
    since: Timestamp,
    pool: usize,
    node: usize,
}

/// The verdicts on the nodes of one pool, and which of them may go now.
fn candidates(situation: &Situation<'_>, index: usize, pool: &Pool, removal: &mut Removal) -> Vec<Ripe> {
    let Situation { now, nodes, growing, .. } = *situation;
    let rules = pool.standing.scale_down();
    let history = history(pool);
    let blocked_until = last_addition(pool, nodes).map(|added| later(added, rules.delay_after_add_seconds));
    let mut ripe = Vec::new();
    let mut unneeded = Vec::new();
    for &n in &pool.staying {
        if let Some(until) = nodes::starting_until(&nodes[n], &pool.object) {
            sooner(&mut removal.next, until, now);
        }
        if let Some(reason) = kept(situation, n, pool) {
            if let (NodeReason::HasPods, Some(until)) = (reason, situation.keepers[n].until) {
                // At that moment they still do.
                let after = until.checked_add(SignedDuration::from_millis(1));
                sooner(&mut removal.next, after.unwrap_or(until), now);
            }
            removal.verdicts[n] = Some(reason);
            continue;
        }
        let name = nodes[n].metadata.name.clone().unwrap_or_default();
        // A node can have the name of one that went; what was remembered of that one says nothing about it.
        let born = nodes::created(&nodes[n]).unwrap_or(Timestamp::MIN);
        let since = history.get(name.as_str()).copied().unwrap_or(now).max(born).min(now);
        unneeded.push(UnneededNode { name, since_time: Time(since) });
        let ripens = later(since, rules.unneeded_seconds);
        sooner(&mut removal.next, ripens.max(blocked_until.unwrap_or(ripens)), now);
        // What speaks against the node itself comes first, then what only its pool is busy with.
        removal.verdicts[n] = Some(if ripens > now {
            NodeReason::NotUnneededLongEnough
        } else if blocked_until.is_some_and(|until| until > now) {
            NodeReason::ScaleDownDelayAfterAdd
        } else if growing[index] {
            NodeReason::ScaleUpInProgress
        } else if pool.staying.len() > pool.bounds.base {
            NodeReason::ScaleDownInProgress
        } else {
            ripe.push(Ripe { since, pool: index, node: n });
            NodeReason::Unneeded
        });
    }
    removal.unneeded[index] = unneeded;
    ripe
}

/// Why a node is needed, or stays for another reason than time.
fn kept(situation: &Situation<'_>, n: usize, pool: &Pool) -> Option<NodeReason> {
    let Situation { now, nodes, keepers, planned, .. } = *situation;
    let node = &nodes[n];
    if !pool.is_planned() {
        Some(NodeReason::NotAutoscaled)
    } else if nodes::is_protected(node) {
        Some(NodeReason::ScaleDownDisabledAnnotation)
    } else if keepers[n].pods > 0 {
        Some(NodeReason::HasPods)
    } else if planned[n] > 0 {
        Some(NodeReason::NeededByPendingPods)
    } else if nodes::starting_until(node, &pool.object).is_some_and(|until| until > now) {
        Some(NodeReason::NotStartedYet)
    } else {
        None
    }
}

/// Takes candidates of one autoscaler in their order, as far as the bounds and `maxNodes` allow.
fn choose(candidates: &[Ripe], pools: &[Pool], removal: &mut Removal) {
    let Some(first) = candidates.first() else { return };
    let limit = pools[first.pool].standing.scale_down().max_nodes.map_or(usize::MAX, super::bounds::count);
    let mut taken = 0;
    for &Ripe { pool, node, .. } in candidates {
        let spare = pools[pool].bounds.spare();
        removal.verdicts[node] = Some(if removal.victims[pool].len() >= spare {
            NodeReason::NodeGroupMinSizeReached
        } else if taken >= limit {
            NodeReason::NodeGroupMaxDeletionCountReached
        } else {
            taken += 1;
            removal.victims[pool].push(node);
            NodeReason::Unneeded
        });
    }
}

fn autoscaling(pool: &Pool) -> Option<&AutoscalingStatus> {
    pool.object.status.as_ref()?.autoscaling.as_ref()
}

/// Since when nodes have been unneeded, as status remembers it.
fn history(pool: &Pool) -> BTreeMap<&str, Timestamp> {
    let remembered = autoscaling(pool).map(|a| a.unneeded_nodes.as_slice()).unwrap_or_default();
    remembered.iter().map(|node| (node.name.as_str(), node.since_time.0)).collect()
}

/// When the pool last grew: the recorded scale-up or the birth of its youngest node, whichever is later.
fn last_addition(pool: &Pool, nodes: &[Arc<Node>]) -> Option<Timestamp> {
    let recorded = autoscaling(pool).and_then(|a| a.last_scale_up_time.as_ref()).map(|time| time.0);
    let youngest = pool.staying.iter().filter_map(|&n| nodes::created(&nodes[n])).max();
    recorded.max(youngest)
}

/// Keeps the earliest moment that is still to come.
fn sooner(next: &mut Option<Timestamp>, moment: Timestamp, now: Timestamp) {
    if moment > now && next.is_none_or(|earliest| moment < earliest) {
        *next = Some(moment);
    }
}
