//! The pools of a pass: the properties of a new node of each, the existing nodes, the number of upcoming ones.

pub(crate) mod agents;
pub(crate) mod backoff;
pub(crate) mod beliefs;
pub(crate) mod discovered;
pub(crate) mod learnt_labels;
pub(crate) mod shared_taints;
pub(crate) mod stuck_taints;
#[cfg(test)]
mod tainted_nodes;
mod template;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use shared_crds::v1alpha1::{ASSUMED_POD_CAPACITY, AutoscalingStatus};
use shared_crds::{NodePool, NodePoolAutoscaler, QualifiedName};

pub(crate) use self::template::Template;

use crate::index::{Indexed, PassNodeIndex, PoolIndex};
use crate::input::nodes;
use crate::input::observed::{Observed, PassInput, PassNodes, PlanOptions, key};
use crate::input::selection::{AutoscalerAssignment, assignment};
use crate::limits::behavior::{BehaviorLimits, BehaviorStage};
use crate::limits::bounds::Bounds;
use crate::limits::contested::ReplicasWriter;
use crate::limits::schedules::{ScheduledBounds, Schedules};
use crate::numbers::{count, replicas};
use crate::pools::backoff::{OwedNodes, PoolBackoff, PoolHealth, health};
use crate::reasons::{PoolReason, Rejection};
use crate::resources::{Amounts, Basic, InvalidAmount, Resource, ResourceNames, counted, exact};
use crate::steps;

/// The pools of a pass, by namespace and name.
pub(crate) type Pools = Indexed<PoolIndex, Pool>;

/// A pool as the planner sees it.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    /// The pool's object.
    pub object: Arc<NodePool>,
    /// Which autoscaler plans it, or why none does.
    pub assignment: AutoscalerAssignment,
    /// Its lower and upper bound.
    pub bounds: Bounds,
    /// The template of a new node, or why it cannot be read.
    pub template: Result<Template, String>,
    /// Its nodes that are not being removed, as indexes into the pass's nodes.
    pub staying: Vec<PassNodeIndex>,
    /// Its nodes that are being removed.
    pub leaving: Vec<PassNodeIndex>,
    /// What [`Self::starting_until`] returns, by the index of the node. A pass asks for it several times.
    starting: BTreeMap<PassNodeIndex, Timestamp>,
    /// Whether its provider creates the requested nodes.
    pub health: PoolHealth,
    /// Why its replicas cannot be written for now; `None` if they can. Nodes that were requested before are still
    /// created.
    pub refused: Option<String>,
    /// How many of the staying nodes are kept only for pending pods; a bound alone would have them removed.
    pub spared: usize,
    /// Its remembered status: what the status shows, or should show by now.
    pub remembered: Option<AutoscalingStatus>,
    /// How far it may scale, apart from its bounds, and why no further.
    pub limits: BehaviorLimits,
    /// The maximum number of nodes that this pass may scale it up to; `None` without such a limit.
    pub ceiling: Option<usize>,
    /// The minimum number of nodes that this pass may scale it down to; `None` without such a limit.
    pub floor: Option<usize>,
}

impl Pool {
    /// Applies the limits of a stage.
    pub(crate) fn limit(&mut self, stage: BehaviorStage) {
        self.ceiling = self.limits.ceiling(stage);
        self.floor = self.limits.floor(stage);
        self.bounds.floor = self.bounds.min.max(self.floor.unwrap_or(0));
    }

    /// The pool as `namespace/name`.
    pub(crate) fn id(&self) -> String {
        QualifiedName::of(&self.object.metadata).to_string()
    }

    /// Whether the pool is neither paused nor being deleted, so that missing nodes will come.
    pub(crate) fn is_live(&self) -> bool {
        !self.object.spec.paused && self.object.metadata.deletion_timestamp.is_none()
    }

    /// Nodes that were requested, have no Node object yet, and will be created.
    pub(crate) fn missing(&self) -> usize {
        let comes = self.is_live() && self.health.backoff.is_none();
        if comes { self.bounds.base.saturating_sub(self.staying.len()) } else { 0 }
    }

    /// The number of nodes from which the pool scales up. Nodes that exist beyond the requested number (the `NodePool`
    /// operator has not removed them yet) are counted; otherwise a scale-up would only keep them instead of creating a
    /// node. Those of a rollout are not: it makes and removes them itself.
    pub(crate) fn grown_from(&self) -> usize {
        if nodes::is_rolling_out(&self.object) {
            self.bounds.base
        } else {
            self.bounds.base.max(self.staying.len())
        }
    }

    /// How many nodes may be added in this pass.
    pub(crate) fn room(&self) -> usize {
        self.bounds.max.min(self.ceiling.unwrap_or(usize::MAX)).saturating_sub(self.grown_from())
    }

