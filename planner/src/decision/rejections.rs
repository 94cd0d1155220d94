//! Why no pool takes one more pod of a class, once all pods that found a place are in the snapshot.

use crate::index::PoolIndex;
use crate::limits::behavior::Direction;
use crate::pools::{Pool, Pools};
use crate::reasons::{PoolReason, Rejection};
use crate::requirements::pod_class::{PodClassId, PodClasses};
use crate::resources::{Basic, Resource, ResourceNames, display};
use crate::snapshot::{ClusterSnapshot, NodeOrTemplate, PlacementError};

/// The input for the reasons.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RejectionInput<'a> {
    /// The snapshot after the pass.
    pub snapshot: &'a ClusterSnapshot,
    /// The pools.
    pub pools: &'a Pools,
    /// All classes of pods.
    pub classes: &'a PodClasses,
    /// The resource names of the pass.
    pub names: &'a ResourceNames,
}

impl RejectionInput<'_> {
    /// For each selected pool, by pool index: why it cannot take one more pod of the class.
    pub(crate) fn rejections(&self, class: PodClassId) -> Vec<(PoolIndex, Rejection)> {
        let selected = self.pools.enumerated().filter(|(_, pool)| pool.is_selected());
        selected.map(|(index, pool)| (index, self.rejection(index, pool, class))).collect()
    }

    fn rejection(&self, index: PoolIndex, pool: &Pool, class: PodClassId) -> Rejection {
        if let Some(closed) = pool.closed() {
            return closed;
        }
        match self.snapshot.why_not(class, NodeOrTemplate::Template(index)) {
            Some(PlacementError::Rejected(rejection)) => rejection,
            Some(PlacementError::Short(resource)) => self.shortage(index, pool, class, resource),
            Some(PlacementError::Closed) => Rejection::PoolPaused,
            None => self.barred(index, pool, class).unwrap_or_else(|| match pool.ceiling {
                Some(ceiling) if ceiling < pool.bounds.max => held(pool, ceiling),
                _ => reached(pool),
            }),
        }
    }

    /// Why the pool does not grow for such pods, although a new node would take one.
    fn barred(&self, index: PoolIndex, pool: &Pool, class: PodClassId) -> Option<Rejection> {
        let barred = &self.classes[class].barred;
        if barred.expendable.contains(&index) {
            return Some(Rejection::Expendable { cutoff: pool.assignment.priority_cutoff() });
        }
        barred.delayed.then_some(Rejection::ScaleUpDelayed)
    }

    fn shortage(&self, index: PoolIndex, pool: &Pool, class: PodClassId, resource: Resource) -> Rejection {
        let offered = self.snapshot.free_on_new(index).map_or(0, |free| free.get(resource));
        let name = self.names.name(resource);
        let is_discovered = pool.template.as_ref().is_ok_and(|template| {
            let discovered = template.discovered.as_ref();
            discovered.is_some_and(|known| known.allocatable.contains_key(name))
                || template.agents.iter().any(|agent| agent.takes(resource))
        });
        Rejection::Insufficient {
            reason: shortage_reason(resource),
            resource: name.to_owned(),
            asked: display(resource, self.classes[class].request.get(resource)),
            offered: display(resource, offered),
            is_discovered,
        }
    }
}

/// The upper bound of the pool, or of the schedules that replace it.
fn reached(pool: &Pool) -> Rejection {
    let bounds = &pool.limits.scheduled;
    let schedules = if bounds.max.is_some() { bounds.names.join(", ") } else { String::new() };
    Rejection::MaxReplicasReached { max: pool.bounds.max, schedules }
}

/// The limit that prevents a scale-up of the pool beyond `ceiling` in this pass.
fn held(pool: &Pool, ceiling: usize) -> Rejection {
    let limits = pool.limits.limits.iter().filter(|limit| limit.direction == Direction::Up);
    let limit = limits.filter(|limit| limit.bound <= ceiling).min_by_key(|limit| limit.bound);
    match limit.map(|limit| limit.reason) {
        Some(PoolReason::ScaleUpStabilized) => Rejection::ScaleUpStabilized { ceiling },
        Some(PoolReason::ReplicasContested) => Rejection::ReplicasContested { ceiling },
        _ => Rejection::ScaleUpLimit { ceiling },
    }
}

const fn shortage_reason(resource: Resource) -> &'static str {
    match resource {
        Resource::Basic(Basic::Pods) => "TooManyPods",
        Resource::Basic(Basic::Cpu) => "InsufficientCpu",
        Resource::Basic(Basic::Memory) => "InsufficientMemory",
        Resource::Basic(Basic::EphemeralStorage) => "InsufficientEphemeralStorage",
        Resource::Scalar(_) => "InsufficientResource",
    }
}
