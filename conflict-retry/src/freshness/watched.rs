//! A kube reflector together with its expectations.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, TryStreamExt as _};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::{self, Event, watcher as watch};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::{CachedObject, ChangeKind, Expectations, Freshness, Newer, Source, Version};

/// A reflector's store together with the own writes that it does not contain yet. Cheap to clone.
///
/// ```no_run
/// use conflict_retry::{freshness::Watched, update};
/// use futures::StreamExt as _;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::runtime::{reflector::ObjectRef, watcher};
/// # async fn example(api: kube::Api<ConfigMap>) -> Result<(), kube::Error> {
/// let (watched, events) = Watched::start(api.clone(), watcher::Config::default());
/// tokio::spawn(events.for_each(|_| async {}));
///
/// let settings = watched.object(ObjectRef::new("settings").within("default"));
/// update(&api, "settings", |map| { /* … */ }).from(settings.source()).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Watched<K>
where
    K: Resource + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    store: Store<K>,
    expectations: Expectations,
}

/// The cache did not catch up with our own write in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cache did not catch up with our own write within {0:?}; read live, or come back later")]
pub struct Stale(pub Duration);

impl<K> Watched<K>
where
    K: Resource + Clone + Debug + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
{
    /// Watches a kind: the cache, and the stream of events that feeds it while it is polled.
    pub fn start(
        api: Api<K>,
        config: watcher::Config,
    ) -> (Self, impl Stream<Item = Result<Event<K>, watcher::Error>> + Send)
    where
        K: DeserializeOwned,
        K::DynamicType: Default,
    {
        let (store, writer) = reflector::store();
        let resource = K::plural(&K::DynamicType::default()).into_owned();
        let watched = Self::new(store, Expectations::new(resource));
        let feed = watched.clone();
        // The order matters: first the store takes an event in, then the expectations hear of it.
        let events = watch(api, config).default_backoff().reflect(writer);
        (watched, events.inspect_ok(move |event| feed.observe(event)))
    }

    /// For a store that is fed elsewhere. `expectations` must receive the events that feed `store` ([`Self::observe`]), and no others.
    pub fn new(store: Store<K>, expectations: Expectations) -> Self {
        Self { store, expectations }
    }

    /// Records an event that the store has just applied.
    pub fn observe(&self, event: &Event<K>) {
        self.expectations.observe(event);
    }

    /// The own writes that the watch has not brought yet.
    pub fn expectations(&self) -> &Expectations {
        &self.expectations
    }

    /// The store, which may be behind our own writes.
    pub fn store(&self) -> &Store<K> {
        &self.store
    }

    /// One object, usable as the [`Source`] of a write.
    pub fn object(&self, of: ObjectRef<K>) -> WatchedObject<K> {
        WatchedObject { watched: self.clone(), of }
    }

    /// Whether we wrote an object that the watch has not brought yet.
    fn is_awaited(&self, of: &ObjectRef<K>) -> bool {
        self.expectations.pending().iter().any(|pending| {
            pending.change != ChangeKind::Deleted
                && pending.name == of.name
                && pending.namespace == of.namespace
        })
    }

    /// Returns the cached object as soon as it is not older than our own last write of it; `Ok(None)` when the cache
    /// has none. Waits at most `bound`.
    pub async fn fresh(&self, of: &ObjectRef<K>, bound: Duration) -> Result<Option<Arc<K>>, Stale> {
        let mut ticks = self.expectations.ticks();
        let caught_up = async {
            loop {
                ticks.mark_unchanged();
                match self.store.get(of) {
                    Some(object) if self.expectations.check(&*object) == Freshness::Stale => {}
                    None if self.is_awaited(of) => {}
                    found => return found,
                }
                if ticks.changed().await.is_err() {
                    return std::future::pending().await;
                }
            }
        };
        tokio::time::timeout(bound, caught_up).await.map_err(|_elapsed| Stale(bound))
    }
}

/// One object of a [`Watched`] cache.
#[derive(Clone)]
pub struct WatchedObject<K>
where
    K: Resource + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    watched: Watched<K>,
    of: ObjectRef<K>,
}

impl<K> WatchedObject<K>
where
    K: Resource + Clone + Debug + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
{
    /// The [`Source`] to pass to a write.
    pub fn source(&self) -> Source<'_, K> {
        Source::Watched(self)
    }
}

impl<K> CachedObject<K> for WatchedObject<K>
where
    K: Resource + Clone + Debug + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
{
    fn latest(&self) -> Option<K> {
        let object = self.watched.store.get(&self.of)?;
        (self.watched.expectations.check(&*object) == Freshness::Fresh).then(|| Arc::unwrap_or_clone(object))
    }

    fn newer(&self, version: String) -> Newer<'_, K> {
        Box::pin(async move {
            let mut ticks = self.watched.expectations.ticks();
            loop {
                ticks.mark_unchanged();
                let object = self.watched.store.get(&self.of)?;
                if is_newer(object.meta().resource_version.as_deref(), &version) {
                    return Some(Arc::unwrap_or_clone(object));
                }
                if ticks.changed().await.is_err() {
                    return None;
                }
            }
        })
    }

    fn wrote(&self, written: &K) {
        self.watched.expectations.wrote(written, ChangeKind::Updated);
    }
}

/// Whether `found` was stored after `version`. Versions that cannot be compared count as newer when they differ.
fn is_newer(found: Option<&str>, version: &str) -> bool {
    let Some(found) = found else { return false };
    match (Version::parse(found), Version::parse(version)) {
        (Some(found), Some(version)) => found > version,
        _ => found != version,
    }
}

#[cfg(test)]
#[path = "watched_tests.rs"]
mod tests;
