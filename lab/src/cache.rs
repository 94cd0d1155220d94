//! A cache that is fed by a real watch and can be delayed: its events wait at a gate while a scenario keeps the gate
//! closed, or pass it one by one. So the scenario determines how stale the cache is.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result};
use conflict_retry::freshness::{Expectations, Watched, WatchedObject};
use futures::StreamExt as _;
use kube::core::NamespaceResourceScope;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::reflector::store::{Writer, store};
use kube::runtime::watcher;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher as watch_of};
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use testbed::wait::eventually;
use tokio::sync::{Notify, watch};
use tokio_util::task::AbortOnDropHandle;

use crate::context::{Actor, PATIENCE};

/// Called with each object of an event, once the cache has applied the event.
pub type OnChange<K> = Box<dyn Fn(&K) + Send>;

/// An actor's cache of the objects of a kind in the scenario's namespace.
pub struct Cache<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    watched: Watched<K>,
    namespace: String,
    gate: Arc<Gate>,
    /// Incremented after each applied event.
    ticks: watch::Receiver<u64>,
    _feed: AbortOnDropHandle<()>,
}

/// Every event passes it on the way into the cache.
#[derive(Default)]
struct Gate {
    /// How many events may still pass; `None` while the gate is open. Locked while an event is applied, so that no event
    /// is in progress after the gate was closed.
    left: Mutex<Option<u64>>,
    moved: Notify,
}

impl Gate {
    fn set(&self, left: Option<u64>) {
        *self.left() = left;
        self.moved.notify_one();
    }

    /// Waits until an event may pass, and applies it.
    async fn pass(&self, mut apply: impl FnMut()) {
        loop {
            let may_pass = {
                let mut left = self.left();
                let may_pass = *left != Some(0);
                if may_pass {
                    *left = left.map(|left| left - 1);
                    apply();
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

/// While this exists, the cache applies only the events that it lets through.
#[must_use = "the gate opens when this is dropped"]
pub struct ClosedGate(Arc<Gate>);

impl ClosedGate {
    /// Lets this many events through, those that wait first.
    pub fn let_through(&self, events: u64) {
        self.0.set(Some(events));
    }
}

impl Drop for ClosedGate {
    fn drop(&mut self) {
        self.0.set(None);
    }
}

impl<K> Cache<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    K: Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    /// Lists and watches as `actor`; both requests are recorded when this returns. `on_change` is called for each event.
    pub async fn start(actor: &Actor, on_change: OnChange<K>) -> Result<Self> {
        let (reader, writer) = store();
        let watched = Watched::new(reader, Expectations::new(K::plural(&())));
        let gate = Arc::<Gate>::default();
        let (ticker, ticks) = watch::channel(0);
        let feed = Feed { writer, watched: watched.clone(), gate: Arc::clone(&gate), on_change, ticker };
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

    /// Closes the gate: from now on events wait.
    pub fn close_gate(&self) -> ClosedGate {
        self.gate.set(Some(0));
        ClosedGate(Arc::clone(&self.gate))
    }

    /// The cached copy, however old.
    pub fn copy(&self, name: &str) -> Result<K> {
        let found = self.watched.store().get(&self.reference(name));
        found.map(Arc::unwrap_or_clone).with_context(|| format!("{name} is not in the cache"))
    }

    /// The underlying reflector, which records which of its copies are older than this process's own writes.
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

    /// Waits until the cache holds exactly this version of an object. The object must not be written meanwhile.
    pub async fn holds(&self, name: &str, version: &str) -> Result<()> {
        let mut ticks = self.ticks.clone();
        let holds = ticks.wait_for(|_| {
            // Not in the middle of an event: after the store has it, and before the callbacks have.
            let _whole = self.gate.left();
            self.copy(name).is_ok_and(|copy| copy.resource_version().as_deref() == Some(version))
        });
        tokio::time::timeout(PATIENCE, holds)
            .await
            .with_context(|| format!("the cache does not reach version {version} of {name}"))?
            .context("the watch has ended")?;
        Ok(())
    }
}

/// Applies the watch's events to the cache.
struct Feed<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    writer: Writer<K>,
    watched: Watched<K>,
    gate: Arc<Gate>,
    on_change: OnChange<K>,
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
            gate.pass(|| self.apply(&event)).await;
            // After the gate is unlocked, because a task that waits for a tick locks it to read the cache.
            self.ticker.send_modify(|tick| *tick += 1);
        }
    }

    /// First the store, then the reflector's waiters, and last the callback.
    fn apply(&mut self, event: &Event<K>) {
        self.writer.apply_watcher_event(event);
        self.watched.observe(event);
        match event {
            Event::Apply(object) | Event::Delete(object) => (self.on_change)(object),
            // The store has a list only when it is complete.
            Event::InitDone => {
                self.watched.store().state().iter().for_each(|object| (self.on_change)(object));
            }
            Event::Init | Event::InitApply(_) => {}
        }
    }
}
