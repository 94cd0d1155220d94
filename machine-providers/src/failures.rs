//! What is remembered about the requests of each pool: the last failure and its backoff, and what stood in the way.
//!
//! The backoff and the providers that were asked are in the pool's status as well, so that a restart forgets neither. The
//! rest is in memory: after a restart the operator finds its nodes in the cluster and requests the rest again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use node_lifecycle::keys::PoolKey;
use node_lifecycle::supply::ProvisioningFailure;
use shared_crds::NodePool;
use shared_crds::conditions::Reason;
use shared_crds::v1alpha1::ProvisioningStatus;

use super::slot_failures::SlotFailures;

/// Backoff after the first failure; it doubles with every further one.
const FIRST_BACKOFF: SignedDuration = SignedDuration::from_secs(5);
/// Maximum backoff: Cluster Autoscaler's initial backoff for a node group.
const MAX_BACKOFF: SignedDuration = SignedDuration::from_secs(300);

/// How long after a request without an answer its machine may still appear in the provider's list.
const LATE_COMMIT: SignedDuration = SignedDuration::from_secs(120);

/// Bound of the list in the status. A pool has one provider, or two while one is exchanged.
const MAX_PROVIDERS: usize = 16;

/// What is remembered about a pool.
#[derive(Debug, Default)]
struct PoolState {
    failures: u32,
    failure: Option<ProvisioningFailure>,
    /// The pool's generation at the last failure.
    generation: Option<i64>,
    /// Until when the provider asked for no further request.
    not_before: Option<Timestamp>,
    taken: BTreeSet<String>,
    /// Slots whose machines failed.
    slots: SlotFailures,
    /// Machines whose creation was accepted, that no list has shown running or failed since, and that were not deleted.
    unlisted: BTreeSet<String>,
    /// Machines whose creation was not answered, and until when they may still come.
    unanswered: BTreeMap<String, Timestamp>,
    /// References of the providers that were asked for machines, or had some when they were listed.
    asked: BTreeSet<String>,
    /// What the status remembers was read.
    is_restored: bool,
    /// The reference of the provider that the pool selected when it was seen last.
    selected: Option<String>,
}

/// The failures of every pool's requests.
#[derive(Debug, Default)]
pub(super) struct Failures {
    pools: Mutex<HashMap<PoolKey, PoolState>>,
}

