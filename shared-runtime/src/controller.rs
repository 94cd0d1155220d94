//! The keyed loop of both operators: triggers in, one reconcile per key at a time out.
//!
//! kube's own `Controller` is not used for two reasons: its scheduler has no minimum delay for a failing object (any
//! event brings it forward), and the Autoscaler reconciles the whole cluster under one key. The state machine in
//! `queue` decides which key runs when; this file feeds it events and time, spawns, counts and stops.

use std::collections::HashMap;
use std::fmt::Debug;
use std::future::Future;
use std::hash::Hash;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, BoxStream};
use futures::{FutureExt as _, Stream, StreamExt as _, future};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, debug, error, info_span, warn};

use crate::clock::Clock;
use crate::error::{Categorised, chain};
use crate::liveness::{Pulse, WORK_LIMIT};
use crate::metrics::{Metrics, ReconcileResult};
use crate::place;
pub use crate::queue::{CONFLICT_BACKOFF, Debounce, IDLE_BACKOFF, RequeueBackoff};
use crate::queue::{Next, Queue, RunResult};

/// The next step of a key after a successful reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing until the next event.
    Done,
    /// The reconcile changed nothing: requeue after this time, or earlier on an event. One that asks for less than a second again
    /// and again comes back more and more slowly ([`IDLE_BACKOFF`]).
    RequeueAfter(Duration),
    /// The reconcile changed something and is not done: requeue after this time, or earlier on an event.
    ContinueAfter(Duration),
    /// A write lost a race: requeue at once, give or take a few milliseconds; after repeated conflicts with growing
    /// delays until something changes ([`CONFLICT_BACKOFF`]).
    Conflict,
    /// The cache is behind the operator's own writes: requeue when the watch has caught up; without an event, more and more
    /// slowly.
    Stale,
}

/// When a key with a stale cache is rechecked without an event. The watch usually delivers the missing write first,
/// within milliseconds, and that event runs the key.
const STALE_RECHECK: Duration = Duration::from_millis(250);

/// Number of triggers taken at once, so that a stream that never pauses does not block the rest of the loop.
const BURST: usize = 1024;

/// Maximum wait of the loop before it turns once more, to show that it is alive.
const TURN: Duration = Duration::from_secs(10);

/// How long running reconciles may take to finish when the loop stops; below the 30 s that Kubernetes gives a Pod.
const STOP_DEADLINE: Duration = Duration::from_secs(20);

/// Configuration of a loop. [`crate::bootstrap::Operator::controller`] makes one with everything filled in.
pub struct Config {
    name: &'static str,
    concurrency: usize,
    debounce: Debounce,
    backoff: RequeueBackoff,
    stop_deadline: Duration,
    gate: BoxStream<'static, bool>,
    pulse: Option<Pulse>,
    clock: Clock,
    metrics: Metrics,
}

impl Config {
    /// A loop that starts at once, one key at a time. `name` is its label in metrics and logs.
    pub fn new(name: &'static str, clock: Clock, metrics: Metrics) -> Self {
        Self {
            name,
            concurrency: 1,
            debounce: Debounce::default(),
            backoff: RequeueBackoff::default(),
            stop_deadline: STOP_DEADLINE,
            gate: stream::once(future::ready(true)).boxed(),
            pulse: None,
            clock,
            metrics,
        }
    }

    /// The liveness pulse, which beats each time the loop turns, at least every few seconds, and says for how long the oldest
    /// reconcile has been running.
    #[must_use]
    pub fn pulse(mut self, pulse: Pulse) -> Self {
        self.pulse = Some(pulse);
        self
    }

    /// How many keys may run at the same time; 0 counts as 1. A key whose reconcile waits in [`place::lent`] is not counted.
    #[must_use]
    pub fn concurrency(mut self, keys: usize) -> Self {
        self.concurrency = keys;
        self
    }

    /// Collects the triggers of a key for that long before it runs.
    #[must_use]
    pub fn debounce(mut self, time: Debounce) -> Self {
        self.debounce = time;
        self
    }

