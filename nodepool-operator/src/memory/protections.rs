//! Which nodes asked to be left alone when their pods were listed last, and which did not. A pass within the interval takes that for
//! granted and looks at other nodes, so that each node is looked at in time, with few requests. Where there are many, it does so for
//! longer: until all of them have been looked at once.
//!
//! It is a cache. A restart empties it, which costs the requests again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use node_lifecycle::PoolKey;
use shared_runtime::clock::Clock;

use super::list_budget::OTHERS_RATE;

/// For how long a node counts as protected after its pods were listed, at least.
const KEPT_FOR: Duration = Duration::from_secs(30);

/// Nodes by name, with the time at which their pods were listed, and why they are protected; `None` where they are not.
type Found = BTreeMap<String, (Duration, Option<String>)>;

/// The nodes of each pool of which it is known whether they are protected.
pub(crate) struct Protections {
    clock: Clock,
    pools: Mutex<HashMap<PoolKey, Found>>,
}

impl Protections {
    /// Knows nothing.
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, pools: Mutex::default() }
    }

    /// The nodes that were found protected a moment ago, by name, and why.
    pub(crate) fn recent(&self, key: &PoolKey) -> BTreeMap<String, String> {
        let recent = self.looked_at(key).into_iter();
        recent.filter_map(|(node, (_, why))| Some((node, why?))).collect()
    }

    /// The nodes that were found not to be protected a moment ago, by name.
    pub(crate) fn unprotected(&self, key: &PoolKey) -> BTreeSet<String> {
        let recent = self.looked_at(key).into_iter();
        recent.filter(|(_, (_, why))| why.is_none()).map(|(node, _)| node).collect()
    }

    /// The nodes whose pods were listed a moment ago.
    fn looked_at(&self, key: &PoolKey) -> Found {
        let now = self.clock.monotonic();
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        // Otherwise the first ones would be listed again before the last ones are listed at all.
        let all: usize = pools.values().map(Found::len).sum();
        // A little longer than it takes to list these, so that there is time for those that are not known yet.
        let round = Duration::from_secs(u64::try_from(all).unwrap_or_default() * 3 / 2 / OTHERS_RATE);
        let kept_for = KEPT_FOR.max(round);
        let Some(of_pool) = pools.get_mut(key) else { return Found::new() };
        of_pool.retain(|_, (at, _)| now.saturating_sub(*at) < kept_for);
        let recent = of_pool.clone();
        if of_pool.is_empty() {
            pools.remove(key);
        }
        recent
    }

    /// Records which nodes were found protected now, and why.
    pub(crate) fn record(&self, key: &PoolKey, found: impl IntoIterator<Item = (String, String)>) {
        self.record_all(key, found.into_iter().map(|(node, why)| (node, Some(why))));
    }

    /// Records which nodes were found not to be.
    pub(crate) fn record_unprotected(&self, key: &PoolKey, found: impl IntoIterator<Item = String>) {
        self.record_all(key, found.into_iter().map(|node| (node, None)));
    }

    fn record_all(&self, key: &PoolKey, found: impl Iterator<Item = (String, Option<String>)>) {
        let now = self.clock.monotonic();
        let mut found = found.peekable();
        if found.peek().is_some() {
            let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
            pools.entry(key.clone()).or_default().extend(found.map(|(node, why)| (node, (now, why))));
        }
    }

    /// Drops everything about a pool that is gone.
    pub(crate) fn forget(&self, key: &PoolKey) {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use node_lifecycle::testing::key;

    use super::*;

    #[test]
    fn a_node_counts_as_protected_for_half_a_minute_after_its_pods_were_listed() {
        let (clock, time) = Clock::fake(Timestamp::UNIX_EPOCH);
        let protections = Protections::new(clock);
        let found = |node: &str| [(node.to_owned(), "asks for it".to_owned())];
        let recent = || protections.recent(&key()).into_keys().collect::<Vec<_>>();
        protections.record(&key(), found("a"));
        time.advance(Duration::from_secs(20));
        protections.record(&key(), found("b"));
        assert_eq!(recent(), ["a", "b"]);
        time.advance(Duration::from_secs(10));
        assert_eq!(recent(), ["b"]);
        time.advance(Duration::from_secs(20));
        assert!(recent().is_empty() && protections.pools.lock().unwrap().is_empty());
        protections.record(&key(), found("a"));
        protections.forget(&key());
        assert!(recent().is_empty());
    }

    #[test]
    fn that_a_node_does_not_ask_is_known_as_long_and_until_it_does() {
        let (clock, time) = Clock::fake(Timestamp::UNIX_EPOCH);
        let protections = Protections::new(clock);
        let known = || (protections.recent(&key()).len(), protections.unprotected(&key()).len());
        protections.record_unprotected(&key(), ["a".to_owned(), "b".to_owned()]);
        assert_eq!(known(), (0, 2));
        protections.record(&key(), [("a".to_owned(), "asks for it".to_owned())]);
        assert_eq!(known(), (1, 1));
        time.advance(Duration::from_secs(30));
        assert_eq!(known(), (0, 0));
    }

    #[test]
    fn of_many_protected_nodes_all_are_looked_at() {
        let (clock, time) = Clock::fake(Timestamp::UNIX_EPOCH);
        let protections = Protections::new(clock);
        let mut seen = BTreeSet::new();
        // In each second the first three that are not known to be protected are listed.
        for _ in 0..1000 {
            let recent = protections.recent(&key());
            let all = (0..900).map(|index| format!("n-{index:03}"));
            let listed: Vec<_> = all.filter(|node| !recent.contains_key(node)).take(3).collect();
            seen.extend(listed.iter().cloned());
            protections.record(&key(), listed.into_iter().map(|node| (node, "asks for it".to_owned())));
            time.advance(Duration::from_secs(1));
        }
        assert_eq!(seen.len(), 900);
    }
}
