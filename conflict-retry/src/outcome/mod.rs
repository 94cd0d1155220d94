//! How a write can end: the outcomes to match on, and the errors with their advice.
//!
//! A conflict, a deleted object and a goal that is already met are outcomes, not errors.

mod error;
mod turned;

use std::time::Duration;

use kube::core::Status;

pub(crate) use self::error::counted;
pub use self::error::{Refusal, RequestFailure, WriteError};

/// How a write ended. Only [`Written`](Self::Written), [`Unchanged`](Self::Unchanged) and
/// [`AlreadyDone`](Self::AlreadyDone) mean that the goal is met.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "a conflict or a vanished object is an outcome, not an error"]
pub enum Outcome<T> {
    /// The server acknowledged the write; the object is as stored.
    Written(T),
    /// Nothing was sent, because the object already has the wanted state. The object is as fresh as the copy the
    /// decision was based on: the cached copy that was passed in, or a live read.
    Unchanged(T),
    /// The answer to a write was lost, and a live read then showed that the goal is met: either that write was
    /// executed, or another writer did the same.
    AlreadyDone(T),
    /// The object does not exist, or another object of the same name has replaced it.
    Gone,
    /// The decision was not to write. If the answer to an earlier attempt was lost, that attempt may still have been
    /// executed; the decision was based on a live read after it.
    Aborted,
    /// The object has changed since it was read. Returned only by the functions that make a single attempt, and by an
    /// apply with a resourceVersion.
    Conflict(Box<Status>),
}

impl<T> Outcome<T> {
    /// Whether the goal is met.
    pub const fn is_met(&self) -> bool {
        matches!(self, Self::Written(_) | Self::Unchanged(_) | Self::AlreadyDone(_))
    }

    /// Whether another writer changed the object first.
    pub const fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict(_))
    }

    /// The object, when the goal is met; `None` otherwise.
    pub fn met(self) -> Option<T> {
        match self {
            Self::Written(object) | Self::Unchanged(object) | Self::AlreadyDone(object) => Some(object),
            Self::Gone | Self::Aborted | Self::Conflict(_) => None,
        }
    }

    /// Converts the object and keeps the outcome.
    pub fn map<U>(self, view: impl FnOnce(T) -> U) -> Outcome<U> {
        match self {
            Self::Written(object) => Outcome::Written(view(object)),
            Self::Unchanged(object) => Outcome::Unchanged(view(object)),
            Self::AlreadyDone(object) => Outcome::AlreadyDone(view(object)),
            Self::Gone => Outcome::Gone,
            Self::Aborted => Outcome::Aborted,
            Self::Conflict(status) => Outcome::Conflict(status),
        }
    }

    /// A stable name for metric labels: lower case, with underscores.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Written(_) => "written",
            Self::Unchanged(_) => "unchanged",
            Self::AlreadyDone(_) => "already_done",
            Self::Gone => "gone",
            Self::Aborted => "aborted",
            Self::Conflict(_) => "conflict",
        }
    }
}

/// How a deletion ended.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "an unmet precondition is an outcome, not an error"]
pub enum DeleteOutcome<K> {
    /// The object is gone.
    Deleted,
    /// The object has a deletion timestamp and waits for its finalizers or its grace period.
    Terminating(Box<K>),
    /// There was no such object.
    Gone,
    /// A precondition failed: the object has changed, or is another one of the same name. It was not deleted.
    Conflict(Box<Status>),
}

impl<K> DeleteOutcome<K> {
    /// A stable name for metric labels: lower case, with underscores.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::Terminating(_) => "terminating",
            Self::Gone => "gone",
            Self::Conflict(_) => "conflict",
        }
    }
}

/// How an eviction ended.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "a blocked eviction is an outcome, not an error"]
pub enum EvictOutcome {
    /// The pod is being deleted.
    Evicted,
    /// A `PodDisruptionBudget` blocks the eviction for now.
    #[non_exhaustive]
    Blocked {
        /// The budget's message.
        message: String,
        /// How long the server asks the client to wait; usually `None`.
        retry_after: Option<Duration>,
    },
    /// There was no such pod.
    Gone,
    /// The pod is another one of the same name. It was not evicted.
    Conflict(Box<Status>),
}

impl EvictOutcome {
    /// A stable name for metric labels: lower case, with underscores.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Evicted => "evicted",
            Self::Blocked { .. } => "blocked",
            Self::Gone => "gone",
            Self::Conflict(_) => "conflict",
        }
    }
}
