//! Calls to providers that sometimes fail: which one a pool has, what failed, and when to retry.
//!
//! All of it is in memory. After a restart the operator finds its nodes in the cluster and requests the rest again.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use shared_crds::NodePool;
use shared_crds::conditions::Reason;
use shared_crds::v1alpha1::ProviderSpec;

use super::simulated::Simulated;
use super::{Deletion, ListedMachine, MachineRequest, NamedProvider, Progress, ProviderError};
use crate::plan::supply::{Machine, MachineState, NodeSource, ProvisioningFailure};
use crate::plan::{PoolKey, Supply};

/// Backoff after the first failure; it doubles with every further one.
const FIRST_BACKOFF: SignedDuration = SignedDuration::from_secs(5);
/// Maximum backoff: Cluster Autoscaler's initial backoff for a node group.
const MAX_BACKOFF: SignedDuration = SignedDuration::from_secs(300);

/// How long a call to a provider may take. The pool waits for it, and other pools do not.
const CALL_LIMIT: Duration = Duration::from_secs(30);

/// What is remembered about a pool.
#[derive(Debug, Default)]
struct PoolState {
    failures: u32,
    failure: Option<ProvisioningFailure>,
    /// The pool's generation at the last failure.
    generation: Option<i64>,
    taken: BTreeSet<String>,
}

/// The providers, with the failures of their calls.
pub(crate) struct Provisioner {
    providers: Vec<Box<dyn NamedProvider>>,
    pools: Mutex<HashMap<PoolKey, PoolState>>,
}

impl Provisioner {
    /// Knows every provider of this version.
    pub(crate) fn new() -> Self {
        Self::with(vec![Box::new(Simulated::default())])
    }

    /// Knows `providers`.
    pub(crate) fn with(providers: Vec<Box<dyn NamedProvider>>) -> Self {
        Self { providers, pools: Mutex::default() }
    }

    fn pools(&self) -> MutexGuard<'_, HashMap<PoolKey, PoolState>> {
        // What is remembered is advisory, so a panic elsewhere leaves nothing that could do harm.
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The provider that `spec` selects.
    fn selected(&self, spec: &ProviderSpec) -> Result<&dyn NamedProvider, ProviderError> {
        let selected = self.providers.iter().find(|provider| provider.is_selected_by(spec));
        selected.map(|provider| &**provider).ok_or_else(|| {
            let fields: Vec<_> = self.providers.iter().map(|provider| provider.field()).collect();
            let message = format!("it names no provider that this version knows ({})", fields.join(", "));
            ProviderError::Invalid(message)
        })
    }

