//! Until when a provider is left alone, whichever pool asks. What fails for one pool alone (its quota, its template, its list) waits
//! with that pool: `failures` and `lists`.
//!
//! A provider that asks to be left alone is, at once. One that does not answer may do so for one pool alone, so that the others go
//! on, until a second pool gets no answer either. When the pause is over, one pool tries, and the others follow when that has an answer.
//!
//! All of it is in memory: after a restart every provider is asked again.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use node_lifecycle::keys::PoolKey;

use super::ProviderError;

/// How many pools have to get no answer before that is the provider's failure.
const SILENT_POOLS: usize = 2;
/// How long the pool that tries first is waited for. It is longer than a call of any provider may take.
const TRIAL_LIMIT: SignedDuration = SignedDuration::from_secs(120);
/// How often the other pools look meanwhile whether it has an answer.
const TRIAL_POLL: SignedDuration = SignedDuration::from_secs(1);
/// The pause after the first list that fails; it doubles with every further one.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(1);
/// The longest pause that a provider did not ask for. It is the time for which a provider that works again may go unnoticed.
const MAX_PAUSE: SignedDuration = SignedDuration::from_secs(30);
/// The longest that a provider can ask for: the longest backoff of requests. A larger number is more likely a mistake, and the pool
/// stands still meanwhile.
pub(super) const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);
/// No pause is longer than this: a minute more than a provider can ask for. A later end was computed by a clock that has been set
/// back since.
const LONGEST: SignedDuration = SignedDuration::from_secs(360);

/// What a provider is asked for. Many count requests that read and those that write apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum AskedFor {
    /// The machines of a pool.
    List,
    /// More of them, or fewer.
    Change,
}

/// A call that is not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PausedCall {
    /// Why: the provider's last answer.
    pub(super) error: ProviderError,
    /// When to look again.
    pub(super) until: Timestamp,
}

/// What is known of one provider that fails.
#[derive(Debug, Default)]
struct FailingProvider {
    /// Its last answer, and until when it is left alone; `None` while it is not.
    paused: Option<PausedCall>,
    /// How many pauses there have been in a row because it did not answer.
    count: u32,
    /// The pools that got no answer since the last one.
    silent_for: BTreeSet<PoolKey>,
    /// Until when the pool that tries is waited for; `None` while none does.
    trial_until: Option<Timestamp>,
}

/// The pauses of every provider, by what tells it from others.
#[derive(Debug, Default)]
pub(super) struct ProviderPauses(Mutex<HashMap<(String, AskedFor), FailingProvider>>);

impl ProviderPauses {
    fn all(&self) -> MutexGuard<'_, HashMap<(String, AskedFor), FailingProvider>> {
        // What is remembered is advisory, so a panic elsewhere leaves nothing that could do harm.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the provider is not asked at `now`; `None` where it may be, and then the caller has to say what came of it:
    /// [`Self::answered`]. One that is not to be asked for lists is not asked for changes either.
    pub(super) fn check(&self, provider: &str, asked: AskedFor, now: Timestamp) -> Option<PausedCall> {
        let mut all = self.all();
        if asked == AskedFor::Change {
            let of_lists = all.get(&(provider.to_owned(), AskedFor::List));
            let paused = of_lists.and_then(|failing| failing.paused.clone());
            if let Some(paused) = paused.filter(|paused| is_ahead(paused.until, now)) {
                return Some(paused);
            }
        }
        let failing = all.get_mut(&(provider.to_owned(), asked))?;
        let paused = failing.paused.clone()?;
        if is_ahead(paused.until, now) {
            return Some(paused);
        }
        if failing.trial_until.is_some_and(|until| is_ahead(until, now)) {
            let until = now.checked_add(TRIAL_POLL).unwrap_or(Timestamp::MAX);
            return Some(PausedCall { until, ..paused });
        }
        failing.trial_until = now.checked_add(TRIAL_LIMIT).ok();
        None
    }

