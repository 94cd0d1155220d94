//! What happened to each request, for those who count: the observer hook.
//!
//! Knows no metrics library; a user adapts [`Observer`] to the one at hand. One `tracing` debug event per request comes
//! for free.

use std::fmt;
use std::time::Duration;

use crate::classify::Class;
use crate::protect::Transition;

/// The kind of request that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verb {
    /// A live read.
    Get,
    /// A whole-object replacement.
    Put,
    /// An RFC 6902 patch, usually guarded by `test` operations.
    JsonPatch,
    /// An RFC 7386 patch.
    MergePatch,
    /// A server-side apply.
    Apply,
    /// A creation.
    Create,
    /// A deletion.
    Delete,
    /// An eviction through the Eviction API.
    Evict,
}

impl Verb {
    /// Whether the request asks for a change.
    pub const fn is_write(self) -> bool {
        !matches!(self, Self::Get)
    }

    /// A stable name for labels: lower case, with underscores.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Put => "put",
            Self::JsonPatch => "json_patch",
            Self::MergePatch => "merge_patch",
            Self::Apply => "apply",
            Self::Create => "create",
            Self::Delete => "delete",
            Self::Evict => "evict",
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// The part of an object that a request is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Subresource {
    /// The object itself.
    Main,
    /// `/status`.
    Status,
    /// `/scale`.
    Scale,
    /// `/eviction`.
    Eviction,
}

impl Subresource {
    /// A stable name for labels, as the API server's metrics spell it (empty for the object itself).
    pub const fn label(self) -> &'static str {
        match self {
            Self::Main => "",
            Self::Status => "status",
            Self::Scale => "scale",
            Self::Eviction => "eviction",
        }
    }
}

/// Where an attempt took the object from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReadSource {
    /// The copy that the caller gave.
    Copy,
    /// A cache that a watch feeds.
    Watch,
    /// A request to the API server.
    Live,
}

impl ReadSource {
    /// A stable name for labels: lower case.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Watch => "watch",
            Self::Live => "live",
        }
    }
}

/// Which write is told of.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Operation {
    /// The resource's name as the API server's paths spell it: plural and lower case.
    pub resource: String,
    /// The part of the object that is written.
    pub subresource: Subresource,
    /// The request that writes.
    pub verb: Verb,
}

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
