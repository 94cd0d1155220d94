//! First fit: on which nodes pods of a class are placed.

use std::sync::Arc;

use super::bits::{CLOSED, ClosedBy};
use super::change::count_of;
use super::model::{BucketId, ClusterSnapshot};
use super::node_class::NodeClassId;
use super::node_index::{NodeIndex, Place};
use super::rules::{AffinityRule, PlacementRule};
use crate::requirements::pod_class::{PodClassId, TopologyCountId};
use crate::steps;

/// Which nodes pods may be placed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All nodes.
    Anywhere,
    /// Existing and upcoming nodes.
    Existing,
    /// Nodes with this index or a higher one.
    From(NodeIndex),
}

/// A bucket that may still have room.
struct Cursor {
    bucket: BucketId,
    from: usize,
}

impl ClusterSnapshot {
    /// Places up to `wanted` pods of a class, and returns how many were placed on which node. They do not go to new nodes
    /// of pools that do not grow for them.
    pub(crate) fn place(
        &mut self,
        class: PodClassId,
        wanted: usize,
        scope: Scope,
    ) -> Vec<(NodeIndex, usize)> {
        let rule = Arc::clone(&self.classes[class]);
        let mut cursors = self.cursors(&rule, scope);
        let mut placed: Vec<(NodeIndex, usize)> = Vec::new();
        let mut left = wanted;
        while left > 0 {
            let Some(node) = self.first(&rule, &mut cursors) else { break };
            let count = if rule.alone { 1 } else { self.nodes[node].free.fits(&rule.request, left) };
            self.put(node, class, count);
            left -= count;
            match placed.last_mut() {
                Some(last) if last.0 == node => last.1 += count,
                _ => placed.push((node, count)),
            }
        }
        placed
    }

    /// Places up to `wanted` pods of a class on one node, and returns how many were placed.
    pub(crate) fn place_on(&mut self, node: NodeIndex, class: PodClassId, wanted: usize) -> usize {
        let rule = Arc::clone(&self.classes[class]);
        let mut placed = 0;
        while placed < wanted && self.takes(node, &rule) {
            let count =
                if rule.alone { 1 } else { self.nodes[node].free.fits(&rule.request, wanted - placed) };
            self.put(node, class, count);
            placed += count;
        }
        placed
    }

    fn takes(&mut self, node: NodeIndex, rule: &PlacementRule) -> bool {
        steps::count(1);
        let of = &self.nodes[node];
        let (node_class, closed) = (of.class, of.closed & CLOSED != 0);
        let fits = of.free.fits(&rule.request, 1) == 1;
        !closed
            && fits
            && self.node_classes.admitting(rule.constraint_set, &self.constraint_sets).contains(node_class)
            && self.in_node_class(rule, node_class)
            && self.on_node(node, &self.closings(rule)).is_ok()
    }

    fn cursors(&mut self, rule: &PlacementRule, scope: Scope) -> Vec<Cursor> {
        let admitting = self.node_classes.admitting(rule.constraint_set, &self.constraint_sets);
        let buckets = &self.buckets;
        steps::count(self.order.len());
        let cursor = |&bucket: &BucketId| {
            let of = &buckets[bucket];
            let from = match scope {
                Scope::Existing if matches!(of.sample, Place::Planned(_)) => return None,
                _ if matches!(of.sample, Place::Planned(pool) if rule.barred.contains(pool)) => return None,
                Scope::Anywhere | Scope::Existing => 0,
                Scope::From(first) => of.nodes.partition_point(|&node| node < first),
            };
            (admitting.contains(of.node_class) && from < of.nodes.len()).then_some(Cursor { bucket, from })
        };
        self.order.iter().filter_map(cursor).collect()
    }

    /// The first node that takes a pod. Cursors move past nodes that can no longer take a pod of the class.
    fn first(&mut self, rule: &PlacementRule, cursors: &mut Vec<Cursor>) -> Option<NodeIndex> {
        // Nodes that a spread over the host name closes can open again, when the minimum rises.
        let keeps = rule.spreads_here.is_empty();
        let mut at = 0;
        while let Some(cursor) = cursors.get_mut(at) {
            steps::count(1);
            if !self.in_node_class(rule, self.buckets[cursor.bucket].node_class) {
                at += 1;
                continue;
            }
            let (found, reached) = self.search(rule, cursor.bucket, cursor.from);
            if keeps {
                cursor.from = reached;
            }
            if found.is_some() {
                return found;
            }
            if keeps {
                cursors.remove(at);
            } else {
                at += 1;
            }
        }
        None
    }

