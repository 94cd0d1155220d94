//! One pass: from the observed cluster to the plan.
//!
//! The steps: excess nodes beyond the bounds → pending pods, then headroom, onto existing or upcoming nodes → new nodes
//! over all pools for the pods that are left (if a pool would scale up while it scales down, it keeps nodes and the
//! pods are placed again) → unneeded nodes: empty ones, and ones whose pods have places elsewhere.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;

use crate::decision::summary::PassResults;
use crate::decision::{ScalingPlan, conclude};
use crate::demand::daemons::Daemons;
use crate::demand::{Demand, PodInterner, headroom, order};
use crate::input::by_name::ByName;
use crate::input::nodes;
use crate::input::observed::{Observed, PlanOptions, Recommendations, ScheduledBounds, key};
use crate::input::pod_info::PodInfo;
use crate::limits::behavior::BehaviorStage;
use crate::limits::schedules;
use crate::pools::{self, Pool};
use crate::reasons::PoolReason;
use crate::requirements::pod_class::PodClassId;
use crate::resources::{Amounts, ResourceNames};
use crate::scale_down::budgets::Budgets;
use crate::scale_down::excess_nodes::ExcessNodes;
use crate::scale_down::removal_simulation::RemovalSimulation;
use crate::scale_down::reserve::ReserveInput;
use crate::scale_down::{self, ScaleDownInput, blocking_pods, candidates};
use crate::scale_up::placement::PendingPods;
use crate::scale_up::{self, ScaleUp, expander};
use crate::snapshot::capacity::{self, SnapshotInput};
use crate::snapshot::{ClusterSnapshot, Place};

/// Maximum number of nodes that a status can name, as victims or as unneeded: `maxItems` of the lists in
/// `status.autoscaling`.
pub const MAX_NAMED_NODES: usize = 1000;

/// Plans pass after pass. It caches the requirements of pods that have not changed, and their order; the plans are the
/// same without the cache.
#[derive(Debug, Default)]
pub struct Planner {
    interner: PodInterner,
    nodes: ByName<Node>,
    pods: ByName<PodInfo>,
}

/// Plans one pass, without a cache.
pub fn plan(observed: &Observed) -> ScalingPlan {
    Planner::default().plan(observed)
}

/// Plans one pass of the operator itself, without a cache: see [`Planner::plan_for_cluster`].
pub fn plan_for_cluster(observed: &Observed) -> ScalingPlan {
    Planner::default().plan_for_cluster(observed)
}

impl Planner {
    /// Plans one pass.
    pub fn plan(&mut self, observed: &Observed) -> ScalingPlan {
        self.plan_on(observed, observed.options)
    }

    /// Plans without the temporary limits, and once more with them if that plan goes beyond what `spec.behavior` allows
    /// for now.
    fn plan_on(&mut self, observed: &Observed, options: PlanOptions) -> ScalingPlan {
        let free = self.pass(observed, options, BehaviorStage::Wanted);
        let mut plan = if conclude::keeps_within(&free) {
            conclude::concluded(free, None, observed.now)
        } else {
            let limited = self.pass(observed, options, BehaviorStage::Limited);
            conclude::concluded(limited, Some(&free), observed.now)
        };
        plan.warnings.extend(schedules::problems(observed));
        plan
    }

    /// Plans a pass of the operator itself. Pools whose autoscaler only recommends are left out of the decisions that
    /// are carried out; otherwise pods would be planned onto nodes that are never created. The recommendations for
    /// those pools are planned separately.
    pub fn plan_for_cluster(&mut self, observed: &Observed) -> ScalingPlan {
        let scheduled = ScheduledBounds::WithinPool;
        let mut with = |recommendations| self.plan_on(observed, PlanOptions { recommendations, scheduled });
        let mut acting = with(Recommendations::Exclude);
        if acting.pools.iter().any(|decision| decision.reason == PoolReason::RecommendOnly) {
            let advice = with(Recommendations::Include);
            acting.next = acting.next.into_iter().chain(advice.next).min();
            for (decision, advised) in acting.pools.iter_mut().zip(advice.pools) {
                if decision.reason == PoolReason::RecommendOnly {
                    *decision = advised;
                }
            }
        }
        acting.pools =
            acting.pools.into_iter().map(|decision| decision.limited_to(MAX_NAMED_NODES)).collect();
        acting
    }

