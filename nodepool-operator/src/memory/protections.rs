//! Which nodes asked to be left alone when their pods were listed last. A pass within the interval takes that for granted and
//! looks at other nodes, so that each node is looked at in time, with few requests.
//!
//! It is a cache. A restart empties it, which costs the requests again.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use shared_runtime::clock::Clock;

use crate::plan::PoolKey;

/// For how long a node counts as protected after its pods were listed.
const KEPT_FOR: Duration = Duration::from_secs(30);

/// Nodes by name, with the time at which they were found protected, and why.
type Found = BTreeMap<String, (Duration, String)>;

/// The protected nodes of each pool.
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
        let now = self.clock.monotonic();
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(of_pool) = pools.get_mut(key) else { return BTreeMap::new() };
        of_pool.retain(|_, (at, _)| now.saturating_sub(*at) < KEPT_FOR);
        let recent = of_pool.iter().map(|(node, (_, why))| (node.clone(), why.clone())).collect();
        if of_pool.is_empty() {
            pools.remove(key);
        }
        recent
    }

    /// Records what was found now.
    pub(crate) fn record(&self, key: &PoolKey, found: impl IntoIterator<Item = (String, String)>) {
        let now = self.clock.monotonic();
        let mut found = found.into_iter().peekable();
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

    use super::*;
    use crate::plan::testing::key;

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
}
