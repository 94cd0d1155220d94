//! Machines without a Node that their providers have been deleting for a long time: which of them have to be asked to go once more.
//! A provider may have accepted a deletion and lost it, such as a program whose background process ended. Of a machine with a Node, each
//! pass asks.
//!
//! All of it is in memory: after a restart, such a machine has the whole time once more.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use node_lifecycle::keys::PoolKey;

/// For how long a machine may be listed as one that is being deleted before it is asked to go again. Most clouds take less.
const PATIENCE: SignedDuration = SignedDuration::from_secs(60);

/// The machines of a pool that are being deleted, by the reference of the provider that lists them and by name, and when each was first
/// seen so or was last asked to go.
type ByProvider = BTreeMap<String, BTreeMap<String, Timestamp>>;

/// Those of every pool.
#[derive(Debug, Default)]
pub(super) struct Unending(Mutex<HashMap<PoolKey, ByProvider>>);

impl Unending {
    fn pools(&self) -> MutexGuard<'_, HashMap<PoolKey, ByProvider>> {
        // What is remembered only delays a request that may be repeated, so a panic elsewhere leaves nothing that could do harm.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a list of the pool's provider `reference` shows these machines as ones that are being deleted, and no others. Returns
    /// those that have to be asked to go again.
    pub(super) fn record_list(
        &self,
        key: &PoolKey,
        reference: &str,
        ending: BTreeSet<&str>,
        now: Timestamp,
    ) -> BTreeSet<String> {
        let mut pools = self.pools();
        let before = pools.get_mut(key).and_then(|lists| lists.remove(reference)).unwrap_or_default();
        // A time to come was recorded before the clock was set back.
        let since = |name: &str| before.get(name).map_or(now, |since| (*since).min(now));
        let ending: BTreeMap<String, Timestamp> =
            ending.into_iter().map(|name| (name.to_owned(), since(name))).collect();
        let is_due = |since: Timestamp| since.checked_add(PATIENCE).is_ok_and(|end| end <= now);
        let due = ending.iter().filter(|(_, since)| is_due(**since)).map(|(name, _)| name.clone()).collect();
        if !ending.is_empty() {
            pools.entry(key.clone()).or_default().insert(reference.to_owned(), ending);
        }
        due
    }

    /// Records that the machine is asked to go.
    pub(super) fn asked(&self, key: &PoolKey, reference: &str, name: &str, now: Timestamp) {
        let mut pools = self.pools();
        let ending = pools.get_mut(key).and_then(|lists| lists.get_mut(reference));
        if let Some(since) = ending.and_then(|ending| ending.get_mut(name)) {
            *since = now;
        }
    }

    /// Drops everything about a pool that is gone.
    pub(super) fn forget(&self, key: &PoolKey) {
        self.pools().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, key};

    #[test]
    fn a_machine_that_stays_is_due_a_minute_after_it_was_seen_or_asked_for_last() {
        let (unending, both) = (Unending::default(), || BTreeSet::from(["a", "b"]));
        let listed = |reference: &str, names: BTreeSet<&str>, second: i64| {
            unending.record_list(&key(), reference, names, at(second)).into_iter().collect::<Vec<_>>()
        };
        assert!(listed("exec.p", both(), 0).is_empty());
        assert!(listed("exec.p", both(), 59).is_empty());
        assert_eq!(listed("exec.p", both(), 60), ["a", "b"]);
        // It stays due until it is asked.
        unending.asked(&key(), "exec.p", "a", at(61));
        assert_eq!(listed("exec.p", both(), 62), ["b"]);
        // The list of another provider, one that lacks it, and a clock that is set back.
        assert!(listed("exec.q", both(), 70).is_empty());
        assert!(listed("exec.p", BTreeSet::from(["a"]), 70).is_empty());
        assert_eq!(listed("exec.p", both(), 121), ["a"]);
        assert!(listed("exec.q", both(), 10).is_empty());
        assert!(listed("exec.q", both(), 69).is_empty());
        assert_eq!(listed("exec.q", both(), 70), ["a", "b"]);
        unending.forget(&key());
        assert!(listed("exec.q", both(), 71).is_empty());
    }
}
