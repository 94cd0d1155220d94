//! First fit: where pods of a kind go.

use std::sync::Arc;

use super::bits::{CLOSED, ClosedBy};
use super::change::count_of;
use super::rules::{AffinityRule, PlacementRule};
use super::{ClusterSnapshot, NodeIndex, Place};
use crate::requirements::pod_class::{PodClassId, TopologySpread};

/// Which nodes pods may go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All.
    Anywhere,
    /// Those that are there or on their way.
    Standing,
    /// Those with this index or a higher one.
    From(NodeIndex),
}

/// A bucket that may have room yet.
struct Cursor {
    bucket: usize,
    from: usize,
}

impl ClusterSnapshot {
    /// Places as many of `wanted` pods of a kind as find a place, and says how many went where.
    pub fn place(&mut self, kind: PodClassId, wanted: usize, scope: Scope) -> Vec<(NodeIndex, usize)> {
        let rule = Arc::clone(&self.kinds[kind]);
        let mut cursors = self.cursors(&rule, scope);
        let mut placed: Vec<(NodeIndex, usize)> = Vec::new();
        let mut left = wanted;
        while left > 0 {
            let Some(node) = self.first(&rule, &mut cursors) else { break };
            let count = if rule.alone { 1 } else { self.nodes[node].free.fits(&rule.request, left) };
            self.put(node, kind, count);
            left -= count;
            match placed.last_mut() {
                Some(last) if last.0 == node => last.1 += count,
                _ => placed.push((node, count)),
            }
        }
        placed
    }

    /// Places as many of `wanted` pods of a kind as find a place on one node, and says how many did.
    pub fn place_on(&mut self, node: NodeIndex, kind: PodClassId, wanted: usize) -> usize {
        let rule = Arc::clone(&self.kinds[kind]);
        let mut placed = 0;
        while placed < wanted && self.takes(node, &rule) {
            let count =
                if rule.alone { 1 } else { self.nodes[node].free.fits(&rule.request, wanted - placed) };
            self.put(node, kind, count);
            placed += count;
        }
        placed
    }

    fn takes(&mut self, node: NodeIndex, rule: &PlacementRule) -> bool {
        let of = &self.nodes[node];
        let (family, closed) = (of.family, of.closed & CLOSED != 0);
        let fits = of.free.fits(&rule.request, 1) == 1;
        !closed
            && fits
            && self.families.admitting(rule.class, &self.classes)[family]
            && self.in_family(rule, family)
            && self.on_node(node, &self.closings(rule)).is_ok()
    }

    fn cursors(&mut self, rule: &PlacementRule, scope: Scope) -> Vec<Cursor> {
        let admitting = self.families.admitting(rule.class, &self.classes);
        let buckets = &self.buckets;
        let cursor = |&bucket: &usize| {
            let of = &buckets[bucket];
            let from = match scope {
                Scope::Standing if matches!(of.sample, Place::Planned(_)) => return None,
                Scope::Anywhere | Scope::Standing => 0,
                Scope::From(first) => of.nodes.partition_point(|&node| node < first),
            };
            (admitting[of.family] && from < of.nodes.len()).then_some(Cursor { bucket, from })
        };
        self.order.iter().filter_map(cursor).collect()
    }

    /// The first node that takes a pod. Cursors move past nodes that cannot take one of the kind any more.
    fn first(&mut self, rule: &PlacementRule, cursors: &mut Vec<Cursor>) -> Option<NodeIndex> {
        // Nodes that a spread over the host name closes can open again, when the least count rises.
        let keeps = rule.spreads_here.is_empty();
        let mut at = 0;
        while let Some(cursor) = cursors.get_mut(at) {
            if !self.in_family(rule, self.buckets[cursor.bucket].family) {
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
    fn search(&mut self, rule: &PlacementRule, bucket: usize, mut from: usize) -> (Option<NodeIndex>, usize) {
        let closings = self.closings(rule);
        let mut mask = self.bits.mask(&closings);
        while let Some(slot) = self.buckets[bucket].index.first_from(from, rule.request.basic(), mask) {
            from = slot;
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

    /// What closes single nodes to the kind, as counts stand.
    pub(super) fn closings(&self, rule: &PlacementRule) -> Vec<ClosedBy> {
        let mut closings: Vec<_> = rule.apart_here.iter().map(|&tally| ClosedBy::AtLeast(tally, 1)).collect();
        closings.extend(rule.spreads_here.iter().map(|spread| {
            let least = self.counts[spread.tally].least(spread.min_domains);
            let most = spread.max_skew.saturating_add(least);
            ClosedBy::AtLeast(spread.tally, (most + 1).saturating_sub(u32::from(spread.itself)))
        }));
        if let Some(near) = rule.near.as_ref().filter(|near| !self.begins(near)) {
            closings.extend(near.tallies_here.iter().map(|&tally| ClosedBy::Zero(tally)));
        }
        closings
    }

    /// What of them closes a node.
    pub(super) fn on_node(&self, node: NodeIndex, closings: &[ClosedBy]) -> Result<(), ClosedBy> {
        let holds = |closing: &&ClosedBy| closing.holds(count_of(&self.nodes[node], closing.tally()));
        closings.iter().find(holds).map_or(Ok(()), |&closing| Err(closing))
    }

    /// Whether the constraints over keys allow nodes of the family.
    fn in_family(&self, rule: &PlacementRule, family: usize) -> bool {
        rule.near.as_ref().is_none_or(|near| self.is_near(near, family))
            && rule.apart.iter().all(|&tally| self.in_domain(tally, family) == 0)
            && rule.spreads.iter().all(|spread| self.keeps_skew(spread, family))
            && (rule.spreads_here.is_empty() || self.families.list[family].host)
    }

    /// Whether the domain has the pods that affinity asks for. Where the host name is the key, that is for the node to say.
    fn is_near(&self, near: &AffinityRule, family: usize) -> bool {
        let keys = near.tallies.iter().chain(&near.tallies_here);
        let has_keys = keys.clone().all(|&tally| self.families.list[family].has(self.counts[tally].ground));
        has_keys && (near.tallies.iter().all(|&tally| self.in_domain(tally, family) > 0) || self.begins(near))
    }

    /// Whether a pod that satisfies its own affinity may go anywhere, because no other such pod is there.
    pub(super) fn begins(&self, near: &AffinityRule) -> bool {
        near.itself
            && near.tallies.iter().chain(&near.tallies_here).all(|&tally| self.counts[tally].total == 0)
    }

    fn keeps_skew(&self, spread: &TopologySpread, family: usize) -> bool {
        let counts = &self.counts[spread.tally];
        self.families.list[family].has(counts.ground)
            && is_within(spread, self.in_domain(spread.tally, family), counts.least(spread.min_domains))
    }

    /// What a tally over a key counts in the domain of the family.
    pub(super) fn in_domain(&self, tally: usize, family: usize) -> u32 {
        let counts = &self.counts[tally];
        self.families.list[family].domain(counts.ground).map_or(0, |domain| counts.pods[domain])
    }
}

/// Whether one more pod in a domain with `count` stays within the skew.
pub(super) fn is_within(spread: &TopologySpread, count: u32, least: u32) -> bool {
    u64::from(count) + u64::from(spread.itself) <= u64::from(spread.max_skew) + u64::from(least)
}
