//! How many pods of which kind and size go onto each node. Numbers only.

use anyhow::{Result, ensure};

/// What a node has for pods: cpu in thousandths of a core.
pub(crate) const ALLOCATABLE: usize = 7900;
/// The requests of a pod of a `DaemonSet`.
pub(crate) const DAEMON: usize = 50;
/// The requests of a sample's pod: more than half of a node, so that each needs a node of its own.
pub(crate) const NEWCOMER: usize = 5000;
/// The minimum that is left of a node: the room of a nearly full node.
const FREE: usize = 250;
/// One owner's pods run on so many nodes, one on each.
pub(crate) const SPREAD: usize = 30;

/// Every node gets the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deal {
    pub(crate) nodes: usize,
    /// Pods of `DaemonSets` on a node.
    pub(crate) daemons: usize,
    /// Pods with a name and a claim of their own on a node.
    pub(crate) stateful: usize,
    /// Pods of `ReplicaSets` on a node.
    pub(crate) plain: usize,
}

impl Deal {
    /// A tenth of the pods are of `DaemonSets`, a tenth have claims.
    pub(crate) fn of(nodes: usize, pods: usize) -> Result<Self> {
        ensure!(nodes > 0, "0 nodes hold nothing; give at least 1");
        let per_node = pods / nodes;
        ensure!(
            pods.is_multiple_of(nodes) && (10..=100).contains(&per_node),
            "{pods} pods are not 10 to 100 for each of {nodes} nodes, the same for all"
        );
        let tenth = per_node / 10;
        Ok(Self { nodes, daemons: tenth, stateful: tenth, plain: per_node - 2 * tenth })
    }

    /// Pods of a node that are made by the bench, one of each owner: its slots.
    pub(crate) const fn slots(&self) -> usize {
        self.stateful + self.plain
    }

    /// All pods.
    pub(crate) const fn pods(&self) -> usize {
        self.nodes * (self.daemons + self.slots())
    }

    /// The requests of the pod in a slot: every other one twice as much as its neighbour, all together nearly a node.
    pub(crate) const fn cpu(&self, slot: usize) -> usize {
        let third = (ALLOCATABLE - FREE - self.daemons * DAEMON) / (self.slots() * 3);
        if slot.is_multiple_of(2) { third * 2 } else { third * 4 }
    }

    /// What is left of a node.
    #[cfg(test)]
    fn left(&self) -> usize {
        let asked: usize = (0..self.slots()).map(|slot| self.cpu(slot)).sum();
        ALLOCATABLE - asked - self.daemons * DAEMON
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_nearly_full_and_holds_no_newcomer() {
        for (nodes, pods) in [(1000, 30_000), (100, 2_000), (10, 1_000), (3, 30)] {
            let deal = Deal::of(nodes, pods).unwrap();
            assert_eq!(deal.pods(), pods);
            assert!((FREE..ALLOCATABLE / 5).contains(&deal.left()), "{deal:?}: {}", deal.left());
        }
        const { assert!(ALLOCATABLE - NEWCOMER < NEWCOMER) };
    }

    #[test]
    fn a_tenth_is_of_daemon_sets_and_a_tenth_has_claims() {
        assert_eq!(Deal::of(1000, 30_000).unwrap(), Deal { nodes: 1000, daemons: 3, stateful: 3, plain: 24 });
    }

    #[test]
    fn pods_that_cannot_be_dealt_out_evenly_are_refused() {
        for (nodes, pods) in [(0, 10), (3, 100), (10, 50), (1, 200)] {
            assert!(Deal::of(nodes, pods).is_err(), "{pods} on {nodes}");
        }
    }
}
