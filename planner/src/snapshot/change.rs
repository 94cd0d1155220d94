//! What changes in the snapshot, and how it is taken back.

use super::bits::CLOSED;
use super::{ClusterSnapshot, Node, NodeIndex, Place};
use crate::requirements::pod_class::{PodClassId, TopologyCountId};
use crate::resources::Amounts;
use crate::snapshot::index::FitIndex;

/// A moment that [`ClusterSnapshot::undo_to`] can go back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fork(usize);

/// Something that happened.
#[derive(Clone, Copy, Debug)]
pub(super) enum UndoEntry {
    /// Pods were placed on a node.
    Placed(NodeIndex, PodClassId, usize),
    /// Pods were taken off a node.
    Evicted(NodeIndex, PodClassId, usize),
    /// The last node was opened.
    Opened,
    /// A node was closed that was open.
    Closed(NodeIndex),
    /// A node left.
    Retired(NodeIndex),
}

impl ClusterSnapshot {
    /// Remembers this moment.
    pub const fn fork(&self) -> Fork {
        Fork(self.journal.len())
    }

    /// Takes back everything that happened since.
    pub fn revert(&mut self, fork: Fork) {
        while self.journal.len() > fork.0 {
            match self.journal.pop() {
                Some(UndoEntry::Placed(node, class, count)) => {
                    self.lift(node, class, count);
                    self.reindex(node);
                }
                Some(UndoEntry::Evicted(node, class, count)) => {
                    self.lay(node, class, count);
                    self.reindex(node);
                }
                Some(UndoEntry::Opened) => self.unopen(),
                Some(UndoEntry::Closed(node)) => {
                    self.nodes[node].closed &= !CLOSED;
                    self.reindex(node);
                }
                Some(UndoEntry::Retired(node)) => {
                    self.nodes[node].gone = false;
                    self.join(node);
                    self.count_raised(node, true);
                }
                None => return,
            }
        }
    }

    /// A new node of the pool; `None` when nothing is known of the pool's nodes.
    pub fn open(&mut self, pool: usize) -> Option<NodeIndex> {
        let template = self.templates.get(pool)?.as_ref()?;
        let (bucket, node_class, free) = (template.bucket, template.node_class, template.free.clone());
        let raises = template.raises.clone();
        let node = self.insert(Place::Planned(pool), bucket, node_class, free, raises);
        let bits = self.bits.of(|topology_count| count_of(&self.nodes[node], topology_count));
        self.nodes[node].closed = bits;
        self.buckets[bucket].index.push(self.nodes[node].free.basic(), bits);
        self.journal.push(UndoEntry::Opened);
        Some(node)
    }

    /// Takes pods off a node, no more than there are.
    pub fn evict(&mut self, node: NodeIndex, class: PodClassId, count: usize) {
        let pods = &self.nodes[node].pods;
        let there = pods.binary_search_by_key(&class, |p| p.0).map_or(0, |at| pods[at].1);
        let count = count.min(there);
        if count > 0 {
            self.lift(node, class, count);
            self.reindex(node);
            self.journal.push(UndoEntry::Evicted(node, class, count));
        }
    }

    /// No pod goes onto the node any more. It still counts, with its pods.
    pub fn close(&mut self, node: NodeIndex) {
        if self.nodes[node].closed & CLOSED == 0 {
            self.nodes[node].closed |= CLOSED;
            self.reindex(node);
            self.journal.push(UndoEntry::Closed(node));
        }
    }

    /// The node goes, with the pods that are still on it, and with its last node a domain goes.
    pub fn retire(&mut self, node: NodeIndex) {
        if self.nodes[node].gone {
            return;
        }
        for (class, count) in self.nodes[node].pods.clone() {
            self.evict(node, class, count);
        }
        self.close(node);
        self.count_raised(node, false);
        debug_assert!(self.nodes[node].here.is_empty(), "nothing is on it that counts");
        self.leave(node);
        self.nodes[node].gone = true;
        self.journal.push(UndoEntry::Retired(node));
    }

    /// Places pods, and remembers it.
    pub(super) fn put(&mut self, node: NodeIndex, class: PodClassId, count: usize) {
        self.lay(node, class, count);
        self.reindex(node);
        self.journal.push(UndoEntry::Placed(node, class, count));
    }

    /// A node more at the end of its bucket; its index is for the caller to bring up to date.
    pub(super) fn insert(
        &mut self,
        place: Place,
        bucket: usize,
        node_class: usize,
        free: Amounts,
        raises: Vec<TopologyCountId>,
    ) -> NodeIndex {
        let ix = self.nodes.len();
        let slot = self.buckets[bucket].nodes.len();
        self.buckets[bucket].nodes.push(ix);
        self.nodes.push(Node {
            place,
            bucket,
            slot,
            node_class,
            free,
            here: Vec::new(),
            pods: Vec::new(),
            raises,
            closed: 0,
            gone: false,
        });
        self.join(ix);
        self.count_raised(ix, true);
        ix
    }

