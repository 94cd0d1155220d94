//! What the lists of a pass have found to be wrong. A list only reads: the pass records it when it begins to act.

use k8s_openapi::jiff::Timestamp;
use node_lifecycle::keys::PoolKey;
use node_lifecycle::supply::{FailedMachine, ProvisioningFailure};
use shared_crds::conditions::Reason;

use super::Provisioner;
use crate::{ListedMachine, Progress, ProviderError};

/// What failed, as the lists of one pass show it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListFindings {
    /// The failures. The first is that of the pool, unless an earlier one is in force.
    pub failures: Vec<ProviderError>,
    /// Why lists failed that this pass did not repeat, because that was a moment ago.
    pub repeated: Vec<ProviderError>,
    /// When lists have to be made that this pass did without, because the last one failed or was good a moment ago; `None` when it
    /// made all of them.
    pub again_at: Option<Timestamp>,
    /// A list of a moment ago was used: nothing may be changed because of it.
    pub is_recent: bool,
    /// The slots whose machines did not come or will not run, and why.
    pub(super) slots: Vec<(String, Reason)>,
}

impl ListFindings {
    /// Notes that a list was not made, and is to be made at `at`.
    pub(super) fn wait_until(&mut self, at: Timestamp) {
        self.again_at = self.again_at.into_iter().chain([at]).min();
    }
}

impl Provisioner {
    /// Adds what `machine` of the provider `reference` shows, if it has failed. A failure that may be about one machine is
    /// added once, for as long as the machine is listed.
    pub(super) fn find_failed(
        &self,
        key: &PoolKey,
        reference: &str,
        machine: &ListedMachine,
        findings: &mut ListFindings,
    ) -> Option<FailedMachine> {
        let Progress::Failed(error) = &machine.progress else { return None };
        let name = machine.name.clone();
        let is_of_slot = error.may_be_of_one_machine();
        let is_uncounted = || {
            let is_known = findings.slots.iter().any(|(other, _)| *other == name);
            !is_known && self.failures.slots(key, |slots| slots.is_uncounted(&name))
        };
        let is_new = !is_of_slot || is_uncounted();
        if is_new {
            findings.slots.extend(is_of_slot.then(|| (name.clone(), error.reason())));
            findings.failures.push(error.clone());
        }
        Some(FailedMachine { name, provider: reference.to_owned(), is_new })
    }

    /// The pool's failure as it will be once `findings` are recorded; `None` where they change nothing. Machines that were
    /// requested together often fail together, and a list that fails is repeated with every pass: one failure until its
    /// backoff is over.
    pub(super) fn foreseen(
        &self,
        key: &PoolKey,
        findings: &ListFindings,
        now: Timestamp,
    ) -> Option<ProvisioningFailure> {
        let error = self.to_record(key, findings.failures.first(), &findings.repeated, now)?;
        Some(self.failures.foresee(key, error.reason(), error.to_string(), now))
    }

    /// Records what the lists of a pass have found, and deletes the machines that have `failed`. Returns every failure, those
    /// of the deletions included.
    pub async fn end_failed(
        &self,
        key: &PoolKey,
        generation: Option<i64>,
        findings: &ListFindings,
        failed: &[FailedMachine],
        now: Timestamp,
    ) -> Vec<ProviderError> {
        for (name, reason) in &findings.slots {
            self.slot_failed(key, generation, name, *reason, now);
        }
        let mut failures = findings.failures.clone();
        failures.extend(self.delete_failed(key, failed, now).await);
        if let Some(error) = self.to_record(key, failures.first(), &findings.repeated, now) {
            self.record_failure(key, generation, error.reason(), error.to_string(), now);
        }
        failures.extend(findings.repeated.iter().cloned());
        failures
    }

    /// The error that is a new failure of the pool; `None` where there is none, or an earlier one is in force. A list that was not
    /// repeated has failed once: it makes no backoff longer.
    fn to_record<'a>(
        &self,
        key: &PoolKey,
        new: Option<&'a ProviderError>,
        repeated: &'a [ProviderError],
        now: Timestamp,
    ) -> Option<&'a ProviderError> {
        let new = new.filter(|_| !self.backs_off(key, now));
        new.or_else(|| repeated.first().filter(|_| self.last_failure(key).is_none()))
    }

    /// Whether nothing is requested for the pool at `now` because of its last failure.
    pub fn backs_off(&self, key: &PoolKey, now: Timestamp) -> bool {
        self.last_failure(key).is_some_and(|failure| failure.retry_at > now)
    }
}
