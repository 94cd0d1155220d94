//! Checks each node on its own: whether anything other than the places of its pods prevents its removal.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;

use super::input::{ScaleDownInput, moving, pod_name};
use super::model::{Candidate, RemovalVerdict, ScaleDown};
use super::timing;
use super::utilization::Utilization;
use crate::index::{PassNodeIndex, PodIndex};
use crate::input::{nodes, pods};
use crate::pools::{Pool, Pools};
use crate::reasons::NodeReason;
use crate::resources::Amounts;
use crate::scale_down::budgets::{BudgetId, EvictionCost};
use crate::scale_down::drainability::{self, Blocker, BlockingPodReason};
use crate::steps;

/// The candidates, in the order in which they are removed. Records the verdicts on all other nodes that stay.
pub(super) fn find(input: &ScaleDownInput<'_>, pools: &Pools, scale_down: &mut ScaleDown) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    for (index, pool) in pools.enumerated() {
        let history = timing::history(pool);
        for &n in &pool.staying {
            if let Some(until) = pool.starting_until(n) {
                timing::sooner(&mut scale_down.next, until, input.now);
            }
            match judge(input, n, pool) {
                Ok(disruptions) => candidates.push(Candidate {
                    pool: index,
                    node: n,
                    drains: !input.workload_pods[n].pods.is_empty(),
                    utilization: utilization(input, n),
                    since: timing::since(input, &history, n),
                    pods: moving(input, n),
                    disruptions,
                }),
                Err(Kept { verdict, until }) => {
                    if let Some(until) = until {
                        timing::sooner(&mut scale_down.next, until, input.now);
                    }
                    if verdict.reason == NodeReason::NotUnderutilized {
                        timing::when_pods_end(input, n, &mut scale_down.next);
                    }
                    scale_down.verdicts[n] = Some(verdict);
                }
            }
        }
    }
    candidates.sort_by(order);
    candidates
}

/// Empty nodes first, those unneeded for longest before others; then those with the lowest utilization.
fn order(a: &Candidate, b: &Candidate) -> std::cmp::Ordering {
    let used = || if a.drains { a.utilization.cmp(&b.utilization) } else { std::cmp::Ordering::Equal };
    let rest = || (a.since, a.pool, a.node).cmp(&(b.since, b.pool, b.node));
    a.drains.cmp(&b.drains).then_with(used).then_with(rest)
}

/// Why a node stays, and until when if only time has to pass.
struct Kept {
    verdict: RemovalVerdict,
    until: Option<Timestamp>,
}

impl From<NodeReason> for Kept {
    fn from(reason: NodeReason) -> Self {
        Self { verdict: reason.into(), until: None }
    }
}

/// Whether something other than the places of its pods prevents the removal of the node.
pub(super) fn stays(input: &ScaleDownInput<'_>, n: PassNodeIndex, pool: &Pool) -> bool {
    judge(input, n, pool).is_err()
}

/// What prevents the removal of the node, in Cluster Autoscaler's order, or how many disruptions of which budget it
/// needs.
fn judge(input: &ScaleDownInput<'_>, n: PassNodeIndex, pool: &Pool) -> Result<Vec<(BudgetId, usize)>, Kept> {
    steps::count(1);
    let node = &input.nodes[n];
    let workload_pods = &input.workload_pods[n];
    if !pool.is_planned() {
        return Err(NodeReason::NotAutoscaled.into());
    }
    if nodes::is_protected(node) {
        return Err(NodeReason::ScaleDownDisabledAnnotation.into());
    }
    if input.planned[n] > 0 || workload_pods.awaited > 0 {
        return Err(NodeReason::NeededByPendingPods.into());
    }
    if pool.starting_until(n).is_some_and(|until| until > input.now) {
        return Err(NodeReason::NotStartedYet.into());
    }
    underused(input, n, pool.assignment.scale_down().utilization_threshold_percent)?;
    steps::count(workload_pods.pods.len());
    blocked(input, n)?;
    covered(input, n)?;
    Ok(disruptions(input, n))
}

/// How much of the node its pods request; nothing where that cannot be read.
pub(super) fn utilization(input: &ScaleDownInput<'_>, n: PassNodeIndex) -> Utilization {
    let unused = || Utilization::of(&Amounts::default(), &Amounts::default(), &[]);
    input.usage[n].utilization.as_ref().map_or_else(|_| unused(), |&utilization| utilization)
}

