//! Read your own writes: after a write is acknowledged, no decision may be based on an older cached copy of the object.
//!
//! [`Expectations`] records the acknowledged writes of one kind and the events of its watch, and reports whether a
//! cached copy is stale. The pure module `expectations` decides what is remembered and when it is forgotten; versions
//! are compared as Kubernetes allows since 1.35 ([`Version`]). [`Source`] tells a write where its object comes from,
//! and with the feature `runtime` a `Watched` is a kube reflector together with its expectations.
//!
//! ```
//! use conflict_retry::freshness::{ChangeKind, Expectations, Freshness};
//! use k8s_openapi::api::core::v1::Node;
//!
//! let node = |version: &str| -> Node {
//!     serde_json::from_value(serde_json::json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": version}})).unwrap()
//! };
//! let expectations = Expectations::new("nodes");
//! expectations.wrote(&node("10"), ChangeKind::Updated);
//! assert_eq!(expectations.check(&node("9")), Freshness::Stale);
//! assert_eq!(expectations.check(&node("10")), Freshness::Fresh);
//! ```

mod deleting;
mod expectations;
mod source;
mod version;
#[cfg(feature = "runtime")]
mod watched;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::Resource;
use tokio::sync::watch;
use tokio::time::Instant;

pub use self::deleting::Deleting;
pub use self::expectations::{ChangeKind, PendingWrite};
use self::expectations::{Key, OwnWrites};
pub use self::source::{CachedObject, Newer, Source};
pub use self::version::Version;
#[cfg(feature = "runtime")]
pub use self::watched::{Stale, Watched, WatchedObject};
use crate::observe::{NoopObserver, Observer};

/// Whether a decision may be based on a cached object. There is no third state, so a `match` needs no wildcard arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// The cached object includes every write of this process.
    Fresh,
    /// It does not: requeue until the watch has brought the write.
    Stale,
}

/// The own writes of one kind that its watch has not brought yet. Cheap to clone; use one per kind and cache.
///
/// It knows only the writes of this process that are reported to it. Report every event of *one* watch to it, after the
/// store has applied the event.
#[derive(Clone)]
pub struct Expectations(Arc<Shared>);

struct Shared {
    resource: String,
    writes: Mutex<OwnWrites>,
    clock: Box<dyn Fn() -> Duration + Send + Sync>,
    observer: Arc<dyn Observer>,
    /// Changes with every event of the watch.
    tick: watch::Sender<u64>,
}

impl fmt::Debug for Expectations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expectations").field("resource", &self.0.resource).finish_non_exhaustive()
    }
}

impl Expectations {
    /// Starts empty. `resource` (plural and lower case) names the kind in logs and to the observer.
    pub fn new(resource: impl Into<String>) -> Self {
        let start = Instant::now();
        Self::with_clock(resource, Arc::new(NoopObserver), move || start.elapsed())
    }

