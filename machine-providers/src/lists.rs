//! The lists of a moment ago, by pool and provider: the last good one, for a pass that only waits, and the last failure, which is
//! not repeated with every event.
//!
//! All of it is in memory. What must not be done from a list of a moment ago is not decided here: a pass whose plan changes
//! anything lists anew ([`super::provisioner::Lists`]).

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use node_lifecycle::keys::PoolKey;

use super::pauses::pause;
use super::selected::Listing;
use super::{ListedMachine, Progress, ProviderError};

/// How long a good list may be used again. A drain that a budget blocks is looked at every 2 to 5 seconds, and the nodes of a
/// large pool bring several events a second: of those passes one in so many seconds asks the provider. What it delays, by so much, is
/// what a list alone can tell: that a machine vanished, or was made by hand.
const KEPT_FOR: SignedDuration = SignedDuration::from_secs(15);
/// A list that failed and is not to be repeated yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failed {
    /// Why it failed.
    pub(super) error: ProviderError,
    /// When it may be repeated.
    pub(super) until: Timestamp,
    since: Timestamp,
    /// How many have failed in a row.
    count: u32,
}

#[derive(Debug, Default)]
struct PoolLists {
    /// That of the spec that they are for.
    generation: Option<i64>,
    /// By the provider's reference, the last good list and when it was asked for.
    good: BTreeMap<String, (Timestamp, Listing)>,
    failed: BTreeMap<String, Failed>,
}

/// The lists of every pool.
#[derive(Debug, Default)]
pub(super) struct RecentLists(Mutex<HashMap<PoolKey, PoolLists>>);

impl RecentLists {
    fn pools(&self) -> MutexGuard<'_, HashMap<PoolKey, PoolLists>> {
        // Entries are replaced as a whole, so a panic elsewhere leaves nothing that could do harm.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops everything if the pool's spec is another one: it may select something else at the same provider.
    pub(super) fn spec_is(&self, key: &PoolKey, generation: Option<i64>) {
        let mut pools = self.pools();
        let lists = pools.entry(key.clone()).or_default();
        if lists.generation != generation {
            *lists = PoolLists { generation, ..PoolLists::default() };
        }
    }

    /// The last good list of the provider, if it is one of a moment ago, and until when it is that.
    pub(super) fn good(
        &self,
        key: &PoolKey,
        reference: &str,
        now: Timestamp,
    ) -> Option<(Listing, Timestamp)> {
        let pools = self.pools();
        let (since, listing) = pools.get(key)?.good.get(reference)?;
        // A clock that was set back makes no list newer.
        let end = since.checked_add(KEPT_FOR).ok().filter(|end| *since <= now && now < *end)?;
        Some((listing.clone(), end))
    }

    /// The last failure of the provider's list, while that is not to be repeated.
    pub(super) fn failure(&self, key: &PoolKey, reference: &str, now: Timestamp) -> Option<Failed> {
        let pools = self.pools();
        let failed = pools.get(key)?.failed.get(reference)?;
        (failed.since <= now && now < failed.until).then(|| failed.clone())
    }

    /// Records a list that was asked for at `now`. It is kept if `may_be_kept`, and shows nothing that is under way.
    pub(super) fn listed(
        &self,
        key: &PoolKey,
        reference: &str,
        listing: &Listing,
        may_be_kept: bool,
        now: Timestamp,
    ) {
        let mut pools = self.pools();
        let lists = pools.entry(key.clone()).or_default();
        lists.failed.remove(reference);
        if may_be_kept && is_at_rest(listing) {
            lists.good.insert(reference.to_owned(), (now, listing.clone()));
        } else {
            lists.good.remove(reference);
        }
    }

    /// Records a list that failed, or that cannot be true, at `now`. That there is nothing to list is an answer, and one from which
    /// more follows than from others: it is asked for again.
    pub(super) fn failed(&self, key: &PoolKey, reference: &str, error: &ProviderError, now: Timestamp) {
        let mut pools = self.pools();
        let lists = pools.entry(key.clone()).or_default();
        lists.good.remove(reference);
        if matches!(error, ProviderError::Absent(_) | ProviderError::Conflict) {
            lists.failed.remove(reference);
            return;
        }
        let count = lists.failed.get(reference).map_or(0, |failed| failed.count).saturating_add(1);
        let asked_for = error.retry_after().and_then(|after| SignedDuration::try_from(after).ok());
        let pause = pause(count).max(asked_for.unwrap_or_default());
        let until = now.checked_add(pause).unwrap_or(Timestamp::MAX);
        let failed = Failed { error: error.clone(), until, since: now, count };
        lists.failed.insert(reference.to_owned(), failed);
    }

