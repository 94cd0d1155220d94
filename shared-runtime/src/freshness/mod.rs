//! Read your own writes: after a write is acknowledged, a cached object older than it is not to be decided from.
//!
//! The write door records every acknowledged write here, the reflector tells what the watch has brought, and a reconcile
//! asks. What is remembered and when it is forgotten is decided by the pure `ledger`; this file adds the lock, the clock
//! and the counters.

mod ledger;
mod version;

use std::{
    any::TypeId,
    collections::HashMap,
    fmt::Debug,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kube::{Resource, runtime::watcher};
use tracing::warn;

pub use self::ledger::{ChangeKind, Pending};
use self::ledger::{Goal, Key, Ledger};
use crate::{clock::Clock, metrics::Metrics};

/// Whether a cached object may be decided from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// The cache has seen every write of ours.
    Fresh,
    /// It has not: come back when the watch has brought it.
    Stale,
}

/// Every own write that the watch has not brought yet, by kind. Cheap to clone.
///
/// Only kinds that a reflector feeds are remembered; a write of any other kind is not read from a cache, so there is
/// nothing to be stale.
#[derive(Clone, Debug)]
pub struct Floors(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    kinds: Mutex<HashMap<TypeId, Ledger>>,
    clock: Clock,
    metrics: Metrics,
}

impl Floors {
    /// Remembers nothing yet.
    pub fn new(clock: Clock, metrics: Metrics) -> Self {
        Self(Arc::new(Shared { kinds: Mutex::default(), clock, metrics }))
    }

    /// Whether `cached` is at least as new as our last write of it. A stale answer is counted.
    pub fn check<K>(&self, cached: &K) -> Freshness
    where
        K: Resource<DynamicType = ()> + 'static,
    {
        let meta = cached.meta();
        let (uid, version) = (meta.uid.as_deref(), meta.resource_version.as_deref());
        let stale =
            self.with::<K, _>(|ledger, _| ledger.is_stale(&key(cached), uid, version)).unwrap_or(false);
        if stale {
            self.0.metrics.stale_read(&K::plural(&()));
            return Freshness::Stale;
        }
        Freshness::Fresh
    }

    /// Our writes of this kind that the watch has not brought yet. An object that was created and is not in the cache, or
    /// deleted and still in it, is found here by name.
    pub fn pending<K>(&self) -> Vec<Pending>
    where
        K: Resource<DynamicType = ()> + 'static,
    {
        self.with::<K, _>(|ledger, _| ledger.pending()).unwrap_or_default()
    }

    /// A write was acknowledged and `object` is what the server stored.
    pub(crate) fn wrote<K>(&self, object: &K, change: ChangeKind)
    where
        K: Resource<DynamicType = ()> + 'static,
    {
        let meta = object.meta();
        self.wrote_version::<K>(key(object), meta.uid.as_deref(), meta.resource_version.as_deref(), change);
    }

    /// A write of a subresource was acknowledged and left the object at `version`.
    pub(crate) fn wrote_version<K>(
        &self,
        key: Key,
        uid: Option<&str>,
        version: Option<&str>,
        change: ChangeKind,
    ) where
        K: Resource<DynamicType = ()> + 'static,
    {
        let Some(goal) = version.and_then(Goal::at_least) else {
            return;
        };
        self.with::<K, _>(|ledger, now| ledger.record(key, uid, goal, change, now));
    }

    /// A deletion is about to be sent. It is recorded first because its event may arrive before its answer; when it
    /// fails, [`Self::not_deleted`] takes it back.
    pub(crate) fn deleting<K>(&self, object: &K)
    where
        K: Resource<DynamicType = ()> + 'static,
    {
        let uid = object.meta().uid.as_deref();
        if uid.is_some() {
            self.with::<K, _>(|ledger, now| {
                ledger.record(key(object), uid, Goal::Absent, ChangeKind::Deleted, now);
            });
        }
    }

    /// The deletion that was announced did not happen, or the object lives on until its finalizers are done.
    pub(crate) fn not_deleted<K>(&self, object: &K)
    where
        K: Resource<DynamicType = ()> + 'static,
    {
        self.with::<K, _>(|ledger, _| ledger.forget_deletion(&key(object)));
    }

    /// A reflector for this kind exists; from now on its writes are remembered. The first reflector of a kind feeds, a
    /// second one (with another selector, say) does not: its stream tells nothing about the first one's cache.
    pub(crate) fn feed<K>(&self) -> Option<Feed>
    where
        K: Resource<DynamicType = ()> + 'static,
    {
        match self.kinds().entry(TypeId::of::<K>()) {
            std::collections::hash_map::Entry::Occupied(_) => {
                warn!(kind = %K::kind(&()), "a second reflector of the same kind does not feed the read-your-writes floors");
                None
            }
            std::collections::hash_map::Entry::Vacant(vacant) => {
                vacant.insert(Ledger::default());
                Some(Feed { floors: self.clone() })
            }
        }
    }

    fn with<K, T>(&self, act: impl FnOnce(&mut Ledger, std::time::Duration) -> T) -> Option<T>
    where
        K: Resource<DynamicType = ()> + 'static,
    {
        let now = self.0.clock.monotonic();
        let (result, expired) = {
            let mut kinds = self.kinds();
            let ledger = kinds.get_mut(&TypeId::of::<K>())?;
            let expired = ledger.expire(now);
            (act(ledger, now), expired)
        };
        for pending in expired {
            let resource = K::plural(&());
            self.0.metrics.floor_expired(&resource);
            warn!(%resource, name = pending.name, change = ?pending.change, "the watch did not bring our own write, trusting the cache again");
        }
        Some(result)
    }

    fn kinds(&self) -> MutexGuard<'_, HashMap<TypeId, Ledger>> {
        self.0.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to tell [`Floors`] what the watch of one kind has brought.
#[derive(Debug)]
pub(crate) struct Feed {
    floors: Floors,
}

impl Feed {
    /// The store has just taken this event in.
    pub(crate) fn observe<K>(&self, event: &watcher::Event<K>)
    where
        K: Resource<DynamicType = ()> + 'static,
    {
        self.floors.with::<K, _>(|ledger, now| match event {
            watcher::Event::Init => ledger.list_began(),
            watcher::Event::InitApply(object) => ledger.listed(object.meta().resource_version.as_deref()),
            watcher::Event::InitDone => ledger.list_ended(now),
            watcher::Event::Apply(object) => {
                let meta = object.meta();
                ledger.applied(&key(object), meta.uid.as_deref(), meta.resource_version.as_deref(), now);
            }
            watcher::Event::Delete(object) => {
                let meta = object.meta();
                ledger.deleted(&key(object), meta.uid.as_deref(), meta.resource_version.as_deref(), now);
            }
        });
    }
}

/// The key of an object in its kind.
pub(crate) fn key<K: Resource>(object: &K) -> Key {
    let meta = object.meta();
    (meta.namespace.clone(), meta.name.clone().unwrap_or_default())
}

#[cfg(test)]
#[path = "floors_tests.rs"]
mod tests;
