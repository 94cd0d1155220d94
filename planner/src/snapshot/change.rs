//! Changes to the snapshot, and how they are reverted.

use super::bits::CLOSED;
use super::journal::UndoEntry;
use super::model::{BucketId, ClusterSnapshot, Node};
use super::node_class::NodeClassId;
use super::node_index::{NodeIndex, Place};
use crate::index::PoolIndex;
use crate::requirements::pod_class::{PodClassId, TopologyCountId};
use crate::resources::Amounts;
use crate::snapshot::index::FitIndex;
use crate::steps;

/// A state that [`ClusterSnapshot::revert`] can return to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fork(usize);

impl ClusterSnapshot {
    /// Remembers the current state.
    pub(crate) const fn fork(&self) -> Fork {
        Fork(self.journal.len())
    }

    /// Reverts all changes since `fork`.
    pub(crate) fn revert(&mut self, fork: Fork) {
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
                Some(UndoEntry::Cordoned(node)) => self.set_cordoned(node, false),
                Some(UndoEntry::Retired(node)) => {
                    self.nodes[node].gone = false;
                    self.join(node);
                    self.count_raised(node, true);
                }
                None => return,
            }
        }
    }

    /// Adds a new node of the pool; `None` if the pool has no template.
    pub(crate) fn open(&mut self, pool: PoolIndex) -> Option<NodeIndex> {
        let template = self.templates.get(pool)?.as_ref()?;
        let (bucket, node_class, free) = (template.bucket, template.node_class, template.free.clone());
        let increments = template.increments.clone();
        let node = self.insert(Place::Planned(pool), bucket, node_class, free, increments);
        let bits = self.bits.of(|topology_count| count_of(&self.nodes[node], topology_count));
        self.nodes[node].closed = bits;
        self.buckets[bucket].index.push(self.nodes[node].free.basic(), bits);
        self.journal.push(UndoEntry::Opened);
        Some(node)
    }

    /// Removes pods from a node, at most as many as there are.
    pub(crate) fn evict(&mut self, node: NodeIndex, class: PodClassId, count: usize) {
        let pods = &self.nodes[node].pods;
        let there = pods.binary_search_by_key(&class, |p| p.0).map_or(0, |at| pods[at].1);
        let count = count.min(there);
        if count > 0 {
            self.lift(node, class, count);
            self.reindex(node);
            self.journal.push(UndoEntry::Evicted(node, class, count));
        }
    }

    /// Closes the node to further pods. It still counts, with its pods.
    pub(crate) fn close(&mut self, node: NodeIndex) {
        if self.nodes[node].closed & CLOSED == 0 {
            self.nodes[node].closed |= CLOSED;
            self.reindex(node);
            self.journal.push(UndoEntry::Closed(node));
        }
    }

    /// Closes the node as a drain does, which only cordons it: it is still there, with the taints of a drain.
    /// A spread constraint with `nodeTaintsPolicy: Ignore` (the default) goes on counting its domain, also when no pod
    /// is left there; one with `Honor` does not, unless the pods tolerate the taints. Source: the inclusion policies in
    /// kube-scheduler 1.36's plugin `PodTopologySpread`. Every affinity counts the pods that are still on it.
    pub(crate) fn cordon(&mut self, node: NodeIndex) {
        if self.nodes[node].cordoned || self.nodes[node].gone {
            return;
        }
        self.close(node);
        self.set_cordoned(node, true);
        self.journal.push(UndoEntry::Cordoned(node));
    }

    fn set_cordoned(&mut self, node: NodeIndex, cordoned: bool) {
        if !self.node_classes.list[self.nodes[node].class].leaves_when_cordoned() {
            self.nodes[node].cordoned = cordoned;
            return;
        }
        let pods = self.nodes[node].pods.clone();
        for &(class, count) in &pods {
            self.count_class(node, class, count, false);
        }
        self.count_raised(node, false);
        self.leave(node);
        self.nodes[node].cordoned = cordoned;
        self.join(node);
        self.count_raised(node, true);
        for &(class, count) in &pods {
            self.count_class(node, class, count, true);
        }
        self.reindex(node);
    }

    /// Keeps places for pods on a node that has room for them, although a constraint keeps them off it for now.
    pub(crate) fn hold(&mut self, node: NodeIndex, class: PodClassId, count: usize) {
        self.put(node, class, count);
    }

    /// Removes the node, with the pods that are still on it; a domain is removed with its last node.
    pub(crate) fn retire(&mut self, node: NodeIndex) {
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

    /// Places pods, and records it in the journal.
    pub(super) fn put(&mut self, node: NodeIndex, class: PodClassId, count: usize) {
        self.lay(node, class, count);
        self.reindex(node);
        self.journal.push(UndoEntry::Placed(node, class, count));
    }

    /// Adds a node at the end of its bucket; the caller updates the bucket's index.
    pub(super) fn insert(
        &mut self,
        place: Place,
        bucket: BucketId,
        node_class: NodeClassId,
        free: Amounts,
        increments: Vec<TopologyCountId>,
    ) -> NodeIndex {
        let slot = self.buckets[bucket].nodes.len();
        let ix = self.nodes.push(Node {
            place,
            bucket,
            slot,
            class: node_class,
            free,
            here: Vec::new(),
            pods: Vec::new(),
            increments,
            closed: 0,
            cordoned: false,
            gone: false,
        });
        self.buckets[bucket].nodes.push(ix);
        self.join(ix);
        self.count_raised(ix, true);
        ix
    }

    fn unopen(&mut self) {
        let Some(node) = self.nodes.indexes().next_back() else { return };
        self.count_raised(node, false);
        self.leave(node);
        let bucket = &mut self.buckets[self.nodes[node].bucket];
        bucket.nodes.pop();
        bucket.index.pop();
        self.nodes.pop();
    }

    /// Adds pods to a node: updates the free capacity, the counts and the list of pods.
    pub(super) fn lay(&mut self, node: NodeIndex, class: PodClassId, count: usize) {
        self.nodes[node].free.take(&self.classes[class].request, count);
        let pods = &mut self.nodes[node].pods;
        match pods.binary_search_by_key(&class, |p| p.0) {
            Ok(at) => pods[at].1 += count,
            Err(at) => pods.insert(at, (class, count)),
        }
        self.count_class(node, class, count, true);
        self.draw(node, class, count);
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
        if !self.classes[class].needs.is_empty() {
            self.supplies.give_back(node, class, count);
        }
    }

    /// Takes from the supplies what pods need.
    fn draw(&mut self, node: NodeIndex, class: PodClassId, count: usize) {
        let needs = &self.classes[class].needs;
        if !needs.is_empty() {
            let node_class = self.nodes[node].class;
            for _ in 0..count {
                self.supplies.draw(needs, node, node_class, class);
            }
        }
    }

    fn count_class(&mut self, node: NodeIndex, class: PodClassId, count: usize, up: bool) {
        let by = u32::try_from(count).unwrap_or(u32::MAX);
        let rule = std::sync::Arc::clone(&self.classes[class]);
        steps::count(1 + rule.increments.len());
        rule.increments.iter().for_each(|&topology_count| self.count(node, topology_count, by, up));
    }

    /// Counts what a node raises apart from its pods, or no longer does.
    fn count_raised(&mut self, node: NodeIndex, up: bool) {
        steps::count(self.nodes[node].increments.len());
        for at in 0..self.nodes[node].increments.len() {
            let topology_count = self.nodes[node].increments[at];
            self.count(node, topology_count, 1, up);
        }
    }

    /// Changes a topology count in the domain of a node, if the node counts for it.
    pub(super) fn count(&mut self, node: NodeIndex, topology_count: TopologyCountId, by: u32, up: bool) {
        let node_class = &self.node_classes.list[self.nodes[node].class];
        if !node_class.counts_while(self.nodes[node].cordoned, topology_count) {
            return;
        }
        let moved = |before: u32| if up { before.saturating_add(by) } else { before.saturating_sub(by) };
        let counts = &mut self.counts[topology_count];
        if let Some(domain) = node_class.domain(counts.domain_kind) {
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

    /// Adds the node to the nodes of its domains.
    fn join(&mut self, node: NodeIndex) {
        steps::count(1 + self.spread.len());
        let node_class = &self.node_classes.list[self.nodes[node].class];
        let cordoned = self.nodes[node].cordoned;
        for &topology_count in
            self.spread.iter().filter(|&&topology_count| node_class.counts_while(cordoned, topology_count))
        {
            let counts = &mut self.counts[topology_count];
            counts.joined(node_class.domain(counts.domain_kind));
        }
    }

    fn leave(&mut self, node: NodeIndex) {
        steps::count(1 + self.spread.len());
        let node_class = &self.node_classes.list[self.nodes[node].class];
        let cordoned = self.nodes[node].cordoned;
        for &topology_count in
            self.spread.iter().filter(|&&topology_count| node_class.counts_while(cordoned, topology_count))
        {
            let counts = &mut self.counts[topology_count];
            counts.left(node_class.domain(counts.domain_kind));
        }
    }

    fn reindex(&mut self, node: NodeIndex) {
        let Node { bucket, slot, closed, ref free, .. } = self.nodes[node];
        self.buckets[bucket].index.set(slot, free.basic(), closed);
    }

    /// Recomputes the bits of every node, and rebuilds the indexes.
    pub(super) fn rebuild_indexes(&mut self) {
        steps::count(self.nodes.len());
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

/// A topology count over single nodes, on this node.
pub(super) fn count_of(node: &Node, topology_count: TopologyCountId) -> u32 {
    node.here.binary_search_by_key(&topology_count, |h| h.0).map_or(0, |at| node.here[at].1)
}
