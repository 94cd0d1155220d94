//! A cache of one kind and the stream of its changes, **deletions included**.
//!
//! kube's reflector is the cache; this file adds what it leaves out: deletions that happened while the watch was away,
//! the changes of a list only once the store holds all of them, the read-your-writes feed, readiness and counters. It
//! decides nothing from an object.

use std::{fmt::Debug, sync::Arc};

use futures::{Stream, StreamExt as _, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
use kube::{
    Api, Resource, ResourceExt as _,
    runtime::{
        WatchStreamExt as _,
        reflector::{self, Lookup, ObjectRef, Store, store::Writer},
        watcher::{self, Event},
    },
};
use serde::de::DeserializeOwned;
use serde_json::json;
use tracing::{info, warn};

use crate::{
    error::{chain, client_category, status_category},
    freshness::{Feed, Floors},
    metrics::Metrics,
    readiness::{Gate, Readiness},
};

/// Objects of a page of the first list. client-go has 500; a page is decoded as a whole, with the managed fields that are
/// dropped afterwards, which is some 60 KB for a pod: 500 were half of an operator's memory for as long as it ran.
const PAGE: u32 = 50;

/// What a reflector reports to.
#[derive(Clone, Debug)]
pub struct Watching {
    /// Counts failed lists and watches.
    pub metrics: Metrics,
    /// Learns what the watch has brought.
    pub floors: Floors,
    /// Gets a gate that opens when the first list has been taken in.
    pub readiness: Readiness,
}

/// A change of the cache. The store already holds it when it comes out of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<K> {
    /// The object is new, changed, or was listed again.
    Applied(Arc<K>),
    /// The object is gone; this is the last that was known of it.
    Deleted(Arc<K>),
}

impl<K> Change<K> {
    /// The object, whatever happened to it.
    pub fn object(&self) -> &Arc<K> {
        match self {
            Self::Applied(object) | Self::Deleted(object) => object,
        }
    }
}

/// Watches `api` and keeps a cache. `prune` drops what nobody reads before an object is kept; `managedFields` go as well,
/// they are about half of an object's metadata. Only who wrote `spec.replicas` stays of them.
///
/// The stream drives the cache: whoever stops polling it stops the cache. It never ends; failed lists and watches are
/// repeated with kube's default backoff (0.8 s to 30 s, jittered), counted, and logged when their nature changes.
pub fn reflect<K, P>(
    api: Api<K>,
    config: watcher::Config,
    watching: &Watching,
    prune: P,
) -> (Store<K>, impl Stream<Item = Change<K>> + Send + 'static + use<K, P>)
where
    P: FnMut(&mut K) + Send + 'static,
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    mirrored(api, config, watching, watching.floors.feed::<K>().map(observer), pruned(prune))
}

/// As [`reflect`], for objects of which little is read: `keep` makes of each what the cache holds. They have no place for
/// what the API's types have place for. Nothing is known of own writes to such objects.
pub fn reflect_as<W, K, P>(
    api: Api<W>,
    config: watcher::Config,
    watching: &Watching,
    keep: P,
) -> (Store<K>, impl Stream<Item = Change<K>> + Send + 'static + use<W, K, P>)
where
    P: FnMut(W) -> K + Send + 'static,
    W: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    K: Lookup<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
{
    mirrored(api, config, watching, None, keep)
}

fn mirrored<W, K, P>(
    api: Api<W>,
    config: watcher::Config,
    watching: &Watching,
    observer: Option<Observer<K>>,
    mut keep: P,
) -> (Store<K>, impl Stream<Item = Change<K>> + Send + 'static + use<W, K, P>)
where
    P: FnMut(W) -> K + Send + 'static,
    W: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    K: Lookup<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
{
    let (store, mut mirror) = Mirror::new(watching, observer);
    let changes = watcher::watcher(api, config.page_size(PAGE))
        .default_backoff()
        .flat_map(move |event| stream::iter(mirror.take(event.map(|event| converted(event, &mut keep)))));
    (store, changes)
}

/// Makes of an object what is kept of it.
fn pruned<K: Resource, P: FnMut(&mut K)>(mut prune: P) -> impl FnMut(K) -> K + use<K, P> {
    move |mut object| {
        replicas_writers(object.managed_fields_mut());
        prune(&mut object);
        object
    }
}

fn converted<W, K>(event: Event<W>, keep: &mut impl FnMut(W) -> K) -> Event<K> {
    match event {
        Event::Apply(object) => Event::Apply(keep(object)),
        Event::Delete(object) => Event::Delete(keep(object)),
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(keep(object)),
        Event::InitDone => Event::InitDone,
    }
}

/// Leaves of `entries` those that own `spec.replicas`, and of those nothing but that.
fn replicas_writers(entries: &mut Vec<ManagedFieldsEntry>) {
    let owns = |e: &ManagedFieldsEntry| {
        e.fields_v1.as_ref().is_some_and(|fields| fields.0.pointer("/f:spec/f:replicas").is_some())
    };
    entries.retain(owns);
    for entry in entries {
        entry.fields_v1 = Some(FieldsV1(json!({ "f:spec": { "f:replicas": {} } })));
    }
}

/// Hears of each event when the store has taken it in.
type Observer<K> = Box<dyn Fn(&Event<K>) + Send>;

fn observer<K: Resource<DynamicType = ()> + 'static>(feed: Feed) -> Observer<K> {
    Box::new(move |event| feed.observe(event))
}

/// The cache and everybody who hears of its events.
struct Mirror<K: Lookup<DynamicType = ()> + Clone + 'static> {
    store: Store<K>,
    writer: Writer<K>,
    observer: Option<Observer<K>>,
    gate: Gate,
    metrics: Metrics,
    /// Category of the failure that was logged last; none while the watch works.
    failing: Option<&'static str>,
}

