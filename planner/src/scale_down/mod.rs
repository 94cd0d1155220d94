//! Which nodes are removed because they have been unneeded for long enough: empty ones, and ones whose pods all have a
//! place elsewhere at the same time. Excess nodes beyond a bound are not decided here. Victims are always named
//! together with the remaining number of nodes, so both operators mean the same nodes.
//!
//! The steps: check each node on its own ([`candidates`]) → whether its pods have a place ([`RemainingNodes`]) → for
//! how long it has been unneeded (`timing`) → which nodes are removed together (`choose`).

pub(crate) mod budgets;
pub(crate) mod drainability;
pub(crate) mod excess_nodes;
pub(crate) mod workload_pods;

pub(crate) mod candidates;
mod choose;
pub(crate) mod counting;
mod headroom;
mod input;
mod model;
mod remaining_nodes;
pub(crate) mod removal_simulation;
pub(crate) mod reserve;
mod ripe;
mod shown_taints;
mod timing;
mod usage;
pub(crate) mod utilization;
mod voluntary;

#[cfg(test)]
mod counting_tests;
#[cfg(test)]
mod drain_tests;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;

pub(crate) use model::{RemovalVerdict, ScaleDown};
pub(crate) use remaining_nodes::RemainingNodes;

use self::input::{ScaleDownInput, moving, pod_name};
use self::model::{Candidate, MovingPods};
use self::removal_simulation::RemovalSimulation;
use self::reserve::ReserveInput;
use crate::demand::Demand;
use crate::index::{Indexed, PassNodeIndex};
use crate::input::nodes;
use crate::input::observed::PassInput;
use crate::pools::{Pool, Pools};
use crate::reasons::NodeReason;
use crate::resources::ResourceNames;
use crate::scale_down::budgets::Budgets;
use crate::scale_down::counting::CountingRules;
use crate::scale_down::workload_pods::WorkloadPods;
use crate::scale_up::ScaleUp;
use crate::scale_up::placement::PendingId;
use crate::snapshot::{ClusterSnapshot, Place};
use crate::steps;

/// The cluster in which this pass has placed the pending pods, without the excess nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlacedCluster<'a> {
    /// What was observed.
    pub input: PassInput<'a>,
    /// The pools.
    pub pools: &'a Pools,
    /// The pods.
    pub demand: &'a Demand,
    /// All `PodDisruptionBudget`s.
    pub budgets: &'a Budgets,
    /// Which pods count on each node.
    pub rules: &'a Indexed<PassNodeIndex, CountingRules>,
    /// The pods on each node that are a reason to keep it.
    pub workload_pods: &'a Indexed<PassNodeIndex, WorkloadPods>,
    /// The scale-up. No nodes are removed from a pool that pending pods need.
    pub scale_up: &'a ScaleUp,
}

/// Decides about every node of a pass. `snapshot` holds the pending pods, and is the same afterwards.
pub(crate) fn of_pass(
    cluster: PlacedCluster<'_>,
    snapshot: &mut ClusterSnapshot,
    names: &mut ResourceNames,
) -> ScaleDown {
    let PlacedCluster { input: PassInput { observed, nodes, pods }, pools, demand, .. } = cluster;
    let PlacedCluster { budgets, rules, workload_pods, scale_up, .. } = cluster;
    // A pending pod that is expendable keeps no node, wherever it is planned.
    let keeps = |entry: PendingId, node: PassNodeIndex| {
        demand.groups.get(entry.0).is_none_or(|group| !rules[node].is_below_cutoff(group.priority))
    };
    let planned = scale_up.planned_on(snapshot, nodes.len(), keeps);
    let is_pod = |entry: PendingId, node: PassNodeIndex| entry.0 < demand.groups.len() && keeps(entry, node);
    let pods_planned = scale_up.planned_on(snapshot, nodes.len(), is_pod);
    let growing = scale_up.grows(pools);
    let repelled = shown_taints::repelled(pools, demand, &scale_up.placement.left);
    let usage = usage::usage(nodes, rules, pods, demand, observed.now, names);
    let pending = ReserveInput {
        groups: &demand.groups,
        left: &scale_up.placement.left,
        pods,
        planned: &planned,
        nodes,
        workload_pods,
        now: observed.now,
    };
    let reserves = pending.reserves(snapshot, pools);
    let input = ScaleDownInput {
        now: observed.now,
        nodes,
        pods,
        workload_pods,
        budgets,
        usage: &usage,
        planned: &pods_planned,
        growing: &growing,
        repelled: &repelled,
        reserves: &reserves,
    };
    let fork = snapshot.fork();
    let planned = headroom::settle(&input, pools, demand, &scale_up.placement, snapshot);
    let input = ScaleDownInput { planned: &planned, ..input };
    close_to_moves(snapshot, pools, nodes, observed.now);
    let mut during = None;
    let mut result = scale_down(&input, pools, |moving| {
        let differs =
            removal_simulation::sees_drained_nodes(moving, snapshot, &demand.classes, &demand.placed);
        during = differs.then(|| {
            steps::count(snapshot.nodes());
            snapshot.clone()
        });
        RemovalSimulation::new(snapshot, during.as_mut(), &demand.classes, &demand.placed)
    });
    snapshot.revert(fork);
    if scale_up.held > 0 {
        let ends = nodes.iter().filter_map(|node| nodes::awaited_until(node));
        ends.for_each(|until| timing::sooner(&mut result.next, until, observed.now));
    }
    result
}

