//! Calls to providers that sometimes fail: which one a pool has, what failed, and when to retry.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use shared_crds::NodePool;
use shared_crds::conditions::Reason;
use shared_crds::v1alpha1::ProviderSpec;
use shared_runtime::write::Writer;

use super::exec::{Exec, Program};
use super::failures::Failures;
use super::karpenter::Karpenter;
use super::known_ids::KnownIds;
use super::simulated::Simulated;
use super::{Deletion, ListedMachine, MachineRequest, NamedProvider, Progress, ProviderError};
use crate::plan::supply::{Machine, MachineState, NodeSource, ProvisioningFailure};
use crate::plan::{PoolKey, Supply, slots};

/// How long a call to a provider may take. The pool waits for it, and other pools do not.
pub(super) const CALL_LIMIT: Duration = Duration::from_secs(30);

/// The providers, with the failures of their calls.
pub(crate) struct Provisioner {
    providers: Vec<Box<dyn NamedProvider>>,
    failures: Failures,
    ids: KnownIds,
}

impl Provisioner {
    /// Knows every provider of this version, and these programs. Writes to the API server are made by `writer`.
    pub(crate) fn new(client: Client, writer: Writer, programs: Vec<Program>) -> Self {
        let own: [Box<dyn NamedProvider>; 2] =
            [Box::new(Simulated::default()), Box::new(Karpenter::new(client, writer))];
        let programs = programs.into_iter().map(|program| Box::new(Exec::new(program)) as _);
        Self::with(own.into_iter().chain(programs).collect())
    }

    /// Knows `providers`.
    pub(crate) fn with(providers: Vec<Box<dyn NamedProvider>>) -> Self {
        Self { providers, failures: Failures::default(), ids: KnownIds::default() }
    }

    /// The provider that `spec` selects.
    fn selected(&self, spec: &ProviderSpec) -> Result<&dyn NamedProvider, ProviderError> {
        let reference = spec.reference().ok_or_else(|| {
            ProviderError::Invalid("it does not set exactly one provider that this version knows".to_owned())
        })?;
        self.known(&reference)
    }

    fn known(&self, reference: &str) -> Result<&dyn NamedProvider, ProviderError> {
        let known = self.providers.iter().find(|provider| provider.reference() == reference);
        known.map(|provider| &**provider).ok_or_else(|| {
            let all: Vec<_> = self.providers.iter().map(|provider| provider.reference()).collect();
            let all = all.join(", ");
            ProviderError::Invalid(format!(
                "it is {reference}, and nodepool-operator has {all}; its flag --exec-provider configures programs"
            ))
        })
    }

    /// The providers that may have machines of a pool: the one it selects and those that were asked for machines, and all
    /// where the pool is gone.
    fn responsible(
        &self,
        key: &PoolKey,
        pool: Option<&NodePool>,
    ) -> impl Iterator<Item = &dyn NamedProvider> {
        let asked = self.failures.asked(key);
        let current = pool.map(|pool| pool.spec.provider.reference());
        self.providers.iter().map(|provider| &**provider).filter(move |provider| {
            let reference = provider.reference();
            current
                .as_ref()
                .is_none_or(|current| current.as_deref() == Some(reference) || asked.contains(reference))
        })
    }

    /// What the provider says about the pool, which is `pool` unless it is gone, and the machines that were found to
    /// have failed. A failed machine is deleted, unless it `has_node`: then its Node says how it is.
    pub(crate) async fn supply(
        &self,
        key: &PoolKey,
        pool: Option<&NodePool>,
        has_node: impl Fn(&ListedMachine) -> bool + Send + Sync,
        now: Timestamp,
    ) -> (Supply, Vec<ProviderError>) {
        let (mut machines, mut failures, mut is_unknown) = (Vec::new(), Vec::new(), false);
        let (mut former, mut shown, mut deleted_ids) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let current = pool.map(|pool| pool.spec.provider.reference());
        for provider in self.responsible(key, pool) {
            let reference = provider.reference();
            let is_former = current.as_ref().is_some_and(|current| current.as_deref() != Some(reference));
            match in_time(provider.list(key, now)).await.and_then(|listed| credible(key, listed)) {
                Ok(listed) if is_former && listed.is_empty() => self.failures.has_none_left(key, reference),
                Ok(listed) => {
                    if is_former {
                        former.insert(reference.to_owned());
                    }
                    shown.extend(listed.iter().map(|machine| machine.name.clone()));
                    for machine in listed {
                        let (error, state) = match &machine.progress {
                            Progress::Failed(error) if !has_node(&machine) => {
                                failures.push(error.clone());
                                match in_time(provider.delete(key, &machine.name)).await {
                                    Ok(Deletion::Gone) => continue,
                                    Ok(Deletion::Started | Deletion::HandedOver) => {
                                        (None, MachineState::Deleting)
                                    }
                                    Err(error) => (Some(error), MachineState::Deleting),
                                }
                            }
                            Progress::Failed(_) | Progress::Running => (None, MachineState::Running),
                            Progress::Starting(until) => (None, MachineState::Starting { until: *until }),
                            Progress::Deleting => (None, MachineState::Deleting),
                        };
                        failures.extend(error);
                        let ListedMachine { name, provider_id, progress: _ } = machine;
                        machines.push(Machine { name, state, provider_id });
                    }
                }
                Err(error) => {
                    is_unknown = true;
                    if is_former {
                        former.insert(reference.to_owned());
                    }
                    failures.push(error);
                }
            }
        }
        if is_unknown {
            machines.clear();
        } else {
            deleted_ids = self.ids.record_list(key, &machines, now);
            let unlisted = self.failures.unlisted(key, shown.iter().map(String::as_str), now);
            failures.extend(unlisted.iter().next().map(|name| {
                ProviderError::Transient(format!("it accepted the creation of {name} and does not list it"))
            }));
        }
        let generation = pool.and_then(|pool| pool.metadata.generation);
        // Machines that were requested together often fail together, and a list that fails is repeated with every pass:
        // one failure until its backoff is over.
        let in_force = self.last_failure(key).is_some_and(|failure| failure.retry_at > now);
        if let Some(error) = failures.first().filter(|_| !in_force) {
            self.record_failure(key, generation, error.reason(), error.to_string(), now);
        }
        let source = pool.map_or_else(|| Err(String::new()), |pool| self.node_source(&pool.spec.provider));
        self.failures.spec_is(key, generation);
        let (taken, failure) = (self.failures.taken(key), self.failures.last(key));
        let uncertain = [self.failures.uncertain_until(key), self.ids.uncertain_until(key, now)];
        let uncertain_until = uncertain.into_iter().flatten().max();
        (
            Supply { source, machines, is_unknown, uncertain_until, deleted_ids, former, taken, failure },
            failures,
        )
    }

