//! Maps by the addresses of objects that are kept alive meanwhile.
//!
//! A pass looks up the address of every pod. No address is chosen in order to harm, so the standard library's hash, which
//! is made for keys from outside, would only cost time.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map whose keys are addresses, or made of them.
pub(crate) type ByAddress<K, V> = HashMap<K, V, BuildHasherDefault<AddressHasher>>;

/// An odd number without a pattern: 2^64 divided by the golden ratio.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Multiplies. The lowest bits of addresses are all zero and the highest all the same, so the map, which takes the lowest and
/// the highest bits of a hash, gets those of the product's middle and top.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = self.0.wrapping_add(number).wrapping_mul(ODD);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn finish(&self) -> u64 {
        self.0.rotate_left(26)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::hash::BuildHasher as _;

    use super::*;

    #[test]
    fn addresses_at_equal_distances_are_spread_over_the_whole_map() {
        const COUNT: usize = 4096;
        let build = BuildHasherDefault::<AddressHasher>::default();
        for distance in [16, 64, 128, 4096] {
            for base in [0_usize, 0x7f00_0000_0000] {
                let hashes = (0..COUNT).map(|at| build.hash_one((base + at * distance, base)));
                let places: BTreeSet<u64> = hashes.map(|hash| hash % COUNT as u64).collect();
                // A random function hits 63% of the places.
                assert!(places.len() > COUNT / 3, "{distance} from {base:x}: {}", places.len());
            }
        }
    }
}
