//! Calls to providers that sometimes fail: which one a pool has, what failed, and when to retry.

mod changes;
mod failed_machines;
mod findings;
mod records;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use node_lifecycle::keys::{ClusterId, PoolKey};
use node_lifecycle::supply::{Machine, MachineState, NodeSource, Supply};
use shared_crds::NodePool;
use shared_crds::v1alpha1::ProviderSpec;
use shared_runtime::fence::Fence;
use shared_runtime::write::Writer;

pub use self::findings::ListFindings;
use super::cluster_api::ClusterApi;
use super::cluster_api::management::Management;
use super::exec::Exec;
use super::failures::Failures;
use super::karpenter::Karpenter;
use super::known_ids::KnownIds;
use super::origin::Foreign;
pub use super::selected::SizeChange;
use super::selected::{Listing, Selected, reference_of};
use super::simulated::Simulated;
use super::{ListedMachine, NamedProvider, Progress, ProviderError, SizedProvider};

/// The providers, with the failures of their calls.
pub struct Provisioner {
    cluster: ClusterId,
    named: Vec<Box<dyn NamedProvider>>,
    sized: Vec<Box<dyn SizedProvider>>,
    failures: Failures,
    ids: KnownIds,
    foreign: Foreign,
    /// Whether this process may change anything now. The writes of providers to an API server have it too, and programs
    /// have none.
    fence: Option<Fence>,
}

impl Provisioner {
    /// Knows every provider of this version, and these programs. `own` is the client and the writer of this
    /// cluster, which is `cluster`.
    pub fn new(
        cluster: &ClusterId,
        own: (Client, Writer),
        management: Management,
        programs: Vec<Exec>,
    ) -> Self {
        let of_cluster: [Box<dyn NamedProvider>; 2] =
            [Box::new(Simulated::default()), Box::new(Karpenter::new(own.0, own.1, cluster.clone()))];
        let programs = programs.into_iter().map(|program| Box::new(program) as _);
        let mut this = Self::with(cluster.clone(), of_cluster.into_iter().chain(programs).collect());
        this.sized.push(Box::new(ClusterApi::new(management)));
        this
    }

    /// The same for a process that may lose its leadership.
    #[must_use]
    pub fn fenced(self, fence: Fence) -> Self {
        Self { fence: Some(fence), ..self }
    }

    fn may_change(&self) -> Result<(), ProviderError> {
        let passed = self.fence.as_ref().map(Fence::pass).transpose();
        passed.map(|_time| ()).map_err(|_fenced| ProviderError::Conflict)
    }

    /// The answer to a call that changes something, which is given up with the lease: the next leader may change the same.
    async fn leading<T>(
        &self,
        call: impl Future<Output = Result<T, ProviderError>>,
    ) -> Result<T, ProviderError> {
        let Some(fence) = &self.fence else { return call.await };
        tokio::select! {
            biased;
            () = fence.lost().cancelled() => {
                Err(ProviderError::Unreachable("this process lost its lease during the call".to_owned()))
            }
            answer = call => answer,
        }
    }

    /// Knows these providers alone, for `cluster`.
    pub fn with(cluster: ClusterId, named: Vec<Box<dyn NamedProvider>>) -> Self {
        Self {
            cluster,
            named,
            sized: Vec::new(),
            failures: Failures::default(),
            ids: KnownIds::default(),
            foreign: Foreign::default(),
            fence: None,
        }
    }