    /// The first node of a bucket that takes a pod, and its slot.
    fn search(
        &mut self,
        rule: &PlacementRule,
        bucket: BucketId,
        mut from: usize,
    ) -> (Option<NodeIndex>, usize) {
        let closings = self.closings(rule);
        let mut mask = self.bits.mask(&closings);
        while let Some(slot) = self.buckets[bucket].index.first_from(from, rule.request.basic(), mask) {
            from = slot;
            steps::count(1);
            let node = self.buckets[bucket].nodes[slot];
            match self.on_node(node, &closings) {
                Ok(()) if self.nodes[node].free.fits(&rule.request, 1) == 1 => return (Some(node), from),
                Ok(()) => {}
                Err(closing) => {
                    if self.bits.missed(closing) {
                        self.rebuild_indexes();
                        mask = self.bits.mask(&closings);
                    }
                }
            }
            from += 1;
        }
        (None, from)
    }

    /// The conditions that close single nodes to the class, given the current counts.
    pub(super) fn closings(&self, rule: &PlacementRule) -> Vec<ClosedBy> {
        let mut closings: Vec<_> = rule
            .anti_affinity_on_host
            .iter()
            .map(|&topology_count| ClosedBy::AtLeast(topology_count, 1))
            .collect();
        closings.extend(self.uneven_hosts(rule));
        if let Some(affinity) = rule.affinity.as_ref().filter(|affinity| !self.begins(affinity)) {
            closings.extend(
                affinity.topology_counts_on_host.iter().map(|&topology_count| ClosedBy::Zero(topology_count)),
            );
        }
        closings
    }

    /// The first of them that closes a node.
    pub(super) fn on_node(&self, node: NodeIndex, closings: &[ClosedBy]) -> Result<(), ClosedBy> {
        let holds =
            |closing: &&ClosedBy| closing.holds(count_of(&self.nodes[node], closing.topology_count()));
        closings.iter().find(holds).map_or(Ok(()), |&closing| Err(closing))
    }

    /// Whether the constraints over topology keys allow nodes of the node class.
    fn in_node_class(&self, rule: &PlacementRule, node_class: NodeClassId) -> bool {
        rule.affinity.as_ref().is_none_or(|affinity| self.is_near(affinity, node_class))
            && rule
                .anti_affinity
                .iter()
                .all(|&topology_count| self.in_domain(topology_count, node_class) == 0)
            && rule.spreads.iter().all(|spread| self.keeps_skew(spread, node_class))
            && (rule.spreads_here.is_empty() || self.node_classes.list[node_class].host)
            && self.supplies.used_up(&rule.needs, node_class).is_none()
    }

    /// Whether the domain has the pods that affinity requires. If the host name is the key, the single node decides
    /// instead.
    fn is_near(&self, affinity: &AffinityRule, node_class: NodeClassId) -> bool {
        let keys = affinity.topology_counts.iter().chain(&affinity.topology_counts_on_host);
        let has_keys = keys.clone().all(|&topology_count| {
            self.node_classes.list[node_class].has(self.counts[topology_count].domain_kind)
        });
        has_keys
            && (affinity
                .topology_counts
                .iter()
                .all(|&topology_count| self.in_domain(topology_count, node_class) > 0)
                || self.begins(affinity))
    }

    /// Whether a pod that satisfies its own affinity may be placed anywhere, because no other such pod exists.
    pub(super) fn begins(&self, affinity: &AffinityRule) -> bool {
        affinity.matches_itself
            && affinity
                .topology_counts
                .iter()
                .chain(&affinity.topology_counts_on_host)
                .all(|&topology_count| self.counts[topology_count].total == 0)
    }

    /// A topology count over a key, in the domain of the node class.
    pub(super) fn in_domain(&self, topology_count: TopologyCountId, node_class: NodeClassId) -> u32 {
        let counts = &self.counts[topology_count];
        self.node_classes.list[node_class].domain(counts.domain_kind).map_or(0, |domain| counts.pods[domain])
    }
}
