//! Reports the results of a pass: a decision for each pool, an outcome for each pending pod, a verdict for each node.
//! Nothing is decided here.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::rejections::RejectionInput;
use crate::decision::{
    NodeDecision, PodDecision, PoolDecision, PoolRejection, ScalingPlan, SchedulingResult, decision_id,
};
use crate::demand::Demand;
use crate::index::{Indexed, PassNodeIndex, PodIndex, PoolIndex};
use crate::input::nodes as facts;
use crate::input::observed::PassInput;
use crate::input::selection::AutoscalerAssignment;
use crate::input::unplanned::{self, StorageRefusal};
use crate::limits::schedules;
use crate::numbers::replicas;
use crate::pools::{Pool, Pools};
use crate::reasons::{NodeReason, PoolReason, Rejection};
use crate::resources::ResourceNames;
use crate::scale_down::excess_nodes::ExcessNodes;
use crate::scale_down::{RemovalVerdict, ScaleDown};
use crate::scale_up::ScaleUp;
use crate::snapshot::{ClusterSnapshot, NodeIndex, Place};
use crate::steps;

/// The results of a pass that the summaries are made from.
pub(crate) struct PassResults<'a> {
    pub(crate) input: PassInput<'a>,
    pub(crate) pools: &'a Pools,
    pub(crate) demand: &'a Demand,
    pub(crate) names: &'a ResourceNames,
    /// With the pending pods placed, and before any node is removed.
    pub(crate) snapshot: &'a ClusterSnapshot,
    pub(crate) scale_up: &'a ScaleUp,
    pub(crate) scale_down: &'a ScaleDown,
    /// The nodes that are removed because of a bound.
    pub(crate) excess_nodes: &'a ExcessNodes,
}

/// The scale-up or scale-down of a pool.
struct PoolChange {
    added: usize,
    pods: usize,
    limited: bool,
    removed: usize,
}

