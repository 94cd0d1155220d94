//! Random choices that are the same for the same seed, on every machine and with every version of every library: a
//! failure is identified by its seed.

/// The increment of `SplitMix64`, an odd number near 2^64 over the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A source of random choices (`SplitMix64`: <https://prng.di.unimi.it/splitmix64.c>).
#[derive(Clone, Debug)]
pub struct SeededRng(u64);

impl SeededRng {
    /// Starts the sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 when `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        let drawn = usize::try_from(self.next() >> 33).unwrap_or_default();
        if end == 0 { 0 } else { drawn % end }
    }

    /// True in one of `cases` cases.
    pub fn one_in(&mut self, cases: usize) -> bool {
        self.below(cases) == 0
    }

    /// A random element of `items`.
    ///
    /// # Panics
    /// When `items` is empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_falls_the_same_way_and_every_side_comes_up() {
        let throws = |seed| {
            let mut rng = SeededRng::new(seed);
            (0..200).map(|_| rng.below(6)).collect::<Vec<_>>()
        };
        assert_eq!(throws(7), throws(7));
        assert_ne!(throws(7), throws(8));
        assert!((0..6).all(|side| throws(7).contains(&side)));
        // The first output for seed 0 that the reference implementation documents.
        assert_eq!(SeededRng::new(0).next(), 0xe220_a839_7b1d_cdaf);
    }
}
