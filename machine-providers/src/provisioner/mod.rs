//! Calls to providers that sometimes fail: which one a pool has, what failed, and when to retry.

mod changes;
mod failed_machines;
mod findings;
mod found;
mod listing;
mod pausing;
mod records;

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use node_lifecycle::keys::{ClusterId, PoolKey};
use node_lifecycle::supply::{NodeSource, Supply};
use shared_crds::NodePool;
use shared_crds::v1alpha1::ProviderSpec;
use shared_runtime::fence::Fence;
use shared_runtime::rate::Rate;
use shared_runtime::write::Writer;

pub use self::findings::ListFindings;
pub use self::found::Lists;
use self::found::{AskedPool, Found, FromRecords, Lister};
use self::listing::NoList;
use super::calls::{CallObserver, CallRates, Calls};
use super::cluster_api::ClusterApi;
use super::cluster_api::management::Management;
use super::exec::Exec;
use super::failures::Failures;
use super::karpenter::Karpenter;
use super::known_ids::KnownIds;
use super::lists::RecentLists;
use super::origin::Foreign;
use super::pauses::ProviderPauses;
pub use super::selected::SizeChange;
use super::selected::{Selected, reference_of};
use super::simulated::Simulated;
use super::unending::Unending;
use super::{Explanation, ListedMachine, NamedProvider, ProviderError, SizedProvider};

/// The providers, with the failures of their calls.
pub struct Provisioner {
    cluster: ClusterId,
    named: Vec<Box<dyn NamedProvider>>,
    sized: Vec<Box<dyn SizedProvider>>,
    failures: Failures,
    pauses: ProviderPauses,
    calls: Calls,
    lists: RecentLists,
    ids: KnownIds,
    unending: Unending,
    foreign: Foreign,
    /// Whether this process may change anything now. The writes of providers to an API server have it too, and programs
    /// have none.
    fence: Option<Fence>,
}

impl Provisioner {
    /// Knows every provider of this version, and these programs. The `client` and the `writer` are of this cluster, which is
    /// `cluster`.
    pub fn new(
        cluster: &ClusterId,
        client: Client,
        writer: Writer,
        management: Management,
        programs: Vec<Exec>,
    ) -> Self {
        let of_cluster: [Box<dyn NamedProvider>; 2] =
            [Box::new(Simulated::default()), Box::new(Karpenter::new(client, writer, cluster.clone()))];
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

    /// The same, and `observer` hears of every call to a provider.
    #[must_use]
    pub fn observed_by(mut self, observer: Arc<dyn CallObserver>) -> Self {
        self.calls.observer = Some(observer);
        self
    }

    /// The same, and each provider gets calls at this `rate`, over all pools. What is too much waits for up to a minute.
    #[must_use]
    pub fn at_rate(mut self, rate: Rate) -> Self {
        self.calls.rates = Some(CallRates::new(rate));
        self
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
            pauses: ProviderPauses::default(),
            calls: Calls::default(),
            lists: RecentLists::default(),
            ids: KnownIds::default(),
            unending: Unending::default(),
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

    /// The references of the providers whose lists tell the machines of the pool. Of one that is gone these are its own, if this process
    /// has seen it: the others may refuse their lists, or take long to fail.
    fn listers(&self, key: &PoolKey, pool: Option<&NodePool>) -> BTreeSet<String> {
        let Some(selected) = self.failures.selected(key).filter(|_| pool.is_none()) else {
            return self.responsible(key, pool);
        };
        let mut all = self.failures.asked(key);
        // One that keeps a number of machines has some of the pool only if it was asked, and may have others.
        all.extend(Some(selected).filter(|it| !self.is_for_one_pool(it)));
        all.retain(|reference| self.known(reference).is_ok());
        all
    }

    /// What the provider says about the pool, which is `pool` unless it is gone, and what was found to be wrong. Nothing is
    /// changed: [`Self::end_failed`] does that. A failed machine is one that has to be deleted, unless it `has_node`: then
    /// its Node says how it is. The machines of a set that a `competing` pool uses are none of the pool's. `lists` says how
    /// current all of it has to be; a list that has just failed is not repeated in either case.
    pub async fn supply(
        &self,
        key: &PoolKey,
        pool: Option<&NodePool>,
        competing: Option<&PoolKey>,
        has_node: impl Fn(&ListedMachine) -> bool + Send + Sync,
        lists: Lists<'_>,
        now: Timestamp,
    ) -> (Supply, ListFindings) {
        if let Some(pool) = pool {
            self.failures.restore(key, pool);
        }
        self.failures.clock_is(key, now);
        let generation = pool.and_then(|pool| pool.metadata.generation);
        self.lists.spec_is(key, generation);
        let stays = pool.is_some_and(|pool| pool.metadata.deletion_timestamp.is_none());
        let lists = if stays { lists } else { Lists::Now };
        let asked = AskedPool { key, generation, now, lists };
        let mut found = Found::default();
        let current = pool.map(|pool| pool.spec.provider.reference());
        for reference in self.listers(key, pool) {
            let is_former = current.as_ref().is_some_and(|current| current.as_deref() != Some(&*reference));
            let Ok(provider) = self.known(&reference) else { continue };
            let spec = pool.filter(|_| !is_former).map(|pool| &pool.spec.provider);
            let lister = Lister { reference: &reference, is_former };
            let competing = competing.filter(|_| !is_former);
            let recent = if competing.is_none() { self.recent_list(asked, lister, &has_node) } else { None };
            let list = match (competing, recent) {
                (Some(competing), _) => Err(NoList::from(ProviderError::Absent(format!(
                    "{reference} is used by the pool {competing} already, and only one pool may size it: use another one"
                )))),
                (None, Some((listing, end))) => {
                    found.findings.is_recent = true;
                    found.findings.wait_until(end);
                    Ok(listing)
                }
                (None, None) => self.list_now(asked, lister, provider, spec).await,
            };
            match list {
                Ok(listing) if is_former && listing.machines.is_empty() => {
                    found.foreign.extend(listing.foreign);
                    self.failures.has_none_left(key, &reference);
                }
                Ok(listing) => self.take_list(asked, lister, listing, &has_node, &mut found),
                Err(NoList { error, again_at }) => found.take_error(lister, error, again_at),
            }
        }
        let (deleted_ids, outdated_before) = if found.is_unknown {
            // All of a pool that is gone have to go, whatever is missing.
            if pool.is_some() {
                found.machines.clear();
            }
            (BTreeSet::new(), self.ids.outdated(key))
        } else {
            (self.all_listed(asked, pool, &mut found).await, BTreeSet::new())
        };
        let own_list = current.flatten().and_then(|current| found.unlisted.get(&current));
        let own_unlisted = own_list.map(|why| unlisted_machines(why));
        self.supplied(asked, pool, found, FromRecords { deleted_ids, outdated_before, own_unlisted })
    }

    /// Why the machine `name` did not come, or was given up, in its provider's words.
    pub async fn explain(&self, key: &PoolKey, spec: &ProviderSpec, name: &str) -> Option<Explanation> {
        self.known(&spec.reference()?).ok()?.explain(&self.calls, key, name).await
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
mod gone_pool_tests;
#[cfg(test)]
mod listing_tests;
#[cfg(test)]
mod pausing_tests;
#[cfg(test)]
#[path = "provisioner_tests.rs"]
mod tests;
