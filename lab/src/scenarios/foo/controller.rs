//! A minimal controller: a cache fed by a watch, a work queue fed by the same events, and a loop that the scenario steps
//! through, so that it can check the state between two reconciles. The scenario implements the reconcile.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use conflict_retry::protect::workqueue::{ItemExponentialFailure, ItemLimiter as _};
use kube::ResourceExt as _;
use tokio::time::{Instant, timeout};

use super::queue::Queue;
use super::{greeting_of, version_of};
use crate::cache::Cache;
use crate::context::{Actor, PATIENCE, ScenarioContext};
use crate::event::{RecordedRequest, version};
use crate::pool::Foo;

/// First pause after a failed reconcile, doubled by each further failure: as in client-go's work queue.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// Longest pause: as in client-go's work queue.
const LONGEST_PAUSE: Duration = Duration::from_secs(1000);

/// Counts for one object so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    /// Received watch events.
    pub(super) events: usize,
    /// Started reconciles.
    pub(super) reconciles: usize,
    /// Reconciles that ended in a conflict.
    pub(super) failed: usize,
    /// PUTs sent.
    pub(super) puts: usize,
    /// Requests answered 409.
    pub(super) conflicts: usize,
}

/// A controller of one Foo at a time.
pub(super) struct Controller<'a> {
    ctx: &'a ScenarioContext,
    /// Its client.
    pub(super) actor: Actor,
    /// The cache that it decides from.
    pub(super) cache: Cache<Foo>,
    inbox: Arc<Inbox>,
    limiter: ItemExponentialFailure<String>,
    reconciles: usize,
    failed: usize,
}

/// Receives the watch's events.
#[derive(Default)]
struct Inbox {
    of: Mutex<String>,
    queue: Queue,
    events: AtomicUsize,
    /// Whether events without a change of the generation are dropped.
    by_generation: AtomicBool,
    generation: Mutex<Option<i64>>,
}

impl Inbox {
    fn receive(&self, object: &Foo) {
        let name = object.name_any();
        if *self.of.lock().unwrap_or_else(PoisonError::into_inner) != name {
            return;
        }
        self.events.fetch_add(1, Ordering::SeqCst);
        let mut generation = self.generation.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = *generation == object.metadata.generation;
        *generation = object.metadata.generation;
        if !(is_same && self.by_generation.load(Ordering::SeqCst)) {
            self.queue.add(&name, Instant::now());
        }
    }
}

impl<'a> Controller<'a> {
    /// Lists and watches. Nothing is reconciled before an object is selected.
    pub(super) async fn start(ctx: &'a ScenarioContext) -> Result<Self> {
        let actor = ctx.actor("controller").await?;
        let inbox = Arc::new(Inbox::default());
        let feed = Arc::clone(&inbox);
        let cache = Cache::start(&actor, Box::new(move |object| feed.receive(object))).await?;
        let limiter = ItemExponentialFailure::new(FIRST_PAUSE, LONGEST_PAUSE);
        Ok(Self { ctx, actor, cache, inbox, limiter, reconciles: 0, failed: 0 })
    }

    /// Selects the Foo to reconcile, which does not exist yet; other objects are ignored.
    pub(super) fn care_for(&mut self, name: &str) {
        name.clone_into(&mut self.inbox.of.lock().unwrap_or_else(PoisonError::into_inner));
        self.inbox.events.store(0, Ordering::SeqCst);
        self.inbox.queue.clear();
        *self.inbox.generation.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.reconciles = 0;
        self.failed = 0;
    }

    /// From now on filters events like controller-runtime's `GenerationChangedPredicate`.
    pub(super) fn compare_generations(&self) {
        self.inbox.by_generation.store(true, Ordering::SeqCst);
    }

    /// The selected object.
    pub(super) fn name(&self) -> String {
        self.inbox.of.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The counts for the selected object.
    pub(super) fn counts(&self) -> Counts {
        let target = format!("foos/{}", self.name());
        let requests = self.actor.requests();
        let count = |is: fn(&RecordedRequest) -> bool| {
            requests.iter().filter(|request| request.target == target && is(request)).count()
        };
        Counts {
            events: self.inbox.events.load(Ordering::SeqCst),
            reconciles: self.reconciles,
            failed: self.failed,
            puts: count(|request| request.verb == "PUT"),
            conflicts: count(|request| request.code == 409),
        }
    }

    /// Waits until the cache is up to date. No other writer may write meanwhile.
    pub(super) async fn catch_up(&self) -> Result<()> {
        let stored = self.stored().await?;
        self.cache.holds(&self.name(), &version_of(&stored)?).await
    }

    /// The stored object, read with an unrecorded request.
    pub(super) async fn stored(&self) -> Result<Foo> {
        self.ctx.stored(&self.name()).await
    }

    /// Whether the queue is empty.
    pub(super) fn is_idle(&self) -> bool {
        self.inbox.queue.is_empty()
    }

    /// Starts the next reconcile with an up-to-date cache; `None` when the queue is empty after every event so far was
    /// received.
    pub(super) async fn turn(&mut self) -> Result<Option<Foo>> {
        self.catch_up().await?;
        if self.is_idle() {
            return Ok(None);
        }
        self.next().await.map(Some)
    }

    /// Starts the next reconcile as soon as the queue has one, with the current cache.
    pub(super) async fn next(&mut self) -> Result<Foo> {
        let next = timeout(PATIENCE, self.inbox.queue.next()).await;
        let name = next.context("the queue stays empty")?;
        let copy = self.cache.copy(&name)?;
        self.reconciles += 1;
        let says = match greeting_of(&copy) {
            "" => "says nothing".to_owned(),
            greeting => format!("says “{greeting}”"),
        };
        let text = format!(
            "reconcile {}: the cache holds {}, which {says}",
            self.reconciles,
            version(&version_of(&copy)?)
        );
        self.ctx.act(self.actor.name(), &text);
        Ok(copy)
    }

    /// Ends a reconcile: after a conflict the queue delays the object.
    pub(super) fn ended(&mut self, result: Result<(), kube::Error>) -> Result<()> {
        let name = self.name();
        match result {
            Ok(()) => self.limiter.forget(&name),
            Err(kube::Error::Api(status)) if status.is_conflict() => {
                self.failed += 1;
                let pause = self.limiter.when(&name, Duration::ZERO);
                self.inbox.queue.add(&name, Instant::now() + pause);
                let text = format!(
                    "returns the error; the queue tries again in {} ms, or at an event",
                    pause.as_millis()
                );
                self.ctx.act(self.actor.name(), &text);
            }
            Err(error) => bail!(error),
        }
        Ok(())
    }
}