impl PassResults<'_> {
    /// The plan of the pass.
    pub(crate) fn plan(&self, warnings: Vec<String>) -> ScalingPlan {
        let retries = self.pools.iter().filter_map(|pool| pool.health.next);
        ScalingPlan {
            pools: self.pool_decisions(),
            pods: self.pod_outcomes(),
            nodes: self.node_verdicts(),
            warnings,
            next: retries
                .chain(self.scale_down.next)
                .chain(self.demand.delayed_until)
                .chain(schedules::next(self.input.observed))
                .min(),
        }
    }

    /// The decision about each pool.
    fn pool_decisions(&self) -> Vec<PoolDecision> {
        let Self { scale_up, scale_down, excess_nodes, .. } = *self;
        let mut triggering: Indexed<PoolIndex, usize> = vec![0; self.pools.len()].into();
        let of_pods = scale_up.placement.placed.iter().take(self.demand.groups.len());
        for &(node, count) in of_pods.flatten() {
            if let Place::Planned(pool) = self.snapshot.place_of(node) {
                triggering[pool] += count;
            }
        }
        let decision = |(index, pool): (PoolIndex, &Pool)| {
            let change = PoolChange {
                added: scale_up.added[index],
                pods: triggering[index],
                limited: scale_up.limited[index],
                removed: scale_down.victims[index].len(),
            };
            let going = scale_down.victims[index].iter().chain(excess_nodes.going(index));
            let mut victims: Vec<_> = going.map(|&node| self.node_name(node)).collect();
            victims.sort_unstable();
            let (desired, reason, message) = conclusion(pool, &change);
            PoolDecision {
                object: Arc::clone(&pool.object),
                autoscaler: pool.assignment.autoscaler().map(str::to_owned),
                acts: pool.assignment.acts(),
                on_contested: pool.assignment.on_contested(),
                contenders: match &pool.assignment {
                    AutoscalerAssignment::Planned(_) => Vec::new(),
                    AutoscalerAssignment::Left { autoscalers, .. } => autoscalers.clone(),
                },
                current: current(pool),
                desired,
                reason,
                message,
                limited: change.limited,
                wanted: desired,
                cut: None,
                conflict: pool.bounds.conflict,
                limits: pool.limits.clone(),
                discovered: pool.template.as_ref().ok().and_then(|template| template.discovered.clone()),
                id: decision_id(&pool.object, desired, &victims),
                victims,
                pending_removal: self.pending_removal(pool, excess_nodes.going(index)),
                leaving: pool.leaving.iter().map(|&node| self.node_name(node)).collect(),
                unneeded: scale_down.unneeded[index].clone(),
                triggering_pods: change.pods,
            }
        };
        self.pools.enumerated().map(decision).collect()
    }

    /// The outcome for each pending pod. The first pods of a group, by name, are those that fit.
    fn pod_outcomes(&self) -> Vec<PodDecision> {
        let mut results: Vec<(PodIndex, SchedulingResult)> = Vec::new();
        let (demand, placement) = (self.demand, &self.scale_up.placement);
        let asked = RejectionInput {
            snapshot: self.snapshot,
            pools: self.pools,
            classes: &demand.classes,
            names: self.names,
        };
        for (group, (placed, &left)) in demand.groups.iter().zip(placement.placed.iter().zip(&placement.left))
        {
            steps::count(1 + group.pods.len());
            let mut pods = group.pods.iter().copied();
            for (place, count) in self.by_place(placed) {
                let result = self.result(place);
                let result_of = |pod: PodIndex| match self.unknown_limit(pod) {
                    Some(rejection) if self.is_up(place) => self.refused(&rejection),
                    _ => result.clone(),
                };
                results.extend(pods.by_ref().take(count).map(|pod| (pod, result_of(pod))));
            }
            if left > 0 {
                let reasons = self.worded(asked.rejections(group.class));
                results.extend(
                    pods.map(|pod| (pod, SchedulingResult::Unschedulable { reasons: Arc::clone(&reasons) })),
                );
            }
        }
        let unreadable =
            |(pod, problem): &(PodIndex, String)| (*pod, Rejection::InvalidRequests(problem.clone()));
        let hopeless = demand.unreadable.iter().map(unreadable).chain(demand.waiting.iter().cloned());
        for (pod, rejection) in hopeless {
            results.push((pod, self.refused(&rejection)));
        }
        results.sort_by_key(|(pod, _)| *pod);
        let outcome = |(pod, result): (PodIndex, SchedulingResult)| {
            let object = Arc::clone(&self.input.pods[pod]);
            let (namespace, name) = object.key();
            PodDecision { namespace: namespace.to_owned(), name: name.to_owned(), result, object }
        };
        results.into_iter().map(outcome).collect()
    }

    /// Whether it is a node that is up. The scheduler refuses one that is starting for that, and not for its volumes.
    fn is_up(&self, place: Place) -> bool {
        let Place::Node(node) = place else { return false };
        let now = self.input.observed.now;
        !self.pools.iter().any(|pool| pool.starting_until(node).is_some_and(|until| until > now))
    }

    /// Why no place of the pod on a node that is up is believed: the scheduler, which knows the nodes' volume limits and the
    /// storage that is left, has refused nodes for them. The place is kept for the pod all the same, and so is the node: volumes
    /// may be detached, and storage may become free.
    fn unknown_limit(&self, pod: PodIndex) -> Option<Rejection> {
        let refusal = unplanned::storage_refusal(self.input.pods[pod].shape().pod())?;
        Some(match refusal {
            StorageRefusal::VolumeLimits => Rejection::VolumeLimits,
            StorageRefusal::FreeStorage => Rejection::FreeStorage,
        })
    }

    /// The outcome for a pod that all selected pools refuse for the same reason.
    fn refused(&self, rejection: &Rejection) -> SchedulingResult {
        let selected = self.pools.enumerated().filter(|(_, pool)| pool.is_selected());
        let rejections = selected.map(|(pool, _)| (pool, rejection.clone())).collect();
        SchedulingResult::Unschedulable { reasons: self.worded(rejections) }
    }

    /// The verdict for each node.
    fn node_verdicts(&self) -> Vec<NodeDecision> {
        let mut verdicts = self.scale_down.verdicts.clone();
        steps::count(verdicts.len());
        let going = self.pools.indexes().flat_map(|pool| self.excess_nodes.going(pool));
        going.for_each(|&node| verdicts[node] = Some(NodeReason::AboveMaxReplicas.into()));
        let verdict = |(node, verdict): (PassNodeIndex, Option<RemovalVerdict>)| {
            let RemovalVerdict { reason, message } =
                verdict.unwrap_or_else(|| NodeReason::NotAutoscaled.into());
            NodeDecision { name: self.node_name(node), reason, message }
        };
        verdicts.indexes().zip(verdicts).map(verdict).collect()
    }

    /// How many pods were placed on each node; nodes that do not exist yet are told apart only by their pool.
    fn by_place(&self, placed: &[(NodeIndex, usize)]) -> BTreeMap<Place, usize> {
        let mut counts = BTreeMap::new();
        steps::count(placed.len());
        for &(node, count) in placed {
            *counts.entry(self.snapshot.place_of(node)).or_default() += count;
        }
        counts
    }

    fn result(&self, place: Place) -> SchedulingResult {
        match place {
            Place::Planned(pool) => SchedulingResult::TriggersScaleUp { pool: self.pools[pool].id() },
            Place::Upcoming(pool) => {
                SchedulingResult::Fits { pool: self.pools[pool].id(), node: String::new() }
            }
            Place::Node(node) => {
                let pool =
                    steps::counted(self.pools.iter()).find(|pool| pool.staying.binary_search(&node).is_ok());
                SchedulingResult::Fits {
                    pool: pool.map(Pool::id).unwrap_or_default(),
                    node: self.node_name(node),
                }
            }
        }
    }

    fn worded(&self, rejections: Vec<(PoolIndex, Rejection)>) -> Arc<[PoolRejection]> {
        let worded = |(pool, rejection): (PoolIndex, Rejection)| PoolRejection {
            pool: self.pools[pool].id(),
            reason: rejection.reason(),
            message: rejection.message(),
            keeps_waiting: rejection.keeps_waiting(),
        };
        rejections.into_iter().map(worded).collect()
    }

    /// The nodes of a pool that are pending removal: status names them, and they are not marked yet. `going` are those
    /// that this pass removes.
    fn pending_removal(&self, pool: &Pool, going: &[PassNodeIndex]) -> Vec<String> {
        let unmarked =
            |node: &&PassNodeIndex| !facts::is_leaving(&self.input.nodes[**node]) && !going.contains(node);
        let mut names: Vec<_> =
            pool.leaving.iter().filter(unmarked).map(|&node| self.node_name(node)).collect();
        names.sort_unstable();
        names
    }

    fn node_name(&self, node: PassNodeIndex) -> String {
        self.input.nodes[node].metadata.name.clone().unwrap_or_default()
    }
}