    /// Backoff of a failing key.
    #[must_use]
    pub fn backoff(mut self, backoff: RequeueBackoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// How long running reconciles may take to finish when the loop stops; then they are dropped.
    #[must_use]
    pub fn stop_deadline(mut self, deadline: Duration) -> Self {
        self.stop_deadline = deadline;
        self
    }

    /// Reconciles start only while the last item of this stream is `true`. Triggers are accepted in the meantime, and
    /// running reconciles continue.
    #[must_use]
    pub fn gate(mut self, gate: impl Stream<Item = bool> + Send + 'static) -> Self {
        self.gate = gate.boxed();
        self
    }
}

impl Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("name", &self.name)
            .field("concurrency", &self.concurrency)
            .field("debounce", &self.debounce)
            .field("backoff", &self.backoff)
            .finish_non_exhaustive()
    }
}

/// Runs `reconcile` for every key from `triggers`, until `shutdown`; then lets running reconciles finish.
///
/// - One reconcile per key at a time; a trigger that arrives meanwhile runs the key once more afterwards.
/// - `Err` backs the key off ([`RequeueBackoff`]), and an event shortens a long wait; it is logged and counted by its
///   category.
/// - A panic in `reconcile` counts as an error of category `panic`; the loop continues.
/// - The end of `triggers` does not end the loop: requeued keys still run.
pub async fn run<K, S, F, Fut, E>(config: Config, triggers: S, reconcile: F, shutdown: CancellationToken)
where
    K: Hash + Eq + Clone + Debug + Send + 'static,
    S: Stream<Item = K>,
    F: Fn(K) -> Fut,
    Fut: Future<Output = Result<Step, E>> + Send + 'static,
    E: Categorised,
{
    let Config { name, concurrency, debounce, backoff, stop_deadline, gate, pulse, clock, metrics } = config;
    let mut runs = Runs {
        name,
        clock: clock.clone(),
        metrics: metrics.clone(),
        tasks: JoinSet::new(),
        keys: HashMap::new(),
    };
    let mut queue: Queue<K> = Queue::new(backoff, debounce);
    let mut places = Places::new(concurrency);
    let mut triggers = pin!(triggers.fuse());
    let mut gate = gate.fuse();
    let mut open = false;

    loop {
        let mut wake = None;
        while open && !shutdown.is_cancelled() {
            let Some(permit) = places.take() else { break };
            match queue.next(clock.monotonic()) {
                Next::Start(key) => {
                    let run = place::holding(Arc::clone(&places.all), permit, reconcile(key.clone()));
                    runs.start(key, run);
                }
                Next::WaitUntil(due) => {
                    wake = Some(due.saturating_sub(clock.monotonic()));
                    break;
                }
                Next::Idle => break,
            }
        }
        places.free = None;
        metrics.queue(name, queue.depth(), queue.in_backoff());
        if let Some(pulse) = &pulse {
            pulse.beat_at_work(runs.oldest());
        }
        tokio::select! {
            // In order of urgency; the loop above has already started every key that may start.
            biased;
            () = shutdown.cancelled() => break,
            Some(now) = gate.next() => open = now,
            Some(ended) = runs.tasks.join_next_with_id() => {
                if let Some((key, outcome)) = runs.end_of(ended) {
                    let failures = queue.finished(&key, outcome, clock.monotonic(), rand::random());
                    if failures > 0 {
                        debug!(controller = name, ?key, failures, "backing off");
                    }
                }
            }
            () = places.free() => {}
            Some(key) = triggers.next() => {
                queue.trigger(key, clock.monotonic());
                // Take what is already available too, so that a burst is one pass through the queue.
                for _ in 0..BURST {
                    let Some(Some(key)) = triggers.next().now_or_never() else { break };
                    queue.trigger(key, clock.monotonic());
                }
            }
            () = tokio::time::sleep(wake.unwrap_or(TURN).min(TURN)) => {}
        }
    }
    if let Some(pulse) = pulse {
        pulse.ended();
    }
    // Reconciles that come back from a slow call need them.
    drop(places);
    runs.finish(stop_deadline).await;
}

/// How many reconciles may run at the same time.
struct Places {
    all: Arc<Semaphore>,
    /// One that has become free, until it is taken.
    free: Option<OwnedSemaphorePermit>,
    /// The wait for one, in turn with the reconciles that come back from a slow call.
    waiting: Option<future::BoxFuture<'static, Option<OwnedSemaphorePermit>>>,
}

impl Places {
    fn new(count: usize) -> Self {
        let all = Arc::new(Semaphore::new(count.clamp(1, Semaphore::MAX_PERMITS)));
        Self { all, free: None, waiting: None }
    }

