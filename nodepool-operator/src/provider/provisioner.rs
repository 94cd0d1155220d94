//! Requests to a provider that sometimes fails: what was requested, what failed, and when to retry.
//!
//! All of it is in memory. After a restart the operator finds its nodes in the cluster and requests the rest again.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use shared_crds::conditions::Reason;

use super::{MachineRequest, Progress, Provider, ProvisionError};
use crate::plan::supply::{Machine, MachineState, ProvisioningFailure};
use crate::plan::{PoolKey, Supply};

/// Backoff after the first failure; it doubles with every further one.
const FIRST_BACKOFF: SignedDuration = SignedDuration::from_secs(5);
/// Maximum backoff: Cluster Autoscaler's initial backoff for a node group.
const MAX_BACKOFF: SignedDuration = SignedDuration::from_secs(300);

/// What is remembered about a pool.
#[derive(Debug, Default)]
struct PoolState {
    failures: u32,
    failure: Option<ProvisioningFailure>,
    /// The pool's generation at the last failure.
    generation: Option<i64>,
    taken: BTreeSet<String>,
}

/// A provider, with its requests and failures.
pub(crate) struct Provisioner {
    provider: Box<dyn Provider>,
    pools: Mutex<HashMap<PoolKey, PoolState>>,
}

impl Provisioner {
    /// Wraps `provider`.
    pub(crate) fn new(provider: Box<dyn Provider>) -> Self {
        Self { provider, pools: Mutex::default() }
    }

    fn pools(&self) -> MutexGuard<'_, HashMap<PoolKey, PoolState>> {
        // What is remembered is advisory, so a panic elsewhere leaves nothing that could do harm.
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of the provider's requests for the pool, which is at `generation`, and the failures that were detected
    /// now.
    pub(crate) async fn supply(
        &self,
        key: &PoolKey,
        generation: Option<i64>,
        now: Timestamp,
    ) -> (Supply, Vec<ProvisionError>) {
        let mut machines = Vec::new();
        let mut failures = Vec::new();
        for (name, progress) in self.provider.machines(key, now).await {
            match progress {
                Progress::Starting(until) => {
                    machines.push(Machine { name, state: MachineState::Starting { until } });
                }
                Progress::Running => machines.push(Machine { name, state: MachineState::Running }),
                Progress::Failed(error) => {
                    self.provider.drop_request(key, &name).await;
                    failures.push(error);
                }
            }
        }
        if let Some(error) = failures.first() {
            self.record_failure(key, generation, error.reason(), error.to_string(), now);
        }
        let mut pools = self.pools();
        let state = pools.entry(key.clone()).or_default();
        // A new spec may bring a new quota, so it is tried at once.
        let by_quota = state.failure.as_ref().is_some_and(|failure| failure.reason == Reason::QuotaExceeded);
        if by_quota && state.generation != generation {
            state.reset();
        }
        let supply = Supply { machines, taken: state.taken.clone(), failure: state.failure.clone() };
        (supply, failures)
    }

    /// Requests a machine. Returns when it is expected; `None` when the provider does not know.
    pub(crate) async fn request(
        &self,
        request: MachineRequest<'_>,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, ProvisionError> {
        self.provider.request(request, now).await
    }

    /// Drops a request that is no longer wanted.
    pub(crate) async fn drop_request(&self, key: &PoolKey, name: &str) {
        self.provider.drop_request(key, name).await;
    }

    /// Drops everything about a pool that is gone, with its nodes.
    pub(crate) async fn drop_pool(&self, key: &PoolKey) {
        self.pools().remove(key);
        self.provider.drop_pool(key).await;
    }

    /// Records that a node was not made, or did not become Ready. No request is sent to the provider during the
    /// backoff.
    pub(crate) fn record_failure(
        &self,
        key: &PoolKey,
        generation: Option<i64>,
        reason: Reason,
        message: String,
        now: Timestamp,
    ) -> ProvisioningFailure {
        let mut pools = self.pools();
        let state = pools.entry(key.clone()).or_default();
        state.failures = state.failures.saturating_add(1);
        state.generation = generation;
        let retry_at = now.checked_add(backoff(state.failures)).unwrap_or(Timestamp::MAX);
        state.failure.insert(ProvisioningFailure { reason, message, retry_at }).clone()
    }