fn current(pool: &Pool) -> i32 {
    pool.object.spec.replicas.unwrap_or_else(|| replicas(pool.bounds.base))
}

/// How many nodes a pool should have, and why.
fn conclusion(pool: &Pool, change: &PoolChange) -> (i32, PoolReason, String) {
    if let Some((reason, message)) = untouched(pool) {
        return (current(pool), reason, message);
    }
    let bounds = pool.bounds;
    let desired = replicas(if change.added > 0 {
        pool.grown_from() + change.added
    } else {
        bounds.base.saturating_sub(change.removed)
    });
    let (reason, message) = if change.added > 0 {
        let what = if change.pods > 0 { pods(change.pods) } else { "headroom".to_owned() };
        (PoolReason::ScaleUp, format!("{} for {what}", nodes(change.added)))
    } else if let Some(correction) = bounds.correction {
        (correction, corrected(correction, pool))
    } else if change.removed > 0 {
        (PoolReason::ScaleDown, format!("nothing needs {}", nodes(change.removed)))
    } else if change.limited {
        let message = format!("pending pods ask for more than spec.maxReplicas ({}) nodes", bounds.max);
        (PoolReason::MaxReplicasReached, message)
    } else if let Err(problem) = &pool.template {
        (
            PoolReason::InvalidTemplate,
            format!("no pod can be planned onto new nodes: {problem} in spec.template"),
        )
    } else {
        (PoolReason::DesiredWithinRange, "as many nodes as are needed".to_owned())
    };
    (desired, reason, message)
}

/// Why this pass must not change the pool's number of nodes.
fn untouched(pool: &Pool) -> Option<(PoolReason, String)> {
    if let AutoscalerAssignment::Left { reason, autoscalers } = &pool.assignment {
        let names = autoscalers.join(", ");
        let message = match reason {
            PoolReason::AmbiguousSelector => {
                format!(
                    "more than one NodePoolAutoscaler selects this pool: {names}; change their spec.nodePoolSelector so that one does"
                )
            }
            PoolReason::AutoscalerOff => format!("NodePoolAutoscaler {names} is in mode Off"),
            PoolReason::RecommendOnly => format!("NodePoolAutoscaler {names} is in mode Recommend"),
            _ => "no NodePoolAutoscaler of this namespace selects this pool".to_owned(),
        };
        return Some((*reason, message));
    }
    if pool.object.metadata.deletion_timestamp.is_some() {
        return Some((PoolReason::Deleting, "the pool is being deleted".to_owned()));
    }
    pool.object.spec.paused.then(|| (PoolReason::Paused, "spec.paused is set".to_owned()))
}

fn corrected(correction: PoolReason, pool: &Pool) -> String {
    let (bounds, current) = (pool.bounds, current(pool));
    let correction = match correction {
        PoolReason::AboveMaxReplicas => {
            format!("spec.replicas {current} is above spec.maxReplicas {}", bounds.max)
        }
        PoolReason::BelowMinReplicas => {
            format!("spec.replicas {current} is below spec.minReplicas {}", bounds.min)
        }
        _ => format!("spec.replicas is not set, which stands for {}", nodes(bounds.base)),
    };
    match pool.spared {
        0 => correction,
        spared => format!("{correction}; {} kept for pending pods", nodes(spared)),
    }
}

fn nodes(count: usize) -> String {
    if count == 1 { "1 node".to_owned() } else { format!("{count} nodes") }
}

fn pods(count: usize) -> String {
    if count == 1 { "1 pending pod".to_owned() } else { format!("{count} pending pods") }
}
