//! A cache of one kind and the stream of its changes, **deletions included**.
//!
//! The `watch` module delivers the changes and kube's reflector is the cache. This file adds the rest: deletions that
//! happened while the watch was interrupted, the changes of a list only once the store holds all of them, objects that
//! cannot be read, the read-your-writes feed, and counters. It decides nothing from an object.

use std::fmt::Debug;
use std::sync::Arc;

use futures::Stream;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{self, Lookup, ObjectRef, Store};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::json;
use tracing::{info, warn};

use crate::error::chain;
use crate::freshness::{Feed, WriteTracker};
use crate::liveness::Liveness;
use crate::metrics::Metrics;
use crate::readiness::Readiness;
pub use crate::unreadable::UnreadableObjects;
use crate::watch;
pub use crate::watch::{Caches, Decoded, Unreadable};
use crate::watch::{Failure, Sink};

/// What a reflector reports to.
#[derive(Clone, Debug)]
pub struct Watching {
    /// Counts failed lists and watches.
    pub metrics: Metrics,
    /// Is told what the watch has delivered.
    pub write_tracker: WriteTracker,
    /// Gets a gate that is open while the cache is current.
    pub readiness: Readiness,
    /// Is told which objects cannot be read.
    pub unreadable: UnreadableObjects,
    /// Tells the cache to catch up.
    pub caches: Caches,
    /// Monitors the task that feeds the cache.
    pub liveness: Liveness,
}

/// A change of the cache. The store already contains it when the stream returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<K> {
    /// The object is new, changed, or was listed again.
    Applied(Arc<K>),
    /// The object is gone; this is its last known version.
    Deleted(Arc<K>),
    /// The object cannot be read, or was deleted without ever having been read; the store does not contain it. See
    /// [`UnreadableObjects`].
    Unreadable(Arc<Unreadable>),
}

impl<K> Change<K> {
    /// The object, whatever happened to it; `None` if it could not be read.
    pub fn object(&self) -> Option<&Arc<K>> {
        match self {
            Self::Applied(object) | Self::Deleted(object) => Some(object),
            Self::Unreadable(_) => None,
        }
    }
}

/// Watches `api` and keeps a cache. `transform` drops unused fields before an object is kept; `managedFields` are dropped
/// as well, they are about half of an object's metadata. Only the owner of `spec.replicas` is kept of them.
///
/// A task of its own feeds the cache until the stream is dropped; a slow reader blocks it. The stream never ends;
/// failed lists and watches are retried after 0.2 s to 10 s, counted, and logged when their kind changes.
pub fn reflect<K, P>(
    api: Api<K>,
    config: &watcher::Config,
    watching: &Watching,
    transform: P,
) -> (Store<K>, impl Stream<Item = Change<K>> + Send + 'static + use<K, P>)
where
    P: FnMut(&mut K) + Send + 'static,
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    mirrored(
        api,
        config,
        watching,
        watching.write_tracker.feed::<K>().map(observer),
        transformed(transform),
        |_| None,
    )
}

