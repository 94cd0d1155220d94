//! The observer hook: reports what happened to each request, for metrics and tests.
//!
//! It depends on no metrics library; users adapt [`Observer`] to their own. One `tracing` debug event per request is
//! always emitted.

use std::time::Duration;

use crate::classify::Class;
use crate::operation::{Operation, ReadSource, Verb};
use crate::protect::Transition;

/// One request and its result.
#[derive(Debug)]
#[non_exhaustive]
pub struct AttemptEvent<'a> {
    /// The write that the request belongs to.
    pub operation: &'a Operation,
    /// The attempt: 1 for the first round of an operation, one more after each failure. A read and the write decided
    /// from it share a number.
    pub attempt: u32,
    /// What was sent: the operation's verb, or [`Verb::Get`].
    pub verb: Verb,
    /// Why the request failed; `None` when it succeeded.
    pub class: Option<&'a Class>,
    /// How long the operation waits before its next attempt; `None` when there is no next attempt.
    pub delay: Option<Duration>,
    /// Time since the operation began.
    pub elapsed: Duration,
}

/// A finished write, whatever its result.
#[derive(Debug)]
#[non_exhaustive]
pub struct FinishedEvent<'a> {
    /// The write that ended.
    pub operation: &'a Operation,
    /// The result: [`Outcome::label`](crate::Outcome::label), or [`WriteError::category`](crate::WriteError::category).
    pub result: &'static str,
    /// Whether the policy allowed no further attempt.
    pub exhausted: bool,
    /// Attempts that were started; at least 1 unless nothing was ever sent.
    pub attempts: u32,
    /// Requests that were sent, reads included.
    pub requests: u32,
    /// Time since the operation began.
    pub elapsed: Duration,
    /// Time spent waiting between attempts.
    pub waited: Duration,
    /// Time spent waiting for permission to send, in the queue and for the rate limiter.
    pub queued: Duration,
    /// Whether the answer to a write was lost, so that the write may have been executed whatever the result is.
    pub maybe_written: bool,
}

/// Receives every request and every finished write. Called on the task that writes, so implementations must be quick
/// and must not block. Each method does nothing by default.
pub trait Observer: Send + Sync {
    /// A request ended, or was dropped because its token was cancelled: then it has the class of an answer that never
    /// came.
    fn attempt(&self, event: &AttemptEvent<'_>) {
        let _ = event;
    }

    /// An attempt decides from an object that comes from `source`.
    fn read(&self, operation: &Operation, source: ReadSource) {
        let _ = (operation, source);
    }

    /// A retry of [`update`](crate::update) sets the field at `path` (a JSON pointer) to what the previous attempt
    /// wanted, although another writer changed it in between. A closure that does not decide from the object it gets
    /// does this: a lost update, which no version check prevents. A closure that has a good reason to insist does it
    /// too.
    fn overwrote(&self, operation: &Operation, path: &str) {
        let _ = (operation, path);
    }

    /// A write ended. Not called when the future of the write is dropped before it ends.
    fn finished(&self, event: &FinishedEvent<'_>) {
        let _ = event;
    }

    /// The state of a circuit breaker changed.
    #[cfg(feature = "circuit-breaker")]
    fn circuit(&self, transition: Transition) {
        let _ = transition;
    }

    /// A cached copy of this resource was older than our own write of it.
    fn stale_read(&self, resource: &str) {
        let _ = resource;
    }

    /// The watch of this resource did not bring our own write within five minutes, so the write is forgotten.
    fn expectation_expired(&self, resource: &str) {
        let _ = resource;
    }
}

/// Logs a change of a circuit breaker's state and reports it.
#[cfg(feature = "circuit-breaker")]
pub(crate) fn circuit_changed(observer: &dyn Observer, transition: Transition) {
    tracing::info!(from = transition.from.label(), to = transition.to.label(), "circuit breaker");
    observer.circuit(transition);
}

/// Without a circuit breaker there is no change of its state.
#[cfg(not(feature = "circuit-breaker"))]
pub(crate) fn circuit_changed(_observer: &dyn Observer, transition: Transition) {
    match transition {}
}

/// The observer that does nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoopObserver;

impl Observer for NoopObserver {}