    /// Whether pods get a reason why the pool does not take them: it is planned, or would be if only one autoscaler
    /// selected it.
    pub(crate) fn is_selected(&self) -> bool {
        match &self.assignment {
            AutoscalerAssignment::Planned(_) => true,
            AutoscalerAssignment::Left { reason, .. } => *reason == PoolReason::AmbiguousSelector,
        }
    }

    /// Why the pool cannot scale up at all, for any pod.
    pub(crate) fn closed(&self) -> Option<Rejection> {
        if let AutoscalerAssignment::Left { autoscalers, .. } = &self.assignment {
            return Some(Rejection::AmbiguousSelector(autoscalers.join(", ")));
        }
        if self.object.metadata.deletion_timestamp.is_some() {
            return Some(Rejection::PoolDeleting);
        }
        if self.object.spec.paused {
            return Some(Rejection::PoolPaused);
        }
        if let Some(PoolBackoff { reason, message, .. }) = &self.health.backoff {
            return Some(Rejection::InBackoff { reason: reason.clone(), message: message.clone() });
        }
        if let Some(problem) = &self.refused {
            return Some(Rejection::WriteRefused(problem.clone()));
        }
        self.template.as_ref().err().map(|problem| Rejection::InvalidTemplate(problem.clone()))
    }

    /// Whether this pass may change the pool's number of nodes.
    pub(crate) fn is_planned(&self) -> bool {
        matches!(self.assignment, AutoscalerAssignment::Planned(_)) && self.is_live()
    }

    /// Until when one of the pool's staying nodes counts as starting, and as what its template promises, if it is not up yet or
    /// lacks a part of that. `None` if it is up and complete, if the time for the rest is over, or if its age is unknown.
    pub(crate) fn starting_until(&self, node: PassNodeIndex) -> Option<Timestamp> {
        self.starting.get(&node).copied()
    }

    /// The value of [`Self::starting_until`] for the node.
    fn starts_until(&self, node: &Node, now: Timestamp) -> Option<Timestamp> {
        nodes::starting_until(node, &self.object).or_else(|| {
            let until = nodes::provisioned_until(node, &self.object).filter(|&until| until > now)?;
            let template = self.template.as_ref().ok()?;
            (!template.promise.is_kept_by(node)).then_some(until)
        })
    }

    /// Moves a node from the staying nodes to the leaving ones.
    pub(crate) fn dismiss(&mut self, node: PassNodeIndex) {
        steps::count(self.staying.len());
        self.staying.retain(|&n| n != node);
        self.leaving.push(node);
    }
}

/// The pools of a pass, within the limits of `stage`.
pub(crate) fn limited(
    input: PassInput<'_>,
    options: PlanOptions,
    stage: BehaviorStage,
    names: &mut ResourceNames,
) -> Pools {
    let mut pools = pools(input.observed, options, input.nodes, names);
    for pool in &mut pools {
        pool.limit(stage);
    }
    pools
}

/// The largest amount of each resource that an existing or new node has.
pub(crate) fn largest_node(pools: &[Pool], all_nodes: &[Arc<Node>], names: &mut ResourceNames) -> Amounts {
    let mut largest = Amounts::default();
    pools
        .iter()
        .filter_map(|pool| pool.template.as_ref().ok())
        .for_each(|t| largest.raise_to(&t.allocatable));
    steps::count(all_nodes.len());
    for node in all_nodes {
        if let Ok(amounts) = allocatable(node, names) {
            largest.raise_to(&amounts);
        }
    }
    largest
}

/// Every pool, by namespace and name, with its nodes. `all_nodes` is sorted by name.
pub(crate) fn pools(
    observed: &Observed,
    options: PlanOptions,
    all_nodes: &PassNodes,
    names: &mut ResourceNames,
) -> Pools {
    let mut autoscalers = observed.autoscalers.clone();
    autoscalers.sort_by(|a, b| key(&a.metadata).cmp(&key(&b.metadata)));
    let bounds_of = |a: &NodePoolAutoscaler| Schedules::of(&a.spec.schedules, observed.now).bounds;
    let all_scheduled: BTreeMap<_, _> =
        observed.autoscalers.iter().map(|a| (key(&a.metadata), bounds_of(a))).collect();
    let mut objects = observed.pools.clone();
    objects.sort_by(|a, b| key(&a.metadata).cmp(&key(&b.metadata)));
    let mut members: BTreeMap<(&str, &str), Vec<PassNodeIndex>> = BTreeMap::new();
    steps::count(all_nodes.len());
    for (index, node) in all_nodes.enumerated() {
        if let Some(pool) = nodes::pool_of(node) {
            members.entry(pool).or_default().push(index);
        }
    }
    objects
        .into_iter()
        .map(|object| {
            let of_pool = members.get(&key(&object.metadata)).map_or(&[][..], Vec::as_slice);
            let (leaving, staying) = split(&object, of_pool, all_nodes);
            let assignment = assignment(&object, &autoscalers, options.recommendations);
            let (bounds, limits) =
                limits(observed, options, &all_scheduled, &object, &assignment, staying.len());
            let mut pool = Pool {
                assignment,
                health: health(
                    &object,
                    observed.remembered(&object),
                    OwedNodes {
                        count: bounds.base.saturating_sub(staying.len()),
                        observed: object
                            .metadata
                            .uid
                            .as_ref()
                            .and_then(|uid| observed.owed_for.get(uid))
                            .copied(),
                    },
                    observed.now,
                ),
                remembered: observed.remembered(&object).cloned(),
                refused: object.metadata.uid.as_ref().and_then(|uid| observed.closed_pools.get(uid)).cloned(),
                bounds,
                limits,
                template: Template::of(&object, &staying, all_nodes, observed, names),
                staying,
                leaving,
                starting: BTreeMap::new(),
                spared: 0,
                ceiling: None,
                floor: None,
                object,
            };
            let starting =
                |&node: &PassNodeIndex| Some((node, pool.starts_until(&all_nodes[node], observed.now)?));
            pool.starting = pool.staying.iter().filter_map(starting).collect();
            pool
        })
        .collect()
}