    fn unopen(&mut self) {
        let Some(node) = self.nodes.len().checked_sub(1) else { return };
        self.count_raised(node, false);
        self.leave(node);
        let bucket = &mut self.buckets[self.nodes[node].bucket];
        bucket.nodes.pop();
        bucket.index.pop();
        self.nodes.pop();
    }

    /// Pods onto a node: what is free, counts and the list of pods.
    pub(super) fn lay(&mut self, node: NodeIndex, class: PodClassId, count: usize) {
        self.nodes[node].free.take(&self.classes[class].request, count);
        let pods = &mut self.nodes[node].pods;
        match pods.binary_search_by_key(&class, |p| p.0) {
            Ok(at) => pods[at].1 += count,
            Err(at) => pods.insert(at, (class, count)),
        }
        self.count_class(node, class, count, true);
    }

    /// The reverse of [`Self::lay`].
    fn lift(&mut self, node: NodeIndex, class: PodClassId, count: usize) {
        self.nodes[node].free.give(&self.classes[class].request, count);
        let pods = &mut self.nodes[node].pods;
        if let Ok(at) = pods.binary_search_by_key(&class, |p| p.0) {
            pods[at].1 = pods[at].1.saturating_sub(count);
            if pods[at].1 == 0 {
                pods.remove(at);
            }
        }
        self.count_class(node, class, count, false);
    }

    fn count_class(&mut self, node: NodeIndex, class: PodClassId, count: usize, up: bool) {
        let by = u32::try_from(count).unwrap_or(u32::MAX);
        let rule = std::sync::Arc::clone(&self.classes[class]);
        rule.raises.iter().for_each(|&topology_count| self.count(node, topology_count, by, up));
    }

    /// Counts what is on a node besides its pods, or no longer does.
    fn count_raised(&mut self, node: NodeIndex, up: bool) {
        for at in 0..self.nodes[node].raises.len() {
            let topology_count = self.nodes[node].raises[at];
            self.count(node, topology_count, 1, up);
        }
    }

    /// Changes what a topology count counts in the domain of a node, if the node counts for it.
    pub(super) fn count(&mut self, node: NodeIndex, topology_count: TopologyCountId, by: u32, up: bool) {
        let node_class = &self.node_classes.list[self.nodes[node].node_class];
        if !node_class.counts(topology_count) {
            return;
        }
        let moved = |before: u32| if up { before.saturating_add(by) } else { before.saturating_sub(by) };
        let counts = &mut self.counts[topology_count];
        if let Some(domain) = node_class.domain(counts.ground) {
            let before = counts.pods[domain];
            counts.pods[domain] = moved(before);
            counts.moved(before, moved(before));
            return;
        }
        let node = &mut self.nodes[node];
        let at = node.here.binary_search_by_key(&topology_count, |h| h.0);
        let before = at.map_or(0, |at| node.here[at].1);
        let after = moved(before);
        match at {
            Ok(at) if after == 0 => {
                node.here.remove(at);
            }
            Ok(at) => node.here[at].1 = after,
            Err(at) => node.here.insert(at, (topology_count, after)),
        }
        counts.moved(before, after);
        node.closed = self.bits.after(node.closed, topology_count, after);
    }

    /// The node is one of its domains' nodes.
    fn join(&mut self, node: NodeIndex) {
        let node_class = &self.node_classes.list[self.nodes[node].node_class];
        for &topology_count in self.spread.iter().filter(|&&topology_count| node_class.counts(topology_count))
        {
            let counts = &mut self.counts[topology_count];
            counts.joined(node_class.domain(counts.ground));
        }
    }

    fn leave(&mut self, node: NodeIndex) {
        let node_class = &self.node_classes.list[self.nodes[node].node_class];
        for &topology_count in self.spread.iter().filter(|&&topology_count| node_class.counts(topology_count))
        {
            let counts = &mut self.counts[topology_count];
            counts.left(node_class.domain(counts.ground));
        }
    }

    fn reindex(&mut self, node: NodeIndex) {
        let Node { bucket, slot, closed, ref free, .. } = self.nodes[node];
        self.buckets[bucket].index.set(slot, free.basic(), closed);
    }

    /// Gives every node the bits it should have, and makes the indexes anew.
    pub(super) fn rebuild_indexes(&mut self) {
        for node in &mut self.nodes {
            let bits = self.bits.of(|topology_count| count_of(node, topology_count));
            node.closed = bits | (node.closed & CLOSED);
        }
        let nodes = &self.nodes;
        for bucket in &mut self.buckets {
            let slots = bucket.nodes.iter().map(|&node| (nodes[node].free.basic(), nodes[node].closed));
            bucket.index = FitIndex::of(slots);
        }
    }
}

/// What a topology count over single nodes counts on one.
pub(super) fn count_of(node: &Node, topology_count: TopologyCountId) -> u32 {
    node.here.binary_search_by_key(&topology_count, |h| h.0).map_or(0, |at| node.here[at].1)
}
