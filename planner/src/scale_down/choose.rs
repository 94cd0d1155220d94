//! Which of the removable nodes are removed together: as many as bounds, limits, budgets and places allow, in their
//! order.

use std::collections::BTreeMap;

use shared_crds::disruption::Account;
use shared_crds::v1alpha1::DisruptionReason;

use super::input::{ScaleDownInput, pod_name};
use super::model::{Candidate, RemovalVerdict, ScaleDown};
use super::remaining_nodes::RemainingNodes;
use super::timing;
use super::voluntary::VoluntaryWork;
use crate::index::{Indexed, PoolIndex};
use crate::numbers::count;
use crate::pools::{Pool, Pools};
use crate::reasons::NodeReason;
use crate::scale_down::budgets::{BudgetId, EvictionCost};
use crate::steps;

/// Takes candidates in their order, over all pools and autoscalers, because their pods compete for the same places.
pub(super) fn choose(
    input: &ScaleDownInput<'_>,
    candidates: &[Candidate],
    pools: &Pools,
    elsewhere: &mut impl RemainingNodes,
    scale_down: &mut ScaleDown,
) {
    let mut allowances = allowances(input, pools);
    let work: Indexed<PoolIndex, VoluntaryWork> =
        pools.iter().map(|pool| VoluntaryWork::of(pool, input.nodes)).collect();
    // With the number of nodes that are gone, which is all that changes in it.
    let mut accounts: Indexed<PoolIndex, (usize, Account)> =
        pools.iter().zip(&work).map(|(pool, work)| (0, work.account(pool, 0, input.now))).collect();
    let mut taken = going(pools);
    let mut reserves = input.reserves.clone();
    for candidate in candidates {
        steps::count(1 + candidate.disruptions.len());
        let pool = &pools[candidate.pool];
        let taken = taken.entry(autoscaler(pool)).or_default();
        let gone = scale_down.victims[candidate.pool].len();
        let reserve = &mut reserves[candidate.pool];
        let awaited = || (!reserve.spares(candidate)).then(|| NodeReason::SpareForPendingPods.into());
        let known = &mut accounts[candidate.pool];
        if known.0 != gone {
            *known = (gone, work[candidate.pool].account(pool, gone, input.now));
        }
        let verdict = limit(pool, gone, *taken)
            .or_else(|| refused(&known.1))
            .or_else(awaited)
            .or_else(|| shortage(input, candidate, &allowances))
            .or_else(|| {
                let pod = elsewhere.leave(candidate.node, &candidate.pods).err()?;
                let message = format!(
                    "pods of nodes that go first take the places that pod {} has",
                    pod_name(input, pod)
                );
                Some(RemovalVerdict { reason: NodeReason::PlacesTakenByOthers, message })
            });
        let is_awaited = verdict.as_ref().is_some_and(|v| v.reason == NodeReason::SpareForPendingPods);
        if verdict.as_ref().is_some_and(|verdict| verdict.reason == NodeReason::DisruptionBudget) {
            known.1.next().into_iter().for_each(|at| timing::sooner(&mut scale_down.next, at, input.now));
        }
        if let Some(until) = reserve.until.filter(|_| is_awaited) {
            timing::sooner(&mut scale_down.next, until, input.now);
        }
        scale_down.verdicts[candidate.node] = Some(verdict.unwrap_or_else(|| {
            *taken += 1;
            reserve.take(candidate);
            scale_down.victims[candidate.pool].push(candidate.node);
            for &(budget, cost) in &candidate.disruptions {
                allowances[budget] = allowances[budget].saturating_sub(cost);
            }
            unneeded(candidate)
        }));
    }
}

/// The budget that allows no more scale-down of the pool.
fn refused(account: &Account) -> Option<RemovalVerdict> {
    let refusal = account.refusal(DisruptionReason::ScaleDown)?;
    Some(RemovalVerdict { reason: NodeReason::DisruptionBudget, message: refusal.to_string() })
}

/// What is left of each budget after the nodes that are already being removed are drained.
fn allowances(input: &ScaleDownInput<'_>, pools: &[Pool]) -> Indexed<BudgetId, usize> {
    let mut allowances = input.budgets.allowances();
    let leaving = pools.iter().flat_map(|pool| &pool.leaving);
    for pod in leaving.flat_map(|&node| input.workload_pods[node].evicted()) {
        if let EvictionCost::One(budget) = input.budgets.eviction_cost(&input.pods[pod]) {
            allowances[budget] = allowances[budget].saturating_sub(1);
        }
    }
    allowances
}

