//! Places the pending pods on the nodes of the snapshot, first fit, in their order.

use crate::index::{Indexed, index_type};
use crate::requirements::pod_class::PodClassId;
use crate::snapshot::{ClusterSnapshot, NodeIndex, Scope};
use crate::steps;

/// Index of an entry of pending pods: the groups of pending pods come first, then the headroom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PendingId(pub(crate) usize);
index_type!(PendingId);

/// Equal pending pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PendingPods {
    /// Their class.
    pub class: PodClassId,
    /// Their number.
    pub count: usize,
}

/// The placement of pending pods, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Placement {
    /// For each entry of pending pods, how many were placed on which node.
    pub placed: Indexed<PendingId, Vec<(NodeIndex, usize)>>,
    /// For each entry of pending pods, how many have no place yet.
    pub left: Indexed<PendingId, usize>,
}

impl Placement {
    /// A placement in which no pod has a place yet.
    pub(crate) fn of(pending: &[PendingPods]) -> Self {
        Self {
            placed: vec![Vec::new(); pending.len()].into(),
            left: pending.iter().map(|pods| pods.count).collect(),
        }
    }

    /// Records where pods of an entry were placed, and returns whether there were any.
    pub(crate) fn note(&mut self, entry: PendingId, placed: Vec<(NodeIndex, usize)>) -> bool {
        let count: usize = placed.iter().map(|p| p.1).sum();
        self.left[entry] = self.left[entry].saturating_sub(count);
        self.placed[entry].extend(placed);
        count > 0
    }

    /// Places what is left on all nodes of the snapshot. Pods that depend on the placement of other pods are tried
    /// again until no more pods are placed.
    pub(crate) fn fill(&mut self, snapshot: &mut ClusterSnapshot, pending: &Indexed<PendingId, PendingPods>) {
        let mut again = false;
        loop {
            let mut moved = false;
            steps::count(pending.len());
            for (at, pods) in pending.enumerated() {
                if self.left[at] > 0 && (!again || snapshot.waits(pods.class)) {
                    let placed = snapshot.place(pods.class, self.left[at], Scope::Anywhere);
                    moved |= self.note(at, placed);
                }
            }
            if !moved
                || !pending.iter().zip(&self.left).any(|(pods, &left)| left > 0 && snapshot.waits(pods.class))
            {
                return;
            }
            again = true;
        }
    }
}
