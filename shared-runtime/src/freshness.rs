//! Read your own writes, for every cached kind: after a write is acknowledged, no decision may be made from an older
//! cached object.
//!
//! [`conflict_retry::freshness`] defines what is remembered per kind. This file keeps one set of expectations per cached
//! kind, so that the writer can find them by type.

use std::any::TypeId;
use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conflict_retry::Observer;
pub use conflict_retry::freshness::{ChangeKind, Freshness, PendingWrite};
use conflict_retry::freshness::{Deleting, Expectations};
use kube::Resource;
use kube::runtime::watcher;
use tracing::warn;

use crate::clock::Clock;

/// Every own write that the watches have not delivered yet, by kind. Cheap to clone.
///
/// Only kinds with a reflector are remembered; objects of any other kind are not read from a cache, so nothing can be
/// stale.
#[derive(Clone)]
pub struct WriteTracker(Arc<Shared>);

struct Shared {
    kinds: Mutex<HashMap<TypeId, Expectations>>,
    clock: Clock,
    observer: Arc<dyn Observer>,
}

impl Debug for WriteTracker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriteTracker").finish_non_exhaustive()
    }
}

impl WriteTracker {
    /// Creates an empty tracker. Stale reads and lost events are reported to `observer`.
    pub fn new(clock: Clock, observer: Arc<dyn Observer>) -> Self {
        Self(Arc::new(Shared { kinds: Mutex::default(), clock, observer }))
    }

    /// Whether `cached` is at least as new as our last write of it.
    pub fn check<K>(&self, cached: &K) -> Freshness
    where
        K: Resource<DynamicType = ()> + 'static,
    {
        self.of::<K>().map_or(Freshness::Fresh, |expectations| expectations.check(cached))
    }

    /// Our writes of this kind that the watch has not delivered yet. An object that was created and is not in the
    /// cache, or deleted and still in it, is found here by name.
    pub fn pending<K>(&self) -> Vec<PendingWrite>
    where
        K: Resource<DynamicType = ()> + 'static,
    {
        self.of::<K>().map(|expectations| expectations.pending()).unwrap_or_default()
    }

    /// Records an acknowledged write. `object` is what the server stored.
    pub(crate) fn wrote<K>(&self, object: &K, change: ChangeKind)
    where
        K: Resource<DynamicType = ()> + 'static,
    {
        if let Some(expectations) = self.of::<K>() {
            expectations.wrote(object, change);
        }
    }

    /// Records an acknowledged write of a subresource. It left `object`, of which a copy is available, at `version`.
    pub(crate) fn wrote_version<K>(&self, object: &K, version: Option<&str>, change: ChangeKind)
    where
        K: Resource<DynamicType = ()> + 'static,
    {
        if let Some(expectations) = self.of::<K>() {
            expectations.wrote_version(object, version, change);
        }
    }

    /// Records a deletion that is about to be sent; it counts as not carried out unless the guard is told otherwise.
    pub(crate) fn deleting<K>(&self, object: &K) -> Option<Deleting>
    where
        K: Resource<DynamicType = ()> + 'static,
    {
        self.of::<K>().map(|expectations| expectations.deleting(object))
    }

    /// Registers a reflector for this kind; from now on its writes are remembered. The first reflector of a kind feeds
    /// it. A second one (with another selector, for instance) does not: its stream says nothing about the first
    /// one's cache.
    pub(crate) fn feed<K>(&self) -> Option<Feed>
    where
        K: Resource<DynamicType = ()> + 'static,
    {
        match self.kinds().entry(TypeId::of::<K>()) {
            std::collections::hash_map::Entry::Occupied(_) => {
                warn!(kind = %K::kind(&()), "a second reflector of the same kind does not feed the read-your-writes expectations");
                None
            }
            std::collections::hash_map::Entry::Vacant(vacant) => {
                let (clock, observer) = (self.0.clock.clone(), Arc::clone(&self.0.observer));
                let expectations =
                    Expectations::with_clock(K::plural(&()), observer, move || clock.monotonic());
                Some(Feed(vacant.insert(expectations).clone()))
            }
        }
    }

    fn of<K: 'static>(&self) -> Option<Expectations> {
        self.kinds().get(&TypeId::of::<K>()).cloned()
    }

    fn kinds(&self) -> MutexGuard<'_, HashMap<TypeId, Expectations>> {
        self.0.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to report to [`WriteTracker`] what the watch of one kind has delivered.
#[derive(Debug)]
pub(crate) struct Feed(Expectations);

impl Feed {
    /// Records an event that the store has just applied.
    pub(crate) fn observe<K>(&self, event: &watcher::Event<K>)
    where
        K: Resource<DynamicType = ()> + 'static,
    {
        self.0.observe(event);
    }

    /// Records that the cluster's data is older than before; see [`conflict_retry::freshness::Expectations::rewound`].
    pub(crate) fn rewound(&self) {
        self.0.rewound();
    }
}

#[cfg(test)]
#[path = "freshness_tests.rs"]
mod tests;
