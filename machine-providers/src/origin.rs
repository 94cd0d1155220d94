//! Whose the machines are that a provider lists for a pool: of this cluster, or of another one that has a pool of the same
//! namespace and name.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{ListedMachine, ProviderError};
use crate::keys::{ClusterId, PoolKey};
use crate::slots::{Slots, Whose};

/// The machines of a list.
#[derive(Debug, Default)]
pub(super) struct Sorted {
    /// Those that count for the pool.
    pub machines: Vec<ListedMachine>,
    /// Those of other clusters, by name, with what they carry.
    pub foreign: BTreeMap<String, String>,
    /// What is to be said about a machine of another cluster that has the name of one of the pool's slots.
    pub collision: Option<String>,
}

/// Sorts the list of a pool's machines, unless it cannot be true: the names are those of a pool's slots, and neither a name
/// nor a provider ID comes twice.
pub(super) fn sort(
    cluster_id: &ClusterId,
    key: &PoolKey,
    listed: Vec<ListedMachine>,
) -> Result<Sorted, ProviderError> {
    let slots = Slots::of(cluster_id, key);
    let mut sorted = Sorted::default();
    for machine in listed {
        let whose = slots.whose(&machine.name);
        let carries = match machine.cluster.as_deref() {
            Some(other) if other != cluster_id.as_str() => Some(cluster(other)),
            None if whose == Whose::Another => Some("the name of another cluster's machine".to_owned()),
            _ => None,
        };
        if let Some(carries) = carries {
            if whose == Whose::Own {
                sorted.collision.get_or_insert_with(|| left_alone(&machine.name, &carries).to_string());
            }
            sorted.foreign.insert(machine.name, carries);
            continue;
        }
        sorted.machines.push(machine);
    }
    if let Some(lie) = lie(&slots, &sorted.machines) {
        return Err(ProviderError::Transient(format!(
            "it lists {lie}, so nothing is concluded from its list"
        )));
    }
    // Of a name that both clusters use, a request means this one's.
    for machine in &sorted.machines {
        sorted.foreign.remove(&machine.name);
    }
    Ok(sorted)
}

/// What makes the list of the pool's machines impossible; `None` when nothing does.
fn lie(slots: &Slots, machines: &[ListedMachine]) -> Option<String> {
    let (mut names, mut ids) = (BTreeSet::new(), BTreeMap::new());
    machines.iter().find_map(|ListedMachine { name, provider_id, .. }| {
        if slots.whose(name) == Whose::None {
            let prefix = slots.prefix();
            return Some(format!(
                "{name:?}, which is not a machine of this pool (they are called {prefix}<number>)"
            ));
        }
        if !names.insert(name) {
            return Some(format!("{name} twice"));
        }
        let same = provider_id.as_ref().and_then(|id| ids.insert(id, name));
        same.map(|other| format!("{other} and {name} with the same provider ID"))
    })
}

/// What a machine of this cluster carries, in words.
pub(super) fn cluster(id: &str) -> String {
    format!("the cluster {id}")
}

/// Why nothing is done to the machine `name`, which carries this.
pub(super) fn left_alone(name: &str, carries: &str) -> ProviderError {
    ProviderError::Transient(format!("the machine {name} carries {carries} and is left alone"))
}

/// By pool and name, the machines of other clusters in the last lists, with what they carry.
#[derive(Debug, Default)]
pub(super) struct Foreign(Mutex<HashMap<PoolKey, BTreeMap<String, String>>>);

impl Foreign {
    fn pools(&self) -> MutexGuard<'_, HashMap<PoolKey, BTreeMap<String, String>>> {
        // It is replaced as a whole, so a panic elsewhere leaves it consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records those of a list.
    pub(super) fn record(&self, key: &PoolKey, foreign: &BTreeMap<String, String>) {
        self.pools().insert(key.clone(), foreign.clone());
    }

    /// Refuses the deletion of one.
    pub(super) fn may_delete(&self, key: &PoolKey, name: &str) -> Result<(), ProviderError> {
        let pools = self.pools();
        let carries = pools.get(key).and_then(|foreign| foreign.get(name));
        carries.map_or(Ok(()), |carries| Err(left_alone(name, carries)))
    }

    /// Drops what is known of a pool that is gone.
    pub(super) fn forget(&self, key: &PoolKey) {
        self.pools().remove(key);
    }
}
