//! Names of nodes. A pool's nodes have numbered slots, and the lowest free slot is taken first.
//!
//! The names are a function of the cluster, the pool and the number alone. A burst of creations that is repeated, because
//! the operator was killed in the middle or reads a stale cache, therefore uses the same names again and gets
//! `AlreadyExists` instead of creating too many nodes.

use std::collections::BTreeSet;

use crate::hash;
use crate::keys::{ClusterId, PoolKey};

/// Longest node name: it is also the value of `kubernetes.io/hostname`, and label values are limited to this length.
const MAX_NAME: usize = 63;
/// Characters of the hash in a name.
const HASH: usize = 5;
/// Room for `-`, the hash, `-`, and a slot number of up to six digits (`maxReplicas` is at most 100,000, and leaving nodes
/// keep their slots for a while).
const SUFFIX: usize = 1 + HASH + 1 + 6;

/// What a name says of the machine that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// It is one of this pool's slots in this cluster.
    Own,
    /// It is one of a slot of such a pool in another cluster, or of one with this name in another namespace.
    Another,
    /// It is none of a slot.
    None,
}

/// The names of one pool's slots.
#[derive(Clone, Debug)]
pub struct Slots {
    stem: String,
    own: String,
}

impl Slots {
    /// The names of the pool's slots in this cluster.
    pub fn of(cluster: &ClusterId, key: &PoolKey) -> Self {
        let room = MAX_NAME - SUFFIX;
        let stem = key.name.get(..room).unwrap_or(&key.name);
        // Truncation may leave `.` or `-` at the end, and no part of a DNS name may end in one.
        let stem = stem.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        let hash = hash::short(&format!("{cluster}/{}/{}", key.namespace, key.name));
        Self { own: format!("{stem}-{hash}-"), stem: format!("{stem}-") }
    }

    /// The prefix of the names of new nodes, including the last dash. Its hash distinguishes pools of one name in two
    /// namespaces, because nodes have none, and in two clusters, because one provider may make the machines of both.
    pub fn prefix(&self) -> &str {
        &self.own
    }

    /// What `name` says.
    pub(crate) fn whose(&self, name: &str) -> Whose {
        let in_slot = |prefix: &str| name.strip_prefix(prefix).is_some_and(is_number);
        let rest = name.strip_prefix(&*self.stem).and_then(|rest| rest.split_once('-'));
        if in_slot(&self.own) {
            Whose::Own
        } else if rest.is_some_and(|(hash, number)| is_hash(hash) && is_number(number)) {
            Whose::Another
        } else {
            Whose::None
        }
    }

    /// Whether a Node of this name, of which nothing else is known, has to be taken for one of the pool.
    pub fn may_have(&self, node: &str) -> bool {
        node.starts_with(&self.own)
    }

    /// The `count` lowest names for new nodes that are not in `occupied`.
    pub fn lowest_free(&self, occupied: &BTreeSet<&str>, count: usize) -> Vec<String> {
        (0_u64..)
            .map(|slot| format!("{}{slot}", self.own))
            .filter(|name| !occupied.contains(name.as_str()))
            .take(count)
            .collect()
    }
}

/// Whether `text` is the number of a slot.
fn is_number(text: &str) -> bool {
    let is_number = (1..=7).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number && (text == "0" || !text.starts_with('0'))
}

/// Whether `text` may be the hash in a name.
fn is_hash(text: &str) -> bool {
    text.len() == HASH && text.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::cluster;

    fn key(name: &str) -> PoolKey {
        PoolKey { namespace: "default".into(), name: name.into() }
    }

    fn slots(name: &str) -> Slots {
        Slots::of(&cluster(), &key(name))
    }

    #[test]
    fn the_lowest_free_slots_are_taken_first() {
        let slots = slots("web");
        let [zero, two] = [0, 2].map(|number| format!("{}{number}", slots.prefix()));
        let occupied = BTreeSet::from([zero.as_str(), two.as_str()]);
        let names = slots.lowest_free(&occupied, 3);
        assert_eq!(names, [1, 3, 4].map(|n| format!("{}{n}", slots.prefix())));
    }

    #[test]
    fn a_slot_is_told_from_other_names() {
        let slots = slots("web");
        for (number, expected) in
            [("0", true), ("17", true), ("", false), ("01", false), ("x", false), ("99999999", false)]
        {
            let whose = slots.whose(&format!("{}{number}", slots.prefix()));
            assert_eq!(whose == Whose::Own, expected, "{number}");
            assert_eq!(whose == Whose::None, !expected, "{number}");
        }
        for name in ["web-1", "web-abcde", "web-abcdef-1", "web-ABCDE-1", "webs-abcde-1", "other-1"] {
            assert_eq!(slots.whose(name), Whose::None, "{name}");
        }
    }

    #[test]
    fn pools_of_one_name_in_two_namespaces_differ() {
        let other = Slots::of(&cluster(), &PoolKey { namespace: "other".into(), name: "web".into() });
        assert_ne!(slots("web").prefix(), other.prefix());
    }

    #[test]
    fn pools_of_one_namespace_and_name_in_two_clusters_differ() {
        let (here, there) = (slots("web"), Slots::of(&"there".into(), &key("web")));
        let of = |slots: &Slots| format!("{}0", slots.prefix());
        assert_eq!((here.whose(&of(&here)), here.whose(&of(&there))), (Whose::Own, Whose::Another));
        assert_eq!((there.whose(&of(&there)), there.whose(&of(&here))), (Whose::Own, Whose::Another));
        assert!(here.may_have(&of(&here)) && !here.may_have(&of(&there)));
    }

    #[test]
    fn a_long_pool_name_is_cut_to_a_legal_node_name() {
        for name in ["a".repeat(63), format!("{}.-.{}", "a".repeat(48), "b".repeat(10))] {
            let slots = slots(&name);
            let name = format!("{}999999", slots.prefix());
            assert!(name.len() <= MAX_NAME, "{name}");
            assert!(!name.contains(".-") && !name.contains("-."), "{name}");
            assert_eq!(slots.whose(&name), Whose::Own);
        }
    }
}
