//! How a write can end: what to match on, and the errors that say what to do.
//!
//! A conflict, a vanished object and a goal already met are outcomes, not errors.

use std::fmt;
use std::time::Duration;

use kube::core::Status;

use crate::classify::{Class, FieldConflict};
use crate::operation::{Subresource, Verb};
use crate::policy::GiveUp;
use crate::protect::Held;

/// How a write ended. Only [`Written`](Self::Written), [`Unchanged`](Self::Unchanged) and
/// [`AlreadyDone`](Self::AlreadyDone) mean that the goal is met.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "a conflict or a vanished object is an outcome, not an error"]
pub enum Outcome<T> {
    /// The server acknowledged the write; this is what it stored.
    Written(T),
    /// Nothing was sent, because this object already says what was wanted. It is as fresh as the copy the decision was
    /// made from: the cached one given, or a live read.
    Unchanged(T),
    /// The answer to a write was lost, and a live read then showed the goal met: either that write was carried out, or
    /// somebody else did the same.
    AlreadyDone(T),
    /// The object does not exist, or one of the same name has taken its place.
    Gone,
    /// The decision was not to write. When the answer to an earlier attempt was lost, that attempt may still have been
    /// carried out; the decision was made from a live read after it.
    Aborted,
    /// The object has changed since it was read. Only the functions that make a single attempt, and an apply that carries
    /// a resource version, answer this.
    Conflict(Box<Status>),
}

impl<T> Outcome<T> {
    /// The object, when the goal is met.
    pub fn met(self) -> Option<T> {
        match self {
            Self::Written(object) | Self::Unchanged(object) | Self::AlreadyDone(object) => Some(object),
            Self::Gone | Self::Aborted | Self::Conflict(_) => None,
        }
    }

    /// The same outcome about another view of the object.
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

    /// A stable name for labels: lower case, with underscores.
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
    /// The object is marked for deletion and waits for its finalizers or its grace period.
    Terminating(Box<K>),
    /// There was no such object.
    Gone,
    /// A precondition did not hold: the object changed, or is another of the same name. It was not deleted.
    Conflict(Box<Status>),
}

impl<K> DeleteOutcome<K> {
    /// A stable name for labels: lower case, with underscores.
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
    /// A disruption budget holds the pod for now.
    #[non_exhaustive]
    Blocked {
        /// The budget's own words.
        message: String,
        /// How long the server asks to wait; it usually says nothing.
        retry_after: Option<Duration>,
    },
    /// There was no such pod.
    Gone,
    /// The pod is another of the same name. It was not evicted.
    Conflict(Box<Status>),
}

impl EvictOutcome {
    /// A stable name for labels: lower case, with underscores.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Evicted => "evicted",
            Self::Blocked { .. } => "blocked",
            Self::Gone => "gone",
            Self::Conflict(_) => "conflict",
        }
    }
}

/// Why a single request failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The client's or the server's error.
    #[error("the API server or the way to it failed")]
    Api(#[from] kube::Error),
    /// No answer came in time. A write may have been carried out all the same.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
}

impl Failure {
    /// What the failure means, as the answer to a request of kind `verb`.
    pub fn class(&self, verb: Verb) -> Class {
        match self {
            Self::Api(error) => Class::of(verb, error),
            Self::Timeout(_) => Class::Ambiguous,
        }
    }
}

/// Why a write could not be brought to an outcome.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The request was wrong before it was sent; the code that made it has to change.
    #[error("refused before sending: {reason}")]
    #[non_exhaustive]
    Refused {
        /// What was wrong.
        reason: Refusal,
        /// Whether the answer to an earlier write was lost, so that it may have been carried out.
        maybe_written: bool,
    },
    /// Other managers own fields of a server-side apply.
    #[error("other managers own {}; leave the fields out of the apply, or force it", list(conflicts))]
    #[non_exhaustive]
    FieldManager {
        /// Every field in dispute.
        conflicts: Vec<FieldConflict>,
        /// Whether the answer to an earlier write was lost, so that it may have been carried out.
        maybe_written: bool,
        /// The server's answer.
        #[source]
        source: Box<Failure>,
    },
    /// The server refused, and another attempt cannot end better.
    #[error("the {verb} was refused ({}): {}", class.label(), class.advice())]
    #[non_exhaustive]
    Rejected {
        /// What was sent.
        verb: Verb,
        /// To which part of the object.
        subresource: Subresource,
        /// What the refusal means.
        class: Class,
        /// Whether the answer to an earlier write was lost, so that it may have been carried out.
        maybe_written: bool,
        /// The server's answer.
        #[source]
        source: Box<Failure>,
    },
    /// A single attempt whose outcome is not known.
    #[error("it is not known whether the {verb} was carried out; read the object before trying again")]
    #[non_exhaustive]
    Unknown {
        /// What was sent.
        verb: Verb,
        /// Why the outcome is not known.
        #[source]
        source: Box<Failure>,
    },
    /// The policy allowed no further attempt.
    #[error("gave up after {} in {elapsed:.1?}, {}: {}", counted(*attempts), bound(*reason), class.advice())]
    #[non_exhaustive]
    Exhausted {
        /// Attempts that failed.
        attempts: u32,
        /// Time since the first one began.
        elapsed: Duration,
        /// Which bound was reached.
        reason: GiveUp,
        /// What the last failure means.
        class: Class,
        /// Whether the answer to a write was lost on the way, so that it may have been carried out.
        maybe_written: bool,
        /// The last failure.
        #[source]
        last: Box<Failure>,
    },
    /// A protection kept the next request from being sent.
    #[error("held back after {} that failed: {by}", counted(*attempts))]
    #[non_exhaustive]
    Held {
        /// Attempts that failed before.
        attempts: u32,
        /// What held it back.
        by: Held,
        /// Whether the answer to a write was lost on the way, so that it may have been carried out.
        maybe_written: bool,
        /// The last failure, if there was one.
        #[source]
        last: Option<Box<Failure>>,
    },
    /// The policy's token was cancelled, or its deadline forbade even the first attempt.
    #[error("cancelled after {} that failed{}", counted(*attempts), if *maybe_written { "; the change may have been made" } else { "" })]
    #[non_exhaustive]
    Cancelled {
        /// Attempts that failed before.
        attempts: u32,
        /// Whether the answer to a write was lost on the way, so that it may have been carried out.
        maybe_written: bool,
        /// The last failure, if there was one.
        #[source]
        last: Option<Box<Failure>>,
    },
}