    /// The providers that may have machines of a pool: the one it selects, and all where the pool is gone.
    fn responsible<'a>(&'a self, pool: Option<&NodePool>) -> impl Iterator<Item = &'a dyn NamedProvider> {
        let spec = pool.map(|pool| pool.spec.provider.clone());
        let is_meant = move |provider: &&dyn NamedProvider| {
            spec.as_ref().is_none_or(|spec| provider.is_selected_by(spec))
        };
        self.providers.iter().map(|provider| &**provider).filter(is_meant)
    }

    /// What the provider says about the pool, which is `pool` unless it is gone, and the machines that were found to
    /// have failed.
    pub(crate) async fn supply(
        &self,
        key: &PoolKey,
        pool: Option<&NodePool>,
        now: Timestamp,
    ) -> (Supply, Vec<ProviderError>) {
        let (mut machines, mut failures, mut is_unknown) = (Vec::new(), Vec::new(), false);
        for provider in self.responsible(pool) {
            match in_time(provider.list(key, now)).await {
                Ok(listed) => {
                    for ListedMachine { name, progress } in listed {
                        let state = match progress {
                            Progress::Starting(until) => MachineState::Starting { until },
                            Progress::Running => MachineState::Running,
                            Progress::Failed(error) => {
                                failures.push(error);
                                failures.extend(in_time(provider.delete(key, &name)).await.err());
                                continue;
                            }
                        };
                        machines.push(Machine { name, state });
                    }
                }
                Err(error) => {
                    is_unknown = true;
                    failures.push(error);
                }
            }
        }
        let generation = pool.and_then(|pool| pool.metadata.generation);
        // Machines that were requested together often fail together, and a list that fails is repeated with every pass:
        // one failure until its backoff is over.
        let in_force = self.last_failure(key).is_some_and(|failure| failure.retry_at > now);
        if let Some(error) = failures.first().filter(|_| !in_force) {
            self.record_failure(key, generation, error.reason(), error.to_string(), now);
        }
        let source = pool.map_or_else(|| Err(String::new()), |pool| self.node_source(&pool.spec.provider));
        let mut pools = self.pools();
        let state = pools.entry(key.clone()).or_default();
        // A new spec may bring a new quota, so it is tried at once.
        if state.generation != generation && state.failure.as_ref().is_some_and(ends_with_a_new_spec) {
            state.reset();
        }
        let (taken, failure) = (state.taken.clone(), state.failure.clone());
        (Supply { source, machines, is_unknown, taken, failure }, failures)
    }

    fn node_source(&self, spec: &ProviderSpec) -> Result<NodeSource, String> {
        let source = self.selected(spec).and_then(|provider| provider.node_source(spec));
        source.map_err(|error| error.to_string())
    }

    /// Requests a machine. Returns when it is expected; `None` when the provider does not know.
    pub(crate) async fn create(
        &self,
        request: MachineRequest<'_>,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, ProviderError> {
        in_time(self.selected(request.spec)?.create(request, now)).await
    }

    /// Deletes the machine `name` of the pool, which is `pool` unless it is gone.
    pub(crate) async fn delete(
        &self,
        key: &PoolKey,
        pool: Option<&NodePool>,
        name: &str,
    ) -> Result<Deletion, ProviderError> {
        if let Some(pool) = pool {
            // Without its provider it is not known whether there is a machine, so its Node is kept.
            self.selected(&pool.spec.provider)?;
        }
        for provider in self.responsible(pool) {
            let Deletion::Gone = in_time(provider.delete(key, name)).await?;
        }
        Ok(Deletion::Gone)
    }

    /// Drops everything about a pool that is gone, with its nodes.
    pub(crate) fn forget(&self, key: &PoolKey) {
        self.pools().remove(key);
        self.providers.iter().for_each(|provider| provider.forget(key));
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

/// The answer of a provider, which has to come within [`CALL_LIMIT`].
async fn in_time<T>(call: impl Future<Output = Result<T, ProviderError>>) -> Result<T, ProviderError> {
    tokio::time::timeout(CALL_LIMIT, call).await.unwrap_or_else(|_elapsed| {
        Err(ProviderError::Unreachable(format!("no answer within {} s", CALL_LIMIT.as_secs())))
    })
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
    use futures::future::BoxFuture;
    use shared_crds::v1alpha1::SimulatedProvider;

    use super::*;
    use crate::plan::testing::{SOURCE, at, key, pool};

    async fn supply(provisioner: &Provisioner, generation: i64, second: i64) -> (Supply, Vec<ProviderError>) {
        let mut pool = pool(1);
        pool.metadata.generation = Some(generation);
        provisioner.supply(&key(), Some(&pool), at(second)).await
    }

    #[test]
    fn the_backoff_doubles_from_five_seconds_to_five_minutes() {
        let seconds: Vec<i64> = (1..=8).map(|failures| backoff(failures).as_secs()).collect();
        assert_eq!(seconds, [5, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(backoff(u32::MAX).as_secs(), 300);
    }

    #[tokio::test]
    async fn a_failed_machine_is_reported_once_and_starts_the_backoff() {
        let provisioner = Provisioner::new();
        let spec = ProviderSpec {
            simulated: Some(SimulatedProvider { failure_percent: 100, ..SimulatedProvider::default() }),
        };
        let request = MachineRequest { pool: &key(), name: "a", spec: &spec, existing: 0 };
        provisioner.create(request, at(0)).await.unwrap();
        let (first, failures) = supply(&provisioner, 1, 0).await;
        assert_eq!(failures.len(), 1);
        assert!(!first.may_request(at(4)) && first.may_request(at(5)) && first.machines.is_empty());
        let (second, failures) = supply(&provisioner, 1, 5).await;
        assert!(failures.is_empty());
        assert_eq!(second.failure, first.failure);
    }

    #[test]
    fn a_created_node_ends_the_backoff_unless_nodes_never_become_ready() {
        let provisioner = Provisioner::new();
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

    #[tokio::test]
    async fn a_new_generation_ends_the_backoff_after_a_quota_and_an_invalid_spec_only() {
        for (reason, ends) in [
            (Reason::QuotaExceeded, true),
            (Reason::InvalidSpec, true),
            (Reason::ProvisioningFailed, false),
            (Reason::ProviderUnreachable, false),
        ] {
            let provisioner = Provisioner::new();
            provisioner.record_failure(&key(), Some(1), reason, String::new(), at(0));
            assert!(supply(&provisioner, 1, 1).await.0.failure.is_some());
            assert_eq!(supply(&provisioner, 2, 1).await.0.failure.is_none(), ends, "{reason:?}");
        }
    }
    /// A provider that never answers.
    struct Silent;

    impl NamedProvider for Silent {
        fn field(&self) -> &'static str {
            "silent"
        }

        fn is_selected_by(&self, _: &ProviderSpec) -> bool {
            true
        }

        fn node_source(&self, _: &ProviderSpec) -> Result<NodeSource, ProviderError> {
            SOURCE.map_err(ProviderError::Invalid)
        }

        fn create<'a>(
            &'a self,
            _: MachineRequest<'a>,
            _: Timestamp,
        ) -> BoxFuture<'a, Result<Option<Timestamp>, ProviderError>> {
            Box::pin(std::future::pending())
        }

        fn list<'a>(
            &'a self,
            _: &'a PoolKey,
            _: Timestamp,
        ) -> BoxFuture<'a, Result<Vec<ListedMachine>, ProviderError>> {
            Box::pin(std::future::pending())
        }

        fn delete<'a>(
            &'a self,
            _: &'a PoolKey,
            _: &'a str,
        ) -> BoxFuture<'a, Result<Deletion, ProviderError>> {
            Box::pin(std::future::pending())
        }

        fn forget(&self, _: &PoolKey) {}
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_follows_from_a_list_that_is_never_answered() {
        let provisioner = Provisioner::with(vec![Box::new(Silent)]);
        let (first, failures) = supply(&provisioner, 1, 0).await;
        assert!(matches!(&failures[..], [ProviderError::Unreachable(_)]), "{failures:?}");
        assert!(first.is_unknown && !first.may_request(at(1000)));
        assert_eq!(first.failure.as_ref().unwrap().reason, Reason::ProviderUnreachable);
        // The backoff is that of one failure, however often the list is tried meanwhile.
        let (second, _) = supply(&provisioner, 1, 4).await;
        assert_eq!(second.failure, first.failure);
        let deleted = provisioner.delete(&key(), Some(&pool(1)), "a").await;
        assert!(matches!(deleted, Err(ProviderError::Unreachable(_))), "{deleted:?}");
    }

    #[tokio::test]
    async fn a_spec_that_selects_no_provider_is_named_and_requests_nothing() {
        let provisioner = Provisioner::with(vec![Box::new(Simulated::default())]);
        let mut pool = pool(1);
        pool.spec.provider = ProviderSpec::default();
        let (supply, failures) = provisioner.supply(&key(), Some(&pool), at(0)).await;
        assert!(failures.is_empty() && supply.machines.is_empty());
        let message = "spec.provider is invalid: it names no provider that this version knows (simulated)";
        assert_eq!(supply.source, Err(message.to_owned()));
        let deleted = provisioner.delete(&key(), Some(&pool), "a").await;
        assert_eq!(deleted.unwrap_err().to_string(), message, "its machine is not known to be gone");
        assert_eq!(provisioner.delete(&key(), None, "a").await, Ok(Deletion::Gone));
    }
}
