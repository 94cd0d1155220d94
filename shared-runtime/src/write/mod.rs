//! The writer ([`Writer`]): the only way for an operator to change anything in the cluster.
//!
//! It has four strategies ([`WriteStrategy`]) with one meaning: the caller's `decide` returns the wanted object for the
//! given one; the writer compares before it sends, calls `decide` again with the fresh object after a conflict, checks
//! that the operator writes only its own part (`shared_crds::ownership`) and that this replica is the leader, and
//! counts. How a single request is retried is not known here; `conflict-retry` does that.

mod denial;
mod error;
mod guarded;
mod objects;
mod owned;
mod replicas;
mod status;
mod strategy;
mod unreadable;

use std::sync::Arc;
use std::time::Duration;

use conflict_retry::observe::NoopObserver;
use conflict_retry::protect::{KeyQueue, Protection, RetryBudget};
use conflict_retry::{Observer, RetryPolicy, WriteOptions};
use kube::Client;
use shared_crds::ownership::Owner;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use conflict_retry::{DeleteOutcome, EvictOutcome, Outcome, ScaleDecision};

pub use self::error::{NotOwned, WriterError};
pub use self::objects::Created;
pub use self::strategy::WriteStrategy;
use crate::clock::Clock;
use crate::crds::ServedFields;
use crate::fence::Fence;
use crate::freshness::WriteTracker;

/// How long a write may be retried: `conflict-retry`'s own bound. A fence that is about to close shortens it.
const DEADLINE: Duration = Duration::from_secs(30);
/// Timeout of one request for a lease: a third of its duration (15 s by default) at most, so that a request without an
/// answer leaves time for another one. No admission webhook is expected there, whose time other writes are given.
const LEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// The writer. Cheap to clone.
#[derive(Clone)]
pub struct Writer {
    client: Client,
    owner: Owner,
    manager: &'static str,
    strategy: WriteStrategy,
    policy: RetryPolicy,
    write_tracker: WriteTracker,
    fence: Fence,
    observer: Arc<dyn Observer>,
    protection: Protection,
    served: ServedFields,
    /// `None`: the bounds of `conflict-retry`.
    attempt_timeout: Option<Duration>,
}

/// An observer that does nothing, for writes that need not be counted.
pub fn unobserved() -> Arc<dyn Observer> {
    Arc::new(NoopObserver)
}

/// The owner has no field manager: it is not an operator.
#[derive(Debug, thiserror::Error)]
#[error("{} writes no status of its own", .0.describe())]
pub struct NotAnOperator(Owner);

impl Writer {
    /// A writer for the operator `owner`. `client` must be made with `default_retry = false` (as [`crate::client`]
    /// does): kube's own retries would repeat a write without looking at the object again. `observer` is notified of
    /// every request.
    pub fn new(
        client: Client,
        owner: Owner,
        strategy: WriteStrategy,
        clock: &Clock,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, NotAnOperator> {
        let manager = owner.field_manager().ok_or(NotAnOperator(owner))?;
        let write_tracker = WriteTracker::new(clock.clone(), Arc::clone(&observer));
        let fence = Fence::unguarded(clock.clone());
        let policy = RetryPolicy::default();
        // One contender per object, and no retry storm. No circuit breaker: the loop's own backoff already spares an
        // API server that fails, object by object, and a lease must be renewed whatever else fails.
        let protection =
            Protection::default().with_queue(KeyQueue::new()).with_budget(RetryBudget::default());
        let served = ServedFields::default();
        Ok(Self {
            client,
            owner,
            manager,
            strategy,
            policy,
            write_tracker,
            fence,
            observer,
            protection,
            served,
            attempt_timeout: None,
        })
    }

    /// Sets a fence: no write starts while it is closed.
    #[must_use]
    pub fn with_fence(mut self, fence: Fence) -> Self {
        self.fence = fence;
        self
    }

    /// Leaves the fields out of a status that the installed definitions lack.
    #[must_use]
    pub fn with_served_fields(self, served: ServedFields) -> Self {
        Self { served, ..self }
    }

    /// The same writer for another cluster.
    #[must_use]
    pub fn with_client(&self, client: Client) -> Self {
        Self { client, ..self.clone() }
    }

    /// Sets the retry policy of `retry`, `patch` and `guarded`.
    #[must_use]
    pub fn with_policy(mut self, policy: RetryPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// The same writer without a fence and without anything that could delay a write, for the lease itself.
    #[must_use]
    pub fn for_lease(&self, clock: &Clock) -> Self {
        let fence = Fence::unguarded(clock.clone());
        let attempt_timeout = Some(LEASE_TIMEOUT);
        Self { fence, protection: Protection::default(), attempt_timeout, ..self.clone() }
    }

    /// The strategy for status and replicas.
    pub fn strategy(&self) -> WriteStrategy {
        self.strategy
    }

    /// The record of the writer's own writes.
    pub fn write_tracker(&self) -> &WriteTracker {
        &self.write_tracker
    }

    /// Passes the fence and returns the options of one write.
    fn begin(&self) -> Result<WriteOptions, WriterError> {
        let allowed = self.fence.pass()?;
        let deadline = allowed.map_or(DEADLINE, |left| left.min(DEADLINE));
        // A fence that closes half-way ends the retries, and a request in progress.
        let cancel: CancellationToken = self.fence.lost().child_token();
        let options = WriteOptions::new(self.manager);
        // If the loss goes unnoticed, the clock stops the write: otherwise a retry, an eviction with its long timeout,
        // or a write that waited for its turn would be in progress when another leader may start.
        let options = match allowed {
            Some(left) => options.with_hard_deadline(Instant::now() + left),
            None => options,
        };
        let options = match self.attempt_timeout {
            Some(timeout) => options.with_attempt_timeout(timeout),
            None => options,
        };
        Ok(options
            .with_policy(self.policy.clone().with_deadline(Some(deadline)))
            .with_cancellation(cancel)
            .with_observer(Arc::clone(&self.observer))
            .with_protection(self.protection.clone()))
    }
}

#[cfg(test)]
mod list_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod writer_tests;