impl Failures {
    fn pools(&self) -> MutexGuard<'_, HashMap<PoolKey, PoolState>> {
        // What is remembered is advisory, so a panic elsewhere leaves nothing that could do harm.
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, key: &PoolKey, change: impl FnOnce(&mut PoolState) -> T) -> T {
        change(self.pools().entry(key.clone()).or_default())
    }

    /// Records that a node was not made, or did not become Ready. No request is sent to the provider during the
    /// backoff.
    pub(super) fn record(
        &self,
        key: &PoolKey,
        generation: Option<i64>,
        reason: Reason,
        message: String,
        now: Timestamp,
    ) -> ProvisioningFailure {
        self.change(key, |state| {
            state.failures = state.failures.saturating_add(1);
            state.generation = generation;
            let retry_at = state.retry_at(state.failures, now);
            state.failure.insert(ProvisioningFailure { reason, message, retry_at }).clone()
        })
    }

    /// Records that the provider asked for no further request before `until`. The backoff of the failure lasts as long.
    pub(super) fn not_before(&self, key: &PoolKey, until: Timestamp) {
        self.change(key, |state| state.not_before = Some(until));
    }

    /// The failure as [`Self::record`] will record it.
    pub(super) fn foresee(
        &self,
        key: &PoolKey,
        reason: Reason,
        message: String,
        now: Timestamp,
    ) -> ProvisioningFailure {
        let retry_at = self.change(key, |state| state.retry_at(state.failures.saturating_add(1), now));
        ProvisioningFailure { reason, message, retry_at }
    }

    /// Records that a slot's machine was not made while the provider makes others: that is said, and nothing waits for it.
    pub(super) fn note(
        &self,
        key: &PoolKey,
        generation: Option<i64>,
        reason: Reason,
        message: String,
        now: Timestamp,
    ) -> ProvisioningFailure {
        self.change(key, |state| {
            state.failures = state.failures.max(1);
            state.generation = generation;
            state.failure.insert(ProvisioningFailure { reason, message, retry_at: now }).clone()
        })
    }

    /// Changes what is remembered of the pool's slots.
    pub(super) fn slots<T>(&self, key: &PoolKey, change: impl FnOnce(&mut SlotFailures) -> T) -> T {
        self.change(key, |state| change(&mut state.slots))
    }

    /// Restores what the pool's status remembers from before this process began, once, and takes note of its provider.
    pub(super) fn restore(&self, key: &PoolKey, pool: &NodePool) {
        self.change(key, |state| {
            state.selected = pool.spec.provider.reference();
            if std::mem::replace(&mut state.is_restored, true) {
                return;
            }
            let Some(status) = &pool.status else { return };
            let Some(remembered) = &status.provisioning else { return };
            state.asked.extend(remembered.providers.iter().cloned());
            // An earlier release wrote no failure: its backoff ends with the upgrade, and the provider is asked once more.
            let (Some(retry_at), Some(failure)) = (&remembered.retry_time, &remembered.failure) else {
                return;
            };
            let reason = Reason::ALL.iter().copied().find(|reason| reason.as_str() == failure.reason);
            state.failures = remembered.failures.and_then(|it| u32::try_from(it).ok()).unwrap_or(1);
            state.generation = failure.observed_generation;
            state.failure = reason.map(|reason| ProvisioningFailure {
                reason,
                message: failure.message.clone(),
                retry_at: retry_at.0,
            });
        });
    }

    /// Shortens what ends later than it can: that end was computed by a clock that has been set back since. Every pass says so before
    /// anything is read or recorded, so that nothing else has to bound an end. No provider asks for more than the longest backoff.
    pub(super) fn clock_is(&self, key: &PoolKey, now: Timestamp) {
        let mut pools = self.pools();
        let Some(state) = pools.get_mut(key) else { return };
        let after = |time| now.checked_add(time).unwrap_or(Timestamp::MAX);
        if let Some(failure) = &mut state.failure {
            failure.retry_at = failure.retry_at.min(after(MAX_BACKOFF));
        }
        state.not_before = state.not_before.map(|until| until.min(after(MAX_BACKOFF)));
        for until in state.unanswered.values_mut() {
            *until = (*until).min(after(LATE_COMMIT));
        }
    }

    /// What the pool's status should remember. Why it makes no nodes is added by the writer, with other reasons than failures.
    pub(super) fn remembered(&self, key: &PoolKey) -> ProvisioningStatus {
        let pools = self.pools();
        let Some(state) = pools.get(key) else { return ProvisioningStatus::default() };
        let failure = state.failure.as_ref();
        ProvisioningStatus {
            failures: failure.map(|_| i32::try_from(state.failures).unwrap_or(i32::MAX)),
            retry_time: failure.map(|failure| Time(next_second(failure.retry_at))),
            providers: state.asked.iter().take(MAX_PROVIDERS).cloned().collect(),
            ..ProvisioningStatus::default()
        }
    }

    /// Ends a failure that a new spec may have ended. A new spec may bring a new quota, so it is tried at once.
    pub(super) fn spec_is(&self, key: &PoolKey, generation: Option<i64>) {
        self.change(key, |state| {
            state.slots.spec_is(generation);
            if state.generation != generation && state.failure.as_ref().is_some_and(ends_with_a_new_spec) {
                state.reset();
            }
        });
    }

    /// Records at `now` that the provider made a node. That says nothing about nodes that are made and never become Ready, nor
    /// does it end the time for which the provider asked for no further request.
    pub(super) fn node_created(&self, key: &PoolKey, now: Timestamp) {
        let mut pools = self.pools();
        let Some(state) = pools.get_mut(key) else { return };
        let is_asked_to_wait = state.not_before.is_some_and(|until| until > now);
        let is_over = |failure: &ProvisioningFailure| failure.reason != Reason::ProvisioningTimedOut;
        if !is_asked_to_wait && state.failure.as_ref().is_some_and(is_over) {
            state.reset();
        }
    }

    /// Records that the pool has every node it wants.
    pub(super) fn pool_complete(&self, key: &PoolKey) {
        if let Some(state) = self.pools().get_mut(key) {
            state.reset();
        }
    }

    /// The current failure of the pool's requests; `None` without one.
    pub(super) fn last(&self, key: &PoolKey) -> Option<ProvisioningFailure> {
        self.pools().get(key).and_then(|state| state.failure.clone())
    }

    /// Records that a Node of another owner has the name of one of the pool's slots.
    pub(super) fn slot_taken(&self, key: &PoolKey, name: &str) {
        self.change(key, |state| state.taken.insert(name.to_owned()));
    }

    /// The slots that Nodes of other owners have.
    pub(super) fn taken(&self, key: &PoolKey) -> BTreeSet<String> {
        self.pools().get(key).map(|state| state.taken.clone()).unwrap_or_default()
    }

    /// Records that `provider` is asked for machines.
    pub(super) fn asking(&self, key: &PoolKey, provider: &str) {
        self.change(key, |state| {
            if !state.asked.contains(provider) {
                state.asked.insert(provider.to_owned());
            }
        });
    }

    /// Records how many machines `provider` has. The process that asked for them may have been killed before it wrote down
    /// that it did.
    pub(super) fn has_machines(&self, key: &PoolKey, provider: &str, count: usize) {
        if count > 0 {
            self.asking(key, provider);
        }
    }

    /// The providers that may have machines of the pool besides the one that it selects.
    pub(super) fn asked(&self, key: &PoolKey) -> BTreeSet<String> {
        self.pools().get(key).map(|state| state.asked.clone()).unwrap_or_default()
    }

    /// The provider that the pool selected when this process saw it last; `None` also where it never did.
    pub(super) fn selected(&self, key: &PoolKey) -> Option<String> {
        self.pools().get(key).and_then(|state| state.selected.clone())
    }

    /// Records that `provider` has no machine of the pool left.
    pub(super) fn has_none_left(&self, key: &PoolKey, provider: &str) {
        self.change(key, |state| state.asked.remove(provider));
    }

    /// Records that the creation of a machine was accepted.
    pub(super) fn accepted(&self, key: &PoolKey, name: &str) {
        self.change(key, |state| {
            state.unanswered.remove(name);
            state.unlisted.insert(name.to_owned());
            state.slots.asked(name);
        });
    }

    /// Records that the creation of a machine was not answered: it may have been accepted.
    pub(super) fn unanswered(&self, key: &PoolKey, name: &str, now: Timestamp) {
        let until = now.checked_add(LATE_COMMIT).unwrap_or(Timestamp::MAX);
        self.change(key, |state| state.unanswered.insert(name.to_owned(), until));
    }

    /// Until when machines may appear that were requested and not answered; `None` when there are none such.
    pub(super) fn uncertain_until(&self, key: &PoolKey) -> Option<Timestamp> {
        self.pools().get(key).and_then(|state| state.unanswered.values().max().copied())
    }

    /// Records that the machine is not waited for any more.
    pub(super) fn unwanted(&self, key: &PoolKey, name: &str) {
        self.change(key, |state| state.unlisted.remove(name));
    }

    /// The machines that were accepted and are not listed, or not any more, without having run. `listed` says of each
    /// listed machine whether it has run or failed. What the list shows, and what it should have shown by now, is no
    /// longer uncertain.
    pub(super) fn unlisted(
        &self,
        key: &PoolKey,
        listed: &BTreeMap<String, bool>,
        now: Timestamp,
    ) -> BTreeSet<String> {
        self.change(key, |state| {
            state.unanswered.retain(|name, until| *until > now && !listed.contains_key(name));
            let accepted = std::mem::take(&mut state.unlisted).into_iter();
            let (shown, unlisted) = accepted.partition(|name| listed.contains_key(name));
            state.unlisted = shown;
            state.unlisted.retain(|name| listed.get(name) == Some(&false));
            unlisted
        })
    }

    /// Drops everything about a pool that is gone.
    pub(super) fn forget(&self, key: &PoolKey) {
        self.pools().remove(key);
    }
}

