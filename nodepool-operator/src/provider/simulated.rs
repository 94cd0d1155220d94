//! The provider for tests, demos and what-if runs: a machine is only a time at which it will be ready.
//!
//! The outcome of a request is a function of the pool, the name and the number of the attempt, so a test that fails
//! fails again. Machines are in memory: after a restart those without a Node are simply requested again, and those with
//! one are not missed, because nothing is concluded from a machine that is not listed.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use shared_crds::v1alpha1::{ProviderSpec, SimulatedProvider};

use super::{Deletion, ListedMachine, MachineRequest, NamedProvider, Progress, ProviderError};
use crate::plan::supply::NodeSource;
use crate::plan::{PoolKey, hash};

#[derive(Clone, Copy, Debug)]
struct SimulatedMachine {
    due: Timestamp,
    fails: bool,
}

#[derive(Debug, Default)]
struct Pool {
    machines: BTreeMap<String, SimulatedMachine>,
    attempts: HashMap<String, u32>,
}

/// A provider of machines that exist only as requests with an expected time.
#[derive(Debug, Default)]
pub(crate) struct Simulated {
    pools: Mutex<HashMap<PoolKey, Pool>>,
}

impl Simulated {
    fn pools(&self) -> MutexGuard<'_, HashMap<PoolKey, Pool>> {
        // Every change of the map is a single insertion or removal, so a panic elsewhere leaves it consistent.
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn request_machine(
        &self,
        request: MachineRequest<'_>,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, ProviderError> {
        let spec = spec(&request.spec.provider)?;
        let mut pools = self.pools();
        let pool = pools.entry(request.pool.clone()).or_default();
        if let Some(machine) = pool.machines.get(request.name) {
            return Ok(Some(machine.due));
        }
        if let Some(quota) =
            spec.quota.filter(|quota| usize::try_from(*quota).is_ok_and(|q| request.existing >= q))
        {
            return Err(ProviderError::Quota(format!("the quota of this pool is {quota} nodes")));
        }
        let attempt = pool.attempts.entry(request.name.to_owned()).or_default();
        *attempt += 1;
        let machine = outcome(request.pool, request.name, *attempt, spec, now);
        pool.machines.insert(request.name.to_owned(), machine);
        Ok(Some(machine.due))
    }
}

fn spec(of: &ProviderSpec) -> Result<&SimulatedProvider, ProviderError> {
    of.simulated.as_ref().ok_or_else(|| ProviderError::Invalid("simulated is not set".to_owned()))
}

/// When and how the request ends.
fn outcome(
    pool: &PoolKey,
    name: &str,
    attempt: u32,
    spec: &SimulatedProvider,
    now: Timestamp,
) -> SimulatedMachine {
    let roll = |what: &str| hash::fnv1a(format!("{what} {pool} {name} {attempt}").as_bytes());
    let jitter_millis = u64::try_from(spec.jitter_seconds).unwrap_or_default() * 1000;
    let jitter = i64::try_from(roll("jitter") % (jitter_millis + 1)).unwrap_or_default();
    let delay =
        SignedDuration::from_secs(i64::from(spec.provision_seconds)) + SignedDuration::from_millis(jitter);
    SimulatedMachine {
        due: now.checked_add(delay).unwrap_or(Timestamp::MAX),
        fails: roll("failure") % 100 < u64::try_from(spec.failure_percent).unwrap_or_default(),
    }
}

impl NamedProvider for Simulated {
    fn reference(&self) -> &'static str {
        "simulated"
    }

    fn node_source(&self, of: &ProviderSpec) -> Result<NodeSource, ProviderError> {
        spec(of)?;
        Ok(NodeSource::Operator { provider_id_prefix: "kwok://" })
    }

    fn create<'a>(
        &'a self,
        request: MachineRequest<'a>,
        now: Timestamp,
    ) -> BoxFuture<'a, Result<Option<Timestamp>, ProviderError>> {
        async move { self.request_machine(request, now) }.boxed()
    }

    fn list<'a>(
        &'a self,
        pool: &'a PoolKey,
        now: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<ListedMachine>, ProviderError>> {
        let listed = move |(name, machine): (&String, &SimulatedMachine)| {
            let progress = match machine {
                SimulatedMachine { due, .. } if *due > now => Progress::Starting(Some(*due)),
                SimulatedMachine { fails: true, .. } => {
                    let message = format!("it could not start a machine for node {name}");
                    Progress::Failed(ProviderError::Transient(message))
                }
                SimulatedMachine { .. } => Progress::Running,
            };
            ListedMachine { name: name.clone(), progress, provider_id: None }
        };
        async move {
            let pools = self.pools();
            Ok(pools.get(pool).map(|pool| pool.machines.iter().map(listed).collect()).unwrap_or_default())
        }
        .boxed()
    }

    fn delete<'a>(
        &'a self,
        pool: &'a PoolKey,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Deletion, ProviderError>> {
        async move {
            if let Some(pool) = self.pools().get_mut(pool) {
                pool.machines.remove(name);
            }
            Ok(Deletion::Gone)
        }
        .boxed()
    }

    fn forget(&self, pool: &PoolKey) {
        self.pools().remove(pool);
    }
}

