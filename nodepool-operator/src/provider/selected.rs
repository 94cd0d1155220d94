//! One call to a provider of either shape: in time, and with a list that can be true.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::FutureExt as _;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::jiff::Timestamp;
use shared_crds::v1alpha1::ProviderSpec;
use shared_runtime::place;

use super::{CALL_LIMIT, Deletion, ListedMachine, NamedProvider, ProviderError, SizedList, SizedProvider};
use crate::plan::supply::{NodeTraits, Size};
use crate::plan::{PoolKey, slots};

/// How long a call keeps the place of its pool's pass in the loop. Most answers come within this time. Without its place, the
/// pass waits for the answer beside the passes of other pools, however many providers hang.
const PATIENCE: Duration = Duration::from_millis(200);

/// A provider, by what it can be asked for.
#[derive(Clone, Copy)]
pub(super) enum Selected<'a> {
    /// It makes machines by name.
    Named(&'a dyn NamedProvider),
    /// It keeps a number of them, in the set of this name.
    Sized(&'a dyn SizedProvider, &'a str),
}

/// The machines of one provider.
#[derive(Default)]
pub(super) struct Listing {
    /// The machines, and whether each carries a mark by which it goes first.
    pub machines: Vec<(ListedMachine, bool)>,
    /// The number that the provider keeps.
    pub size: Option<Size>,
    /// Who wrote it last.
    pub size_writer: Option<String>,
    /// Capacity of one machine, as far as the provider says it.
    pub capacity: BTreeMap<String, Quantity>,
    /// By the machine's name, the Nodes that differ from the pool's template.
    pub traits: BTreeMap<String, NodeTraits>,
    /// Why a machine does not start, in the words of whoever makes it.
    pub trouble: Option<String>,
    /// Why no machine may be removed now.
    pub removals_wait: Option<String>,
    /// How the provider says that it replaces machines.
    pub rolling: Option<String>,
}

impl Selected<'_> {
    /// Lists the pool's machines. `spec` is that of a pool that selects this provider.
    pub(super) async fn list(
        self,
        key: &PoolKey,
        spec: Option<&ProviderSpec>,
        now: Timestamp,
    ) -> Result<Listing, ProviderError> {
        match self {
            Self::Named(provider) => {
                if let Some(spec) = spec {
                    provider.spec_is(key, spec);
                }
                let listed = credible(key, in_time(provider.call_limit(), provider.list(key, now)).await?)?;
                let machines = listed.into_iter().map(|machine| (machine, false)).collect();
                let (traits, trouble) = (provider.traits(key), provider.trouble(key));
                Ok(Listing { machines, traits, trouble, ..Listing::default() })
            }
            Self::Sized(provider, name) => {
                let SizedList { size, size_writer, capacity, machines, removals_wait, rolling } =
                    in_time(CALL_LIMIT, provider.list(key, name)).await?;
                let size = Some(size);
                Ok(Listing {
                    machines,
                    size,
                    size_writer,
                    capacity,
                    removals_wait,
                    rolling,
                    ..Listing::default()
                })
            }
        }
    }

    /// Why the machine did not come, or was given up; `None` when nobody says so in time.
    pub(super) async fn explain(self, key: &PoolKey, machine: &str) -> Option<String> {
        match self {
            Self::Named(provider) => in_time(provider.call_limit(), provider.explain(key, machine).map(Ok))
                .await
                .unwrap_or_default(),
            Self::Sized(..) => None,
        }
    }

    /// Deletes one.
    pub(super) async fn delete(self, key: &PoolKey, machine: &str) -> Result<Deletion, ProviderError> {
        match self {
            Self::Named(provider) => in_time(provider.call_limit(), provider.delete(key, machine)).await,
            Self::Sized(provider, name) => in_time(CALL_LIMIT, provider.delete(key, name, machine)).await,
        }
    }
}

/// The list of a pool's machines, unless it cannot be true: the names are those of the pool's slots, and neither a name
/// nor a provider ID comes twice.
fn credible(key: &PoolKey, listed: Vec<ListedMachine>) -> Result<Vec<ListedMachine>, ProviderError> {
    let (prefix, mut names, mut ids) = (slots::prefix(key), BTreeSet::new(), BTreeMap::new());
    for ListedMachine { name, provider_id, progress: _, template_hash: _ } in &listed {
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

/// The answer of a provider, which has to come within `limit`.
pub(super) async fn in_time<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, ProviderError>>,
) -> Result<T, ProviderError> {
    let answer = place::lent(PATIENCE, tokio::time::timeout(limit, call)).await;
    answer.unwrap_or_else(|_elapsed| {
        Err(ProviderError::Unreachable(format!("no answer within {} s", limit.as_secs())))
    })
}
