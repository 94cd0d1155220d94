//! Calls to providers that sometimes fail: which one a pool has, what failed, and when to retry.

mod failed_machines;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use shared_crds::NodePool;
use shared_crds::conditions::Reason;
use shared_crds::v1alpha1::{ProviderSpec, ProvisioningStatus};
use shared_runtime::fence::Fence;
use shared_runtime::write::Writer;

use super::cluster_api::ClusterApi;
use super::cluster_api::management::Management;
use super::exec::Exec;
use super::failures::Failures;
use super::karpenter::Karpenter;
use super::known_ids::KnownIds;
use super::selected::{Listing, Selected, in_time};
use super::simulated::Simulated;
use super::{
    CALL_LIMIT, Deletion, ListedMachine, MachineRequest, NamedProvider, Progress, ProviderError,
    SizedProvider,
};
use crate::plan::supply::{Machine, MachineState, NodeSource, ProvisioningFailure, Size};
use crate::plan::{PoolKey, Supply};

/// The providers, with the failures of their calls.
pub(crate) struct Provisioner {
    named: Vec<Box<dyn NamedProvider>>,
    sized: Vec<Box<dyn SizedProvider>>,
    failures: Failures,
    ids: KnownIds,
    /// Whether this process may change anything now. The writes of providers to an API server have it too, and programs
    /// have none.
    fence: Option<Fence>,
}

impl Provisioner {
    /// Knows every provider of this version, and these programs. `own` is the client and the writer of this cluster.
    pub(crate) fn new(own: (Client, Writer), management: Management, programs: Vec<Exec>) -> Self {
        let of_cluster: [Box<dyn NamedProvider>; 2] =
            [Box::new(Simulated::default()), Box::new(Karpenter::new(own.0, own.1))];
        let programs = programs.into_iter().map(|program| Box::new(program) as _);
        let mut this = Self::with(of_cluster.into_iter().chain(programs).collect());
        this.sized.push(Box::new(ClusterApi::new(management)));
        this
    }

