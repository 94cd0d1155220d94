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
use node_lifecycle::hash;
use node_lifecycle::keys::PoolKey;
use node_lifecycle::supply::{Completeness, KnownAs, NodeSource, NodeTraits};
use shared_crds::v1alpha1::{ProviderLie, ProviderSpec, SimulatedProvider};

use super::{Deletion, ListedMachine, MachineRequest, NamedProvider, Progress, ProviderError};

/// Annotation on a Node: when it dies, RFC 3339. The stage of kwok in `docs/providers/simulated.md` then takes the label away
/// by which kwok knows its nodes, which ends the node's heartbeats. It is on the Node and not in this process, so that a
/// restart postpones no death.
const DEATH_TIME_ANNOTATION: &str = "tandem.dev/simulated-death-time";

#[derive(Debug)]
struct SimulatedMachine {
    due: Timestamp,
    fate: Fate,
}

/// What becomes of a machine when it is due.
#[derive(Debug)]
enum Fate {
    /// It never runs.
    Fails,
    /// It runs, and its Node never comes.
    NeverRegisters,
    /// It runs, with a Node that is as the template says but for these traits.
    Runs(Option<NodeTraits>),
}

#[derive(Debug, Default)]
struct Pool {
    machines: BTreeMap<String, SimulatedMachine>,
    attempts: HashMap<String, u32>,
    lie: Option<ProviderLie>,
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
        let due = machine.due;
        pool.machines.insert(request.name.to_owned(), machine);
        Ok(Some(due))
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
    let happens = |what, percent: i32| roll(what) % 100 < u64::try_from(percent).unwrap_or_default();
    let after = |time: Timestamp, delay| time.checked_add(delay).unwrap_or(Timestamp::MAX);
    let jitter_millis = u64::try_from(spec.jitter_seconds).unwrap_or_default() * 1000;
    let jitter = i64::try_from(roll("jitter") % (jitter_millis + 1)).unwrap_or_default();
    let seconds = |count: i32| SignedDuration::from_secs(i64::from(count));
    let due = after(now, seconds(spec.provision_seconds) + SignedDuration::from_millis(jitter));
    let death = happens("death", spec.death_percent).then(|| after(due, seconds(spec.death_after_seconds)));
    let is_undersized = happens("size", spec.undersized_percent);
    let fate = if happens("failure", spec.failure_percent) {
        Fate::Fails
    } else if happens("registration", spec.never_register_percent) {
        Fate::NeverRegisters
    } else {
        let lacks = if is_undersized { spec.undersized_by_percent } else { 0 };
        let annotation = |death: Timestamp| (DEATH_TIME_ANNOTATION.to_owned(), death.to_string());
        let traits = NodeTraits {
            annotations: death.map(annotation).into_iter().collect(),
            size_percent: 100_u8.saturating_sub(u8::try_from(lacks).unwrap_or_default()),
        };
        Fate::Runs((is_undersized || death.is_some()).then_some(traits))
    };
    SimulatedMachine { due, fate }
}

/// The machines of `pool` at `now`, as they are.
fn machines(pool: &Pool, now: Timestamp) -> Vec<ListedMachine> {
    let listed = |(name, machine): (&String, &SimulatedMachine)| {
        let progress = match machine {
            SimulatedMachine { due, .. } if *due > now => Progress::Starting(Some(*due)),
            SimulatedMachine { fate: Fate::Fails, .. } => {
                let message = format!("it could not start a machine for node {name}");
                Progress::Failed(ProviderError::Transient(message))
            }
            SimulatedMachine { fate: Fate::NeverRegisters, .. } => Progress::Starting(None),
            SimulatedMachine { fate: Fate::Runs(_), .. } => Progress::Running,
        };
        ListedMachine {
            name: name.clone(),
            progress,
            provider_id: None,
            template_hash: None,
            is_outdated: false,
            cluster: None,
            known_as: KnownAs::default(),
        }
    };
    pool.machines.iter().map(listed).collect()
}

/// What a provider lists that has these machines and tells this lie.
fn told(lie: Option<ProviderLie>, mut machines: Vec<ListedMachine>) -> Vec<ListedMachine> {
    match lie {
        None => {}
        Some(ProviderLie::EmptyList) => machines.clear(),
        Some(ProviderLie::DoubleName) => machines.extend(machines.clone()),
        Some(ProviderLie::ForeignName) => machines.push(ListedMachine {
            name: "another-pools-machine".to_owned(),
            progress: Progress::Running,
            provider_id: None,
            template_hash: None,
            is_outdated: false,
            cluster: None,
            known_as: KnownAs::default(),
        }),
    }
    machines
}

impl NamedProvider for Simulated {
    fn reference(&self) -> &'static str {
        "simulated"
    }

    fn is_local(&self) -> bool {
        true
    }

    fn node_source(&self, of: &ProviderSpec) -> Result<NodeSource, ProviderError> {
        spec(of)?;
        Ok(NodeSource::Operator { provider_id_prefix: "kwok://" })
    }

    fn spec_is(&self, pool: &PoolKey, spec: &ProviderSpec) {
        let lie = spec.simulated.as_ref().and_then(|simulated| simulated.lie);
        self.pools().entry(pool.clone()).or_default().lie = lie;
    }

    fn completeness(&self, _: &PoolKey) -> Completeness {
        // Its machines are the Nodes that the operator makes.
        Completeness::Certain
    }

    fn traits(&self, pool: &PoolKey) -> BTreeMap<String, NodeTraits> {
        let of_machine = |(name, machine): (&String, &SimulatedMachine)| match &machine.fate {
            Fate::Runs(Some(traits)) => Some((name.clone(), traits.clone())),
            Fate::Runs(None) | Fate::Fails | Fate::NeverRegisters => None,
        };
        let pools = self.pools();
        let machines = pools.get(pool).into_iter().flat_map(|pool| &pool.machines);
        machines.filter_map(of_machine).collect()
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
        async move {
            let pools = self.pools();
            Ok(pools.get(pool).map(|pool| told(pool.lie, machines(pool, now))).unwrap_or_default())
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
#[path = "simulated_hands.rs"]
pub(super) mod hands;
#[cfg(test)]
#[path = "simulated_tests.rs"]
mod tests;