    /// A place for the next reconcile. When there is none, [`Self::free`] returns as soon as there is.
    fn take(&mut self) -> Option<OwnedSemaphorePermit> {
        if self.waiting.is_some() {
            return None;
        }
        let permit = self.free.take().or_else(|| Arc::clone(&self.all).try_acquire_owned().ok());
        if permit.is_none() {
            self.waiting = Some(Arc::clone(&self.all).acquire_owned().map(Result::ok).boxed());
        }
        permit
    }

    /// Returns when there is a place again; never while none is waited for.
    async fn free(&mut self) {
        let Some(waiting) = self.waiting.as_mut() else { return future::pending().await };
        self.free = waiting.await;
        self.waiting = None;
    }
}

/// A running reconcile.
struct Running<K> {
    key: K,
    since: Duration,
    /// It was said that it takes too long.
    is_said: bool,
}

/// All running reconciles.
struct Runs<K, E> {
    name: &'static str,
    clock: Clock,
    metrics: Metrics,
    tasks: JoinSet<Result<Step, E>>,
    keys: HashMap<Id, Running<K>>,
}

impl<K: Clone + Debug, E: Categorised> Runs<K, E> {
    fn start(&mut self, key: K, reconcile: impl Future<Output = Result<Step, E>> + Send + 'static) {
        let span = info_span!("reconcile", controller = self.name, ?key);
        let task = self.tasks.spawn(reconcile.instrument(span));
        self.keys.insert(task.id(), Running { key, since: self.clock.monotonic(), is_said: false });
    }

    /// For how long the oldest one has been running. One that takes too long is named in the log, once: `/livez` names no object.
    fn oldest(&mut self) -> Option<Duration> {
        let now = self.clock.monotonic();
        let age = |running: &Running<K>| now.saturating_sub(running.since);
        for running in self.keys.values_mut() {
            if !running.is_said && age(running) > WORK_LIMIT {
                running.is_said = true;
                let (key, after) = (&running.key, age(running));
                error!(
                    controller = self.name,
                    ?key,
                    ?after,
                    "reconcile does not end, the liveness probe fails"
                );
            }
        }
        self.keys.values().map(age).max()
    }

    /// Counts and logs the end of a run, and returns its outcome for the queue.
    fn end_of(&mut self, ended: Result<(Id, Result<Step, E>), JoinError>) -> Option<(K, RunResult)> {
        let (id, result) = match ended {
            Ok((id, result)) => (id, Ok(result)),
            Err(failed) => (failed.id(), Err(failed)),
        };
        let Running { key, since, is_said: _ } = self.keys.remove(&id)?;
        let (result, outcome) = match result {
            Ok(Ok(Step::Done)) => (ReconcileResult::Success, RunResult::Done),
            Ok(Ok(Step::RequeueAfter(delay))) => (ReconcileResult::Requeue, RunResult::After(delay)),
            Ok(Ok(Step::ContinueAfter(delay))) => {
                (ReconcileResult::Requeue, RunResult::ChangedThenAfter(delay))
            }
            Ok(Ok(Step::Conflict)) => {
                debug!(controller = self.name, ?key, "conflict, again at once");
                (ReconcileResult::Conflict, RunResult::Conflict)
            }
            Ok(Ok(Step::Stale)) => (ReconcileResult::Stale, RunResult::After(STALE_RECHECK)),
            Ok(Err(failed)) => {
                let category = failed.category();
                self.metrics.reconcile_failed(self.name, category);
                warn!(controller = self.name, ?key, category, error = %chain(&failed), "reconcile failed");
                (ReconcileResult::Error, RunResult::Failed)
            }
            Err(failed) => {
                self.metrics.reconcile_failed(self.name, "panic");
                error!(controller = self.name, ?key, category = "panic", error = %failed, "reconcile failed");
                (ReconcileResult::Error, RunResult::Failed)
            }
        };
        self.metrics.reconciled(self.name, result, self.clock.monotonic().saturating_sub(since));
        Some((key, outcome))
    }

    async fn finish(mut self, deadline: Duration) {
        let drained = tokio::time::timeout(deadline, async {
            while let Some(ended) = self.tasks.join_next_with_id().await {
                self.end_of(ended);
            }
        })
        .await;
        if drained.is_err() {
            let keys: Vec<_> = self.keys.values().map(|running| &running.key).collect();
            warn!(controller = self.name, ?keys, "reconciles did not finish in time and are dropped");
        }
    }
}

#[cfg(test)]
#[path = "controller_tests.rs"]
mod tests;
