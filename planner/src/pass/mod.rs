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
use crate::demand::node_agents::NodeAgents;
use crate::demand::nominations::Nominations;
use crate::demand::{Demand, PodInterner};
use crate::index::{Indexed, PassNodeIndex, PodIndex};
use crate::input::by_name::ByName;
use crate::input::nodes;
use crate::input::observed::{
    Observed, PassInput, PassNodes, PassPods, PlanOptions, Recommendations, ScheduleClamp, key,
};
use crate::input::pod_info::PodInfo;
use crate::limits::behavior::BehaviorStage;
use crate::limits::schedules;
use crate::pools::{self, Pools};
use crate::reasons::PoolReason;
use crate::resources::ResourceNames;
use crate::scale_down::budgets::Budgets;
use crate::scale_down::counting::CountingRules;
use crate::scale_down::excess_nodes::ExcessNodes;
use crate::scale_down::workload_pods::WorkloadPods;
use crate::scale_down::{self, PlacedCluster, workload_pods};
use crate::scale_up::placement::{PendingId, PendingPods};
use crate::scale_up::{self, ScaleUp, ScaleUpInput, expander};
use crate::snapshot::ClusterSnapshot;
use crate::snapshot::capacity::{self, SnapshotInput};
use crate::snapshot::nominations;

/// Maximum number of nodes that a status can name, as victims or as unneeded: `maxItems` of the lists in
/// `status.autoscaling`.
pub const MAX_NAMED_NODES: usize = 1000;

/// Plans pass after pass. It caches the requirements of pods that have not changed, and their order; the plans are the
/// same without the cache.
#[derive(Debug, Default)]
pub struct Planner {
    interner: PodInterner,
    nodes: ByName<PassNodeIndex, Node>,
    pods: ByName<PodIndex, PodInfo>,
}

/// Nodes and pods in the order of a pass.
struct Sorted {
    nodes: Arc<PassNodes>,
    pods: Arc<PassPods>,
}

/// What all passes of one plan have in common.
struct Cluster<'a> {
    input: PassInput<'a>,
    /// The nominations that are believed: they do not depend on the limits that the passes differ in.
    nominations: Nominations<'a>,
}