/// The bounds of a pool that has `nodes` nodes, and its other limits.
fn limits(
    observed: &Observed,
    options: PlanOptions,
    all_scheduled: &BTreeMap<(&str, &str), ScheduledBounds>,
    pool: &NodePool,
    assignment: &AutoscalerAssignment,
    nodes: usize,
) -> (Bounds, BehaviorLimits) {
    let AutoscalerAssignment::Planned(autoscaler) = assignment else {
        return (Bounds::of(pool), BehaviorLimits::default());
    };
    let (now, status) = (observed.now, observed.remembered(pool));
    let scheduled = all_scheduled.get(&key(&autoscaler.metadata)).cloned().unwrap_or_default();
    let replicas_writer = ReplicasWriter::of(pool, status, assignment, now);
    let mut bounds = Bounds::within(pool, &scheduled, options.scheduled);
    if pool.spec.replicas.is_none() {
        bounds.fill(nodes);
    }
    let reclaimed = replicas_writer.reclaimed();
    if let Some(ours) = reclaimed {
        bounds.reclaim(count(ours), nodes);
    }
    let current = reclaimed.or(pool.spec.replicas).map_or(bounds.base, count);
    let behavior = autoscaler.spec.behavior.clone().unwrap_or_default();
    let limits = BehaviorLimits::of(status, &behavior, &bounds, replicas_writer, scheduled, current, now);
    (bounds, limits)
}

/// The nodes that are being removed, and the others. A node that the decision in status names as a victim is treated as
/// being removed as soon as the Autoscaler's number of replicas leaves no place for it, even before the `NodePool`
/// operator has marked it.
fn split(
    pool: &NodePool,
    members: &[PassNodeIndex],
    all_nodes: &PassNodes,
) -> (Vec<PassNodeIndex>, Vec<PassNodeIndex>) {
    let (mut leaving, staying): (Vec<_>, Vec<_>) =
        members.iter().partition(|&&n| nodes::is_leaving(&all_nodes[n]));
    let present = replicas(staying.len());
    let excess = staying.len().saturating_sub(count(pool.spec.replicas_or(present)));
    let name = |n: PassNodeIndex| all_nodes[n].metadata.name.as_deref().unwrap_or_default();
    let by_name: BTreeMap<&str, PassNodeIndex> = staying.iter().map(|&n| (name(n), n)).collect();
    let named: BTreeSet<PassNodeIndex> = match pool.scale_down_first() {
        Some(plan) => {
            let named = plan.nodes.iter().filter_map(|name| by_name.get(name.as_str()).copied());
            let goes =
                |n: &PassNodeIndex| plan.means(&all_nodes[*n]) && !nodes::is_given_back(&all_nodes[*n]);
            named.filter(goes).take(excess).collect()
        }
        None => BTreeSet::new(),
    };
    let staying = staying.into_iter().filter(|n| !named.contains(n)).collect();
    leaving.extend(named);
    (leaving, staying)
}

/// The allocatable resources of an existing node.
///
/// # Errors
///
/// For the first quantity that cannot be read.
pub(crate) fn allocatable(node: &Node, names: &mut ResourceNames) -> Result<Amounts, InvalidAmount> {
    let Some(status) = &node.status else { return Ok(Amounts::default()) };
    let quantities = status.allocatable.as_ref().or(status.capacity.as_ref());
    let amounts = quantities.map(exact).transpose()?.unwrap_or_default();
    let mut amounts = counted(&amounts, names);
    let pods = Resource::Basic(Basic::Pods);
    if !quantities.is_some_and(|q| q.contains_key("pods")) {
        amounts.set(pods, ASSUMED_POD_CAPACITY);
    }
    Ok(amounts)
}
