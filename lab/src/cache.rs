//! A cache that a real watch feeds, and that can be held back: its events wait at a gate while a scenario keeps the gate
//! shut, or pass it one by one. How far a cache is behind is then no matter of luck.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result};
use conflict_retry::freshness::{Expectations, Watched, WatchedObject};
use e2e::wait::eventually;
use futures::StreamExt as _;
use kube::core::NamespaceResourceScope;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::reflector::store::{Writer, store};
use kube::runtime::watcher;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher as watch_of};
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, watch};
use tokio_util::task::AbortOnDropHandle;

use crate::context::{Actor, PATIENCE};

/// `OnChange` of each object that an event has brought, when the cache holds what the event said.
pub type OnChange<K> = Box<dyn Fn(&K) + Send>;

/// An actor's cache of the stage's objects of a kind.
pub struct Cache<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    watched: Watched<K>,
    namespace: String,
    gate: Arc<Gate>,
    /// Moves after each event that was taken in.
    ticks: watch::Receiver<u64>,
    _feed: AbortOnDropHandle<()>,
}

/// What every event passes on its way into the cache.
#[derive(Default)]
struct Gate {
    /// How many events may still pass; all of them, if it is open. Held while an event is taken in, so that nothing is on
    /// its way any more when the gate has been shut.
    left: Mutex<Option<u64>>,
    moved: Notify,
}

impl Gate {
    fn set(&self, left: Option<u64>) {
        *self.left() = left;
        self.moved.notify_one();
    }

    /// Waits for its turn, and takes an event in.
    async fn pass(&self, mut take_in: impl FnMut()) {
        loop {
            let may_pass = {
                let mut left = self.left();
                let may_pass = *left != Some(0);
                if may_pass {
                    *left = left.map(|left| left - 1);
                    take_in();
                }
                may_pass
            };
            if may_pass {
                return;
            }
            self.moved.notified().await;
        }
    }

    fn left(&self) -> MutexGuard<'_, Option<u64>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The cache takes nothing in for as long as this lives, but what is let through.
#[must_use = "the gate opens when this is dropped"]
pub struct Shut(Arc<Gate>);

impl Shut {
    /// Lets this many of the events through that wait, or come next.
    pub fn let_through(&self, events: u64) {
        self.0.set(Some(events));
    }
}

impl Drop for Shut {
    fn drop(&mut self) {
        self.0.set(None);
    }
}

impl<K> Cache<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    K: Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    /// Lists and watches as `actor`; both requests have been told when this returns. `hears` is told of each event.
    pub async fn start(actor: &Actor, hears: OnChange<K>) -> Result<Self> {
        let (reader, writer) = store();
        let watched = Watched::new(reader, Expectations::new(K::plural(&())));
        let gate = Arc::<Gate>::default();
        let (ticker, ticks) = watch::channel(0);
        let feed = Feed { writer, watched: watched.clone(), gate: Arc::clone(&gate), hears, ticker };
        let feed = AbortOnDropHandle::new(tokio::spawn(feed.run(actor.clone())));
        let namespace = actor.namespace().to_owned();
        let cache = Self { watched, namespace, gate, ticks, _feed: feed };
        eventually(PATIENCE, "the watch is established", async || {
            let is_watch =
                |request: &crate::event::RecordedRequest| request.verb == "WATCH" && request.succeeded();
            Ok(actor.requests().iter().any(is_watch).then_some(()))
        })
        .await?;
        Ok(cache)
    }

    /// Shuts the gate: from now on events wait.
    pub fn shut(&self) -> Shut {
        self.gate.set(Some(0));
        Shut(Arc::clone(&self.gate))
    }

    /// The cached copy, however old.
    pub fn copy(&self, name: &str) -> Result<K> {
        let found = self.watched.store().get(&self.reference(name));
        found.map(Arc::unwrap_or_clone).with_context(|| format!("{name} is not in the cache"))
    }

    /// The reflector underneath, which knows which of its copies are older than our own writes.
    pub fn watched(&self) -> &Watched<K> {
        &self.watched
    }

    /// One object, as a write's source.
    pub fn object(&self, name: &str) -> WatchedObject<K> {
        self.watched.object(self.reference(name))
    }

    /// What the reflector calls an object.
    pub fn reference(&self, name: &str) -> ObjectRef<K> {
        ObjectRef::new(name).within(&self.namespace)
    }

    /// Waits until the cache holds this very version of an object. Nobody may write it meanwhile.
    pub async fn holds(&self, name: &str, version: &str) -> Result<()> {
        let mut ticks = self.ticks.clone();
        let holds = ticks.wait_for(|_| {
            // Not between the store and those who are told what is in it.
            let _whole = self.gate.left();
            self.copy(name).is_ok_and(|copy| copy.resource_version().as_deref() == Some(version))
        });
        tokio::time::timeout(PATIENCE, holds)
            .await
            .with_context(|| format!("the cache does not come to hold {name} at {version}"))?
            .context("the watch has ended")?;
        Ok(())
    }
}

/// What carries the watch's events into the cache.
struct Feed<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    writer: Writer<K>,
    watched: Watched<K>,
    gate: Arc<Gate>,
    hears: OnChange<K>,
    ticker: watch::Sender<u64>,
}

impl<K> Feed<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    K: Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    async fn run(mut self, actor: Actor) {
        let events = watch_of(actor.api::<K>(), watcher::Config::default()).default_backoff();
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            let Ok(event) = event else { continue };
            let gate = Arc::clone(&self.gate);
            gate.pass(|| self.take_in(&event)).await;
            // With the gate free again: those who wait for a tick look into the cache through it.
            self.ticker.send_modify(|tick| *tick += 1);
        }
    }

    /// First the store, then those who decide from it, and last those who wait for it.
    fn take_in(&mut self, event: &Event<K>) {
        self.writer.apply_watcher_event(event);
        self.watched.observe(event);
        match event {
            Event::Apply(object) | Event::Delete(object) => (self.hears)(object),
            // A list is in the store only when it is complete.
            Event::InitDone => {
                self.watched.store().state().iter().for_each(|object| (self.hears)(object));
            }
            Event::Init | Event::InitApply(_) => {}
        }
    }
}
