//! Names of nodes. A pool's nodes have numbered slots, and the lowest free slot is taken first.
//!
//! The names are a function of the pool and the number alone. A burst of creations that is repeated, because the
//! operator was killed in the middle or reads a stale cache, therefore uses the same names again and gets
//! `AlreadyExists` instead of creating too many nodes.

use std::collections::BTreeSet;

use super::{PoolKey, hash};

/// Longest node name: it is also the value of `kubernetes.io/hostname`, and label values are limited to this length.
const MAX_NAME: usize = 63;
/// Room for `-`, five characters of hash, `-`, and a slot number of up to six digits (`maxReplicas` is at most 100,000,
/// and leaving nodes keep their slots for a while).
const SUFFIX: usize = 1 + 5 + 1 + 6;

/// The prefix of every node name of the pool, including the last dash. The hash distinguishes pools of the same name in
/// two namespaces, because nodes have no namespace.
pub(crate) fn prefix(key: &PoolKey) -> String {
    let room = MAX_NAME - SUFFIX;
    let stem = key.name.get(..room).unwrap_or(&key.name);
    // Truncation may leave `.` or `-` at the end, and no part of a DNS name may end in one.
    let stem = stem.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
    format!("{stem}-{}-", hash::short(&format!("{}/{}", key.namespace, key.name)))
}

/// Whether `name` is one of a slot of the pool with this [`prefix`].
pub(crate) fn is_slot(name: &str, prefix: &str) -> bool {
    let number = name.strip_prefix(prefix).unwrap_or_default();
    let is_number = (1..=7).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number && (number == "0" || !number.starts_with('0'))
}

/// The `count` lowest names of the pool that are not in `occupied`.
pub(crate) fn lowest_free(key: &PoolKey, occupied: &BTreeSet<&str>, count: usize) -> Vec<String> {
    let prefix = prefix(key);
    (0_u64..)
        .map(|slot| format!("{prefix}{slot}"))
        .filter(|name| !occupied.contains(name.as_str()))
        .take(count)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> PoolKey {
        PoolKey { namespace: "default".into(), name: name.into() }
    }

    #[test]
    fn the_lowest_free_slots_are_taken_first() {
        let prefix = prefix(&key("web"));
        let (zero, two) = (format!("{prefix}0"), format!("{prefix}2"));
        let occupied = BTreeSet::from([zero.as_str(), two.as_str()]);
        let names = lowest_free(&key("web"), &occupied, 3);
        assert_eq!(names, [1, 3, 4].map(|n| format!("{prefix}{n}")));
    }

    #[test]
    fn a_slot_is_told_from_other_names() {
        for (name, expected) in [
            ("p-0", true),
            ("p-17", true),
            ("p-", false),
            ("p-01", false),
            ("p-x", false),
            ("q-1", false),
            ("p-99999999", false),
        ] {
            assert_eq!(is_slot(name, "p-"), expected, "{name}");
        }
    }

    #[test]
    fn pools_of_one_name_in_two_namespaces_differ() {
        let other = PoolKey { namespace: "other".into(), name: "web".into() };
        assert_ne!(prefix(&key("web")), prefix(&other));
    }

    #[test]
    fn a_long_pool_name_is_cut_to_a_legal_node_name() {
        for name in ["a".repeat(63), format!("{}.-.{}", "a".repeat(48), "b".repeat(10))] {
            let name = format!("{}999999", prefix(&key(&name)));
            assert!(name.len() <= MAX_NAME, "{name}");
            assert!(!name.contains(".-") && !name.contains("-."), "{name}");
        }
    }
}
