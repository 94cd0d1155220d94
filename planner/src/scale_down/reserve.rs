//! How many empty nodes of a pool stay because of pending pods. A plan says where pending pods fit, but kube-scheduler
//! may bind them elsewhere, and the next plan may find other places for them too, once upcoming nodes exist. So a pool
//! whose new nodes could take `n` of the pending pods keeps `n` empty nodes, or all that it has and that such a pod
//! fits. Each of those pods then has a place wherever the others go: a pool that has scaled down does not scale up for
//! them, and one that has scaled up for them does not scale down before they are bound.

use std::collections::BTreeSet;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::model::Candidate;
use crate::demand::PendingGroup;
use crate::index::{Indexed, PassNodeIndex, PodIndex, PoolIndex};
use crate::input::nodes;
use crate::input::observed::{PassNodes, PassPods};
use crate::pools::{Pool, Pools};
use crate::requirements::pod_class::PodClassId;
use crate::scale_down::workload_pods::WorkloadPods;
use crate::snapshot::{ClusterSnapshot, NodeOrTemplate};
use crate::steps;

/// How long a pod keeps nodes from being removed after kube-scheduler first found it unschedulable. Longer than any
/// node should take to start, so that the nodes that a pool added for the pod are still there when they are ready.
///
/// kube-scheduler binds a pod within seconds once a node fits. A pod that stays unbound for longer than this has a
/// reason that no plan sees, and no longer counts.
pub(crate) const AWAITED_FOR: SignedDuration = SignedDuration::from_hours(1);

/// The empty nodes of a pool, and how many of them have to stay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reserve {
    /// The nodes that a pending pod fits and that no pod on them keeps.
    empty: BTreeSet<PassNodeIndex>,
    /// How many pending pods a new node of the pool could take: those with a place in this pass, wherever it is, as if
    /// there were no other pods; those without, given the other pods. A pod that other pods keep out permanently needs
    /// no node.
    wanted: usize,
    /// When the first of them no longer counts; `None` if that never happens.
    pub(super) until: Option<Timestamp>,
}

/// The input for the reserves, in addition to the snapshot with the pending pods in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReserveInput<'a> {
    /// The pending pods, without headroom: headroom is never bound.
    pub groups: &'a [PendingGroup],
    /// How many pods of each group have no place.
    pub left: &'a [usize],
    /// All pods of the pass.
    pub pods: &'a PassPods,
    /// How many pending pods this pass planned onto each node.
    pub planned: &'a Indexed<PassNodeIndex, usize>,
    /// The nodes of the pass.
    pub nodes: &'a PassNodes,
    /// The pods on each node that are a reason to keep it.
    pub workload_pods: &'a Indexed<PassNodeIndex, WorkloadPods>,
    /// The time.
    pub now: Timestamp,
}

impl ReserveInput<'_> {
    /// The nodes that each pool keeps for pending pods.
    pub(crate) fn reserves(
        self,
        snapshot: &mut ClusterSnapshot,
        pools: &Pools,
    ) -> Indexed<PoolIndex, Reserve> {
        let awaited: Vec<_> =
            self.groups.iter().zip(self.left).map(|(group, &left)| self.awaited(group, left)).collect();
        pools.enumerated().map(|(index, pool)| self.of_pool(snapshot, index, pool, &awaited)).collect()
    }

    fn of_pool(
        self,
        snapshot: &mut ClusterSnapshot,
        index: PoolIndex,
        pool: &Pool,
        awaited: &[Awaited],
    ) -> Reserve {
        let mut reserve = Reserve::default();
        steps::count(awaited.len());
        let mut classes = Vec::new();
        for of_group in awaited {
            let wanted = of_group.by(snapshot, index);
            if wanted > 0 {
                reserve.wanted += wanted;
                reserve.until = reserve.until.into_iter().chain(of_group.until).min();
                classes.push(of_group.class);
            }
        }
        let is_place = |node: PassNodeIndex| {
            let is_free = self.workload_pods[node].count() == 0 && nodes::is_ready(&self.nodes[node]);
            let takes = |&class: &PodClassId| {
                snapshot.why_not(class, NodeOrTemplate::Node(snapshot.node_of(node))).is_none()
            };
            is_free && (self.planned[node] > 0 || classes.iter().any(takes))
        };
        if reserve.wanted > 0 {
            steps::count(pool.staying.len());
            reserve.empty = pool.staying.iter().copied().filter(|&node| is_place(node)).collect();
        }
        reserve
    }

    fn awaited(self, group: &PendingGroup, left: usize) -> Awaited {
        let ends = |pod: &PodIndex| {
            let since = self.pods[*pod].unschedulable_since();
            since.map(|since| since.checked_add(AWAITED_FOR).unwrap_or(Timestamp::MAX))
        };
        steps::count(group.pods.len());
        let ends: Vec<_> =
            group.pods.iter().map(ends).filter(|end| end.is_none_or(|end| end > self.now)).collect();
        let placed = group.pods.len().saturating_sub(left).min(ends.len());
        Awaited {
            class: group.class,
            placed,
            left: ends.len() - placed,
            until: ends.into_iter().flatten().min(),
        }
    }
}

/// Pods of a group that kube-scheduler may be about to bind.
struct Awaited {
    class: PodClassId,
    /// How many have a place in this pass.
    placed: usize,
    /// How many have none.
    left: usize,
    until: Option<Timestamp>,
}

impl Awaited {
    /// How many of them a new node of the pool could take.
    fn by(&self, snapshot: &mut ClusterSnapshot, pool: PoolIndex) -> usize {
        let placed = if self.placed > 0 && snapshot.could_take(self.class, pool) { self.placed } else { 0 };
        placed + if self.left > 0 && snapshot.would_take(self.class, pool) { self.left } else { 0 }
    }
}

impl Reserve {
    /// Whether the candidate may be removed. An empty node that no pending pod fits is no place for one; a drained node
    /// leaves its pods to other nodes, where they may take the place of a pending pod.
    pub(super) fn spares(&self, candidate: &Candidate) -> bool {
        let left = self.empty.len();
        if candidate.drains {
            left >= self.wanted
        } else {
            !self.empty.contains(&candidate.node) || left > self.wanted
        }
    }

    /// Records that the candidate is removed.
    pub(super) fn take(&mut self, candidate: &Candidate) {
        self.empty.remove(&candidate.node);
    }
}
