//! A list of nodes' free capacity that finds the next node with enough room without looking at all of them.
//!
//! A tree of maxima over the four basic resources. Extended resources are left to the caller to check: they are rare,
//! and the answer "maybe" costs one look.

/// Amounts of the four basic resources, as [`super::resources::Amounts::basic`] orders them.
type Free = [i64; 4];

const NONE: Free = [i64::MIN; 4];

/// The tree. Slots are numbered from 0 in the order they were pushed.
#[derive(Clone, Debug, Default)]
pub struct FitIndex {
    /// Slots in use.
    len: usize,
    /// Leaves in the tree, a power of two, or 0.
    leaves: usize,
    /// A complete binary tree; the root is at 1, slot `i` at `leaves + i`.
    maxima: Vec<Free>,
}

impl FitIndex {
    /// An index over these slots.
    pub fn of(slots: impl ExactSizeIterator<Item = Free>) -> Self {
        let len = slots.len();
        let leaves = len.next_power_of_two();
        let mut maxima = vec![NONE; leaves * 2];
        for (at, free) in slots.enumerate() {
            maxima[leaves + at] = free;
        }
        for at in (1..leaves).rev() {
            maxima[at] = greater(maxima[at * 2], maxima[at * 2 + 1]);
        }
        Self { len, leaves, maxima }
    }

    /// Adds a slot at the end.
    pub fn push(&mut self, free: Free) {
        if self.len == self.leaves {
            let grown = self.maxima.get(self.leaves..).unwrap_or_default().to_vec();
            let mut slots = grown;
            slots.resize((self.leaves * 2).max(1), NONE);
            let len = self.len;
            *self = Self::of(slots.into_iter());
            self.len = len;
        }
        self.len += 1;
        self.set(self.len - 1, free);
    }

    /// Changes what is free in a slot.
    pub fn set(&mut self, slot: usize, free: Free) {
        let mut at = self.leaves + slot;
        self.maxima[at] = free;
        while at > 1 {
            at /= 2;
            self.maxima[at] = greater(self.maxima[at * 2], self.maxima[at * 2 + 1]);
        }
    }

    /// The first slot from `start` on that has room for `need`. Resources that are not needed are not looked at.
    pub fn first_from(&self, start: usize, need: Free) -> Option<usize> {
        if start >= self.len {
            return None;
        }
        self.descend(1, 0, self.leaves, start, need)
    }

    fn descend(&self, at: usize, low: usize, width: usize, start: usize, need: Free) -> Option<usize> {
        if low + width <= start || !has_room(self.maxima[at], need) {
            return None;
        }
        if width == 1 {
            return Some(low);
        }
        let half = width / 2;
        self.descend(at * 2, low, half, start, need)
            .or_else(|| self.descend(at * 2 + 1, low + half, half, start, need))
    }
}

fn greater(a: Free, b: Free) -> Free {
    [a[0].max(b[0]), a[1].max(b[1]), a[2].max(b[2]), a[3].max(b[3])]
}

fn has_room(free: Free, need: Free) -> bool {
    free.iter().zip(need).all(|(&free, need)| need <= 0 || free >= need)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn amounts() -> impl Strategy<Value = Free> {
        prop::array::uniform4(-3_i64..6)
    }

    proptest! {
        #[test]
        fn finds_what_a_walk_over_all_slots_finds(
            slots in prop::collection::vec(amounts(), 0..40),
            changes in prop::collection::vec((0_usize..40, amounts()), 0..20),
            need in amounts(),
            start in 0_usize..45,
            pushed in any::<bool>(),
        ) {
            // A pod always takes a place, so something is always needed.
            let need = [need[0].max(1), need[1], need[2], need[3]];
            let mut plain = slots.clone();
            let mut index = if pushed {
                let mut index = FitIndex::default();
                for &free in &slots {
                    index.push(free);
                }
                index
            } else {
                FitIndex::of(slots.into_iter())
            };
            for (slot, free) in changes {
                if slot < plain.len() {
                    plain[slot] = free;
                    index.set(slot, free);
                }
            }
            let expected = (start..plain.len()).find(|&slot| has_room(plain[slot], need));
            prop_assert_eq!(index.first_from(start, need), expected);
        }
    }
}