    /// Records what came at `now` of a call for the pool; `None` is success. Every answer ends what silence has begun, and no answer
    /// ends the time for which the provider asked.
    pub(super) fn answered(
        &self,
        provider: &str,
        asked: AskedFor,
        key: &PoolKey,
        error: Option<&ProviderError>,
        now: Timestamp,
    ) {
        let mut all = self.all();
        let place = (provider.to_owned(), asked);
        match error {
            Some(error @ ProviderError::Throttled(..)) => {
                let after = error.retry_after().unwrap_or_default();
                let until = now.checked_add(after).unwrap_or(Timestamp::MAX);
                all.entry(place).or_default().pause(error, until, now);
            }
            Some(error @ ProviderError::Unreachable(_)) => {
                let failing = all.entry(place).or_default();
                failing.silent_for.insert(key.clone());
                let is_paused = failing.paused.as_ref().is_some_and(|paused| is_ahead(paused.until, now));
                if failing.silent_for.len() >= SILENT_POOLS && !is_paused {
                    failing.count = failing.count.saturating_add(1);
                    let until = now.checked_add(pause(failing.count)).unwrap_or(Timestamp::MAX);
                    failing.pause(error, until, now);
                }
                failing.trial_until = None;
            }
            // It was not asked, so the next one tries.
            Some(ProviderError::Busy(_) | ProviderError::Conflict) => {
                if let Some(failing) = all.get_mut(&place) {
                    failing.trial_until = None;
                }
            }
            Some(
                ProviderError::Quota(_)
                | ProviderError::Invalid(_)
                | ProviderError::Absent(_)
                | ProviderError::Unauthorized(_)
                | ProviderError::Transient(_),
            )
            | None => {
                let asks_to_wait = |failing: &FailingProvider| {
                    let paused = failing.paused.as_ref().filter(|paused| is_ahead(paused.until, now));
                    paused.is_some_and(|paused| paused.error.retry_after().is_some())
                };
                if !all.get(&place).is_some_and(asks_to_wait) {
                    all.remove(&place);
                }
            }
        }
    }

    /// Drops a pool that is gone.
    pub(super) fn forget(&self, key: &PoolKey) {
        for failing in self.all().values_mut() {
            failing.silent_for.remove(key);
        }
    }
}

impl FailingProvider {
    /// Begins a pause, or makes the one that there is longer.
    fn pause(&mut self, error: &ProviderError, until: Timestamp, now: Timestamp) {
        let is_longer = |paused: &PausedCall| is_ahead(paused.until, now) && paused.until > until;
        if !self.paused.as_ref().is_some_and(is_longer) {
            self.paused = Some(PausedCall { error: error.clone(), until });
        }
        self.trial_until = None;
    }
}

impl PausedCall {
    /// The error of a call that is not made at `now`. What is left of a time that the provider asked for is in it.
    pub(super) fn into_error(self, now: Timestamp) -> ProviderError {
        match self.error {
            ProviderError::Throttled(message, _) => {
                let left = Duration::try_from(self.until.duration_since(now)).unwrap_or_default();
                ProviderError::throttled(message, left)
            }
            error => error,
        }
    }
}

/// Whether `until` is still to come.
fn is_ahead(until: Timestamp, now: Timestamp) -> bool {
    now < until && until.duration_since(now) <= LONGEST
}

