//! Places the pods that wait on the nodes of the snapshot, first fit, in their order.

use crate::requirements::pod_class::PodClassId;
use crate::snapshot::{ClusterSnapshot, NodeIndex, Scope};

/// Like pods that wait for a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingPods {
    /// What they are like.
    pub class: PodClassId,
    /// How many.
    pub count: usize,
}

/// Where they go, as far as is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// For each ask, how many went to which node.
    pub placed: Vec<Vec<(NodeIndex, usize)>>,
    /// For each ask, how many have no place yet.
    pub left: Vec<usize>,
}

impl Placement {
    /// Nobody has a place yet.
    pub fn of(asks: &[PendingPods]) -> Self {
        Self { placed: vec![Vec::new(); asks.len()], left: asks.iter().map(|ask| ask.count).collect() }
    }

    /// Notes where pods of an ask went, and says whether there were any.
    pub fn note(&mut self, ask: usize, placed: Vec<(NodeIndex, usize)>) -> bool {
        let count: usize = placed.iter().map(|p| p.1).sum();
        self.left[ask] = self.left[ask].saturating_sub(count);
        self.placed[ask].extend(placed);
        count > 0
    }

    /// Places what is left on all nodes of the snapshot. Pods that only others can make a place for are asked again until
    /// nothing moves.
    pub fn fill(&mut self, snapshot: &mut ClusterSnapshot, asks: &[PendingPods]) {
        let mut again = false;
        loop {
            let mut moved = false;
            for (at, ask) in asks.iter().enumerate() {
                if self.left[at] > 0 && (!again || snapshot.waits(ask.class)) {
                    let placed = snapshot.place(ask.class, self.left[at], Scope::Anywhere);
                    moved |= self.note(at, placed);
                }
            }
            if !moved
                || !asks.iter().zip(&self.left).any(|(ask, &left)| left > 0 && snapshot.waits(ask.class))
            {
                return;
            }
            again = true;
        }
    }
}