/// Like [`reflect`], for objects of which little is read: `keep` turns each into the cached value, which has no room
/// for all fields of the API's types. Own writes of such objects are not tracked. For an unreadable object, the cache
/// holds the result of `stand_in`, if any.
pub fn reflect_as<W, K, P>(
    api: Api<W>,
    config: &watcher::Config,
    watching: &Watching,
    keep: P,
    stand_in: fn(&Unreadable) -> Option<W>,
) -> (Store<K>, impl Stream<Item = Change<K>> + Send + 'static + use<W, K, P>)
where
    P: FnMut(W) -> K + Send + 'static,
    W: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    K: Lookup<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
{
    mirrored(api, config, watching, None, keep, stand_in)
}

fn mirrored<W, K, P>(
    api: Api<W>,
    config: &watcher::Config,
    watching: &Watching,
    observer: Option<Observer<K>>,
    keep: P,
    stand_in: fn(&Unreadable) -> Option<W>,
) -> (Store<K>, impl Stream<Item = Change<K>> + Send + 'static + use<W, K, P>)
where
    P: FnMut(W) -> K + Send + 'static,
    W: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    K: Lookup<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
{
    let (store, mirror) = Mirror::new(watching, observer);
    let gate = watching.readiness.gate(format!("cache of {}", K::plural(&())), "not listed yet");
    let sink = Keeping { mirror, keep, stand_in };
    let changes =
        watch::follow(api, config, sink, &watching.caches, gate, &watching.metrics, &watching.liveness);
    (store, changes)
}

/// Keeps the result of `keep` for each object.
struct Keeping<W, K: Lookup<DynamicType = ()> + Clone + 'static, P> {
    mirror: Mirror<K>,
    keep: P,
    stand_in: fn(&Unreadable) -> Option<W>,
}

impl<W, K, P> Sink<W> for Keeping<W, K, P>
where
    P: FnMut(W) -> K + Send + 'static,
    W: Send + 'static,
    K: Lookup<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
{
    type Out = Change<K>;

    fn begin(&mut self) {
        self.mirror.begin();
    }

    fn listed(&mut self, object: Decoded<W>) {
        match object {
            Decoded::Read(object) => self.mirror.listed((self.keep)(object)),
            Decoded::Unreadable(unreadable) => {
                if let Some(stand_in) = (self.stand_in)(&unreadable) {
                    self.mirror.listed((self.keep)(stand_in));
                }
                self.mirror.listed_unreadable(unreadable);
            }
        }
    }

    fn finish(&mut self) -> Vec<Change<K>> {
        self.mirror.finish()
    }

    fn applied(&mut self, object: Decoded<W>) -> Vec<Change<K>> {
        match object {
            Decoded::Read(object) => self.mirror.applied((self.keep)(object)),
            Decoded::Unreadable(unreadable) => {
                let stand_in = (self.stand_in)(&unreadable).map(&mut self.keep);
                self.mirror.applied_unreadable(unreadable, stand_in)
            }
        }
    }

    fn deleted(&mut self, object: Decoded<W>) -> Vec<Change<K>> {
        match object {
            Decoded::Read(object) => self.mirror.deleted((self.keep)(object)),
            Decoded::Unreadable(unreadable) => self.mirror.deleted_unreadable(&unreadable),
        }
    }

    fn rewound(&mut self) {
        self.mirror.rewound();
    }

    fn failed(&mut self, failure: &Failure) {
        self.mirror.failed(failure);
    }

    fn recovered(&mut self) {
        self.mirror.recovered();
    }
}

/// Turns an object into the one that is cached.
fn transformed<K: Resource, P: FnMut(&mut K)>(mut transform: P) -> impl FnMut(K) -> K + use<K, P> {
    move |mut object| {
        owners(object.managed_fields_mut());
        transform(&mut object);
        object
    }
}

/// Reduces `entries` to those that own `spec.replicas`, whose owner matters, and each of them to this field.
fn owners(entries: &mut Vec<ManagedFieldsEntry>) {
    entries.retain_mut(|entry| {
        let fields = entry.fields_v1.as_ref();
        let is_owner = fields.is_some_and(|fields| fields.0.pointer("/f:spec/f:replicas").is_some());
        entry.fields_v1 = is_owner.then(|| FieldsV1(json!({ "f:spec": { "f:replicas": {} } })));
        is_owner
    });
}

/// The cache and the observers of its events.
struct Mirror<K: Lookup<DynamicType = ()> + Clone + 'static> {
    store: Store<K>,
    writer: Writer<K>,
    observer: Option<Observer<K>>,
    unreadable: UnreadableObjects,
    /// The unreadable objects of the list in progress.
    listed_unreadable: Vec<Unreadable>,
    metrics: Metrics,
    /// Category of the failure that was logged last; `None` while the watch works.
    failing: Option<&'static str>,
}

/// Is notified of what the store has applied.
type Observer<K> = Box<dyn Fn(Heard<'_, K>) + Send>;

/// What an observer is notified of.
enum Heard<'a, K> {
    Event(&'a Event<K>),
    Rewound,
}

fn observer<K: Resource<DynamicType = ()> + 'static>(feed: Feed) -> Observer<K> {
    Box::new(move |heard| match heard {
        Heard::Event(event) => feed.observe(event),
        Heard::Rewound => feed.rewound(),
    })
}