    /// The same for a process that may lose its leadership.
    pub(crate) fn fenced(self, fence: Fence) -> Self {
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

    /// Knows the providers `named`.
    pub(crate) fn with(named: Vec<Box<dyn NamedProvider>>) -> Self {
        Self {
            named,
            sized: Vec::new(),
            failures: Failures::default(),
            ids: KnownIds::default(),
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

    /// What the provider says about the pool, which is `pool` unless it is gone, and the machines that were found to
    /// have failed. A failed machine is deleted, unless it `has_node`: then its Node says how it is. The machines of a set
    /// that a `rival` uses are none of the pool's.
    pub(crate) async fn supply(
        &self,
        key: &PoolKey,
        pool: Option<&NodePool>,
        rival: Option<&PoolKey>,
        has_node: impl Fn(&ListedMachine) -> bool + Send + Sync,
        now: Timestamp,
    ) -> (Supply, Vec<ProviderError>) {
        if let Some(pool) = pool {
            self.failures.restore(key, pool);
        }
        let generation = pool.and_then(|pool| pool.metadata.generation);
        let (mut machines, mut failures, mut is_unknown) = (Vec::new(), Vec::new(), false);
        let (mut former, mut shown, mut deleted_ids) = (BTreeSet::new(), BTreeMap::new(), BTreeSet::new());
        let mut own = Listing::default();
        let current = pool.map(|pool| pool.spec.provider.reference());
        for reference in self.responsible(key, pool) {
            let is_former = current.as_ref().is_some_and(|current| current.as_deref() != Some(&*reference));
            let Ok(provider) = self.known(&reference) else { continue };
            let spec = pool.filter(|_| !is_former).map(|pool| &pool.spec.provider);
            let list = match rival.filter(|_| !is_former) {
                Some(rival) => Err(ProviderError::Absent(format!(
                    "{reference} is used by the pool {rival} already, and only one pool may size it: use another one"
                ))),
                None => provider.list(key, spec, now).await,
            };
            match list {
                Ok(listing) if is_former && listing.machines.is_empty() => {
                    self.failures.has_none_left(key, &reference);
                }
                Ok(mut listing) => {
                    let listed = std::mem::take(&mut listing.machines);
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
                    let failed = listed.iter().map(|(machine, _)| machine);
                    let failed: Vec<_> = failed
                        .filter(|it| matches!(it.progress, Progress::Failed(_)) && !has_node(it))
                        .cloned()
                        .collect();
                    let at = (generation, now);
                    let gone = self.end_failed(provider, key, &failed, at, &mut failures).await;
                    let has_failed = |name: &String| failed.iter().any(|machine| machine.name == *name);
                    for (machine, is_marked) in listed {
                        let state = match &machine.progress {
                            Progress::Failed(_) if gone.contains(&machine.name) => continue,
                            Progress::Failed(_) if has_failed(&machine.name) => MachineState::Deleting,
                            Progress::Failed(_) | Progress::Running => {
                                self.failures.slots(key, |slots| slots.runs(&machine.name));
                                MachineState::Running
                            }
                            Progress::Starting(until) => MachineState::Starting { until: *until },
                            Progress::Deleting => MachineState::Deleting,
                        };
                        let ListedMachine { name, provider_id, progress: _, template_hash } = machine;
                        machines.push(Machine { name, state, provider_id, is_marked, template_hash });
                    }
                }
                // Then there are no machines.
                Err(error @ ProviderError::Absent(_)) => failures.push(error),
                Err(error) => {
                    is_unknown = true;
                    if is_former {
                        former.insert(reference.clone());
                    }
                    failures.push(error);
                }
            }
        }
        if is_unknown {
            machines.clear();
        } else {
            deleted_ids = self.ids.record_list(key, &machines, now);
            if let Some(name) = self.failures.unlisted(key, &shown, now).first() {
                let why = match pool {
                    Some(pool) => self.explain(key, &pool.spec.provider, name).await,
                    None => None,
                };
                let why = why.map(|why| format!(": {why}")).unwrap_or_default();
                let message = format!("it accepted the creation of {name} and does not list it{why}");
                let error = ProviderError::Transient(message);
                self.slot_failed(key, generation, name, error.reason(), now);
                failures.push(error);
            }
        }
        // Machines that were requested together often fail together, and a list that fails is repeated with every pass:
        // one failure until its backoff is over.
        let in_force = self.last_failure(key).is_some_and(|failure| failure.retry_at > now);
        if let Some(error) = failures.first().filter(|_| !in_force) {
            self.record_failure(key, generation, error.reason(), error.to_string(), now);
        }
        let source = pool.map_or_else(|| Err(String::new()), |pool| self.node_source(&pool.spec.provider));
        self.failures.spec_is(key, generation);
        let (taken, failure) = (self.failures.taken(key), self.failures.last(key));
        let passed_over = self.failures.slots(key, |slots| slots.passed_over(now));
        let uncertain = [self.failures.uncertain_until(key), self.ids.uncertain_until(key, now)];
        let uncertain_until = uncertain.into_iter().flatten().max();
        let Listing { machines: _, size, size_writer, capacity, traits, trouble, removals_wait, rolling } =
            own;
        let supply = Supply {
            source,
            machines,
            traits,
            trouble,
            is_unknown,
            size,
            size_writer,
            capacity,
            removals_wait,
            rolling,
            uncertain_until,
            deleted_ids,
            former,
            taken,
            passed_over,
            failure,
        };
        (supply, failures)
    }

    /// Why the machine `name` did not come, or was given up, in the words of whoever makes it.
    pub(crate) async fn explain(&self, key: &PoolKey, spec: &ProviderSpec, name: &str) -> Option<String> {
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
    pub(crate) fn is_for_one_pool(&self, reference: &str) -> bool {
        matches!(self.known(reference), Ok(Selected::Sized(..)))
    }

    /// The pool that lists, or has deleted, a machine with the node's provider ID.
    pub(crate) fn awaiting(&self, node: &Node) -> Option<PoolKey> {
        let id = node.spec.as_ref()?.provider_id.as_deref()?;
        self.ids.pool_of(id)
    }

    /// Requests a machine. Returns when it is expected; `None` when the provider does not know.
    pub(crate) async fn create(
        &self,
        request: MachineRequest<'_>,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, ProviderError> {
        self.may_change()?;
        let (key, name) = (request.pool, request.name);
        let reference = reference_of(&request.spec.provider)?;
        let Selected::Named(provider) = self.known(&reference)? else {
            return Err(ProviderError::Invalid(format!("{reference} makes no machine by name")));
        };
        self.failures.asking(key, &reference);
        let created = self.leading(in_time(provider.call_limit(), provider.create(request, now))).await;
        match &created {
            Ok(_) => self.failures.accepted(key, name),
            Err(ProviderError::Unreachable(_)) => self.failures.unanswered(key, name, now),
            Err(_) => {}
        }
        created
    }

    /// Changes the number of machines of a provider that keeps one.
    pub(crate) async fn resize(
        &self,
        key: &PoolKey,
        spec: &ProviderSpec,
        from: Size,
        change: SizeChange<'_>,
    ) -> Result<(), ProviderError> {
        self.may_change()?;
        let reference = reference_of(spec)?;
        let Selected::Sized(provider, name) = self.known(&reference)? else {
            return Err(ProviderError::Invalid(format!("{reference} keeps no number of machines")));
        };
        self.failures.asking(key, &reference);
        match change {
            SizeChange::Grow(by) => {
                self.leading(in_time(CALL_LIMIT, provider.grow(key, name, from, by))).await
            }
            SizeChange::Without(machines) => {
                for machine in machines {
                    self.ids.deleted(key, machine);
                }
                self.leading(in_time(CALL_LIMIT, provider.shrink(key, name, from, machines))).await
            }
            SizeChange::Keep(machine) => self.leading(in_time(CALL_LIMIT, provider.keep(key, machine))).await,
        }
    }

    /// Deletes the machine `name` of the pool, which is `pool` unless it is gone. `made_by` is the reference of its
    /// provider, if that is known.
    pub(crate) async fn delete(
        &self,
        key: &PoolKey,
        pool: Option<&NodePool>,
        made_by: Option<&str>,
        name: &str,
    ) -> Result<Deletion, ProviderError> {
        self.may_change()?;
        self.failures.unwanted(key, name);
        if let Some(reference) = made_by {
            return self.leading(self.known(reference)?.delete(key, name)).await;
        }
        if let Some(pool) = pool {
            // Without its provider it is not known whether there is a machine, so its Node is kept.
            self.known(&reference_of(&pool.spec.provider)?)?;
        }
        self.ids.deleted(key, name);
        let mut deletion = Deletion::Gone;
        for reference in self.responsible(key, pool) {
            deletion = deletion.max(self.leading(self.known(&reference)?.delete(key, name)).await?);
        }
        Ok(deletion)
    }

    /// Drops everything about a pool that is gone, with its nodes.
    pub(crate) fn forget(&self, key: &PoolKey) {
        self.failures.forget(key);
        self.ids.forget(key);
        self.named.iter().for_each(|provider| provider.forget(key));
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
        self.failures.record(key, generation, reason, message, now)
    }

    /// Records that the provider made a node. That says nothing about nodes that are made and never become Ready.
    pub(crate) fn node_created(&self, key: &PoolKey) {
        self.failures.node_created(key);
    }

    /// What the pool's status should remember about its providers.
    pub(crate) fn remembered(&self, key: &PoolKey) -> ProvisioningStatus {
        self.failures.remembered(key)
    }

    /// Records that the pool has every node it wants.
    pub(crate) fn pool_complete(&self, key: &PoolKey) {
        self.failures.pool_complete(key);
    }

    /// The current failure of the pool's requests; `None` without one.
    pub(crate) fn last_failure(&self, key: &PoolKey) -> Option<ProvisioningFailure> {
        self.failures.last(key)
    }

    /// Records that the machine of a slot did not come: the slot is passed over for a while.
    pub(crate) fn slot_failed(
        &self,
        key: &PoolKey,
        generation: Option<i64>,
        name: &str,
        reason: Reason,
        now: Timestamp,
    ) {
        self.failures.slots(key, |slots| slots.failed(name, generation, reason, now));
    }

    /// Records that machines of single slots were not made while the provider makes others.
    pub(crate) fn note_failure(
        &self,
        key: &PoolKey,
        generation: Option<i64>,
        reason: Reason,
        message: String,
        now: Timestamp,
    ) -> ProvisioningFailure {
        self.failures.note(key, generation, reason, message, now)
    }

    /// Records that a Node of another owner has the name of one of the pool's slots.
    pub(crate) fn slot_taken(&self, key: &PoolKey, name: &str) {
        self.failures.slot_taken(key, name);
    }
}

/// A change of the number of machines that a provider keeps.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SizeChange<'a> {
    /// So many more.
    Grow(i32),
    /// These have to go.
    Without(&'a [String]),
    /// No change: this one need not go any more.
    Keep(&'a str),
}

fn reference_of(spec: &ProviderSpec) -> Result<String, ProviderError> {
    spec.reference().ok_or_else(|| {
        ProviderError::Invalid("it does not set exactly one provider that this version knows".to_owned())
    })
}

#[cfg(test)]
#[path = "provisioner_tests.rs"]
mod tests;
