//! Puts the results of a pass into words: a decision for each pool, an outcome for each pending pod, a verdict for each
//! node. Nothing is decided here any more.

use std::sync::Arc;

use super::{
    Pass,
    bounds::replicas,
    capacity::Place,
    decision::{Fate, NodeVerdict, PodOutcome, PoolDecision, PoolRejection, decision_id},
    observed::key,
    placement::Placement,
    pools::Pool,
    reasons::{NodeReason, PoolReason, Rejection},
    scale_down::Removal,
    scale_up::{Growth, rejections},
    selection::Standing,
    surplus::Surplus,
};

/// How a pool changes.
struct Change {
    added: usize,
    pods: usize,
    limited: bool,
    removed: usize,
}

impl Pass<'_> {
    /// What was decided about each pool. `surplus` are nodes that go because of a bound.
    pub(super) fn pool_decisions(
        &self,
        growth: &Growth,
        removal: &Removal,
        surplus: &Surplus,
    ) -> Vec<PoolDecision> {
        let mut triggering = vec![0; self.pools.len()];
        growth.assigned.iter().flatten().for_each(|&(pool, count)| triggering[pool] += count);
        let decision = |(index, pool): (usize, &Pool)| {
            let change = Change {
                added: growth.added[index],
                pods: triggering[index],
                limited: growth.limited[index],
                removed: removal.victims[index].len(),
            };
            let going = removal.victims[index].iter().chain(surplus.going(index));
            let mut victims: Vec<_> = going.map(|&node| self.node_name(node)).collect();
            victims.sort_unstable();
            let (desired, reason, message) = conclusion(pool, &change);
            PoolDecision {
                object: Arc::clone(&pool.object),
                autoscaler: pool.standing.autoscaler().map(str::to_owned),
                acts: pool.standing.acts(),
                contenders: match &pool.standing {
                    Standing::Planned(_) => Vec::new(),
                    Standing::Left { autoscalers, .. } => autoscalers.clone(),
                },
                current: current(pool),
                desired,
                reason,
                message,
                limited: change.limited,
                id: decision_id(&pool.object, desired, &victims),
                victims,
                leaving: pool.leaving.iter().map(|&node| self.node_name(node)).collect(),
                unneeded: removal.unneeded[index].clone(),
                triggering_pods: change.pods,
            }
        };
        self.pools.iter().enumerate().map(decision).collect()
    }

    /// What becomes of each pending pod. `fitting` says, for each group, how many pods went to which bin; the first pods
    /// of a group, by name, are those that fit.
    pub(super) fn pod_outcomes(
        &self,
        placement: &Placement,
        fitting: &[Vec<(usize, usize)>],
        growth: &Growth,
    ) -> Vec<PodOutcome> {
        let mut fates: Vec<(usize, Fate)> = Vec::new();
        for (at, group) in self.demand.groups.iter().enumerate() {
            let mut pods = group.pods.iter().copied();
            for &(bin, count) in &fitting[at] {
                let fate = self.fits(placement.bin(bin).place);
                fates.extend(pods.by_ref().take(count).map(|pod| (pod, fate.clone())));
            }
            for &(pool, count) in &growth.assigned[at] {
                let pool = self.pools[pool].id();
                fates.extend(
                    pods.by_ref().take(count).map(|pod| (pod, Fate::TriggersScaleUp { pool: pool.clone() })),
                );
            }
            if growth.left[at] > 0 {
                let class = &self.demand.classes[group.class];
                let reasons = self.worded(rejections(self.pools, class, &group.request, self.names));
                fates.extend(pods.map(|pod| (pod, Fate::Unschedulable { reasons: Arc::clone(&reasons) })));
            }
        }
        for (pod, problem) in &self.demand.unreadable {
            let selected = self.pools.iter().enumerate().filter(|(_, pool)| pool.is_selected());
            let rejections = selected.map(|(pool, _)| (pool, Rejection::InvalidRequests(problem.clone())));
            fates.push((*pod, Fate::Unschedulable { reasons: self.worded(rejections.collect()) }));
        }
        fates.sort_by_key(|(pod, _)| *pod);
        let outcome = |(pod, fate): (usize, Fate)| {
            let (namespace, name) = key(&self.pods[pod].metadata);
            PodOutcome { namespace: namespace.to_owned(), name: name.to_owned(), fate }
        };
        fates.into_iter().map(outcome).collect()
    }

    /// The verdict on each node.
    pub(super) fn node_verdicts(&self, removal: &Removal, surplus: &Surplus) -> Vec<NodeVerdict> {
        let mut reasons: Vec<_> =
            removal.verdicts.iter().map(|v| v.unwrap_or(NodeReason::NotAutoscaled)).collect();
        let going = (0..self.pools.len()).flat_map(|pool| surplus.going(pool));
        going.for_each(|&node| reasons[node] = NodeReason::AboveMaxReplicas);
        let verdict = |(node, reason)| NodeVerdict { name: self.node_name(node), reason };
        reasons.into_iter().enumerate().map(verdict).collect()
    }

    fn fits(&self, place: Place) -> Fate {
        match place {
            Place::Upcoming(pool) => Fate::Fits { pool: self.pools[pool].id(), node: String::new() },
            Place::Node(node) => {
                let pool = self.pools.iter().find(|pool| pool.staying.binary_search(&node).is_ok());
                Fate::Fits { pool: pool.map(Pool::id).unwrap_or_default(), node: self.node_name(node) }
            }
        }
    }

    fn worded(&self, rejections: Vec<(usize, Rejection)>) -> Arc<[PoolRejection]> {
        let worded = |(pool, rejection): (usize, Rejection)| PoolRejection {
            pool: self.pools[pool].id(),
            reason: rejection.reason(),
            message: rejection.message(),
        };
        rejections.into_iter().map(worded).collect()
    }

    fn node_name(&self, node: usize) -> String {
        self.nodes[node].metadata.name.clone().unwrap_or_default()
    }
}

fn current(pool: &Pool) -> i32 {
    let spec = &pool.object.spec;
    spec.replicas.unwrap_or(spec.min_replicas)
}

/// How many nodes a pool should have, and why.
fn conclusion(pool: &Pool, change: &Change) -> (i32, PoolReason, String) {
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
        (PoolReason::ScaleUp, format!("{} for {}", nodes(change.added), pods(change.pods)))
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

/// Why the pool's number of nodes is not for this pass to change.
fn untouched(pool: &Pool) -> Option<(PoolReason, String)> {
    if let Standing::Left { reason, autoscalers } = &pool.standing {
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
        _ => format!("spec.replicas is not set, spec.minReplicas is {}", bounds.min),
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
