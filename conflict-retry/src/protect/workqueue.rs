//! How client-go's work queue paces requeues per item: the same arithmetic, for parity and for comparison.
//!
//! Pure: `now` is the time since any fixed instant, and only the bucket uses it. None of these has jitter, as in Go.
//! Counts are kept per item until [`ItemLimiter::forget`]; an item that is never forgotten leaks, as in Go.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use super::limiter::{Rate, TokenBucket};

/// Go's `workqueue.TypedRateLimiter`.
pub trait ItemLimiter<K>: fmt::Debug {
    /// Counts another failure of `item` and returns how long it must wait.
    fn when(&mut self, item: &K, now: Duration) -> Duration;
    /// Forgets the failures of `item`, which is finished, successfully or not.
    fn forget(&mut self, item: &K);
    /// How often `item` has failed.
    fn requeues(&self, item: &K) -> u32;
}

/// Failures by item.
#[derive(Debug, Clone)]
struct Failures<K>(HashMap<K, u32>);

impl<K: Hash + Eq + Clone> Failures<K> {
    /// Counts one more failure, and returns how many there were before.
    fn add(&mut self, item: &K) -> u32 {
        let count = self.0.entry(item.clone()).or_default();
        let before = *count;
        *count = before.saturating_add(1);
        before
    }

    fn get(&self, item: &K) -> u32 {
        self.0.get(item).copied().unwrap_or(0)
    }
}

/// Go's `ItemExponentialFailureRateLimiter`: `base · 2ⁿ` after `n` failures, at most `max`; an overflow gives `max`.
#[derive(Debug, Clone)]
pub struct ItemExponentialFailure<K> {
    failures: Failures<K>,
    base: Duration,
    max: Duration,
}

impl<K> ItemExponentialFailure<K> {
    /// A limiter with waits from `base` to `max`.
    pub fn new(base: Duration, max: Duration) -> Self {
        Self { failures: Failures(HashMap::new()), base, max }
    }

    /// Go's `DefaultTypedItemBasedRateLimiter`: 1 ms to 1000 s.
    pub fn default_item_based() -> Self {
        Self::new(Duration::from_millis(1), Duration::from_secs(1000))
    }
}

impl<K: Hash + Eq + Clone + fmt::Debug> ItemLimiter<K> for ItemExponentialFailure<K> {
    fn when(&mut self, item: &K, _now: Duration) -> Duration {
        let failures = self.failures.add(item);
        // Go computes in float64, which is exact for a base below 104 days. A base of zero stays zero; in Go it becomes
        // NaN after 1024 failures.
        if self.base.is_zero() {
            return Duration::ZERO;
        }
        2_u128
            .checked_pow(failures)
            .and_then(|factor| factor.checked_mul(self.base.as_nanos()))
            .and_then(|nanos| u64::try_from(nanos).ok())
            .map_or(self.max, |nanos| Duration::from_nanos(nanos).min(self.max))
    }

    fn forget(&mut self, item: &K) {
        self.failures.0.remove(item);
    }

    fn requeues(&self, item: &K) -> u32 {
        self.failures.get(item)
    }
}

/// Go's `ItemFastSlowRateLimiter`: some fast retries, then slow ones.
#[derive(Debug, Clone)]
pub struct ItemFastSlow<K> {
    failures: Failures<K>,
    fast: Duration,
    slow: Duration,
    max_fast: u32,
}

impl<K> ItemFastSlow<K> {
    /// `fast` for the first `max_fast` failures of an item, then `slow`.
    pub fn new(fast: Duration, slow: Duration, max_fast: u32) -> Self {
        Self { failures: Failures(HashMap::new()), fast, slow, max_fast }
    }
}

impl<K: Hash + Eq + Clone + fmt::Debug> ItemLimiter<K> for ItemFastSlow<K> {
    fn when(&mut self, item: &K, _now: Duration) -> Duration {
        if self.failures.add(item) < self.max_fast { self.fast } else { self.slow }
    }

    fn forget(&mut self, item: &K) {
        self.failures.0.remove(item);
    }

    fn requeues(&self, item: &K) -> u32 {
        self.failures.get(item)
    }
}

/// Go's `BucketRateLimiter`: one bucket for all items. It takes a future token at once, and keeps no state per item.
#[derive(Debug, Clone)]
pub struct Bucket(TokenBucket);

impl Bucket {
    /// A full bucket.
    pub const fn new(rate: Rate) -> Self {
        Self(TokenBucket::new(rate))
    }
}

impl<K> ItemLimiter<K> for Bucket {
    fn when(&mut self, _item: &K, now: Duration) -> Duration {
        self.0.reserve(now)
    }

    fn forget(&mut self, _item: &K) {}

    fn requeues(&self, _item: &K) -> u32 {
        0
    }
}

/// Go's `MaxOfRateLimiter`: the longest wait of several limiters, all of which are called each time.
#[derive(Debug)]
pub struct MaxOf<K> {
    limiters: Vec<Box<dyn ItemLimiter<K> + Send + Sync>>,
}

impl<K> MaxOf<K> {
    /// Uses the longest wait of these limiters; without any there is no wait.
    pub fn new(limiters: Vec<Box<dyn ItemLimiter<K> + Send + Sync>>) -> Self {
        Self { limiters }
    }
}

impl<K: Hash + Eq + Clone + fmt::Debug + Send + Sync + 'static> MaxOf<K> {
    /// Go's `DefaultTypedControllerRateLimiter`: per item 5 ms to 1000 s, and over all items 10 a second after a burst
    /// of 100.
    pub fn default_controller() -> Self {
        let item = ItemExponentialFailure::new(Duration::from_millis(5), Duration::from_secs(1000));
        Self::new(vec![Box::new(item), Box::new(Bucket::new(Rate::workqueue()))])
    }
}

impl<K: fmt::Debug> ItemLimiter<K> for MaxOf<K> {
    fn when(&mut self, item: &K, now: Duration) -> Duration {
        self.limiters.iter_mut().map(|limiter| limiter.when(item, now)).max().unwrap_or_default()
    }

    fn forget(&mut self, item: &K) {
        for limiter in &mut self.limiters {
            limiter.forget(item);
        }
    }

    fn requeues(&self, item: &K) -> u32 {
        self.limiters.iter().map(|limiter| limiter.requeues(item)).max().unwrap_or(0)
    }
}

#[cfg(test)]
#[path = "workqueue_tests.rs"]
mod tests;