/// How many nodes of each autoscaler's pools are already being removed.
fn going(pools: &[Pool]) -> BTreeMap<(&str, &str), usize> {
    let mut going = BTreeMap::new();
    for pool in pools {
        *going.entry(autoscaler(pool)).or_default() += pool.leaving.len();
    }
    going
}

/// Namespace and name of the autoscaler, whose `maxNodes` applies to all its pools together.
fn autoscaler(pool: &Pool) -> (&str, &str) {
    let namespace = pool.object.metadata.namespace.as_deref().unwrap_or_default();
    (namespace, pool.assignment.autoscaler().unwrap_or_default())
}

/// The bound or limit that keeps a node of a pool from which `gone` nodes are removed, while `taken` of its
/// autoscaler's are removed.
fn limit(pool: &Pool, gone: usize, taken: usize) -> Option<RemovalVerdict> {
    let most = pool.assignment.scale_down().max_nodes.map_or(usize::MAX, count);
    let left = pool.bounds.base.saturating_sub(gone);
    // Nodes that are owed and do not come are none of those that the lower bound asks for.
    let there = pool.staying.len().saturating_sub(gone);
    if left.min(there) <= pool.bounds.min {
        Some(NodeReason::NodeGroupMinSizeReached.into())
    } else if gone >= pool.bounds.spare() || pool.floor.is_some_and(|floor| left <= floor) {
        Some(NodeReason::ScaleDownLimit.into())
    } else {
        (taken >= most).then(|| NodeReason::NodeGroupMaxDeletionCountReached.into())
    }
}

/// The budget that others have used up and that the removal of the node would need.
fn shortage(
    input: &ScaleDownInput<'_>,
    candidate: &Candidate,
    allowances: &Indexed<BudgetId, usize>,
) -> Option<RemovalVerdict> {
    let (budget, _) = candidate.disruptions.iter().find(|&&(budget, _)| allowances[budget] == 0)?;
    let name = input.budgets.name(*budget);
    let message = format!("pods of nodes that go first use up PodDisruptionBudget {name} (NotEnoughPdb)");
    Some(RemovalVerdict { reason: NodeReason::BudgetUsedByOthers, message })
}

fn unneeded(candidate: &Candidate) -> RemovalVerdict {
    let message = match candidate.pods.len() {
        0 => NodeReason::Unneeded.sentence().to_owned(),
        1 => "its pod has a place elsewhere".to_owned(),
        pods => format!("its {pods} pods have places elsewhere"),
    };
    RemovalVerdict { reason: NodeReason::Unneeded, message }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures::TestCluster;
    use crate::index::PassNodeIndex;
    use crate::input::observed::PassNodes;
    use crate::pools;
    use crate::resources::ResourceNames;

    #[test]
    fn the_first_limit_in_the_way_is_named() {
        let cluster = TestCluster::new()
            .autoscaler("x", json!({ "scaleDown": { "maxNodes": 3 } }))
            .pool("a", json!({ "spec": { "replicas": 6, "minReplicas": 1 } }));
        let nodes = PassNodes::default();
        let mut pool =
            pools::pools(&cluster.observed, cluster.observed.options, &nodes, &mut ResourceNames::default())
                .pop()
                .unwrap();
        pool.staying = (0..6).map(PassNodeIndex).collect();
        for (floor, gone, taken, expected) in [
            (None, 0, 0, None),
            (None, 2, 2, None),
            (None, 3, 3, Some(NodeReason::NodeGroupMaxDeletionCountReached)),
            (None, 0, 3, Some(NodeReason::NodeGroupMaxDeletionCountReached)),
            (None, 5, 0, Some(NodeReason::NodeGroupMinSizeReached)),
            (Some(4), 1, 0, None),
            (Some(4), 2, 0, Some(NodeReason::ScaleDownLimit)),
            (Some(4), 2, 3, Some(NodeReason::ScaleDownLimit)),
            (Some(6), 0, 0, Some(NodeReason::ScaleDownLimit)),
            (Some(9), 0, 0, Some(NodeReason::ScaleDownLimit)),
            (Some(0), 5, 0, Some(NodeReason::NodeGroupMinSizeReached)),
        ] {
            pool.floor = floor;
            let reason = limit(&pool, gone, taken).map(|verdict| verdict.reason);
            assert_eq!(reason, expected, "{floor:?}, {gone} gone, {taken} taken");
            assert!(reason.is_none_or(NodeReason::removable), "a limit says nothing about the node");
        }
    }
}