    /// Like [`Self::new`], reporting stale reads and lost events to `observer`. `clock` returns the time since any
    /// fixed origin.
    pub fn with_clock(
        resource: impl Into<String>,
        observer: Arc<dyn Observer>,
        clock: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Shared {
            resource: resource.into(),
            writes: Mutex::default(),
            clock: Box::new(clock),
            observer,
            tick: watch::Sender::new(0),
        }))
    }

    /// Whether `cached` is at least as new as our last write of it. A stale result is reported to the observer.
    pub fn check<K: Resource>(&self, cached: &K) -> Freshness {
        let meta = cached.meta();
        let (uid, version) = (meta.uid.as_deref(), meta.resource_version.as_deref());
        if self.with(|writes, _| writes.is_stale(&key(cached), uid, version)) {
            self.0.observer.stale_read(&self.0.resource);
            return Freshness::Stale;
        }
        Freshness::Fresh
    }

    /// Our writes that the watch has not brought yet. It lists, by name, created objects that are not in the cache yet
    /// and deleted objects that are still in it.
    pub fn pending(&self) -> Vec<PendingWrite> {
        self.with(|writes, _| writes.pending())
    }

    /// Records an acknowledged write; `object` is the object as the server stored it.
    pub fn wrote<K: Resource>(&self, object: &K, change: ChangeKind) {
        let meta = object.meta();
        self.wrote_version(object, meta.resource_version.as_deref(), change);
    }

    /// Records an acknowledged write of a subresource, after which `object` (any copy of it) has the version `version`.
    pub fn wrote_version<K: Resource>(&self, object: &K, version: Option<&str>, change: ChangeKind) {
        let Some(version) = version.and_then(Version::parse) else {
            return;
        };
        let uid = object.meta().uid.as_deref();
        self.with(|writes, now| writes.record(key(object), uid, version, change, now));
    }

    /// Records a deletion that is about to be sent. It is recorded first because its event may arrive before its
    /// answer. Call [`Deleting::acknowledged`] when the server has deleted the object; in every other case, drop the
    /// returned value. An object without a UID is not recorded.
    pub fn deleting<K: Resource>(&self, object: &K) -> Deleting {
        Deleting::announce(self.clone(), key(object), object.meta().uid.clone())
    }

    /// Records that the watch brought this object, new or changed.
    pub fn applied<K: Resource>(&self, object: &K) {
        let meta = object.meta();
        self.event(|writes, now| {
            writes.applied(&key(object), meta.uid.as_deref(), meta.resource_version.as_deref(), now);
        });
    }

    /// Records that the watch brought the deletion of this object.
    pub fn deleted<K: Resource>(&self, object: &K) {
        let meta = object.meta();
        self.event(|writes, now| {
            writes.deleted(&key(object), meta.uid.as_deref(), meta.resource_version.as_deref(), now);
        });
    }

    /// Records the start of a list, which will replace the contents of the cache.
    pub fn list_began(&self) {
        self.event(|writes, _| writes.list_began());
    }

    /// Records that the list contains this object.
    pub fn listed<K: Resource>(&self, object: &K) {
        self.with(|writes, _| writes.listed(object.meta().resource_version.as_deref()));
    }

    /// Records that the list has been received completely.
    pub fn list_ended(&self) {
        self.event(OwnWrites::list_ended);
    }

    /// Records that the cluster's data is older than before: etcd was restored from a backup. Earlier versions are
    /// meaningless then, and earlier writes may not exist. All records are dropped; list again afterwards.
    pub fn rewound(&self) {
        self.event(|writes, _| writes.rewound());
    }

    /// Records a kube watcher event that the store has just applied.
    #[cfg(feature = "runtime")]
    pub fn observe<K: Resource>(&self, event: &kube::runtime::watcher::Event<K>) {
        use kube::runtime::watcher::Event;
        match event {
            Event::Init => self.list_began(),
            Event::InitApply(object) => self.listed(object),
            Event::InitDone => self.list_ended(),
            Event::Apply(object) => self.applied(object),
            Event::Delete(object) => self.deleted(object),
        }
    }

    /// Changes with every event of the watch.
    #[cfg_attr(not(feature = "runtime"), expect(dead_code, reason = "only a watched cache waits for events"))]
    pub(crate) fn ticks(&self) -> watch::Receiver<u64> {
        self.0.tick.subscribe()
    }

    fn event(&self, act: impl FnOnce(&mut OwnWrites, Duration)) {
        self.with(act);
        self.0.tick.send_modify(|tick| *tick = tick.wrapping_add(1));
    }

    fn with<T>(&self, act: impl FnOnce(&mut OwnWrites, Duration) -> T) -> T {
        let now = (self.0.clock)();
        let (result, expired) = {
            let mut writes = self.lock();
            let expired = writes.expire(now);
            (act(&mut writes, now), expired)
        };
        let resource = &self.0.resource;
        for pending in expired {
            self.0.observer.expectation_expired(resource);
            tracing::warn!(%resource, name = pending.name, change = ?pending.change, "the watch did not bring our own write, trusting the cache again");
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, OwnWrites> {
        self.0.writes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key<K: Resource>(object: &K) -> Key {
    let meta = object.meta();
    (meta.namespace.clone(), meta.name.clone().unwrap_or_default())
}