#[cfg(test)]
mod tests {
    use shared_crds::v1alpha1::NodePoolSpec;

    use super::*;
    use crate::plan::testing::{at, key};

    fn provider_spec(simulated: SimulatedProvider) -> ProviderSpec {
        ProviderSpec { simulated: Some(simulated), ..ProviderSpec::default() }
    }

    fn request(
        provider: &Simulated,
        spec: &ProviderSpec,
        name: &str,
        existing: usize,
    ) -> Result<Option<Timestamp>, ProviderError> {
        let spec = NodePoolSpec { provider: spec.clone(), ..NodePoolSpec::default() };
        provider.request_machine(MachineRequest { pool: &key(), name, spec: &spec, existing }, at(100))
    }

    fn progress(provider: &Simulated, second: i64) -> Vec<Progress> {
        let machines = provider.list(&key(), at(second)).now_or_never().unwrap().unwrap();
        machines.into_iter().map(|machine| machine.progress).collect()
    }

    #[test]
    fn a_machine_runs_at_its_expected_time() {
        let provider = Simulated::default();
        let spec = provider_spec(SimulatedProvider { provision_seconds: 30, ..SimulatedProvider::default() });
        assert_eq!(request(&provider, &spec, "a", 0), Ok(Some(at(130))));
        assert_eq!(progress(&provider, 129), [Progress::Starting(Some(at(130)))]);
        assert_eq!(progress(&provider, 130), [Progress::Running]);
    }

    #[test]
    fn a_repeated_request_changes_nothing() {
        let provider = Simulated::default();
        let spec = provider_spec(SimulatedProvider {
            provision_seconds: 30,
            jitter_seconds: 50,
            ..SimulatedProvider::default()
        });
        let first = request(&provider, &spec, "a", 0);
        assert_eq!(request(&provider, &spec, "a", 0), first);
        assert_eq!(progress(&provider, 1000).len(), 1);
    }

    #[test]
    fn jitter_spreads_the_times_within_its_bound() {
        let provider = Simulated::default();
        let spec = provider_spec(SimulatedProvider {
            provision_seconds: 10,
            jitter_seconds: 20,
            ..SimulatedProvider::default()
        });
        let mut times: Vec<_> =
            (0..50).map(|n| request(&provider, &spec, &format!("n-{n}"), 0).unwrap().unwrap()).collect();
        times.sort();
        times.dedup();
        assert!(times.len() > 40, "{}", times.len());
        assert!(times.iter().all(|time| (at(110)..=at(130)).contains(time)));
    }

    #[test]
    fn about_as_many_requests_fail_as_the_spec_says_and_another_attempt_may_work() {
        let provider = Simulated::default();
        let spec = provider_spec(SimulatedProvider { failure_percent: 30, ..SimulatedProvider::default() });
        for n in 0..1000 {
            request(&provider, &spec, &format!("n-{n:04}"), 0).unwrap();
        }
        let failed = |provider: &Simulated| -> Vec<String> {
            let machines = provider.list(&key(), at(1000)).now_or_never().unwrap().unwrap();
            let failed = machines.into_iter().filter(|it| matches!(it.progress, Progress::Failed(_)));
            failed.map(|machine| machine.name).collect()
        };
        let first = failed(&provider);
        assert!((200..400).contains(&first.len()), "{}", first.len());
        for name in &first {
            provider.delete(&key(), name).now_or_never().unwrap().unwrap();
            request(&provider, &spec, name, 0).unwrap();
        }
        assert!(failed(&provider).len() < first.len() / 2);
    }

    #[test]
    fn the_quota_counts_what_the_pool_has_already() {
        let provider = Simulated::default();
        let spec = provider_spec(SimulatedProvider { quota: Some(3), ..SimulatedProvider::default() });
        assert!(request(&provider, &spec, "a", 2).is_ok());
        assert_eq!(
            request(&provider, &spec, "b", 3),
            Err(ProviderError::Quota("the quota of this pool is 3 nodes".to_owned()))
        );
        assert_eq!(
            request(&provider, &spec, "a", 3).map(|due| due.is_some()),
            Ok(true),
            "a repeated request is not a new one"
        );
    }
}