/// Closes nodes that cannot take a running pod: those that do not exist yet, are not ready, or still lack a part of what their
/// template promises.
fn close_to_moves(snapshot: &mut ClusterSnapshot, pools: &[Pool], all_nodes: &[Arc<Node>], now: Timestamp) {
    steps::count(all_nodes.len() + snapshot.nodes());
    let mut is_ready: Indexed<PassNodeIndex, bool> =
        all_nodes.iter().map(|node| nodes::is_ready(node)).collect();
    for pool in pools {
        let is_starting = |n: PassNodeIndex| pool.starting_until(n).is_some_and(|until| until > now);
        pool.staying.iter().filter(|&&n| is_starting(n)).for_each(|&n| is_ready[n] = false);
    }
    for node in snapshot.node_indexes() {
        let is_up = match snapshot.place_of(node) {
            Place::Node(index) => is_ready[index],
            Place::Upcoming(_) | Place::Planned(_) => false,
        };
        if !is_up {
            snapshot.close(node);
        }
    }
}

/// Decides about every node. `pools` no longer contain excess nodes. `elsewhere` creates the removal simulation, from
/// the cluster with this pass's pending pods placed.
pub(crate) fn scale_down<E: RemainingNodes>(
    input: &ScaleDownInput<'_>,
    pools: &Pools,
    elsewhere: impl FnOnce(&MovingPods) -> E,
) -> ScaleDown {
    let mut scale_down = ScaleDown {
        verdicts: vec![None; input.nodes.len()].into(),
        victims: vec![Vec::new(); pools.len()].into(),
        unneeded: vec![Vec::new(); pools.len()].into(),
        next: None,
    };
    let leaving = leaving(input, pools);
    for &node in &leaving {
        scale_down.verdicts[node] = Some(NodeReason::CurrentlyBeingDeleted.into());
    }
    let candidates = candidates::find(input, pools, &mut scale_down);
    let mut elsewhere = elsewhere(&movers(input, &candidates, &leaving));
    // The pods of nodes that are already being removed take their places first.
    for &node in &leaving {
        elsewhere.abandon(node, &moving(input, node));
    }
    let mut unneeded = Vec::with_capacity(candidates.len());
    for candidate in candidates {
        match elsewhere.could_leave(candidate.node, &candidate.pods) {
            Ok(()) => unneeded.push(candidate),
            Err(pod) => {
                let message = format!("no other node has a place for pod {}", pod_name(input, pod));
                scale_down.verdicts[candidate.node] =
                    Some(RemovalVerdict { reason: NodeReason::NoPlaceToMovePods, message });
                timing::when_pods_end(input, candidate.node, &mut scale_down.next);
            }
        }
    }
    let ripe = ripe::ripe(input, pools, unneeded, &mut scale_down);
    choose::choose(input, &ripe, pools, &mut elsewhere, &mut scale_down);
    scale_down
}

/// Nodes that are removed whatever is decided here: their pools say so, or they are outside all pools and being
/// deleted.
fn leaving(input: &ScaleDownInput<'_>, pools: &[Pool]) -> Vec<PassNodeIndex> {
    let of_pools = pools.iter().flat_map(|pool| pool.leaving.iter().copied());
    let mut leaving: Vec<_> = of_pools.collect();
    leaving.extend(input.nodes.indexes().filter(|&n| nodes::is_leaving(&input.nodes[n])));
    leaving.sort_unstable();
    leaving.dedup();
    leaving
}

fn movers(input: &ScaleDownInput<'_>, candidates: &[Candidate], leaving: &[PassNodeIndex]) -> MovingPods {
    let of_leaving = leaving.iter().flat_map(|&node| moving(input, node));
    let mut pods: Vec<_> = candidates.iter().flat_map(|c| c.pods.iter().copied()).chain(of_leaving).collect();
    steps::count(pods.len());
    pods.sort_unstable();
    let nodes = leaving.iter().copied().chain(candidates.iter().map(|c| c.node)).collect();
    MovingPods { nodes, pods }
}
