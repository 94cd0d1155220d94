//! What happened to each request, for those who count: the observer hook.
//!
//! Knows no metrics library; a user adapts [`Observer`] to the one at hand. One `tracing` debug event per request comes
//! for free.

use std::time::Duration;

use crate::classify::Class;
use crate::operation::{Operation, ReadSource, Verb};
use crate::protect::Transition;

/// One request and what came of it.
#[derive(Debug)]
#[non_exhaustive]
pub struct AttemptEvent<'a> {
    /// The write that the request belongs to.
    pub operation: &'a Operation,
    /// 1 for the first round of an operation, one more after each failure. A read and the write decided from it share
    /// a number.
    pub attempt: u32,
    /// What was sent: the operation's verb, or [`Verb::Get`].
    pub verb: Verb,
    /// What the request failed of; `None` when it succeeded.
    pub class: Option<&'a Class>,
    /// How long the operation now waits before its next attempt; `None` when there is none.
    pub delay: Option<Duration>,
    /// Time since the operation began.
    pub elapsed: Duration,
}

/// A write that came to its end, whatever that is.
#[derive(Debug)]
#[non_exhaustive]
pub struct FinishedEvent<'a> {
    /// The write.
    pub operation: &'a Operation,
    /// [`Outcome::label`](crate::Outcome::label), or [`WriteError::category`](crate::WriteError::category).
    pub result: &'static str,
    /// Whether the policy allowed no further attempt.
    pub exhausted: bool,
    /// Rounds that were begun, at least 1 unless nothing was ever sent.
    pub attempts: u32,
    /// Requests that were sent, reads included.
    pub requests: u32,
    /// Time since the operation began.
    pub elapsed: Duration,
    /// Time spent waiting between attempts.
    pub waited: Duration,
    /// Time spent waiting for leave to send, in the queue and for the rate limiter.
    pub queued: Duration,
    /// Whether the answer to a write was lost on the way, so that it may have been carried out whatever the result says.
    pub maybe_written: bool,
}

/// Hears of every request and every end. Called on the task that writes: count and return. Each method does nothing unless
/// it is implemented.
pub trait Observer: Send + Sync {
    /// A request ended, or was given up by a cancelled token: then it has the class of an answer that never came.
    fn attempt(&self, event: &AttemptEvent<'_>) {
        let _ = event;
    }

    /// An attempt decides from an object that it has from `source`.
    fn read(&self, operation: &Operation, source: ReadSource) {
        let _ = (operation, source);
    }

    /// A retry of [`update`](crate::update) sets the field at `path` (a JSON pointer) to what the attempt before had wanted,
    /// although somebody else changed it in between. A closure that does not decide from the object it is given does
    /// that: a lost update, which no version check prevents. One that has good reason to insist does it too.
    fn overwrote(&self, operation: &Operation, path: &str) {
        let _ = (operation, path);
    }

    /// A write ended. A future that is dropped half-way ends without this.
    fn finished(&self, event: &FinishedEvent<'_>) {
        let _ = event;
    }

    /// The state of a circuit breaker changed.
    fn circuit(&self, transition: Transition) {
        let _ = transition;
    }

    /// A cached copy of this resource was older than our own write of it.
    fn stale_read(&self, resource: &str) {
        let _ = resource;
    }

    /// The watch of this resource did not bring our own write within five minutes, so it is forgotten.
    fn floor_expired(&self, resource: &str) {
        let _ = resource;
    }
}

/// The observer that does nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Observer for Silent {}
