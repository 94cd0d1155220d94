//! The protections that one write passes, each optional.

use super::{CircuitBreaker, KeyQueue, RateLimiter, RetryBudget};

/// The protections that a write passes, each optional, in the correct order. Cheap to clone: share one per process.
///
/// ```
/// use conflict_retry::{WriteOptions, protect::{KeyQueue, Protection, RetryBudget}};
///
/// let protection = Protection::default().with_queue(KeyQueue::new()).with_budget(RetryBudget::default());
/// let options = WriteOptions::new("colour-controller").with_protection(protection);
/// ```
///
/// Do not lock the same queue around a call that uses it: the call would wait for itself.
#[derive(Debug, Clone, Default)]
pub struct Protection {
    pub(crate) queue: Option<KeyQueue<String>>,
    pub(crate) budget: Option<RetryBudget>,
    pub(crate) limiter: Option<RateLimiter>,
    pub(crate) breaker: Option<CircuitBreaker>,
}

impl Protection {
    /// Allows one write at a time for each object, so that the tasks of this process do not compete for it. The keys
    /// are the objects' paths on the API server.
    #[must_use]
    pub fn with_queue(mut self, queue: KeyQueue<String>) -> Self {
        self.queue = Some(queue);
        self
    }

    /// Limits the running retries to a share of the running operations. A refused retry ends the write with
    /// [`WriteError::ClientThrottled`](crate::WriteError::ClientThrottled).
    #[must_use]
    pub fn with_budget(mut self, budget: RetryBudget) -> Self {
        self.budget = Some(budget);
        self
    }

    /// Limits the requests per second, reads included. A read waits for its turn; the write that it leads to does not, since
    /// the copy would be old when it is sent. That write still takes a token: the next read waits longer. So up to one
    /// request for each running write may go beyond the burst. A write without a read ([`apply`](crate::apply()), the module
    /// [`once`](crate::once)) waits itself; one from a copy waits too if the bucket is empty, and then reads again.
    #[cfg(feature = "rate-limiter")]
    #[must_use]
    pub fn with_limiter(mut self, limiter: RateLimiter) -> Self {
        self.limiter = Some(limiter);
        self
    }

    /// Sends no request while the API server does not answer. The write then ends with
    /// [`WriteError::ClientThrottled`](crate::WriteError::ClientThrottled).
    #[cfg(feature = "circuit-breaker")]
    #[must_use]
    pub fn with_breaker(mut self, breaker: CircuitBreaker) -> Self {
        self.breaker = Some(breaker);
        self
    }
}