impl PoolState {
    /// When to try again after so many failures in a row, the last at `now`.
    fn retry_at(&self, failures: u32, now: Timestamp) -> Timestamp {
        let of_backoff = now.checked_add(backoff(failures)).unwrap_or(Timestamp::MAX);
        self.not_before.map_or(of_backoff, |asked_for| asked_for.max(of_backoff))
    }

    fn reset(&mut self) {
        self.failures = 0;
        self.failure = None;
    }
}

/// The API stores whole seconds.
fn next_second(time: Timestamp) -> Timestamp {
    let is_whole = time.subsec_nanosecond() == 0;
    let seconds = time.as_second().saturating_add(i64::from(!is_whole));
    Timestamp::from_second(seconds).unwrap_or(time)
}

/// Whether a failure may be over when the spec changes.
const fn ends_with_a_new_spec(failure: &ProvisioningFailure) -> bool {
    matches!(failure.reason, Reason::QuotaExceeded | Reason::InvalidSpec)
}

/// The backoff after this many failures in a row.
fn backoff(failures: u32) -> SignedDuration {
    let doublings = failures.saturating_sub(1).min(16);
    FIRST_BACKOFF.checked_mul(1 << doublings).map_or(MAX_BACKOFF, |backoff| backoff.min(MAX_BACKOFF))
}

