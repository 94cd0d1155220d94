//! When to list pods again that could not be listed. Where a right is missing, or the API server is down, that may take long, and
//! every attempt costs several requests.
//!
//! A restart forgets it, which costs a few attempts.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use node_lifecycle::PoolKey;

/// The first retry interval; it doubles with every pass in a row that could not list pods.
const FIRST_RETRY: Duration = Duration::from_secs(2);
/// The longest: as often as nodes are looked at whose pods protect them.
const LAST_RETRY: Duration = Duration::from_secs(15);

/// How many passes in a row could not list pods of each pool's nodes.
#[derive(Debug, Default)]
pub(crate) struct UnreadPools(Mutex<HashMap<PoolKey, u32>>);

impl UnreadPools {
    /// Records whether a pass could not list some pods. Returns when to try again; `None` when it could list all.
    pub(crate) fn retry(&self, key: &PoolKey, is_incomplete: bool) -> Option<Duration> {
        let mut pools = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_incomplete {
            pools.remove(key);
            return None;
        }
        let passes = pools.entry(key.clone()).or_default();
        let retry = FIRST_RETRY.saturating_mul(2_u32.saturating_pow(*passes)).min(LAST_RETRY);
        *passes = passes.saturating_add(1);
        Some(retry)
    }

    /// Drops everything about a pool that is gone.
    pub(crate) fn forget(&self, key: &PoolKey) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

#[cfg(test)]
mod tests {
    use node_lifecycle::testing::key;

    use super::*;

    #[test]
    fn pods_that_cannot_be_listed_are_listed_again_after_two_seconds_and_then_less_often() {
        let pools = UnreadPools::default();
        let retries = |count: usize| -> Vec<u64> {
            (0..count).filter_map(|_| pools.retry(&key(), true)).map(|retry| retry.as_secs()).collect()
        };
        assert_eq!(retries(6), [2, 4, 8, 15, 15, 15]);
        assert_eq!(pools.retry(&key(), false), None);
        assert_eq!(retries(2), [2, 4]);
        pools.forget(&key());
        assert_eq!(retries(40).last(), Some(&15));
    }
}