    fn pass(&mut self, observed: &Observed, options: PlanOptions, stage: BehaviorStage) -> ScalingPlan {
        let all_nodes = self.nodes.sorted(&observed.nodes, |node| key(&node.metadata));
        let all_pods = self.pods.sorted(&observed.pods, PodInfo::key);
        let mut names = ResourceNames::default();

        let mut pools = pools::pools(observed, options, &all_nodes, &mut names);
        for pool in &mut pools {
            pool.limit(stage);
        }
        let reference = largest(&pools, &all_nodes, &mut names);
        let mut warnings = Vec::new();
        let mut demand =
            Demand::of(observed, &all_pods, &all_nodes, &mut names, &reference, &mut self.interner);
        warnings.append(&mut demand.warnings);
        order::order(&mut demand.groups, &demand.classes, &demand.topology_counts, &reference);
        let headroom = headroom::add(&mut demand, &pools, &mut names, &mut warnings);
        let daemons = Daemons::of(observed, &mut names, &mut warnings);
        let groups = demand.groups.iter().map(|group| group.pods.len());
        let waiting = groups.chain(headroom.iter().map(|&(_, count)| count)).sum();
        let (nodes, pods) = (&all_nodes, &all_pods);
        let source = SnapshotInput { observed, nodes, pods, demand: &demand, daemons: &daemons, waiting };
        let blocking_pods =
            blocking_pods::blocking_pods(all_nodes.len(), &all_pods, &demand.placed, observed.now);
        let mut excess_nodes = ExcessNodes::of(&pools, &all_nodes, &blocking_pods);
        let (pools, settled) = loop {
            let pools = excess_nodes.applied_to(&pools);
            let settled = settle(source, &pools, &headroom, &mut names);
            if !excess_nodes.keep_for(&settled.scale_up.added) {
                break (pools, settled);
            }
        };
        let Settled { mut snapshot, scale_up, warnings: of_nodes } = settled;
        warnings.extend(of_nodes);

        let planned = planned(&snapshot, &scale_up, all_nodes.len());
        // No nodes are removed from a pool that pending pods need, whether it scales up now or is not allowed to yet.
        let waited_for = |index: usize| scale_up.limited[index] && pools[index].ceiling.is_some();
        let growing: Vec<_> =
            scale_up.added.iter().enumerate().map(|(index, &added)| added > 0 || waited_for(index)).collect();
        let usage = candidates::usage(&all_nodes, &all_pods, &demand, observed.now, &mut names);
        let budgets = Budgets::of(&observed.budgets);
        let pending = ReserveInput {
            groups: &demand.groups,
            left: &scale_up.placement.left,
            pods: &all_pods,
            planned: &planned,
            nodes: &all_nodes,
            blocking_pods: &blocking_pods,
            now: observed.now,
        };
        let reserves = pending.reserves(&mut snapshot, &pools);
        let input = ScaleDownInput {
            now: observed.now,
            nodes: &all_nodes,
            pods: &all_pods,
            blocking_pods: &blocking_pods,
            budgets: &budgets,
            usage: &usage,
            planned: &planned,
            growing: &growing,
            reserves: &reserves,
        };
        let fork = snapshot.fork();
        close_to_moves(&mut snapshot, &all_nodes);
        let scale_down = scale_down::scale_down(&input, &pools, |_| {
            RemovalSimulation::new(&mut snapshot, &demand.classes, &demand.placed)
        });
        // The outcomes of pods are reported from the snapshot before the removal simulation.
        snapshot.revert(fork);

        let pass = PassResults {
            nodes: &all_nodes,
            pods: &all_pods,
            pools: &pools,
            demand: &demand,
            names: &names,
            snapshot: &snapshot,
        };
        ScalingPlan {
            pools: pass.pool_decisions(&scale_up, &scale_down, &excess_nodes),
            pods: pass.pod_outcomes(&scale_up),
            nodes: pass.node_verdicts(&scale_down, &excess_nodes),
            warnings,
            next: pools
                .iter()
                .filter_map(|pool| pool.health.next)
                .chain(scale_down.next)
                .chain(schedules::next(observed))
                .min(),
        }
    }
}

/// Closes nodes that cannot take a running pod: those that do not exist yet, or are not ready.
fn close_to_moves(snapshot: &mut ClusterSnapshot, all_nodes: &[Arc<Node>]) {
    for node in 0..snapshot.nodes() {
        let is_up = match snapshot.place_of(node) {
            Place::Node(index) => nodes::is_ready(&all_nodes[index]),
            Place::Upcoming(_) | Place::Planned(_) => false,
        };
        if !is_up {
            snapshot.close(node);
        }
    }
}

/// The placement of the pending pods.
struct Settled {
    /// The snapshot that contains all pods that found a place.
    snapshot: ClusterSnapshot,
    scale_up: ScaleUp,
    warnings: Vec<String>,
}

/// Places the pending pods: on existing and upcoming nodes first, then on new nodes; the headroom after them.
fn settle(
    source: SnapshotInput<'_>,
    pools: &[Pool],
    headroom: &[(PodClassId, usize)],
    names: &mut ResourceNames,
) -> Settled {
    let mut warnings = Vec::new();
    let mut snapshot = capacity::snapshot(source, pools, names, &mut warnings);
    let pending = source.demand.groups.iter().map(|group| (group.class, group.pods.len()));
    let asks: Vec<_> =
        pending.chain(headroom.iter().copied()).map(|(class, count)| PendingPods { class, count }).collect();
    let classes = &source.demand.classes;
    let seed = expander::seed(source.observed.seed, pools);
    let scale_up =
        scale_up::scale_up(&scale_up::ScaleUpInput { pools, classes, asks: &asks, seed }, &mut snapshot);
    Settled { snapshot, scale_up, warnings }
}

/// The largest amount of each resource that an existing or new node has.
fn largest(pools: &[Pool], all_nodes: &[Arc<Node>], names: &mut ResourceNames) -> Amounts {
    let mut largest = Amounts::default();
    pools
        .iter()
        .filter_map(|pool| pool.template.as_ref().ok())
        .for_each(|t| largest.raise_to(&t.allocatable));
    for node in all_nodes {
        if let Ok(amounts) = pools::allocatable(node, names) {
            largest.raise_to(&amounts);
        }
    }
    largest
}

/// How many pending pods, including headroom, this pass planned onto each existing node.
fn planned(snapshot: &ClusterSnapshot, scale_up: &ScaleUp, nodes: usize) -> Vec<usize> {
    let mut planned = vec![0; nodes];
    for &(node, pods) in scale_up.placement.placed.iter().flatten() {
        if let Place::Node(node) = snapshot.place_of(node) {
            planned[node] += pods;
        }
    }
    planned
}