#[cfg(test)]
mod tests {
    use shared_crds::v1alpha1::{NodePoolStatus, ProvisioningFailureStatus};

    use super::*;
    use crate::testing::{at, key, pool};

    #[test]
    fn the_backoff_doubles_from_five_seconds_to_five_minutes() {
        let seconds: Vec<i64> = (1..=8).map(|failures| backoff(failures).as_secs()).collect();
        assert_eq!(seconds, [5, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(backoff(u32::MAX).as_secs(), 300);
    }

    #[test]
    fn the_backoff_lasts_as_long_as_the_provider_asked_for() {
        let failures = Failures::default();
        failures.not_before(&key(), at(60));
        let foreseen = failures.foresee(&key(), Reason::ProvisioningFailed, String::new(), at(0));
        let fail = |second| {
            failures.record(&key(), Some(1), Reason::ProvisioningFailed, String::new(), at(second)).retry_at
        };
        assert_eq!((foreseen.retry_at, fail(0)), (at(60), at(60)));
        assert_eq!(fail(60), at(70), "it asked once");
    }

    #[test]
    fn a_machine_that_joins_does_not_end_the_time_that_the_provider_asked_for() {
        let failures = Failures::default();
        failures.not_before(&key(), at(60));
        failures.record(&key(), Some(1), Reason::ProvisioningFailed, String::new(), at(0));
        failures.node_created(&key(), at(59));
        assert_eq!(failures.last(&key()).unwrap().retry_at, at(60));
        failures.node_created(&key(), at(60));
        assert_eq!(failures.last(&key()), None);
    }

    #[test]
    fn a_time_of_a_clock_that_was_set_back_is_not_waited_for() {
        let failures = Failures::default();
        failures.not_before(&key(), at(3600));
        let record = |second| {
            failures.clock_is(&key(), at(second));
            failures.record(&key(), Some(1), Reason::ProvisioningFailed, String::new(), at(second)).retry_at
        };
        assert_eq!((record(0), record(100)), (at(300), at(300)));
        failures.clock_is(&key(), at(301));
        failures.node_created(&key(), at(301));
        assert_eq!(failures.last(&key()), None, "the time that the provider asked for is over");
    }

    #[test]
    fn a_created_node_ends_the_backoff_unless_nodes_never_become_ready() {
        let failures = Failures::default();
        let fail = |reason| failures.record(&key(), Some(1), reason, String::new(), at(0));
        fail(Reason::ProvisioningFailed);
        failures.node_created(&key(), at(0));
        assert_eq!(failures.last(&key()), None);
        fail(Reason::ProvisioningTimedOut);
        failures.node_created(&key(), at(0));
        assert!(failures.last(&key()).is_some());
        assert_eq!(fail(Reason::ProvisioningTimedOut).retry_at, at(10));
        failures.pool_complete(&key());
        assert_eq!(failures.last(&key()), None);
    }

    #[test]
    fn a_new_generation_ends_the_backoff_after_a_quota_and_an_invalid_spec_only() {
        for (reason, ends) in [
            (Reason::QuotaExceeded, true),
            (Reason::InvalidSpec, true),
            (Reason::ProvisioningFailed, false),
            (Reason::ProviderUnreachable, false),
            (Reason::ProviderUnauthorized, false),
        ] {
            let failures = Failures::default();
            failures.record(&key(), Some(1), reason, String::new(), at(0));
            failures.spec_is(&key(), Some(1));
            assert!(failures.last(&key()).is_some());
            failures.spec_is(&key(), Some(2));
            assert_eq!(failures.last(&key()).is_none(), ends, "{reason:?}");
        }
    }

    /// A list of machines, each of which has run or failed, or is starting or going.
    fn list(names: &[&str], is_settled: bool) -> BTreeMap<String, bool> {
        names.iter().map(|name| ((*name).to_owned(), is_settled)).collect()
    }

    #[test]
    fn an_accepted_machine_is_missed_once_if_a_list_lacks_it_before_it_has_run() {
        let failures = Failures::default();
        let missed = |names: &[&str], is_settled| -> Vec<String> {
            failures.unlisted(&key(), &list(names, is_settled), at(0)).into_iter().collect()
        };
        for name in ["a", "b", "c"] {
            failures.accepted(&key(), name);
        }
        assert_eq!(missed(&["a", "c", "d"], false), ["b"]);
        assert_eq!(missed(&["a", "c", "d"], false), [""; 0]);
        assert_eq!(missed(&["c"], true), ["a"], "it was given up while it started");
        assert_eq!(missed(&[], true), [""; 0], "c has run");
        failures.accepted(&key(), "e");
        missed(&["e"], false);
        failures.unwanted(&key(), "e");
        assert_eq!(missed(&[], false), [""; 0], "e was deleted");
    }

    #[test]
    fn a_machine_that_was_requested_without_an_answer_may_come_for_two_minutes() {
        let failures = Failures::default();
        let uncertain_after = |listed: &[&str], second| {
            failures.unlisted(&key(), &list(listed, true), at(second));
            failures.uncertain_until(&key())
        };
        failures.unanswered(&key(), "a", at(0));
        failures.unanswered(&key(), "b", at(10));
        assert_eq!(uncertain_after(&["other"], 119), Some(at(130)));
        assert_eq!(uncertain_after(&[], 120), Some(at(130)));
        assert_eq!(uncertain_after(&["b"], 121), None);
        failures.unanswered(&key(), "a", at(0));
        failures.accepted(&key(), "a");
        assert_eq!(failures.uncertain_until(&key()), None);
    }

    #[test]
    fn a_clock_that_was_set_back_makes_no_backoff_longer() {
        let failures = Failures::default();
        failures.record(&key(), Some(1), Reason::ProvisioningFailed, String::new(), at(3600));
        failures.unanswered(&key(), "a", at(3600));
        let ends_at = |now| {
            failures.clock_is(&key(), at(now));
            (failures.last(&key()).unwrap().retry_at, failures.uncertain_until(&key()))
        };
        assert_eq!(ends_at(3601), (at(3605), Some(at(3720))));
        assert_eq!(ends_at(0), (at(300), Some(at(120))), "it was set back by an hour");
        assert_eq!(ends_at(10), (at(300), Some(at(120))), "the ends come nearer");
    }

    #[test]
    fn the_backoff_and_the_providers_that_were_asked_survive_a_restart() {
        let failures = Failures::default();
        failures.asking(&key(), "exec.rack");
        let fail = |failures: &Failures, at| {
            failures.record(&key(), Some(3), Reason::ProvisioningFailed, "no rack".to_owned(), at)
        };
        let now = Timestamp::from_millisecond(100).unwrap();
        fail(&failures, now);
        let before = fail(&failures, now);
        let mut pool = pool(1);
        let failure = ProvisioningFailureStatus {
            reason: "ProvisioningFailed".to_owned(),
            message: "no rack".to_owned(),
            observed_generation: Some(3),
            since_time: Time(at(0)),
        };
        let provisioning = ProvisioningStatus { failure: Some(failure), ..failures.remembered(&key()) };
        pool.status = Some(NodePoolStatus { provisioning: Some(provisioning), ..NodePoolStatus::default() });
        let restarted = Failures::default();
        restarted.restore(&key(), &pool);
        // To the second, and never earlier.
        assert_eq!(before.retry_at.as_millisecond(), 10_100);
        assert_eq!(restarted.last(&key()), Some(ProvisioningFailure { retry_at: at(11), ..before }));
        assert_eq!(restarted.asked(&key()), ["exec.rack".to_owned()].into());
        assert_eq!(fail(&restarted, at(11)).retry_at, at(31), "the third in a row");
        // Only once: the status may be older than what this process knows by now.
        restarted.pool_complete(&key());
        restarted.restore(&key(), &pool);
        assert_eq!(restarted.last(&key()), None);
        // A status without the failure is of an earlier release.
        pool.status.as_mut().unwrap().provisioning.as_mut().unwrap().failure = None;
        let upgraded = Failures::default();
        upgraded.restore(&key(), &pool);
        assert_eq!(upgraded.last(&key()), None);
        assert_eq!(upgraded.asked(&key()), ["exec.rack".to_owned()].into());
    }
}
