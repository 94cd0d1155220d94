//! An index of nodes' free capacity that finds the next node with enough room without checking all of them.
//!
//! A tree of maxima over the four basic resources, and of bits for what a node is closed to. The caller checks extended
//! resources: they are rare, and a false positive costs one check.

use std::cell::Cell;

use crate::steps;

/// Amounts of the four basic resources, in the order of [`crate::resources::Amounts::basic`].
type Free = [i64; 4];

/// An entry of the tree: for a node, or for all nodes below a branch.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The largest free amounts of any of them.
    free: Free,
    /// The bits that all of them have.
    closed: u64,
}

const NONE: Entry = Entry { free: [i64::MIN; 4], closed: u64::MAX };

/// The tree. Slots are numbered from 0 in the order in which they were pushed.
#[derive(Clone, Debug, Default)]
pub(crate) struct FitIndex {
    /// Number of slots in use.
    len: usize,
    /// Number of leaves in the tree, a power of two, or 0.
    leaves: usize,
    /// A complete binary tree; the root is at 1, slot `i` at `leaves + i`.
    entries: Vec<Entry>,
}

impl FitIndex {
    /// An index over these slots.
    pub(crate) fn of(slots: impl ExactSizeIterator<Item = (Free, u64)>) -> Self {
        Self::built(slots.map(|(free, closed)| Entry { free, closed }))
    }

    fn built(slots: impl ExactSizeIterator<Item = Entry>) -> Self {
        let len = slots.len();
        let leaves = len.next_power_of_two();
        let mut entries = vec![NONE; leaves * 2];
        steps::count(entries.len());
        for (at, entry) in slots.enumerate() {
            entries[leaves + at] = entry;
        }
        for at in (1..leaves).rev() {
            entries[at] = joined(entries[at * 2], entries[at * 2 + 1]);
        }
        Self { len, leaves, entries }
    }

    /// Number of slots in use.
    #[cfg(test)]
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Adds a slot at the end.
    pub(crate) fn push(&mut self, free: Free, closed: u64) {
        if self.len == self.leaves {
            let mut slots = self.entries.get(self.leaves..).unwrap_or_default().to_vec();
            slots.resize((self.leaves * 2).max(1), NONE);
            let len = self.len;
            *self = Self::built(slots.into_iter());
            self.len = len;
        }
        self.len += 1;
        self.set(self.len - 1, free, closed);
    }

    /// Removes the last slot.
    pub(crate) fn pop(&mut self) {
        if self.len > 0 {
            self.put(self.len - 1, NONE);
            self.len -= 1;
        }
    }

    /// Replaces the values of a slot.
    pub(crate) fn set(&mut self, slot: usize, free: Free, closed: u64) {
        self.put(slot, Entry { free, closed });
    }

    fn put(&mut self, slot: usize, entry: Entry) {
        let mut at = self.leaves + slot;
        self.entries[at] = entry;
        let mut changed = 1;
        while at > 1 {
            at /= 2;
            self.entries[at] = joined(self.entries[at * 2], self.entries[at * 2 + 1]);
            changed += 1;
        }
        steps::count(changed);
    }

    /// The first slot from `start` on that has room for `need` and is closed to nothing in `mask`. Resources that are
    /// not needed are ignored.
    pub(crate) fn first_from(&self, start: usize, need: Free, mask: u64) -> Option<usize> {
        if start >= self.len {
            return None;
        }
        let search = Search { start, need, mask, visited: Cell::new(0) };
        let found = self.descend(1, 0, self.leaves, &search);
        steps::count(search.visited.get());
        found
    }

    fn descend(&self, at: usize, low: usize, width: usize, search: &Search) -> Option<usize> {
        search.visited.set(search.visited.get() + 1);
        if low + width <= search.start || !suits(&self.entries[at], search) {
            return None;
        }
        if width == 1 {
            return Some(low);
        }
        let half = width / 2;
        self.descend(at * 2, low, half, search).or_else(|| self.descend(at * 2 + 1, low + half, half, search))
    }
}

/// The parameters of a search.
struct Search {
    start: usize,
    need: Free,
    mask: u64,
    /// How many entries were looked at.
    visited: Cell<usize>,
}

fn joined(a: Entry, b: Entry) -> Entry {
    let free = [
        a.free[0].max(b.free[0]),
        a.free[1].max(b.free[1]),
        a.free[2].max(b.free[2]),
        a.free[3].max(b.free[3]),
    ];
    Entry { free, closed: a.closed & b.closed }
}

fn suits(entry: &Entry, search: &Search) -> bool {
    entry.closed & search.mask == 0
        && entry.free.iter().zip(search.need).all(|(&free, need)| need <= 0 || free >= need)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn slot() -> impl Strategy<Value = (Free, u64)> {
        (prop::array::uniform4(-3_i64..6), 0_u64..4)
    }

    proptest! {
        #[test]
        fn finds_what_a_walk_over_all_slots_finds(
            slots in prop::collection::vec(slot(), 0..40),
            changes in prop::collection::vec((0_usize..40, slot()), 0..20),
            popped in 0_usize..5,
            need in prop::array::uniform4(-3_i64..6),
            mask in 0_u64..4,
            start in 0_usize..45,
            pushed in any::<bool>(),
        ) {
            // A pod always needs a place, so something is always needed.
            let need = [need[0].max(1), need[1], need[2], need[3]];
            let mut plain = slots.clone();
            let mut index = if pushed {
                let mut index = FitIndex::default();
                for &(free, closed) in &slots {
                    index.push(free, closed);
                }
                index
            } else {
                FitIndex::of(slots.into_iter())
            };
            for _ in 0..popped {
                plain.pop();
                index.pop();
            }
            for (slot, (free, closed)) in changes {
                if slot < plain.len() {
                    plain[slot] = (free, closed);
                    index.set(slot, free, closed);
                }
            }
            prop_assert_eq!(index.len(), plain.len());
            let search = Search { start, need, mask, visited: Cell::new(0) };
            let expected = (start..plain.len()).find(|&slot| {
                let (free, closed) = plain[slot];
                suits(&Entry { free, closed }, &search)
            });
            prop_assert_eq!(index.first_from(start, need, mask), expected);
        }
    }
}
