//! Which of a pool's slots have failed, and until when each is passed over. A host that is broken, a machine that is half
//! made, or an object of another owner under its name then costs the pool one name, and no node.
//!
//! In memory only: a process that has just started tries the lowest slots again.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use shared_crds::conditions::Reason;

/// How long a slot is passed over after its first failure; it doubles with every further one. Longer than the pool's own first
/// backoffs: when these are over, other slots are tried.
const FIRST_BACKOFF: SignedDuration = SignedDuration::from_secs(30);
/// The longest time that a slot is passed over.
const MAX_BACKOFF: SignedDuration = SignedDuration::from_secs(300);
/// How long after its last backoff a slot's failures are remembered.
const MEMORY: SignedDuration = SignedDuration::from_secs(3600);

/// What is remembered of one slot.
#[derive(Debug)]
struct SlotFailure {
    failures: u32,
    reason: Reason,
    /// The pool's generation at the last failure.
    generation: Option<i64>,
    retry_at: Timestamp,
    /// A list has shown the failure of the machine that was asked for last.
    is_counted: bool,
}

/// The slots of one pool that have failed, by the machine's name.
#[derive(Debug, Default)]
pub(super) struct SlotFailures(BTreeMap<String, SlotFailure>);

impl SlotFailures {
    /// The slot's machine was not made, or will not run.
    pub(super) fn failed(&mut self, name: &str, generation: Option<i64>, reason: Reason, now: Timestamp) {
        let failures = self.0.get(name).map_or(0, |slot| slot.failures).saturating_add(1);
        let doublings = failures.saturating_sub(1).min(16);
        let backoff = FIRST_BACKOFF.checked_mul(1 << doublings).map_or(MAX_BACKOFF, |it| it.min(MAX_BACKOFF));
        let retry_at = now.checked_add(backoff).unwrap_or(Timestamp::MAX);
        let slot = SlotFailure { failures, reason, generation, retry_at, is_counted: true };
        self.0.insert(name.to_owned(), slot);
    }

    /// Whether the failure of the slot's machine has not been counted since it was asked for.
    pub(super) fn is_uncounted(&self, name: &str) -> bool {
        self.0.get(name).is_none_or(|slot| !slot.is_counted)
    }

    /// A machine was asked for in this slot.
    pub(super) fn asked(&mut self, name: &str) {
        if let Some(slot) = self.0.get_mut(name) {
            slot.is_counted = false;
        }
    }

    /// The slot's machine runs.
    pub(super) fn runs(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Ends failures that a new spec may have ended.
    pub(super) fn spec_is(&mut self, generation: Option<i64>) {
        self.0.retain(|_, slot| slot.reason != Reason::InvalidSpec || slot.generation == generation);
    }

    /// The slots that are passed over at `now`.
    pub(super) fn passed_over(&mut self, now: Timestamp) -> BTreeSet<String> {
        self.0.retain(|_, slot| slot.retry_at.checked_add(MEMORY).is_ok_and(|end| end > now));
        self.0.iter().filter(|(_, slot)| slot.retry_at > now).map(|(name, _)| name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    #[test]
    fn a_slot_is_passed_over_for_longer_with_every_failure_and_tried_again_when_it_is_due() {
        let mut slots = SlotFailures::default();
        slots.failed("a", None, Reason::ProvisioningFailed, at(0));
        assert_eq!(slots.passed_over(at(29)), ["a".to_owned()].into());
        assert!(slots.passed_over(at(30)).is_empty());
        slots.failed("a", None, Reason::ProvisioningFailed, at(30));
        assert_eq!(slots.passed_over(at(89)), ["a".to_owned()].into());
        slots.runs("a");
        assert!(slots.passed_over(at(89)).is_empty());
    }

    #[test]
    fn a_machine_that_stays_failed_is_counted_once_and_again_when_it_was_asked_for_again() {
        let mut slots = SlotFailures::default();
        let listed = |slots: &mut SlotFailures, second| {
            let is_new = slots.is_uncounted("a");
            if is_new {
                slots.failed("a", None, Reason::ProvisioningFailed, at(second));
            }
            is_new
        };
        assert!(listed(&mut slots, 0));
        assert!(!listed(&mut slots, 100));
        slots.asked("a");
        assert!(listed(&mut slots, 200));
        assert_eq!(slots.passed_over(at(259)).len(), 1, "twice as long as the first time");
    }

    #[test]
    fn a_new_generation_ends_what_an_invalid_spec_has_done() {
        let mut slots = SlotFailures::default();
        slots.failed("a", Some(1), Reason::InvalidSpec, at(0));
        slots.failed("b", Some(1), Reason::ProvisioningFailed, at(0));
        slots.spec_is(Some(2));
        assert_eq!(slots.passed_over(at(1)), ["b".to_owned()].into());
    }
}