impl<'a> Cluster<'a> {
    fn of(input: PassInput<'a>) -> Self {
        Self { input, nominations: nominations::believed(input) }
    }
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
        let Sorted { nodes, pods } = self.sorted(observed);
        let cluster = Cluster::of(PassInput { observed, nodes: &nodes, pods: &pods });
        self.plan_on(&cluster, observed.options)
    }

    /// The nodes and pods in the order of a pass.
    fn sorted(&mut self, observed: &Observed) -> Sorted {
        Sorted {
            nodes: self.nodes.sorted(&observed.nodes, |node| key(&node.metadata)),
            pods: self.pods.sorted(&observed.pods, PodInfo::key),
        }
    }

    /// Plans without the temporary limits, and once more with them if that plan goes beyond what `spec.behavior` allows
    /// for now.
    fn plan_on(&mut self, cluster: &Cluster<'_>, options: PlanOptions) -> ScalingPlan {
        let observed = cluster.input.observed;
        let free = self.pass(cluster, options, BehaviorStage::Wanted);
        let mut plan = if conclude::keeps_within(&free) {
            conclude::concluded(free, None, observed.now)
        } else {
            let limited = self.pass(cluster, options, BehaviorStage::Limited);
            conclude::concluded(limited, Some(&free), observed.now)
        };
        plan.warnings.extend(schedules::problems(observed));
        plan
    }

    /// Plans a pass of the operator itself. Pools whose autoscaler only recommends are left out of the decisions that
    /// are carried out; otherwise pods would be planned onto nodes that are never created. The recommendations for
    /// those pools are planned separately.
    pub fn plan_for_cluster(&mut self, observed: &Observed) -> ScalingPlan {
        let scheduled = ScheduleClamp::WithinPool;
        let Sorted { nodes, pods } = self.sorted(observed);
        let cluster = Cluster::of(PassInput { observed, nodes: &nodes, pods: &pods });
        let mut with = |recommendations| self.plan_on(&cluster, PlanOptions { recommendations, scheduled });
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

    fn pass(&mut self, cluster: &Cluster<'_>, options: PlanOptions, stage: BehaviorStage) -> ScalingPlan {
        let (input, nominations) = (cluster.input, &cluster.nominations);
        let PassInput { observed, nodes, pods } = input;
        let names = &mut ResourceNames::default();

        let mut pools = pools::limited(input, options, stage, names);
        let mut demand = Demand::of_pass(input, &pools, names, &mut self.interner, nominations);
        let agents = NodeAgents::learn(input, &demand, &mut pools, names);
        let mut warnings = std::mem::take(&mut demand.warnings);
        let rules = CountingRules::of_nodes(&pools, nodes.len());
        let budgets = Budgets::of(&observed.budgets);
        let workload_pods =
            workload_pods::workload_pods(&rules, pods, &demand.placed, &budgets, observed.now);
        let Placed { pools, excess_nodes, mut snapshot, scale_up, warnings: of_nodes } =
            place(input, &pools, &demand, &agents, &workload_pods, names);
        warnings.extend(of_nodes);
        let cluster = PlacedCluster {
            input,
            pools: &pools,
            demand: &demand,
            budgets: &budgets,
            rules: &rules,
            workload_pods: &workload_pods,
            scale_up: &scale_up,
        };
        let scale_down = scale_down::of_pass(cluster, &mut snapshot, names);
        let results = PassResults {
            input,
            pools: &pools,
            demand: &demand,
            names,
            snapshot: &snapshot,
            scale_up: &scale_up,
            scale_down: &scale_down,
            excess_nodes: &excess_nodes,
        };
        results.plan(warnings)
    }
}

/// The cluster with the pending pods in it.
struct Placed {
    /// The pools, without the excess nodes that are removed.
    pools: Pools,
    /// The nodes beyond the bounds.
    excess_nodes: ExcessNodes,
    /// The snapshot that contains all pods that found a place.
    snapshot: ClusterSnapshot,
    scale_up: ScaleUp,
    /// Nodes that cannot be read, as messages for users.
    warnings: Vec<String>,
}

/// Places the pending pods: on existing and upcoming nodes first, then on new nodes; the headroom after them. Where a
/// pool would scale up although excess nodes of it are removed, some of these are kept, and all is placed again.
fn place(
    input: PassInput<'_>,
    pools: &Pools,
    demand: &Demand,
    agents: &NodeAgents<'_>,
    workload_pods: &Indexed<PassNodeIndex, WorkloadPods>,
    names: &mut ResourceNames,
) -> Placed {
    let pending: Indexed<PendingId, PendingPods> =
        demand.pending().map(|(class, count)| PendingPods { class, count }).collect();
    let waiting = pending.iter().map(|pods| pods.count).sum();
    let goes = |node: &Node| nodes::awaited_until(node).is_some_and(|until| until > input.observed.now);
    let leaving: Vec<_> = input.nodes.indexes().filter(|&index| goes(&input.nodes[index])).collect();
    let mut excess_nodes = ExcessNodes::of(pools, input.nodes, workload_pods);
    loop {
        let pools = excess_nodes.applied_to(pools);
        let mut warnings = Vec::new();
        let source = SnapshotInput { input, demand, agents, waiting };
        let mut snapshot = capacity::snapshot(source, &pools, names, &mut warnings);
        let seed = expander::seed(input.observed.seed, &pools);
        let wanted = ScaleUpInput {
            pools: &pools,
            classes: &demand.classes,
            pending: &pending,
            leaving: &leaving,
            seed,
        };
        let scale_up = scale_up::scale_up(&wanted, &mut snapshot);
        if !excess_nodes.keep_for(&scale_up.added) {
            return Placed { pools, excess_nodes, snapshot, scale_up, warnings };
        }
    }
}
