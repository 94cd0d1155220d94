//! Random numbers that are the same on every machine and in every version: `SplitMix64`, in ten lines rather than a
//! dependency whose next version may draw differently. <https://doi.org/10.1145/2714064.2660195>

/// A stream of numbers.
pub(crate) struct Random(u64);

impl Random {
    /// Every mix draws from a stream of its own.
    pub(crate) const fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of `choices`. They are so few that the bias of the remainder plays no part.
    pub(crate) fn pick<T: Copy, const N: usize>(&mut self, choices: &[T; N]) -> T {
        let at = usize::try_from(self.next() % N as u64).unwrap_or_default();
        choices[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_the_published_one() {
        let mut random = Random::seeded(1_234_567);
        // The reference implementation's first numbers for this seed.
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }
}