    /// The provider that `reference` means.
    fn known<'a>(&'a self, reference: &'a str) -> Result<Selected<'a>, ProviderError> {
        let named = self.named.iter().find(|provider| provider.reference() == reference);
        let named = named.map(|provider| Selected::Named(&**provider));
        let sized = || {
            let of = |provider: &'a dyn SizedProvider| {
                Some(Selected::Sized(provider, provider.deployment(reference)?))
            };
            self.sized.iter().find_map(|provider| of(&**provider))
        };
        named.or_else(sized).ok_or_else(|| {
            let named = self.named.iter().map(|provider| provider.reference());
            let all: Vec<_> = named.chain(self.sized.iter().map(|provider| provider.kind())).collect();
            let all = all.join(", ");
            ProviderError::Invalid(format!(
                "it is {reference}, and nodepool-operator has {all}; its flag --exec-provider configures programs"
            ))
        })
    }

    /// The references of the providers that may have machines of a pool: the one it selects and those that were asked for
    /// machines, and all where the pool is gone.
    fn responsible(&self, key: &PoolKey, pool: Option<&NodePool>) -> BTreeSet<String> {
        let mut all = self.failures.asked(key);
        match pool {
            Some(pool) => all.extend(pool.spec.provider.reference()),
            None => all.extend(self.named.iter().map(|provider| provider.reference().to_owned())),
        }
        all.retain(|reference| self.known(reference).is_ok());
        all
    }

    /// What the provider says about the pool, which is `pool` unless it is gone, and what was found to be wrong. Nothing is
    /// changed: [`Self::end_failed`] does that. A failed machine is one that has to be deleted, unless it `has_node`: then
    /// its Node says how it is. The machines of a set that a `rival` uses are none of the pool's.
    pub async fn supply(
        &self,
        key: &PoolKey,
        pool: Option<&NodePool>,
        rival: Option<&PoolKey>,
        has_node: impl Fn(&ListedMachine) -> bool + Send + Sync,
        now: Timestamp,
    ) -> (Supply, ListFindings) {
        if let Some(pool) = pool {
            self.failures.restore(key, pool);
        }
        let generation = pool.and_then(|pool| pool.metadata.generation);
        let (mut machines, mut failed, mut is_unknown) = (Vec::new(), Vec::new(), false);
        let mut findings = ListFindings::default();
        let (mut former, mut shown, mut deleted_ids) = (BTreeSet::new(), BTreeMap::new(), BTreeSet::new());
        let (mut own, mut unproven, mut foreign) = (Listing::default(), BTreeSet::new(), BTreeMap::new());
        let (mut unlisted, mut absent) = (BTreeMap::new(), BTreeMap::new());
        let current = pool.map(|pool| pool.spec.provider.reference());
        for reference in self.responsible(key, pool) {
            let is_former = current.as_ref().is_some_and(|current| current.as_deref() != Some(&*reference));
            let Ok(provider) = self.known(&reference) else { continue };
            let spec = pool.filter(|_| !is_former).map(|pool| &pool.spec.provider);
            let list = match rival.filter(|_| !is_former) {
                Some(rival) => Err(ProviderError::Absent(format!(
                    "{reference} is used by the pool {rival} already, and only one pool may size it: use another one"
                ))),
                None => provider.list((&self.cluster, key), spec, now).await,
            };
            match list {
                Ok(listing) if is_former && listing.machines.is_empty() => {
                    foreign.extend(listing.foreign);
                    self.failures.has_none_left(key, &reference);
                }
                Ok(mut listing) => {
                    let (listed, without_cluster) = listing.take_machines(&mut foreign);
                    if is_former {
                        former.insert(reference.clone());
                    } else {
                        self.failures.has_machines(key, &reference, listed.len());
                        own = listing;
                    }
                    shown.extend(listed.iter().map(|(machine, _)| {
                        let is_settled = matches!(machine.progress, Progress::Running | Progress::Failed(_));
                        (machine.name.clone(), is_settled)
                    }));
                    let may_go = |it: &&ListedMachine| !has_node(it) && !without_cluster.contains(&it.name);
                    let ended: Vec<_> = (listed.iter().map(|(machine, _)| machine).filter(may_go))
                        .filter_map(|machine| self.find_failed(key, &reference, machine, &mut findings))
                        .collect();
                    let has_failed = |name: &String| ended.iter().any(|machine| machine.name == *name);
                    for (machine, is_marked) in listed {
                        let is_unproven = without_cluster.contains(&machine.name) && !has_node(&machine);
                        unproven.extend(is_unproven.then(|| machine.name.clone()));
                        let state = match &machine.progress {
                            Progress::Failed(_) if has_failed(&machine.name) => MachineState::Deleting,
                            Progress::Failed(_) | Progress::Running => {
                                self.failures.slots(key, |slots| slots.runs(&machine.name));
                                MachineState::Running
                            }
                            Progress::Starting(until) => MachineState::Starting { until: *until },
                            Progress::Deleting => MachineState::Deleting,
                        };
                        let ListedMachine {
                            name,
                            provider_id,
                            progress: _,
                            template_hash,
                            cluster: _,
                            known_as,
                        } = machine;
                        machines.push(Machine {
                            name,
                            state,
                            provider_id,
                            is_marked,
                            template_hash,
                            known_as,
                        });
                    }
                    failed.extend(ended);
                }
                // Then there are no machines.
                Err(error @ ProviderError::Absent(_)) => {
                    absent.insert(reference.clone(), error.to_string());
                    findings.failures.push(error);
                }
                Err(error) => {
                    is_unknown = true;
                    unlisted.insert(reference.clone(), error.to_string());
                    if is_former {
                        former.insert(reference.clone());
                    }
                    findings.failures.push(error);
                }
            }
        }
        if is_unknown {
            machines.clear();
        } else {
            self.foreign.record(key, &foreign);
            deleted_ids = self.ids.record_list(key, &machines, now);
            if let Some(name) = self.failures.unlisted(key, &shown, now).first() {
                let why = match pool {
                    Some(pool) => self.explain(key, &pool.spec.provider, name).await,
                    None => None,
                };
                let why = why.map(|why| format!(": {why}")).unwrap_or_default();
                let message = format!("it accepted the creation of {name} and does not list it{why}");
                let error = ProviderError::Transient(message);
                findings.slots.push((name.clone(), error.reason()));
                findings.failures.push(error);
            }
        }
        let source = pool.map_or_else(|| Err(String::new()), |pool| self.node_source(&pool.spec.provider));
        let foreseen = self.foreseen(key, &findings, now);
        if foreseen.is_none() {
            self.failures.spec_is(key, generation);
        } else {
            // The pool's own failure will be one of this spec.
            self.failures.slots(key, |slots| slots.spec_is(generation));
        }
        let (taken, failure) = (self.failures.taken(key), foreseen.or_else(|| self.failures.last(key)));
        let mut passed_over = self.failures.slots(key, |slots| slots.passed_over(now));
        passed_over.extend(findings.slots.iter().map(|(name, _)| name.clone()));
        let uncertain = [self.failures.uncertain_until(key), self.ids.uncertain_until(key, now)];
        let uncertain_until = uncertain.into_iter().flatten().max();
        let Listing {
            machines: _,
            unproven: _,
            foreign: _,
            size,
            size_writer,
            capacity,
            traits,
            trouble,
            removals_wait,
            rolling,
            completeness,
        } = own;
        let own_list = current.flatten().and_then(|current| unlisted.get(&current));
        let removals_wait = removals_wait.or_else(|| own_list.map(|why| unlisted_machines(why)));
        let supply = Supply {
            source,
            machines,
            failed,
            unproven,
            foreign,
            traits,
            trouble,
            is_unknown,
            size,
            size_writer,
            capacity,
            completeness,
            unlisted,
            absent,
            removals_wait,
            rolling,
            uncertain_until,
            deleted_ids,
            former,
            taken,
            passed_over,
            failure,
        };
        (supply, findings)
    }

    /// Why the machine `name` did not come, or was given up, in the words of whoever makes it.
    pub async fn explain(&self, key: &PoolKey, spec: &ProviderSpec, name: &str) -> Option<String> {
        self.known(&spec.reference()?).ok()?.explain(key, name).await
    }

    fn node_source(&self, spec: &ProviderSpec) -> Result<NodeSource, String> {
        let source = reference_of(spec).and_then(|reference| match self.known(&reference)? {
            Selected::Named(provider) => provider.node_source(spec),
            Selected::Sized(provider, _) => provider.node_source(spec),
        });
        source.map_err(|error| error.to_string())
    }

    /// Whether only one pool may use what `reference` means.
    pub fn is_for_one_pool(&self, reference: &str) -> bool {
        matches!(self.known(reference), Ok(Selected::Sized(..)))
    }

    /// The pool that lists, or has deleted, a machine with the node's provider ID.
    pub fn awaiting(&self, node: &Node) -> Option<PoolKey> {
        let id = node.spec.as_ref()?.provider_id.as_deref()?;
        self.ids.pool_of(id)
    }
}

/// Why no machine may be removed while those of the pool's provider cannot be listed.
fn unlisted_machines(why: &str) -> String {
    format!("the machines cannot be listed, so none is removed: {why}")
}

#[cfg(test)]
#[path = "provisioner_tests.rs"]
mod tests;
