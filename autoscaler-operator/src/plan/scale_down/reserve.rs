//! How many empty nodes of a pool stay because pods are pending.
//!
//! A plan says where pending pods fit, and kube-scheduler binds them where it likes. The next plan may find other places
//! for them too, once nodes that were on their way are there. So a pool whose new nodes could take `n` of the pending pods
//! keeps `n` empty nodes, or all that it has. Each of those pods then has a place whatever becomes of the others: a pool
//! that has shrunk does not grow for them, and one that has grown for them does not shrink while they are pending.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;

use super::Candidate;
use crate::plan::{keepers::Keepers, nodes, pools::Pool, workload::Group, world::World};

/// The empty nodes of a pool, and how many of them have to stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserve {
    /// Nodes that take pods and have none that keeps them.
    pub empty: usize,
    /// How many pending pods a new node of the pool could take: those with a place in this pass, wherever it is, if there
    /// were no other pods; those without, as the other pods are. A pod that others keep out for good asks for nothing.
    pub wanted: usize,
}

impl Reserve {
    /// What the groups of pending pods ask of each pool, of which `left` have no place. Headroom asks for nothing here:
    /// nothing is ever bound for it.
    pub fn of(
        world: &mut World,
        pools: &[Pool],
        (groups, left): (&[Group], &[usize]),
        all_nodes: &[Arc<Node>],
        keepers: &[Keepers],
    ) -> Vec<Self> {
        let mut of_pool = |(index, pool): (usize, &Pool)| {
            let empty = |&&n: &&usize| takes_pods(&all_nodes[n]) && keepers[n].count() == 0;
            let mut wanted = |(group, &left): (&Group, &usize)| {
                let placed = group.pods.len().saturating_sub(left);
                let placed = if placed > 0 && world.could_take(group.kind, index) { placed } else { 0 };
                placed + if left > 0 && world.would_take(group.kind, index) { left } else { 0 }
            };
            Self {
                empty: pool.staying.iter().filter(empty).count(),
                wanted: groups.iter().zip(left).map(&mut wanted).sum(),
            }
        };
        pools.iter().enumerate().map(&mut of_pool).collect()
    }

    /// Whether the pool can do without the candidate.
    pub(super) fn spares(self, candidate: &Candidate, node: &Node) -> bool {
        let left = self.empty.saturating_sub(usize::from(Self::counts(candidate, node)));
        !takes_pods(node) || left >= self.wanted
    }

    /// Notes that the candidate goes.
    pub(super) fn take(&mut self, candidate: &Candidate, node: &Node) {
        self.empty = self.empty.saturating_sub(usize::from(Self::counts(candidate, node)));
    }

    fn counts(candidate: &Candidate, node: &Node) -> bool {
        !candidate.drains && takes_pods(node)
    }
}

/// Whether pods can be bound to the node. One to which none can is no place for a pending pod.
fn takes_pods(node: &Node) -> bool {
    nodes::is_ready(node) && !nodes::is_cordoned(node)
}
