//! The provider for tests, demos and what-if runs: a machine is only a time at which it will be ready.
//!
//! The outcome of a request is a function of the pool, the name and the number of the attempt, so a test that fails
//! fails again. Requests are in memory; after a restart they are simply made again.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use shared_crds::v1alpha1::SimulatedProvider;

use super::{Order, Progress, Provider, Refusal};
use crate::plan::{PoolKey, hash};

#[derive(Clone, Copy, Debug)]
struct Request {
    due: Timestamp,
    fails: bool,
}

#[derive(Debug, Default)]
struct Pool {
    requests: BTreeMap<String, Request>,
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

    fn ask(&self, order: Order<'_>, now: Timestamp) -> Result<Option<Timestamp>, Refusal> {
        let spec = order.spec.simulated.as_ref().ok_or(Refusal::Unknown)?;
        let mut pools = self.pools();
        let pool = pools.entry(order.pool.clone()).or_default();
        if let Some(request) = pool.requests.get(order.name) {
            return Ok(Some(request.due));
        }
        if let Some(quota) =
            spec.quota.filter(|quota| usize::try_from(*quota).is_ok_and(|q| order.existing >= q))
        {
            return Err(Refusal::Quota(quota));
        }
        let attempt = pool.attempts.entry(order.name.to_owned()).or_default();
        *attempt += 1;
        let request = outcome(order.pool, order.name, *attempt, spec, now);
        pool.requests.insert(order.name.to_owned(), request);
        Ok(Some(request.due))
    }
}

/// When and how the request ends.
fn outcome(pool: &PoolKey, name: &str, attempt: u32, spec: &SimulatedProvider, now: Timestamp) -> Request {
    let roll = |what: &str| hash::fnv1a(format!("{what} {pool} {name} {attempt}").as_bytes());
    let jitter_millis = u64::try_from(spec.jitter_seconds).unwrap_or_default() * 1000;
    let jitter = i64::try_from(roll("jitter") % (jitter_millis + 1)).unwrap_or_default();
    let delay =
        SignedDuration::from_secs(i64::from(spec.provision_seconds)) + SignedDuration::from_millis(jitter);
    Request {
        due: now.checked_add(delay).unwrap_or(Timestamp::MAX),
        fails: roll("failure") % 100 < u64::try_from(spec.failure_percent).unwrap_or_default(),
    }
}

impl Provider for Simulated {
    fn request<'a>(
        &'a self,
        order: Order<'a>,
        now: Timestamp,
    ) -> BoxFuture<'a, Result<Option<Timestamp>, Refusal>> {
        async move { self.ask(order, now) }.boxed()
    }

    fn machines<'a>(&'a self, pool: &'a PoolKey, now: Timestamp) -> BoxFuture<'a, Vec<(String, Progress)>> {
        let progress = move |(name, request): (&String, &Request)| {
            let progress = match request {
                Request { due, .. } if *due > now => Progress::Starting(Some(*due)),
                Request { fails: true, .. } => Progress::Failed(Refusal::Failed(name.clone())),
                Request { .. } => Progress::Running,
            };
            (name.clone(), progress)
        };
        async move {
            self.pools()
                .get(pool)
                .map(|pool| pool.requests.iter().map(progress).collect())
                .unwrap_or_default()
        }
        .boxed()
    }

    fn drop_request<'a>(&'a self, pool: &'a PoolKey, name: &'a str) -> BoxFuture<'a, ()> {
        async move {
            if let Some(pool) = self.pools().get_mut(pool) {
                pool.requests.remove(name);
            }
        }
        .boxed()
    }

    fn drop_pool<'a>(&'a self, pool: &'a PoolKey) -> BoxFuture<'a, ()> {
        async move {
            self.pools().remove(pool);
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use shared_crds::v1alpha1::ProviderSpec;

    use super::*;
    use crate::plan::testing::{at, key};

    fn spec(simulated: SimulatedProvider) -> ProviderSpec {
        ProviderSpec { simulated: Some(simulated) }
    }

    fn ask(
        provider: &Simulated,
        spec: &ProviderSpec,
        name: &str,
        existing: usize,
    ) -> Result<Option<Timestamp>, Refusal> {
        provider.ask(Order { pool: &key(), name, spec, existing }, at(100))
    }

    fn progress(provider: &Simulated, second: i64) -> Vec<Progress> {
        let machines = provider.machines(&key(), at(second)).now_or_never().unwrap();
        machines.into_iter().map(|(_, progress)| progress).collect()
    }

    #[test]
    fn a_machine_runs_when_its_time_has_come() {
        let provider = Simulated::default();
        let spec = spec(SimulatedProvider { provision_seconds: 30, ..SimulatedProvider::default() });
        assert_eq!(ask(&provider, &spec, "a", 0), Ok(Some(at(130))));
        assert_eq!(progress(&provider, 129), [Progress::Starting(Some(at(130)))]);
        assert_eq!(progress(&provider, 130), [Progress::Running]);
    }

    #[test]
    fn asking_again_changes_nothing() {
        let provider = Simulated::default();
        let spec = spec(SimulatedProvider {
            provision_seconds: 30,
            jitter_seconds: 50,
            ..SimulatedProvider::default()
        });
        let first = ask(&provider, &spec, "a", 0);
        assert_eq!(ask(&provider, &spec, "a", 0), first);
        assert_eq!(progress(&provider, 1000).len(), 1);
    }

    #[test]
    fn jitter_spreads_the_times_within_its_bound() {
        let provider = Simulated::default();
        let spec = spec(SimulatedProvider {
            provision_seconds: 10,
            jitter_seconds: 20,
            ..SimulatedProvider::default()
        });
        let mut times: Vec<_> =
            (0..50).map(|n| ask(&provider, &spec, &format!("n-{n}"), 0).unwrap().unwrap()).collect();
        times.sort();
        times.dedup();
        assert!(times.len() > 40, "{}", times.len());
        assert!(times.iter().all(|time| (at(110)..=at(130)).contains(time)));
    }

    #[test]
    fn about_as_many_requests_fail_as_the_spec_says_and_another_attempt_may_work() {
        let provider = Simulated::default();
        let spec = spec(SimulatedProvider { failure_percent: 30, ..SimulatedProvider::default() });
        for n in 0..1000 {
            ask(&provider, &spec, &format!("n-{n:04}"), 0).unwrap();
        }
        let failed = |provider: &Simulated| -> Vec<String> {
            let machines = provider.machines(&key(), at(1000)).now_or_never().unwrap();
            machines
                .into_iter()
                .filter(|(_, p)| matches!(p, Progress::Failed(_)))
                .map(|(name, _)| name)
                .collect()
        };
        let first = failed(&provider);
        assert!((200..400).contains(&first.len()), "{}", first.len());
        for name in &first {
            provider.drop_request(&key(), name).now_or_never().unwrap();
            ask(&provider, &spec, name, 0).unwrap();
        }
        assert!(failed(&provider).len() < first.len() / 2);
    }

    #[test]
    fn the_quota_counts_what_the_pool_has_already() {
        let provider = Simulated::default();
        let spec = spec(SimulatedProvider { quota: Some(3), ..SimulatedProvider::default() });
        assert!(ask(&provider, &spec, "a", 2).is_ok());
        assert_eq!(ask(&provider, &spec, "b", 3), Err(Refusal::Quota(3)));
        assert_eq!(
            ask(&provider, &spec, "a", 3).map(|due| due.is_some()),
            Ok(true),
            "a repeated request is not a new one"
        );
    }
}