    /// Records that the provider made a node. That says nothing about nodes that are made and never become Ready.
    pub(crate) fn node_created(&self, key: &PoolKey) {
        let mut pools = self.pools();
        let Some(state) = pools.get_mut(key) else { return };
        if state.failure.as_ref().is_some_and(|failure| failure.reason != Reason::ProvisioningTimedOut) {
            state.reset();
        }
    }

    /// Records that the pool has every node it wants.
    pub(crate) fn pool_complete(&self, key: &PoolKey) {
        if let Some(state) = self.pools().get_mut(key) {
            state.reset();
        }
    }

    /// The current failure of the pool's requests; `None` without one.
    pub(crate) fn last_failure(&self, key: &PoolKey) -> Option<ProvisioningFailure> {
        self.pools().get(key).and_then(|state| state.failure.clone())
    }

    /// Records that a Node of another owner has the name of one of the pool's slots.
    pub(crate) fn slot_taken(&self, key: &PoolKey, name: &str) {
        self.pools().entry(key.clone()).or_default().taken.insert(name.to_owned());
    }
}

impl PoolState {
    fn reset(&mut self) {
        self.failures = 0;
        self.failure = None;
    }
}

/// The backoff after this many failures in a row.
fn backoff(failures: u32) -> SignedDuration {
    let doublings = failures.saturating_sub(1).min(16);
    FIRST_BACKOFF.checked_mul(1 << doublings).map_or(MAX_BACKOFF, |backoff| backoff.min(MAX_BACKOFF))
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use shared_crds::v1alpha1::{ProviderSpec, SimulatedProvider};

    use super::*;
    use crate::plan::testing::{at, key};
    use crate::provider::simulated::Simulated;

    fn provisioner() -> Provisioner {
        Provisioner::new(Box::new(Simulated::default()))
    }

    fn supply(provisioner: &Provisioner, generation: i64, second: i64) -> (Supply, Vec<ProvisionError>) {
        provisioner.supply(&key(), Some(generation), at(second)).now_or_never().unwrap()
    }

    #[test]
    fn the_backoff_doubles_from_five_seconds_to_five_minutes() {
        let seconds: Vec<i64> = (1..=8).map(|failures| backoff(failures).as_secs()).collect();
        assert_eq!(seconds, [5, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(backoff(u32::MAX).as_secs(), 300);
    }

    #[test]
    fn a_failed_machine_is_reported_once_and_starts_the_backoff() {
        let provisioner = provisioner();
        let spec = ProviderSpec {
            simulated: Some(SimulatedProvider { failure_percent: 100, ..SimulatedProvider::default() }),
        };
        let request = MachineRequest { pool: &key(), name: "a", spec: &spec, existing: 0 };
        provisioner.request(request, at(0)).now_or_never().unwrap().unwrap();
        let (first, failures) = supply(&provisioner, 1, 0);
        assert_eq!(failures.len(), 1);
        assert!(!first.may_request(at(4)) && first.may_request(at(5)) && first.machines.is_empty());
        let (second, failures) = supply(&provisioner, 1, 5);
        assert!(failures.is_empty());
        assert_eq!(second.failure, first.failure);
    }

    #[test]
    fn a_created_node_ends_the_backoff_unless_nodes_never_become_ready() {
        let provisioner = provisioner();
        let fail = |reason| provisioner.record_failure(&key(), Some(1), reason, String::new(), at(0));
        fail(Reason::ProvisioningFailed);
        provisioner.node_created(&key());
        assert_eq!(provisioner.last_failure(&key()), None);
        fail(Reason::ProvisioningTimedOut);
        provisioner.node_created(&key());
        assert!(provisioner.last_failure(&key()).is_some());
        assert_eq!(fail(Reason::ProvisioningTimedOut).retry_at, at(10));
        provisioner.pool_complete(&key());
        assert_eq!(provisioner.last_failure(&key()), None);
    }

    #[test]
    fn a_new_generation_ends_the_backoff_after_a_quota_only() {
        let provisioner = provisioner();
        provisioner.record_failure(&key(), Some(1), Reason::QuotaExceeded, String::new(), at(0));
        assert!(supply(&provisioner, 1, 1).0.failure.is_some());
        assert!(supply(&provisioner, 2, 1).0.failure.is_none());
        provisioner.record_failure(&key(), Some(2), Reason::ProvisioningFailed, String::new(), at(0));
        assert!(supply(&provisioner, 3, 1).0.failure.is_some());
    }
}
