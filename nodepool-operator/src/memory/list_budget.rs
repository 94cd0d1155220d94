//! How many lists of one node's pods the process may make: nine a second over all pools, whatever asks for them.
//!
//! Drains have two thirds of them and everything else one third; what either leaves unused goes to the other. So neither can
//! keep the other from being read at all.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use shared_runtime::clock::Clock;

/// Number of concurrent live lists of pods, of all pools. Each answer is in memory as a whole until it is decoded: some 60 KB
/// for a pod, and up to 110 pods. There are no pages: a server before Kubernetes 1.34 answers a page from etcd, where it reads
/// the pods of all nodes for it, and a whole list from its cache, which knows the pods of a node.
pub(crate) const PARALLEL_LISTS: usize = 4;

/// Thousandths of a list.
type Milli = u64;
const ONE: Milli = 1000;

/// Lists of drains per second.
const DRAINS_RATE: u64 = 6;
/// Lists per second for the choice of victims, and for nodes that never started.
pub(crate) const OTHERS_RATE: u64 = 3;
/// How many lists of drains may be made at once: those of three seconds.
const DRAINS_BURST: Milli = 18 * ONE;
/// The same for the others: as many nodes as a plan looks at in one pass.
const OTHERS_BURST: Milli = 50 * ONE;

/// The lists that may be made now.
pub(crate) struct ListBudget {
    clock: Clock,
    left: Mutex<Left>,
}

/// How many of the drains that have a place are those of a pool.
#[derive(Clone, Copy)]
pub(crate) struct DrainShare {
    /// Number of drains of the pool.
    pub of_pool: usize,
    /// Number of drains of all pools.
    pub of_all: usize,
}

struct Left {
    at: Duration,
    drains: Milli,
    others: Milli,
}

impl ListBudget {
    /// A budget of which nothing is used.
    pub(crate) fn new(clock: Clock) -> Self {
        let left = Left { at: clock.monotonic(), drains: DRAINS_BURST, others: OTHERS_BURST };
        Self { clock, left: Mutex::new(left) }
    }

    /// How many of `wanted` lists of drains may be made now by a pool with that `share` of the drains. No pool takes more
    /// than its share of what is left, so that one with many drains leaves some to the next one.
    pub(crate) fn of_drains(&self, wanted: usize, share: DrainShare) -> usize {
        self.take(|left| {
            let available = count(left.drains);
            let most = (available * share.of_pool).div_ceil(share.of_all.max(1)).min(available);
            let granted = wanted.min(most);
            left.drains -= milli(granted);
            granted
        })
    }

    /// How many of `wanted` other lists may be made now.
    pub(crate) fn of_others(&self, wanted: usize) -> usize {
        self.take(|left| {
            let granted = wanted.min(count(left.others));
            left.others -= milli(granted);
            granted
        })
    }

    fn take(&self, take: impl FnOnce(&mut Left) -> usize) -> usize {
        let now = self.clock.monotonic();
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = u64::try_from(now.saturating_sub(left.at).as_millis()).unwrap_or(u64::MAX);
        left.at = now;
        left.refill(passed);
        take(&mut left)
    }
}

impl Left {
    /// Adds what `passed` milliseconds give. What does not fit goes to the other half.
    fn refill(&mut self, passed: u64) {
        let drains = self.drains.saturating_add(passed.saturating_mul(DRAINS_RATE));
        let others = self.others.saturating_add(passed.saturating_mul(OTHERS_RATE));
        let (of_drains, of_others) =
            (drains.saturating_sub(DRAINS_BURST), others.saturating_sub(OTHERS_BURST));
        self.drains = drains.saturating_add(of_others).min(DRAINS_BURST);
        self.others = others.saturating_add(of_drains).min(OTHERS_BURST);
    }
}

fn count(milli: Milli) -> usize {
    usize::try_from(milli / ONE).unwrap_or(usize::MAX)
}

fn milli(count: usize) -> Milli {
    u64::try_from(count).unwrap_or(u64::MAX).saturating_mul(ONE)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    fn share(of_pool: usize, of_all: usize) -> DrainShare {
        DrainShare { of_pool, of_all }
    }

    #[test]
    fn both_halves_together_stay_below_ten_lists_a_second_and_neither_starves() {
        let (clock, time) = Clock::fake(Timestamp::UNIX_EPOCH);
        let budget = ListBudget::new(clock);
        let (mut drains, mut others) = (0, 0);
        for _ in 0..240 {
            drains += budget.of_drains(500, share(1, 1));
            others += budget.of_others(500);
            time.advance(Duration::from_millis(500));
        }
        assert_eq!((drains, others), (18 + 6 * 120 - 3, 50 + 3 * 120 - 2));
    }

    #[test]
    fn what_one_half_leaves_goes_to_the_other() {
        let (clock, time) = Clock::fake(Timestamp::UNIX_EPOCH);
        let budget = ListBudget::new(clock);
        assert_eq!((budget.of_drains(500, share(1, 1)), budget.of_drains(1, share(1, 1))), (18, 0));
        time.advance(Duration::from_secs(1));
        assert_eq!(budget.of_drains(500, share(1, 1)), 9);
        assert_eq!(budget.of_others(500), 50);
        time.advance(Duration::from_secs(5));
        assert_eq!(budget.of_others(500), 15 + 12);
    }

    #[test]
    fn a_pool_leaves_the_share_of_the_others() {
        let budget = ListBudget::new(Clock::fake(Timestamp::UNIX_EPOCH).0);
        assert_eq!(budget.of_drains(500, share(49, 50)), 18);
        let budget = ListBudget::new(Clock::fake(Timestamp::UNIX_EPOCH).0);
        assert_eq!((budget.of_drains(500, share(3, 4)), budget.of_drains(1, share(1, 4))), (14, 1));
        assert_eq!(budget.of_drains(0, share(0, 0)), 0);
    }
}