impl<K> Mirror<K>
where
    K: Lookup<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
{
    fn new(watching: &Watching, observer: Option<Observer<K>>) -> (Store<K>, Self) {
        let Watching { metrics, floors: _, readiness } = watching;
        let (store, writer) = reflector::store::<K>();
        let mirror = Self {
            store: store.clone(),
            writer,
            observer,
            gate: readiness.gate(format!("cache of {}", K::plural(&())), "not listed yet"),
            metrics: metrics.clone(),
            failing: None,
        };
        (store, mirror)
    }

    fn take(&mut self, event: watcher::Result<Event<K>>) -> Vec<Change<K>> {
        let event = match event {
            Ok(event) => event,
            Err(failed) => {
                self.failed(&failed);
                return Vec::new();
            }
        };
        if self.failing.take().is_some() {
            info!(resource = %K::plural(&()), "watch works again");
        }
        let changes = self.apply(&event);
        if let Some(observe) = &self.observer {
            observe(&event);
        }
        if matches!(event, Event::InitDone) {
            self.gate.open();
        }
        changes
    }

    /// Takes the event into the store and says what changed.
    fn apply(&mut self, event: &Event<K>) -> Vec<Change<K>> {
        match event {
            Event::Init | Event::InitApply(_) => {
                self.writer.apply_watcher_event(event);
                Vec::new()
            }
            Event::Apply(object) => {
                self.writer.apply_watcher_event(event);
                self.store.get(&ObjectRef::from_obj(object)).map(Change::Applied).into_iter().collect()
            }
            Event::Delete(object) => {
                self.writer.apply_watcher_event(event);
                vec![Change::Deleted(Arc::new(object.clone()))]
            }
            Event::InitDone => {
                let before = self.store.state();
                self.writer.apply_watcher_event(event);
                let vanished = before.into_iter().filter(|old| {
                    let now = self.store.get(&ObjectRef::from_obj(&**old));
                    now.is_none_or(|new| new.uid() != old.uid())
                });
                let mut changes: Vec<_> = vanished.map(Change::Deleted).collect();
                changes.extend(self.store.state().into_iter().map(Change::Applied));
                changes
            }
        }
    }

    fn failed(&mut self, failed: &watcher::Error) {
        let resource = K::plural(&());
        let category = category(failed);
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

/// The category of a failed list or watch. A version that is too old is how every long watch ends some day.
fn category(failed: &watcher::Error) -> &'static str {
    match failed {
        watcher::Error::InitialListFailed(source)
        | watcher::Error::WatchStartFailed(source)
        | watcher::Error::WatchFailed(source) => client_category(source),
        watcher::Error::WatchError(status) => status_category(status.code),
        watcher::Error::NoResourceVersion => "other",
    }
}

#[cfg(test)]
#[path = "reflect_tests.rs"]
mod tests;