    /// Records that the pool's machines are about to be changed.
    pub(super) fn changing(&self, key: &PoolKey) {
        if let Some(lists) = self.pools().get_mut(key) {
            lists.good.clear();
        }
    }

    /// Drops everything about a pool that is gone.
    pub(super) fn forget(&self, key: &PoolKey) {
        self.pools().remove(key);
    }
}

/// Whether nothing is under way at the provider, so that the same list may be expected in a few seconds.
fn is_at_rest(listing: &Listing) -> bool {
    let Listing {
        machines,
        foreign: _,
        size: _,
        size_writer: _,
        capacity: _,
        traits: _,
        trouble,
        removals_wait,
        rolling,
        // Another controller's work moves on without an event here.
        duties,
        completeness: _,
    } = listing;
    let runs =
        |(machine, is_marked): &(ListedMachine, bool)| machine.progress == Progress::Running && !*is_marked;
    machines.iter().all(runs)
        && trouble.is_none()
        && removals_wait.is_none()
        && rolling.is_none()
        && duties.drains.is_empty()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::{at, key};

    fn unreachable() -> ProviderError {
        ProviderError::Unreachable("it is down".to_owned())
    }

    #[test]
    fn a_pause_is_ended_by_its_time_a_good_list_another_spec_and_a_clock_that_was_set_back() {
        let lists = RecentLists::default();
        let is_paused = |reference: &str, second| lists.failure(&key(), reference, at(second)).is_some();
        lists.spec_is(&key(), Some(1));
        lists.failed(&key(), "a", &unreachable(), at(10));
        lists.failed(&key(), "a", &unreachable(), at(11));
        assert_eq!([9, 11, 12, 13].map(|second| is_paused("a", second)), [false, true, true, false]);
        assert!(!is_paused("b", 11), "that is another provider");
        lists.spec_is(&key(), Some(1));
        assert!(is_paused("a", 11));
        lists.spec_is(&key(), Some(2));
        assert!(!is_paused("a", 11));
        lists.failed(&key(), "a", &unreachable(), at(20));
        assert!(is_paused("a", 20) && !is_paused("a", 21), "it is the first again");
        lists.failed(&key(), "a", &unreachable(), at(21));
        lists.listed(&key(), "a", &Listing::default(), true, at(22));
        assert!(!is_paused("a", 22));
    }

    #[test]
    fn a_provider_says_how_long_it_is_not_to_be_asked_within_bounds() {
        let asked_for = |seconds| {
            let lists = RecentLists::default();
            let error = ProviderError::throttled("busy".to_owned(), Duration::from_secs(seconds));
            lists.failed(&key(), "a", &error, at(0));
            lists.failure(&key(), "a", at(0)).unwrap().until.as_second() - at(0).as_second()
        };
        assert_eq!([0, 1, 40, 86_400, u64::MAX].map(asked_for), [1, 1, 40, 300, 300]);
    }

    #[test]
    fn a_good_list_is_used_again_for_a_while_unless_something_is_under_way_or_written() {
        let lists = RecentLists::default();
        let is_kept = |second| lists.good(&key(), "a", at(second)).is_some();
        let list = |listing: &Listing, may_be_kept| {
            lists.listed(&key(), "a", listing, may_be_kept, at(10));
        };
        list(&Listing::default(), true);
        assert_eq!([9, 10, 24, 25].map(is_kept), [false, true, true, false]);
        lists.changing(&key());
        assert!(!is_kept(10));
        list(&Listing::default(), true);
        list(&Listing::default(), false);
        assert!(!is_kept(10), "the newer one may not be kept");
        list(&Listing::default(), true);
        lists.failed(&key(), "a", &unreachable(), at(11));
        assert!(!is_kept(11), "a failure is not hidden");
        let words = || Some("m".to_owned());
        for listing in [
            Listing { trouble: words(), ..Listing::default() },
            Listing { removals_wait: words(), ..Listing::default() },
            Listing { rolling: words(), ..Listing::default() },
        ] {
            list(&listing, true);
            assert!(!is_kept(10), "{listing:?}");
        }
        list(&Listing::default(), true);
        lists.spec_is(&key(), Some(2));
        assert!(!is_kept(10));
    }

    #[test]
    fn that_there_is_nothing_to_list_is_asked_for_every_time() {
        let lists = RecentLists::default();
        lists.failed(&key(), "a", &ProviderError::Absent("no such set".to_owned()), at(0));
        assert_eq!(lists.failure(&key(), "a", at(0)), None);
    }
}
