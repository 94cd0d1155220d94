//! What happened to each request, for those who count: the observer hook.
//!
//! Knows no metrics library; a user adapts [`Observer`] to the one at hand. One `tracing` debug event per request comes
//! for free.

use std::fmt;
use std::time::Duration;

use crate::classify::Class;

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

    /// Whether an answer that never came may hide a change.
    pub const fn writes(self) -> bool {
        !matches!(self, Self::Get)
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

/// One request and what came of it.
#[derive(Debug)]
#[non_exhaustive]
pub struct AttemptEvent<'a> {
    /// 1 for the first round of an operation, one more after each failure. A read and the write decided from it share
    /// a number.
    pub attempt: u32,
    /// What was sent.
    pub verb: Verb,
    /// To which part of the object.
    pub subresource: Subresource,
    /// What the request failed of; `None` when it succeeded.
    pub class: Option<&'a Class>,
    /// How long the operation now waits before its next attempt; `None` when there is none.
    pub delay: Option<Duration>,
    /// Time since the operation began.
    pub elapsed: Duration,
}

/// Hears of every request of the front door. Called on the task that writes: count and return.
pub trait Observer: Send + Sync {
    /// A request ended.
    fn attempt(&self, event: &AttemptEvent<'_>);
}

/// The observer that does nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Observer for Silent {
    fn attempt(&self, _event: &AttemptEvent<'_>) {}
}
