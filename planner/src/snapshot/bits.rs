//! What single nodes are closed to, as bits that the indexes propagate upwards. Only an optimization: every node that
//! an index finds is checked.
//!
//! A condition gets a bit once it has caused enough failed checks of nodes. There are 63; if more conditions need one,
//! they are reused in turn.

use std::collections::BTreeMap;

use crate::requirements::pod_class::TopologyCountId;

/// The bit of nodes that take no pod at all.
pub(super) const CLOSED: u64 = 1 << 63;
/// The number of bits for conditions.
const SHARED: usize = 63;
/// Failed checks after which a condition gets a bit.
const PATIENCE: u32 = if cfg!(test) { 1 } else { 24 };

/// Why a node takes no pod of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ClosedBy {
    /// The topology count on it is at least this number.
    AtLeast(TopologyCountId, u32),
    /// The topology count on it is zero.
    Zero(TopologyCountId),
}

impl ClosedBy {
    pub(super) const fn topology_count(self) -> TopologyCountId {
        match self {
            Self::AtLeast(topology_count, _) | Self::Zero(topology_count) => topology_count,
        }
    }

    pub(super) const fn holds(self, count: u32) -> bool {
        match self {
            Self::AtLeast(_, level) => count >= level,
            Self::Zero(_) => count == 0,
        }
    }
}

/// Assigns bits to conditions.
#[derive(Clone, Debug, Default)]
pub(super) struct Bits {
    misses: BTreeMap<ClosedBy, u32>,
    numbers: BTreeMap<ClosedBy, usize>,
    owners: Vec<ClosedBy>,
    next: usize,
    by_topology_count: BTreeMap<TopologyCountId, Vec<(usize, ClosedBy)>>,
}

impl Bits {
    /// The bits of those conditions that have one.
    pub(super) fn mask(&self, closings: &[ClosedBy]) -> u64 {
        let bits = closings.iter().filter_map(|closing| self.numbers.get(closing));
        bits.fold(CLOSED, |mask, &bit| mask | 1 << bit)
    }

    /// Records a failed check, and returns whether the condition gets a bit now: then all nodes' bits have to be
    /// recomputed.
    pub(super) fn missed(&mut self, closing: ClosedBy) -> bool {
        if self.numbers.contains_key(&closing) {
            return false;
        }
        let misses = self.misses.entry(closing).or_default();
        *misses += 1;
        if *misses < PATIENCE {
            return false;
        }
        self.misses.remove(&closing);
        let bit = if self.owners.len() < SHARED {
            self.owners.push(closing);
            self.owners.len() - 1
        } else {
            let bit = self.next % SHARED;
            let former = std::mem::replace(&mut self.owners[bit], closing);
            self.numbers.remove(&former);
            if let Some(of_topology_count) = self.by_topology_count.get_mut(&former.topology_count()) {
                of_topology_count.retain(|(_, other)| *other != former);
            }
            self.next = bit + 1;
            bit
        };
        self.numbers.insert(closing, bit);
        self.by_topology_count.entry(closing.topology_count()).or_default().push((bit, closing));
        true
    }

    /// The bits of a node after one of its counts changed.
    pub(super) fn after(&self, before: u64, topology_count: TopologyCountId, count: u32) -> u64 {
        let of_topology_count = self.by_topology_count.get(&topology_count).map_or(&[][..], Vec::as_slice);
        of_topology_count.iter().fold(before, |bits, &(bit, closing)| {
            if closing.holds(count) { bits | 1 << bit } else { bits & !(1 << bit) }
        })
    }

    /// The bits of a node with these counts.
    pub(super) fn of(&self, count: impl Fn(TopologyCountId) -> u32) -> u64 {
        self.owners.iter().enumerate().fold(0, |bits, (bit, closing)| {
            if closing.holds(count(closing.topology_count())) { bits | 1 << bit } else { bits }
        })
    }
}