    fn node_source(&self, spec: &ProviderSpec) -> Result<NodeSource, String> {
        let source = self.selected(spec).and_then(|provider| provider.node_source(spec));
        source.map_err(|error| error.to_string())
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
        let (key, name) = (request.pool, request.name);
        let provider = self.selected(&request.spec.provider)?;
        self.failures.asking(key, provider.reference());
        let created = in_time(provider.create(request, now)).await;
        match &created {
            Ok(_) => self.failures.accepted(key, name),
            Err(ProviderError::Unreachable(_)) => self.failures.unanswered(key, name, now),
            Err(_) => {}
        }
        created
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
        if let Some(reference) = made_by {
            return in_time(self.known(reference)?.delete(key, name)).await;
        }
        if let Some(pool) = pool {
            // Without its provider it is not known whether there is a machine, so its Node is kept.
            self.selected(&pool.spec.provider)?;
        }
        self.ids.deleted(key, name);
        let mut deletion = Deletion::Gone;
        for provider in self.responsible(key, pool) {
            deletion = deletion.max(in_time(provider.delete(key, name)).await?);
        }
        Ok(deletion)
    }

    /// Drops everything about a pool that is gone, with its nodes.
    pub(crate) fn forget(&self, key: &PoolKey) {
        self.failures.forget(key);
        self.ids.forget(key);
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
        self.failures.record(key, generation, reason, message, now)
    }

    /// Records that the provider made a node. That says nothing about nodes that are made and never become Ready.
    pub(crate) fn node_created(&self, key: &PoolKey) {
        self.failures.node_created(key);
    }

    /// Records that the pool has every node it wants.
    pub(crate) fn pool_complete(&self, key: &PoolKey) {
        self.failures.pool_complete(key);
    }

    /// The current failure of the pool's requests; `None` without one.
    pub(crate) fn last_failure(&self, key: &PoolKey) -> Option<ProvisioningFailure> {
        self.failures.last(key)
    }

    /// Records that a Node of another owner has the name of one of the pool's slots.
    pub(crate) fn slot_taken(&self, key: &PoolKey, name: &str) {
        self.failures.slot_taken(key, name);
    }
}

/// The list of a pool's machines, unless it cannot be true: the names are those of the pool's slots, and neither a name
/// nor a provider ID comes twice.
fn credible(key: &PoolKey, listed: Vec<ListedMachine>) -> Result<Vec<ListedMachine>, ProviderError> {
    let (prefix, mut names, mut ids) = (slots::prefix(key), BTreeSet::new(), BTreeMap::new());
    for ListedMachine { name, provider_id, progress: _ } in &listed {
        let lie = if !slots::is_slot(name, &prefix) {
            Some(format!("{name:?}, which is not a machine of this pool (they are called {prefix}<number>)"))
        } else if !names.insert(name) {
            Some(format!("{name} twice"))
        } else {
            let same = provider_id.as_ref().and_then(|id| ids.insert(id, name));
            same.map(|other| format!("{other} and {name} with the same provider ID"))
        };
        if let Some(lie) = lie {
            return Err(ProviderError::Transient(format!(
                "it lists {lie}, so nothing is concluded from its list"
            )));
        }
    }
    Ok(listed)
}

/// The answer of a provider, which has to come within [`CALL_LIMIT`].
async fn in_time<T>(call: impl Future<Output = Result<T, ProviderError>>) -> Result<T, ProviderError> {
    tokio::time::timeout(CALL_LIMIT, call).await.unwrap_or_else(|_elapsed| {
        Err(ProviderError::Unreachable(format!("no answer within {} s", CALL_LIMIT.as_secs())))
    })
}

#[cfg(test)]
#[path = "provisioner_tests.rs"]
mod tests;
