//! The write door: the only way for an operator to change anything in the cluster.
//!
//! Four strategies lead through it ([`WriteStrategy`]) with one meaning: the caller's `decide` says what the object should
//! be, from the object it is given; the door compares before it sends, asks again with the fresh object after a
//! conflict, checks that the operator writes only what is its own (`shared_crds::ownership`), that this replica leads,
//! and counts. How a single request is retried is not known here; that is `conflict-retry`'s front door.

mod error;
mod guarded;
mod objects;
mod outcome;
mod owned;
mod replicas;
mod status;
mod strategy;
mod unreadable;

use std::sync::Arc;
use std::time::Duration;

use conflict_retry::observe::Silent;
use conflict_retry::protect::{KeyQueue, Protection, RetryBudget};
use conflict_retry::{Observer, RetryPolicy, WriteOptions};
use kube::Client;
use shared_crds::ownership::Owner;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use self::error::WriteError;
pub use self::outcome::{Created, Deleted, Evicted, Written};
pub use self::owned::{NotOwned, OwnedStatus};
pub use self::replicas::ReplicasDecision;
pub use self::strategy::WriteStrategy;
use crate::clock::Clock;
use crate::fence::Fence;
use crate::freshness::Floors;

/// How long one request may take: `conflict-retry`'s own bound, half of its deadline, so that there is time to look up what
/// became of a write whose answer was lost. A fence that is about to close shortens it.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a write may be retried: `conflict-retry`'s own bound. A fence that is about to close shortens this too.
const DEADLINE: Duration = Duration::from_secs(10);

/// The door. Cheap to clone.
#[derive(Clone)]
pub struct Door {
    client: Client,
    owner: Owner,
    manager: &'static str,
    strategy: WriteStrategy,
    policy: RetryPolicy,
    floors: Floors,
    fence: Fence,
    observer: Arc<dyn Observer>,
    protection: Protection,
}

/// Nobody, for a door whose writes need not be counted.
pub fn unobserved() -> Arc<dyn Observer> {
    Arc::new(Silent)
}

/// The owner has no field manager: it is not an operator.
#[derive(Debug, thiserror::Error)]
#[error("{} writes no status of its own", .0.describe())]
pub struct NotAnOperator(Owner);

impl Door {
    /// A door for the operator `owner`. `client` must be made with `default_retry = false` (as [`crate::client`] does):
    /// kube's own retries would repeat a write without looking at the object again. `observer` hears of every request.
    pub fn new(
        client: Client,
        owner: Owner,
        strategy: WriteStrategy,
        clock: &Clock,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, NotAnOperator> {
        let manager = owner.field_manager().ok_or(NotAnOperator(owner))?;
        let floors = Floors::new(clock.clone(), Arc::clone(&observer));
        let fence = Fence::unguarded(clock.clone());
        let policy = RetryPolicy::default();
        // One contender per object, and no storm of retries. No breaker: the loop's own backoff keeps away from an API
        // server that fails, object by object, and a lease must be renewed whatever else fails.
        let protection =
            Protection::default().with_queue(KeyQueue::new()).with_budget(RetryBudget::default());
        Ok(Self { client, owner, manager, strategy, policy, floors, fence, observer, protection })
    }

    /// No write starts while `fence` is closed.
    #[must_use]
    pub fn with_fence(mut self, fence: Fence) -> Self {
        self.fence = fence;
        self
    }

    /// How `retry`, `patch` and `guarded` retry.
    #[must_use]
    pub fn with_policy(mut self, policy: RetryPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// The same door without a fence and with nothing that could hold a write back, for the lease itself.
    #[must_use]
    pub fn unfenced(&self, clock: &Clock) -> Self {
        let protection = Protection::default();
        Self { protection, ..self.clone().with_fence(Fence::unguarded(clock.clone())) }
    }

    /// The strategy for status and replicas.
    pub fn strategy(&self) -> WriteStrategy {
        self.strategy
    }

    /// What the door remembers of its own writes.
    pub fn floors(&self) -> &Floors {
        &self.floors
    }

    /// Passes the fence and says how one write is sent.
    fn begin(&self) -> Result<WriteOptions, WriteError> {
        self.begin_within(ATTEMPT_TIMEOUT)
    }

    /// The same for a write whose one attempt may take `attempt`.
    fn begin_within(&self, attempt: Duration) -> Result<WriteOptions, WriteError> {
        let allowed = self.fence.pass()?;
        let within = |most: Duration| allowed.map_or(most, |left| left.min(most));
        // A fence that is lost half-way ends the retries, and a request that is under way.
        let cancel: CancellationToken = self.fence.lost().child_token();
        let options = WriteOptions::new(self.manager);
        // Who loses it without noticing is stopped by the clock: a retry, an eviction with its long time, a write that
        // waited for its turn would otherwise be under way when a successor may begin.
        let options = match allowed {
            Some(left) => options.with_end(Instant::now() + left),
            None => options,
        };
        Ok(options
            .with_policy(self.policy.clone().with_deadline(Some(within(DEADLINE))))
            .with_cancellation(cancel)
            .with_attempt_timeout(within(attempt))
            .with_observer(Arc::clone(&self.observer))
            .with_protection(self.protection.clone()))
    }
}

#[cfg(test)]
#[path = "door_tests.rs"]
mod tests;
