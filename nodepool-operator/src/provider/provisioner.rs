//! Requests to a provider that sometimes fails: what was requested, what failed, and when to retry.
//!
//! All of it is in memory. After a restart the operator finds its nodes in the cluster and requests the rest again.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use shared_crds::conditions::Reason;

use super::{Order, Progress, Provider, Refusal};
use crate::plan::supply::{Machine, MachineState, Trouble};
use crate::plan::{PoolKey, Supply};

/// Backoff after the first failure; it doubles with every further one.
const FIRST_WAIT: SignedDuration = SignedDuration::from_secs(5);
/// Maximum backoff: Cluster Autoscaler's initial backoff for a node group.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_secs(300);

/// What is remembered about a pool.
#[derive(Debug, Default)]
struct Memory {
    failures: u32,
    trouble: Option<Trouble>,
    /// The pool's generation at the last failure.
    generation: Option<i64>,
    taken: BTreeSet<String>,
}

/// A provider, with its requests and failures.
pub(crate) struct Procurement {
    provider: Box<dyn Provider>,
    pools: Mutex<HashMap<PoolKey, Memory>>,
}

impl Procurement {
    /// Wraps `provider`.
    pub(crate) fn new(provider: Box<dyn Provider>) -> Self {
        Self { provider, pools: Mutex::default() }
    }

    fn pools(&self) -> MutexGuard<'_, HashMap<PoolKey, Memory>> {
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
    ) -> (Supply, Vec<Refusal>) {
        let mut machines = Vec::new();
        let mut failures = Vec::new();
        for (name, progress) in self.provider.machines(key, now).await {
            match progress {
                Progress::Starting(until) => {
                    machines.push(Machine { name, state: MachineState::Starting { until } });
                }
                Progress::Running => machines.push(Machine { name, state: MachineState::Running }),
                Progress::Failed(refusal) => {
                    self.provider.drop_request(key, &name).await;
                    failures.push(refusal);
                }
            }
        }
        if let Some(refusal) = failures.first() {
            self.failed(key, generation, refusal.reason(), refusal.to_string(), now);
        }
        let mut pools = self.pools();
        let memory = pools.entry(key.clone()).or_default();
        // A new spec may bring a new quota, so it is tried at once.
        let by_quota = memory.trouble.as_ref().is_some_and(|trouble| trouble.reason == Reason::QuotaExceeded);
        if by_quota && memory.generation != generation {
            memory.recover();
        }
        let supply = Supply { machines, taken: memory.taken.clone(), trouble: memory.trouble.clone() };
        (supply, failures)
    }

    /// Requests a machine. Returns when it is expected; `None` when the provider does not know.
    pub(crate) async fn request(
        &self,
        order: Order<'_>,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, Refusal> {
        self.provider.request(order, now).await
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
    pub(crate) fn failed(
        &self,
        key: &PoolKey,
        generation: Option<i64>,
        reason: Reason,
        message: String,
        now: Timestamp,
    ) -> Trouble {
        let mut pools = self.pools();
        let memory = pools.entry(key.clone()).or_default();
        memory.failures = memory.failures.saturating_add(1);
        memory.generation = generation;
        let retry_at = now.checked_add(wait(memory.failures)).unwrap_or(Timestamp::MAX);
        memory.trouble.insert(Trouble { reason, message, retry_at }).clone()
    }

    /// Records that the provider made a node. That says nothing about nodes that are made and never become Ready.
    pub(crate) fn made(&self, key: &PoolKey) {
        let mut pools = self.pools();
        let Some(memory) = pools.get_mut(key) else { return };
        if memory.trouble.as_ref().is_some_and(|trouble| trouble.reason != Reason::ProvisioningTimedOut) {
            memory.recover();
        }
    }

    /// Records that the pool has every node it wants.
    pub(crate) fn settled(&self, key: &PoolKey) {
        if let Some(memory) = self.pools().get_mut(key) {
            memory.recover();
        }
    }

    /// The current failure of the pool's requests; `None` without one.
    pub(crate) fn trouble(&self, key: &PoolKey) -> Option<Trouble> {
        self.pools().get(key).and_then(|memory| memory.trouble.clone())
    }

    /// Records that a Node of another owner has the name of one of the pool's slots.
    pub(crate) fn taken(&self, key: &PoolKey, name: &str) {
        self.pools().entry(key.clone()).or_default().taken.insert(name.to_owned());
    }
}

impl Memory {
    fn recover(&mut self) {
        self.failures = 0;
        self.trouble = None;
    }
}

/// The backoff after this many failures in a row.
fn wait(failures: u32) -> SignedDuration {
    let doublings = failures.saturating_sub(1).min(16);
    FIRST_WAIT.checked_mul(1 << doublings).map_or(LONGEST_WAIT, |wait| wait.min(LONGEST_WAIT))
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use shared_crds::v1alpha1::{ProviderSpec, SimulatedProvider};

    use super::*;
    use crate::plan::testing::{at, key};
    use crate::provider::simulated::Simulated;

    fn desk() -> Procurement {
        Procurement::new(Box::new(Simulated::default()))
    }

    fn supply(desk: &Procurement, generation: i64, second: i64) -> (Supply, Vec<Refusal>) {
        desk.supply(&key(), Some(generation), at(second)).now_or_never().unwrap()
    }

    #[test]
    fn waits_double_from_five_seconds_to_five_minutes() {
        let seconds: Vec<i64> = (1..=8).map(|failures| wait(failures).as_secs()).collect();
        assert_eq!(seconds, [5, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(wait(u32::MAX).as_secs(), 300);
    }

    #[test]
    fn a_machine_that_fails_is_told_once_and_the_provider_is_left_alone() {
        let desk = desk();
        let spec = ProviderSpec {
            simulated: Some(SimulatedProvider { failure_percent: 100, ..SimulatedProvider::default() }),
        };
        let order = Order { pool: &key(), name: "a", spec: &spec, existing: 0 };
        desk.request(order, at(0)).now_or_never().unwrap().unwrap();
        let (first, failures) = supply(&desk, 1, 0);
        assert_eq!(failures.len(), 1);
        assert!(!first.may_ask(at(4)) && first.may_ask(at(5)) && first.machines.is_empty());
        let (second, failures) = supply(&desk, 1, 5);
        assert!(failures.is_empty());
        assert_eq!(second.trouble, first.trouble);
    }

    #[test]
    fn a_node_that_was_made_ends_the_trouble_but_not_that_of_nodes_that_never_become_ready() {
        let desk = desk();
        let fail = |reason| desk.failed(&key(), Some(1), reason, String::new(), at(0));
        fail(Reason::ProvisioningFailed);
        desk.made(&key());
        assert_eq!(desk.trouble(&key()), None);
        fail(Reason::ProvisioningTimedOut);
        desk.made(&key());
        assert!(desk.trouble(&key()).is_some());
        assert_eq!(fail(Reason::ProvisioningTimedOut).retry_at, at(10));
        desk.settled(&key());
        assert_eq!(desk.trouble(&key()), None);
    }

    #[test]
    fn a_new_generation_lifts_the_wait_for_quota_only() {
        let desk = desk();
        desk.failed(&key(), Some(1), Reason::QuotaExceeded, String::new(), at(0));
        assert!(supply(&desk, 1, 1).0.trouble.is_some());
        assert!(supply(&desk, 2, 1).0.trouble.is_none());
        desk.failed(&key(), Some(2), Reason::ProvisioningFailed, String::new(), at(0));
        assert!(supply(&desk, 3, 1).0.trouble.is_some());
    }
}