impl<K> Mirror<K>
where
    K: Lookup<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
{
    fn new(watching: &Watching, observer: Option<Observer<K>>) -> (Store<K>, Self) {
        let (store, writer) = reflector::store::<K>();
        let mirror = Self {
            store: store.clone(),
            writer,
            observer,
            unreadable: watching.unreadable.clone(),
            listed_unreadable: Vec::new(),
            metrics: watching.metrics.clone(),
            failing: None,
        };
        (store, mirror)
    }

    /// Applies the event to the store and notifies the observers.
    fn take(&mut self, event: &Event<K>) {
        self.writer.apply_watcher_event(event);
        if let Some(observer) = &self.observer {
            observer(Heard::Event(event));
        }
    }

    fn begin(&mut self) {
        self.listed_unreadable.clear();
        self.take(&Event::Init);
    }

    fn listed(&mut self, object: K) {
        self.take(&Event::InitApply(object));
    }

    fn listed_unreadable(&mut self, unreadable: Unreadable) {
        self.listed_unreadable.push(unreadable);
    }

    fn finish(&mut self) -> Vec<Change<K>> {
        let before = self.store.state();
        let unreadable: Vec<_> =
            std::mem::take(&mut self.listed_unreadable).into_iter().map(Arc::new).collect();
        for unreadable in &unreadable {
            self.unreadable.insert::<K>(unreadable);
        }
        self.take(&Event::InitDone);
        let vanished = before.into_iter().filter(|old| {
            let now = self.store.get(&ObjectRef::from_obj(&**old));
            now.is_none_or(|new| new.uid() != old.uid())
        });
        let mut changes: Vec<_> = vanished.map(Change::Deleted).collect();
        changes.extend(self.store.state().into_iter().map(Change::Applied));
        changes.extend(self.unreadable.replace::<K>(unreadable).into_iter().map(Change::Unreadable));
        self.count_unreadable();
        changes
    }

    fn applied(&mut self, object: K) -> Vec<Change<K>> {
        let key = ObjectRef::from_obj(&object);
        self.take(&Event::Apply(object));
        self.readable_again(&key);
        self.store.get(&key).map(Change::Applied).into_iter().collect()
    }

    /// The last known version of the object is outdated: it leaves the store, is replaced by its stand-in if there is
    /// one, and is reported as unreadable.
    fn applied_unreadable(&mut self, unreadable: Unreadable, stand_in: Option<K>) -> Vec<Change<K>> {
        // Listed as unreadable before it leaves the store: a reader that finds it in neither would treat it as gone.
        let unreadable = Arc::new(unreadable);
        self.unreadable.insert::<K>(&unreadable);
        if let Some(stand_in) = stand_in {
            self.take(&Event::Apply(stand_in));
        } else if let Some(known) = self.store.get(&unreadable.key()) {
            self.take(&Event::Delete((*known).clone()));
        }
        self.count_unreadable();
        vec![Change::Unreadable(unreadable)]
    }

    fn deleted(&mut self, object: K) -> Vec<Change<K>> {
        self.readable_again(&ObjectRef::from_obj(&object));
        self.take(&Event::Delete(object.clone()));
        vec![Change::Deleted(Arc::new(object))]
    }

    fn deleted_unreadable(&mut self, unreadable: &Unreadable) -> Vec<Change<K>> {
        let key = unreadable.key();
        self.readable_again(&key);
        let Some(known) = self.store.get(&key) else {
            return vec![Change::Unreadable(Arc::new(unreadable.clone()))];
        };
        self.take(&Event::Delete((*known).clone()));
        vec![Change::Deleted(known)]
    }

    fn readable_again(&mut self, key: &ObjectRef<K>) {
        if self.unreadable.remove::<K>(key.namespace.as_deref(), &key.name) {
            self.count_unreadable();
        }
    }

    fn count_unreadable(&self) {
        self.metrics.unreadable(&K::plural(&()), self.unreadable.count::<K>());
    }

    fn rewound(&mut self) {
        if let Some(observer) = &self.observer {
            observer(Heard::Rewound);
        }
    }

    fn recovered(&mut self) {
        if self.failing.take().is_some() {
            info!(resource = %K::plural(&()), "watch works again");
        }
    }

    fn failed(&mut self, failed: &Failure) {
        let resource = K::plural(&());
        let category = failed.category();
        self.metrics.watch_error(&resource, category);
        if self.failing.replace(category) == Some(category) {
            return;
        }
        let group = K::group(&());
        let advice = match category {
            "forbidden" => format!("allow get, list and watch on {resource} in API group \"{group}\""),
            "unauthorized" => "check the token or certificate this process runs with".to_owned(),
            "not_found" => format!("install the custom resource definition of {resource}"),
            _ => "trying again".to_owned(),
        };
        warn!(%resource, category, advice, error = %chain(failed), "cannot watch");
    }
}

#[cfg(test)]
#[path = "reflect_tests.rs"]
mod tests;
