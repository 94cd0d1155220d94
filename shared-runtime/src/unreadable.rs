//! The objects that this version cannot read, of every cached kind: left out of the caches, but recorded. An operator
//! that finds no pool of a name must be able to distinguish one that is gone from one that it cannot decode.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::runtime::reflector::Lookup;
use tracing::warn;

use crate::watch::Unreadable;

/// Namespace (empty for a cluster-scoped kind) and name.
type Key = (String, String);

/// The objects of one kind, by [`Key`].
type OfKind = BTreeMap<Key, Arc<Unreadable>>;

/// The unreadable objects of every cached kind. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct UnreadableObjects(Arc<Mutex<BTreeMap<String, OfKind>>>);

impl UnreadableObjects {
    fn kinds(&self) -> MutexGuard<'_, BTreeMap<String, OfKind>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object of that name, if it exists and cannot be read.
    pub fn get<K: Lookup<DynamicType = ()>>(
        &self,
        namespace: Option<&str>,
        name: &str,
    ) -> Option<Arc<Unreadable>> {
        self.kinds().get(&*K::plural(&()))?.get(&key(namespace, name)).cloned()
    }

    /// All of a kind, by namespace and name.
    pub fn of<K: Lookup<DynamicType = ()>>(&self) -> Vec<Arc<Unreadable>> {
        self.kinds()
            .get(&*K::plural(&()))
            .map(|of_kind| of_kind.values().cloned().collect())
            .unwrap_or_default()
    }

    pub(crate) fn count<K: Lookup<DynamicType = ()>>(&self) -> usize {
        self.kinds().get(&*K::plural(&())).map_or(0, BTreeMap::len)
    }

    pub(crate) fn insert<K: Lookup<DynamicType = ()>>(&self, unreadable: &Arc<Unreadable>) {
        let mut kinds = self.kinds();
        let of_kind = kinds.entry(K::plural(&()).into_owned()).or_default();
        insert::<K>(of_kind, unreadable);
    }

    /// Replaces the unreadable objects of a kind after a list. Returns what changed: these, and those that are gone.
    pub(crate) fn replace<K: Lookup<DynamicType = ()>>(
        &self,
        listed: Vec<Arc<Unreadable>>,
    ) -> Vec<Arc<Unreadable>> {
        let mut kinds = self.kinds();
        let of_kind = kinds.entry(K::plural(&()).into_owned()).or_default();
        let before = std::mem::take(of_kind);
        let mut now = BTreeMap::new();
        for unreadable in &listed {
            let key = key(unreadable.namespace.as_deref(), &unreadable.name);
            if let Some(known) = before.get(&key) {
                now.insert(key, Arc::clone(known));
            }
            insert::<K>(&mut now, unreadable);
        }
        let gone = before.into_iter().filter(|(key, _)| !now.contains_key(key)).map(|(_, gone)| gone);
        let changed = listed.into_iter().chain(gone).collect();
        *of_kind = now;
        changed
    }

    /// Removes an object; `true` if it was recorded.
    pub(crate) fn remove<K: Lookup<DynamicType = ()>>(&self, namespace: Option<&str>, name: &str) -> bool {
        let mut kinds = self.kinds();
        kinds.get_mut(&*K::plural(&())).is_some_and(|of_kind| of_kind.remove(&key(namespace, name)).is_some())
    }
}

/// Records an object, and logs it once for each error.
fn insert<K: Lookup<DynamicType = ()>>(of_kind: &mut OfKind, unreadable: &Arc<Unreadable>) {
    let key = key(unreadable.namespace.as_deref(), &unreadable.name);
    let error = unreadable.error.clone();
    let known = of_kind.insert(key, Arc::clone(unreadable));
    if known.is_none_or(|known| known.error != error) {
        warn!(resource = %K::plural(&()), object = %unreadable, error, "left out an object that this version cannot read: change the field, or run a newer version");
    }
}

fn key(namespace: Option<&str>, name: &str) -> Key {
    (namespace.unwrap_or_default().to_owned(), name.to_owned())
}