/// What was wrong with a request before it was sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The change touches what identifies an object.
    #[error("the change touches metadata.{0}, which identifies the object; leave it as it was read")]
    Identity(&'static str),
    /// The change touches something that the subresource drops without a word.
    #[error("the change touches `{field}`, which a write to {subresource:?} drops; write it elsewhere")]
    Dropped {
        /// The top-level field.
        field: String,
        /// Where it was to be written.
        subresource: Subresource,
    },
    /// The name of the object is empty.
    #[error("the name of the object is empty; name the object to be written")]
    NoName,
    /// The API server takes no field manager of this name.
    #[error("`{0}` is no name of a field manager; give 1 to 128 printable characters")]
    FieldManager(String),
    /// No request can be answered in no time.
    #[error("the time for one request is zero; give some")]
    AttemptTimeout,
    /// There is no resource version to guard the write with.
    #[error(
        "the object has no metadata.resourceVersion to guard the write; pass one read from the API server"
    )]
    NoVersion,
    /// There is no generation to guard the write with.
    #[error(
        "the object has no metadata.uid or no metadata.generation to guard the write; pass one read from the API server, of a kind that counts generations"
    )]
    NoGeneration,
    /// The copy given is not the object that the name says.
    #[error("the copy given is of `{found}`, not of `{wanted}`; pass the copy of the object to be written")]
    WrongObject {
        /// The name asked for.
        wanted: String,
        /// The name in the copy.
        found: String,
    },
    /// The body of a patch or an apply has the wrong form.
    #[error("the body {0}")]
    Body(&'static str),
    /// The replica count is negative.
    #[error("the replica count {0} is negative; give at least 0")]
    Replicas(i32),
    /// An object could not be turned into JSON.
    #[error("the object does not turn into JSON")]
    Encode(#[source] serde_json::Error),
}

impl From<Refusal> for WriteError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused { reason: refusal, maybe_written: false }
    }
}

impl WriteError {
    /// A stable name for labels and event reasons' detail: lower case, with underscores.
    pub const fn category(&self) -> &'static str {
        match self {
            Self::Refused { .. } => "refused",
            Self::FieldManager { .. } => "field_manager",
            Self::Rejected { class, .. } => class.label(),
            Self::Unknown { .. } => "unknown",
            Self::Exhausted { .. } => "exhausted",
            Self::Held { by, .. } => by.label(),
            Self::Cancelled { .. } => "cancelled",
        }
    }

    /// What the server's refusal means; `None` when no refusal is behind the error.
    pub const fn class(&self) -> Option<&Class> {
        match self {
            Self::Rejected { class, .. } | Self::Exhausted { class, .. } => Some(class),
            Self::Refused { .. }
            | Self::FieldManager { .. }
            | Self::Unknown { .. }
            | Self::Held { .. }
            | Self::Cancelled { .. } => None,
        }
    }

    /// Whether a creation met an object of the same name.
    pub const fn is_already_exists(&self) -> bool {
        matches!(self, Self::Rejected { class: Class::AlreadyExists, .. })
    }

    /// Whether the write may have been carried out although it was not acknowledged.
    pub const fn maybe_written(&self) -> bool {
        match self {
            Self::Unknown { .. } => true,
            Self::Refused { maybe_written, .. }
            | Self::Exhausted { maybe_written, .. }
            | Self::Held { maybe_written, .. }
            | Self::Rejected { maybe_written, .. }
            | Self::FieldManager { maybe_written, .. }
            | Self::Cancelled { maybe_written, .. } => *maybe_written,
        }
    }
}

fn list(conflicts: &[FieldConflict]) -> impl fmt::Display {
    conflicts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// A number of attempts, in words.
pub(crate) fn counted(attempts: u32) -> impl fmt::Display {
    format!("{attempts} attempt{}", if attempts == 1 { "" } else { "s" })
}

const fn bound(reason: GiveUp) -> &'static str {
    match reason {
        GiveUp::Attempts => "which is all the policy allows",
        GiveUp::Deadline => "at the policy's deadline",
    }
}