/// The pause after so many failures in a row.
pub(super) fn pause(failures: u32) -> SignedDuration {
    let doublings = failures.saturating_sub(1).min(16);
    FIRST_PAUSE.checked_mul(1 << doublings).map_or(MAX_PAUSE, |pause| pause.min(MAX_PAUSE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, key};

    fn pool(number: usize) -> PoolKey {
        PoolKey { name: format!("p{number}"), ..key() }
    }

    fn unreachable() -> ProviderError {
        ProviderError::Unreachable("it is down".to_owned())
    }

    #[test]
    fn the_pause_doubles_from_one_second_to_half_a_minute() {
        let seconds: Vec<i64> = (1..=7).map(|failures| pause(failures).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(pause(u32::MAX).as_secs(), 30);
    }

    /// Whether the pool may list at this second, and until when it may not.
    fn list(pauses: &ProviderPauses, second: i64) -> Option<i64> {
        pauses.check("a", AskedFor::List, at(second)).map(|paused| paused.until.as_second())
    }

    fn answer(pauses: &ProviderPauses, number: usize, error: Option<&ProviderError>, second: i64) {
        pauses.answered("a", AskedFor::List, &pool(number), error, at(second));
    }

    #[test]
    fn a_provider_that_asks_to_be_left_alone_is_by_every_pool_for_as_long_whatever_else_it_answers() {
        let pauses = ProviderPauses::default();
        let throttled = ProviderError::throttled("slow down".to_owned(), Duration::from_secs(40));
        answer(&pauses, 0, Some(&throttled), 0);
        answer(&pauses, 1, None, 1);
        answer(&pauses, 2, Some(&unreachable()), 1);
        answer(&pauses, 3, Some(&unreachable()), 2);
        assert_eq!([0, 39].map(|second| list(&pauses, second)), [Some(40); 2]);
        assert_eq!(pauses.check("b", AskedFor::List, at(1)), None, "that is another provider");
        let change = pauses.check("a", AskedFor::Change, at(10)).unwrap();
        assert_eq!(change.into_error(at(10)).retry_after(), Some(Duration::from_secs(30)));
        // One tries, and the others wait for what comes of it.
        assert_eq!([40, 40, 41].map(|second| list(&pauses, second)), [None, Some(41), Some(42)]);
        answer(&pauses, 0, None, 42);
        assert_eq!([42, 42].map(|second| list(&pauses, second)), [None; 2]);
    }

    #[test]
    fn a_change_that_is_turned_away_lets_machines_be_listed() {
        let pauses = ProviderPauses::default();
        let throttled = ProviderError::throttled("slow down".to_owned(), Duration::from_secs(40));
        pauses.answered("a", AskedFor::Change, &pool(0), Some(&throttled), at(0));
        assert_eq!(list(&pauses, 1), None);
        assert!(pauses.check("a", AskedFor::Change, at(1)).is_some());
    }

    #[test]
    fn silence_is_the_providers_when_two_pools_get_no_answer_and_one_pools_alone_holds_up_no_other() {
        let pauses = ProviderPauses::default();
        for second in 0..10 {
            answer(&pauses, 0, Some(&unreachable()), second);
            assert_eq!(list(&pauses, second), None, "{second}");
        }
        answer(&pauses, 1, Some(&unreachable()), 10);
        assert_eq!(list(&pauses, 10), Some(11));
        for other in 2..10 {
            answer(&pauses, other, Some(&unreachable()), 10);
        }
        assert_eq!(list(&pauses, 10), Some(11), "calls that had begun make no pause longer");
        assert_eq!(list(&pauses, 11), None);
        answer(&pauses, 5, Some(&unreachable()), 12);
        assert_eq!(list(&pauses, 12), Some(14), "the second pause is twice as long");
        assert_eq!(list(&pauses, 14), None);
        answer(&pauses, 5, Some(&ProviderError::Quota("none".to_owned())), 14);
        answer(&pauses, 0, Some(&unreachable()), 15);
        assert_eq!(list(&pauses, 15), None, "it has answered, so it begins anew");
    }

    #[test]
    fn a_trial_that_asked_nothing_or_never_ended_is_another_pools_turn() {
        let pauses = ProviderPauses::default();
        for number in 0..2 {
            answer(&pauses, number, Some(&unreachable()), 0);
        }
        assert_eq!([1, 1].map(|second| list(&pauses, second)), [None, Some(2)]);
        answer(&pauses, 0, Some(&ProviderError::Busy("many calls wait".to_owned())), 2);
        assert_eq!([2, 2, 122].map(|second| list(&pauses, second)), [None, Some(3), None]);
    }

    #[test]
    fn a_clock_that_was_set_back_makes_no_pause_longer() {
        let pauses = ProviderPauses::default();
        let throttled = ProviderError::throttled("slow down".to_owned(), Duration::from_secs(300));
        answer(&pauses, 0, Some(&throttled), 100_000);
        assert_eq!(list(&pauses, 100_000), Some(100_300));
        assert_eq!(list(&pauses, 0), None);
    }
}