fn underused(input: &ScaleDownInput<'_>, n: PassNodeIndex, threshold: i32) -> Result<(), Kept> {
    let kept = |reason, message| Kept { verdict: RemovalVerdict { reason, message }, until: None };
    match &input.usage[n].utilization {
        Err(problem) => Err(kept(
            NodeReason::UnexpectedError,
            format!("how much of the node is used is not known: {problem}"),
        )),
        Ok(utilization) if !utilization.is_nothing() && !utilization.is_below(threshold) => {
            let share = utilization.text();
            let message = format!(
                "the node's pods ask for {share}; scaleDown.utilizationThresholdPercent is {threshold}"
            );
            Err(kept(NodeReason::NotUnderutilized, message))
        }
        Ok(_) => Ok(()),
    }
}

/// Fails if a pod must not be evicted. If several block, one that blocks permanently is named before others, and the
/// node is blocked until the last of them no longer blocks.
fn blocked(input: &ScaleDownInput<'_>, n: PassNodeIndex) -> Result<(), Kept> {
    let mut named: Option<(PodIndex, Blocker)> = None;
    let mut until = Some(Timestamp::MIN);
    for &pod in &input.workload_pods[n].pods {
        let Some(blocker) = blocker(input, n, pod) else { continue };
        until = until.zip(blocker.until).map(|(one, other)| one.max(other));
        let outranks =
            named.as_ref().is_none_or(|(_, named)| named.until.is_some() && blocker.until.is_none());
        if outranks {
            named = Some((pod, blocker));
        }
    }
    let Some((pod, Blocker { rule, why, .. })) = named else { return Ok(()) };
    let message = format!("pod {} {why} ({})", pod_name(input, pod), rule.as_str());
    Err(Kept { verdict: RemovalVerdict { reason: NodeReason::BlockedByPod, message }, until })
}

/// Fails if a budget allows fewer disruptions than the node has expendable pods under it. No pool grows for the pods that replace
/// them, so the budget may not allow another one when the first has gone, and the drain would wait for the others.
fn covered(input: &ScaleDownInput<'_>, n: PassNodeIndex) -> Result<(), Kept> {
    let covered = &input.workload_pods[n].covered;
    steps::count(covered.len());
    let mut needed: BTreeMap<BudgetId, usize> = BTreeMap::new();
    for &pod in covered {
        let EvictionCost::One(budget) = input.budgets.eviction_cost(&input.pods[pod]) else { continue };
        let needed = needed.entry(budget).or_default();
        *needed += 1;
        if *needed > input.budgets.allowed(budget) {
            let message = format!(
                "pod {} is under PodDisruptionBudget {}, which allows fewer disruptions now than the node has expendable pods ({})",
                pod_name(input, pod),
                input.budgets.name(budget),
                BlockingPodReason::NotEnoughPdb.as_str()
            );
            let verdict = RemovalVerdict { reason: NodeReason::BlockedByPod, message };
            return Err(Kept { verdict, until: None });
        }
    }
    Ok(())
}

fn blocker(input: &ScaleDownInput<'_>, n: PassNodeIndex, pod: PodIndex) -> Option<Blocker> {
    let object = &input.pods[pod];
    drainability::blocker(object, input.budgets, input.now).or_else(|| {
        let unreadable = input.usage[n].unreadable.contains(&pod) && pods::needs_place(object);
        unreadable.then(|| {
            Blocker::lasting(
                BlockingPodReason::UnexpectedError,
                "has requests or selectors that cannot be read",
            )
        })
    })
}

/// The disruptions of each budget that it takes to drain the node. A budget need not allow them all at once; one that
/// is left is enough, because the others are allowed as the evicted pods become ready elsewhere.
fn disruptions(input: &ScaleDownInput<'_>, n: PassNodeIndex) -> Vec<(BudgetId, usize)> {
    let mut disruptions: BTreeMap<BudgetId, usize> = BTreeMap::new();
    for pod in input.workload_pods[n].evicted() {
        if let EvictionCost::One(budget) = input.budgets.eviction_cost(&input.pods[pod]) {
            *disruptions.entry(budget).or_default() += 1;
        }
    }
    disruptions.into_iter().collect()
}
