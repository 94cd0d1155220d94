//! One call to a provider of either shape: in time, and with a list that can be true.

use std::collections::BTreeMap;

use futures::FutureExt as _;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::jiff::Timestamp;
use node_lifecycle::keys::{ClusterId, PoolKey};
use node_lifecycle::supply::{Completeness, NodeTraits, ProviderDuties, Size};
use shared_crds::v1alpha1::ProviderSpec;

use super::calls::{Call, Callee, Calls};
use super::origin::{self, Sorted};
use super::{
    CALL_LIMIT, Deletion, Explanation, ListedMachine, NamedProvider, ProviderError, SizedList, SizedProvider,
};

/// A provider, by what it can be asked for.
#[derive(Clone, Copy)]
pub(super) enum Selected<'a> {
    /// It makes machines by name.
    Named(&'a dyn NamedProvider),
    /// It keeps a number of them, in the set of this name.
    Sized(&'a dyn SizedProvider, &'a str),
}

/// The machines of one provider.
#[derive(Clone, Debug, Default)]
pub(super) struct Listing {
    /// The machines, and whether each carries a mark by which it goes first.
    pub machines: Vec<(ListedMachine, bool)>,
    /// Those of other clusters, by name, with what they carry.
    pub foreign: BTreeMap<String, String>,
    /// The number that the provider keeps.
    pub size: Option<Size>,
    /// Who wrote it last.
    pub size_writer: Option<String>,
    /// Capacity of one machine, as far as the provider says it.
    pub capacity: BTreeMap<String, Quantity>,
    /// By the machine's name, the Nodes that differ from the pool's template.
    pub traits: BTreeMap<String, NodeTraits>,
    /// Why a machine does not start, in its provider's words.
    pub trouble: Option<String>,
    /// Why no machine may be removed now.
    pub removals_wait: Option<String>,
    /// How the provider says that it replaces machines.
    pub rolling: Option<String>,
    /// What the provider does with machines by itself.
    pub duties: ProviderDuties,
    /// What the absence of a machine means.
    pub completeness: Completeness,
}

impl Listing {
    /// Takes the machines out; those of other clusters are added to `foreign`.
    pub(super) fn take_machines(
        &mut self,
        foreign: &mut BTreeMap<String, String>,
    ) -> Vec<(ListedMachine, bool)> {
        foreign.append(&mut self.foreign);
        std::mem::take(&mut self.machines)
    }
}

impl Selected<'_> {
    /// What tells it from the others that are called: the sets of one provider are on one API server, and fail with it.
    pub(super) fn identity(&self) -> &str {
        match self {
            Self::Named(provider) => provider.reference(),
            Self::Sized(provider, _) => provider.kind(),
        }
    }

    /// What a call has to know of it.
    pub(super) fn callee(&self) -> Callee<'_> {
        let (limit, has_rate) = match self {
            Self::Named(provider) => (provider.call_limit(), provider.has_call_rate()),
            Self::Sized(..) => (CALL_LIMIT, false),
        };
        Callee { identity: self.identity(), limit, has_rate }
    }

    /// Whether it answers from the memory of this process.
    pub(super) fn is_local(self) -> bool {
        match self {
            Self::Named(provider) => provider.is_local(),
            Self::Sized(..) => false,
        }
    }

    /// Lists the pool's machines. `spec` is that of a pool that selects this provider.
    pub(super) async fn list(
        self,
        calls: &Calls,
        cluster: &ClusterId,
        key: &PoolKey,
        spec: Option<&ProviderSpec>,
        now: Timestamp,
    ) -> Result<Listing, ProviderError> {
        match self {
            Self::Named(provider) => {
                if let Some(spec) = spec {
                    provider.spec_is(key, spec);
                }
                // A list that cannot be true counts as a call that failed.
                let sorted = async { origin::sort(cluster, key, provider.list(key, now).await?) };
                let Sorted { machines, foreign, collision } =
                    calls.in_time(self.callee(), Call::List, sorted).await?;
                let machines = machines.into_iter().map(|machine| (machine, false)).collect();
                let (traits, trouble) = (provider.traits(key), provider.trouble(key).or(collision));
                let completeness = provider.completeness(key);
                Ok(Listing { machines, foreign, traits, trouble, completeness, ..Listing::default() })
            }
            Self::Sized(provider, name) => {
                let SizedList {
                    size,
                    size_writer,
                    capacity,
                    machines,
                    removals_wait,
                    rolling,
                    duties,
                    completeness,
                } = calls.in_time(self.callee(), Call::List, provider.list(key, name)).await?;
                let size = Some(size);
                Ok(Listing {
                    machines,
                    size,
                    size_writer,
                    capacity,
                    removals_wait,
                    rolling,
                    duties,
                    completeness,
                    ..Listing::default()
                })
            }
        }
    }

    /// Why the machine did not come, or was given up; `None` when the provider does not say so in time.
    pub(super) async fn explain(self, calls: &Calls, key: &PoolKey, machine: &str) -> Option<Explanation> {
        match self {
            Self::Named(provider) => {
                let words = provider.explain(key, machine).map(Ok);
                let words = calls.in_time(self.callee(), Call::Explain, words);
                words.await.unwrap_or_default()
            }
            Self::Sized(..) => None,
        }
    }

    /// Deletes one.
    pub(super) async fn delete(
        self,
        calls: &Calls,
        key: &PoolKey,
        machine: &str,
    ) -> Result<Deletion, ProviderError> {
        let deleted = match self {
            Self::Named(provider) => provider.delete(key, machine),
            Self::Sized(provider, name) => provider.delete(key, name, machine),
        };
        calls.in_time(self.callee(), Call::Delete, deleted).await
    }
}

/// A change of the number of machines that a provider keeps.
#[derive(Clone, Copy, Debug)]
pub enum SizeChange<'a> {
    /// So many more.
    Grow(i32),
    /// These have to go.
    Without(&'a [String]),
    /// No change: this one need not go any more.
    Keep(&'a str),
}

/// What the spec selects.
pub(super) fn reference_of(spec: &ProviderSpec) -> Result<String, ProviderError> {
    spec.reference().ok_or_else(|| {
        ProviderError::Invalid("it does not set exactly one provider that this version knows".to_owned())
    })
}
