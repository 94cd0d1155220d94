//! Which nodes asked to be left alone when their pods were listed last, and which did not. A pass within the interval takes that for
//! granted and looks at other nodes, so that each node is looked at in time, with few requests. Where there are many, it does so for
//! longer: until all of them have been looked at once.
//!
//! A node that asked still counts as one that does until it is listed again: otherwise a rollout that waits for many such nodes would go
//! on for a moment whenever what was found is forgotten. It is forgotten only when it is not listed for long.
//!
//! It is a cache. A restart empties it, which costs the requests again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use node_lifecycle::PoolKey;
use shared_runtime::clock::Clock;

use super::list_budget::OTHERS_RATE;

/// For how long after its pods were listed a node is not listed again, at least.
const KEPT_FOR: Duration = Duration::from_secs(30);
/// So many times as long it counts as protected unless it is listed: there is time for several polls, and for lists that fail.
const STALE_TIMES: u32 = 3;
/// For how long it is remembered that a list failed: long enough to have tried all others in the meantime.
const FAILED_KEPT_FOR: Duration = Duration::from_secs(600);

/// Nodes by name, with the time at which their pods were listed, and why they are protected; `None` where they are not.
type Found = BTreeMap<String, (Duration, Option<String>)>;

/// What is remembered of a pool.
#[derive(Default)]
struct OfPool {
    found: Found,
    /// Nodes by name, with the time at which their list failed last.
    failed: BTreeMap<String, Duration>,
}

/// What is known of the nodes of a pool, as `node_lifecycle::Observed` has it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct KnownProtections {
    /// The nodes that were found protected, by name, and why.
    pub protected: BTreeMap<String, String>,
    /// Those of them that are to be listed again.
    pub stale: BTreeSet<String>,
    /// The nodes that were found not to be protected a moment ago.
    pub unprotected: BTreeSet<String>,
    /// The nodes whose lists failed, the last failure last.
    pub failed_lists: Vec<String>,
}

/// The nodes of each pool of which it is known whether they are protected.
pub(crate) struct Protections {
    clock: Clock,
    pools: Mutex<HashMap<PoolKey, OfPool>>,
}

impl Protections {
    /// Knows nothing.
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, pools: Mutex::default() }
    }

    /// What is known of the pool's nodes now.
    pub(crate) fn known(&self, key: &PoolKey) -> KnownProtections {
        let now = self.clock.monotonic();
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        // Otherwise the first ones would be listed again before the last ones are listed at all.
        let all: usize = pools.values().map(|of_pool| of_pool.found.len()).sum();
        // A little longer than it takes to list these, so that there is time for those that are not known yet.
        let round = Duration::from_secs(u64::try_from(all).unwrap_or_default() * 3 / 2 / OTHERS_RATE);
        let kept_for = KEPT_FOR.max(round);
        let Some(OfPool { found, failed }) = pools.get_mut(key) else { return KnownProtections::default() };
        let is_recent = |at: Duration, kept_for: Duration| now.saturating_sub(at) < kept_for;
        found.retain(|_, (at, why)| {
            is_recent(*at, if why.is_some() { kept_for * STALE_TIMES } else { kept_for })
        });
        failed.retain(|_, at| is_recent(*at, FAILED_KEPT_FOR));
        let mut known = KnownProtections::default();
        for (node, (at, why)) in &*found {
            if let Some(why) = why {
                known.protected.insert(node.clone(), why.clone());
                if !is_recent(*at, kept_for) {
                    known.stale.insert(node.clone());
                }
            } else {
                known.unprotected.insert(node.clone());
            }
        }
        let mut by_time: Vec<(Duration, &String)> = failed.iter().map(|(node, at)| (*at, node)).collect();
        by_time.sort_unstable();
        known.failed_lists = by_time.into_iter().map(|(_, node)| node.clone()).collect();
        if found.is_empty() && failed.is_empty() {
            pools.remove(key);
        }
        known
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
        let mut all = found.peekable();
        if all.peek().is_some() {
            let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
            let OfPool { found, failed } = pools.entry(key.clone()).or_default();
            for (node, why) in all {
                failed.remove(&node);
                found.insert(node, (now, why));
            }
        }
    }

    /// Records the nodes whose lists failed now. What was found on them before still counts.
    pub(crate) fn record_unread(&self, key: &PoolKey, nodes: impl IntoIterator<Item = String>) {
        let now = self.clock.monotonic();
        let mut nodes = nodes.into_iter().peekable();
        if nodes.peek().is_some() {
            let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
            pools.entry(key.clone()).or_default().failed.extend(nodes.map(|node| (node, now)));
        }
    }

    /// Drops everything about a pool that is gone.
    pub(crate) fn forget(&self, key: &PoolKey) {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

#[cfg(test)]
#[path = "protections_tests.rs"]
mod tests;
