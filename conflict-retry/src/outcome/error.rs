//! Why a write has no outcome, with advice.

use std::fmt;
use std::time::Duration;

use kube::core::Status;

use crate::classify::{self, Class, FieldConflict, admission};
use crate::operation::{Subresource, Verb};
use crate::policy::GiveUp;
use crate::protect::ThrottledBy;

/// What the user can do about an answer to a read that is not JSON.
const NOT_JSON: &str = "the answer is not JSON; find out what answered in the API server's place";

/// Why a single request failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestFailure {
    /// An error of the client or of the server.
    #[error("the API server or the way to it failed")]
    Api(#[from] kube::Error),
    /// No answer arrived in time. A write may still have been executed.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
}

impl RequestFailure {
    /// Classifies the failure as the answer to a request of kind `verb`.
    pub fn class(&self, verb: Verb) -> Class {
        match self {
            Self::Api(error) => Class::of(verb, error),
            Self::Timeout(_) => Class::Ambiguous,
        }
    }

    /// Like [`Self::class`], for a request to `resource`: it may be the one that quotas are stored in, or refer to a role.
    pub(crate) fn class_at(&self, verb: Verb, resource: &str) -> Class {
        let own = match self {
            Self::Api(kube::Error::Api(status)) => classify::of_quota_write(verb, resource, status)
                .or_else(|| classify::of_missing_role(resource, status)),
            _ => None,
        };
        own.unwrap_or_else(|| self.class(verb))
    }

    /// Whether admission could not judge the request: a webhook could not be called, or the race for a `ResourceQuota`
    /// was lost. The API server works, and other writes may succeed.
    pub fn is_admission_fault(&self) -> bool {
        matches!(self, Self::Api(kube::Error::Api(status)) if admission::is_fault(status))
    }

    /// Whether the API server refused the request with 403 or 422 before it had read what it judges by: roles, quotas, the
    /// parameters of policies. A server that starts does, and one whose binding names a role that does not exist. Nothing was
    /// executed. The class is that of a refusal; the functions that retry ask a few times more before they believe it.
    pub fn is_undecided(&self) -> bool {
        matches!(self, Self::Api(kube::Error::Api(status)) if classify::is_undecided(status))
    }
}

/// Why a write has no outcome.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The request was invalid before it was sent, or the server dropped a part of it ([`Refusal::Dropped`]); the calling
    /// code has to change.
    #[error("{}: {reason}", if *maybe_written { "refused" } else { "refused before sending" })]
    #[non_exhaustive]
    Refused {
        /// What was invalid.
        reason: Refusal,
        /// Whether the answer to an earlier write was lost, so that it may have been executed, or the rest of this one was
        /// written.
        maybe_written: bool,
    },
    /// Other managers own fields of a server-side apply.
    #[error("other managers own {}; leave the fields out of the apply, or force it", list(conflicts))]
    #[non_exhaustive]
    FieldManager {
        /// Every conflicting field, with its owner.
        conflicts: Vec<FieldConflict>,
        /// Whether the answer to an earlier write was lost, so that it may have been executed.
        maybe_written: bool,
        /// The server's answer.
        #[source]
        source: Box<RequestFailure>,
    },
    /// The server rejected the request, or its answer to a read cannot be decoded; another attempt cannot succeed.
    #[error("the {verb} {} ({}): {}", ended(class), class.label(), advice(class, source))]
    #[non_exhaustive]
    Rejected {
        /// What was sent.
        verb: Verb,
        /// The part of the object that the request addressed.
        subresource: Subresource,
        /// The meaning of the rejection.
        class: Class,
        /// Whether the answer to an earlier write was lost, so that it may have been executed.
        maybe_written: bool,
        /// The server's answer.
        #[source]
        source: Box<RequestFailure>,
    },
    /// A single attempt whose result is unknown.
    #[error("it is not known whether the {verb} was carried out; read the object before trying again")]
    #[non_exhaustive]
    Unknown {
        /// What was sent.
        verb: Verb,
        /// Why the result is unknown.
        #[source]
        source: Box<RequestFailure>,
    },
    /// The policy allowed no further attempt.
    #[error("gave up after {} in {elapsed:.1?}, {}: {}", counted(*attempts), bound(*reason), class.advice())]
    #[non_exhaustive]
    Exhausted {
        /// Number of attempts that failed.
        attempts: u32,
        /// Time since the first attempt began.
        elapsed: Duration,
        /// The limit that was reached.
        reason: GiveUp,
        /// The meaning of the last failure.
        class: Class,
        /// Whether the answer to a write was lost, so that it may have been executed.
        maybe_written: bool,
        /// The last failure.
        #[source]
        last: Box<RequestFailure>,
    },
    /// A [`Protection`](crate::protect::Protection) of this client prevented the next request. A server that throttles is
    /// [`Class::Throttled`] instead.
    #[error("throttled by this client after {} that failed: {by}", counted(*attempts))]
    #[non_exhaustive]
    ClientThrottled {
        /// Number of attempts that failed before.
        attempts: u32,
        /// The protection that prevented it.
        by: ThrottledBy,
        /// Whether the answer to a write was lost, so that it may have been executed.
        maybe_written: bool,
        /// The last failure; `None` when there was none.
        #[source]
        last: Option<Box<RequestFailure>>,
    },
    /// There is no such object, or another one of the same name has replaced it.
    #[error("there is no such object as {resource} {name}; create it first, or stop writing to it")]
    #[non_exhaustive]
    Gone {
        /// The resource's name as in the API server's paths: plural and lower case.
        resource: String,
        /// The name of the object.
        name: String,
        /// Whether the answer to an earlier write was lost, so that it may have been executed.
        maybe_written: bool,
    },
    /// The closure decided not to write ([`UpdateDecision::Abort`](crate::UpdateDecision::Abort)), or a finalizer was to
    /// be added to an object that is being deleted.
    #[error("the decision was not to write")]
    #[non_exhaustive]
    Aborted {
        /// Whether the answer to an earlier write was lost, so that it may have been executed.
        maybe_written: bool,
    },
    /// An apply with a resourceVersion was refused: the object has changed since.
    #[error("the object has changed since it was read; read it again and decide again")]
    #[non_exhaustive]
    Conflict {
        /// The server's answer.
        status: Box<Status>,
    },
    /// The policy's token was cancelled, or its deadline did not allow even the first attempt.
    #[error("cancelled after {} that failed{}", counted(*attempts), if *maybe_written { "; the change may have been made" } else { "" })]
    #[non_exhaustive]
    Cancelled {
        /// Number of attempts that failed before.
        attempts: u32,
        /// Whether the answer to a write was lost, so that it may have been executed.
        maybe_written: bool,
        /// The last failure; `None` when there was none.
        #[source]
        last: Option<Box<RequestFailure>>,
    },
}

/// What was invalid about a request before it was sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The change touches the identity of an object.
    #[error("the change touches metadata.{0}, which identifies the object; leave it as it was read")]
    Identity(&'static str),
    /// The change touches a field that the subresource silently drops.
    #[error("the change touches `{field}`, which a write to {subresource:?} drops; write it elsewhere")]
    Dropped {
        /// The top-level field.
        field: String,
        /// The subresource it was to be written to.
        subresource: Subresource,
    },
    /// The name of the object is empty.
    #[error("the name of the object is empty; name the object to be written")]
    NoName,
    /// The API server does not accept a field manager of this name.
    #[error("`{0}` is no name of a field manager; give 1 to 128 printable characters")]
    FieldManager(String),
    /// The time limit of one request is zero.
    #[error("the time for one request is zero; give some")]
    AttemptTimeout,
    /// There is no resourceVersion to guard the write.
    #[error(
        "the object has no metadata.resourceVersion to guard the write; pass one read from the API server"
    )]
    NoVersion,
    /// There is no generation or no UID to guard the write.
    #[error(
        "the object has no metadata.uid or no metadata.generation to guard the write; pass one read from the API server, of a kind that counts generations"
    )]
    NoGeneration,
    /// The passed copy, or what was read, is of an object other than the named one.
    #[error(
        "the object is `{found}`, not `{wanted}`; pass a copy of the object to be written, or, if none was passed, find out what answered in the API server's place"
    )]
    WrongObject {
        /// The name of the requested object.
        wanted: String,
        /// The name in the copy, or in the answer; empty when there is none.
        found: String,
    },
    /// The body of a patch or an apply has the wrong form.
    #[error("the body {0}")]
    Body(&'static str),
    /// A list has changed, and nothing tells which of its entries is which of the stored ones.
    #[error(
        "the entries of the list {0} cannot be told apart, so that a change could come to the wrong one or erase what the type does not know; send the whole object with `.put()`, or build the patch with `merge_patch`"
    )]
    List(String),
    /// A value is null where there was none. A merge patch says by null that a field is to be removed.
    #[error("{0} is null, which a merge patch takes for a removal; send the whole object with `.put()`")]
    Null(String),
    /// The object is in a namespace, and the API is that of all namespaces, which writes nothing.
    #[error("the object is in the namespace `{0}`, and the Api is for all of them; use `Api::namespaced`")]
    AllNamespaces(String),
    /// The type holds metadata only, and a PUT of it would erase the rest.
    #[error("the type holds only metadata, and the rest of the object would be erased; leave out `.put()`")]
    MetadataOnly,
    /// The replica count is negative.
    #[error("the replica count {0} is negative; give at least 0")]
    Replicas(i32),
    /// The object could not be serialized to JSON.
    #[error("the object does not turn into JSON")]
    Encode(#[source] serde_json::Error),
}

impl From<Refusal> for WriteError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused { reason: refusal, maybe_written: false }
    }
}

impl WriteError {
    /// A stable name for metric labels and event details: lower case, with underscores.
    pub const fn category(&self) -> &'static str {
        match self {
            Self::Refused { .. } => "refused",
            Self::FieldManager { .. } => "field_manager",
            Self::Rejected { class, .. } => class.label(),
            Self::Unknown { .. } => "unknown",
            Self::Exhausted { .. } => "exhausted",
            Self::ClientThrottled { by, .. } => by.label(),
            Self::Cancelled { .. } => "cancelled",
            Self::Gone { .. } => "gone",
            Self::Aborted { .. } => "aborted",
            Self::Conflict { .. } => "conflict",
        }
    }

    /// The meaning of the server's rejection; `None` when the error has no such cause.
    pub const fn class(&self) -> Option<&Class> {
        match self {
            Self::Rejected { class, .. } | Self::Exhausted { class, .. } => Some(class),
            Self::Refused { .. }
            | Self::FieldManager { .. }
            | Self::Unknown { .. }
            | Self::ClientThrottled { .. }
            | Self::Gone { .. }
            | Self::Aborted { .. }
            | Self::Conflict { .. }
            | Self::Cancelled { .. } => None,
        }
    }

    /// Whether the last request failed because of admission: see [`RequestFailure::is_admission_fault`].
    pub fn is_admission_fault(&self) -> bool {
        matches!(self, Self::Rejected { source: last, .. } | Self::Exhausted { last, .. }
            if last.is_admission_fault())
    }

    /// Whether the API server refused the last request without having judged it: see [`RequestFailure::is_undecided`].
    pub fn is_undecided(&self) -> bool {
        matches!(self, Self::Rejected { source: last, .. } | Self::Exhausted { last, .. } if last.is_undecided())
    }

    /// Whether a create failed because an object of the same name exists.
    pub const fn is_already_exists(&self) -> bool {
        matches!(self, Self::Rejected { class: Class::AlreadyExists, .. })
    }

    /// Whether the write may have been executed although it was not acknowledged.
    pub const fn maybe_written(&self) -> bool {
        match self {
            Self::Unknown { .. } => true,
            Self::Conflict { .. } => false,
            Self::Refused { maybe_written, .. }
            | Self::Exhausted { maybe_written, .. }
            | Self::ClientThrottled { maybe_written, .. }
            | Self::Gone { maybe_written, .. }
            | Self::Aborted { maybe_written }
            | Self::Rejected { maybe_written, .. }
            | Self::FieldManager { maybe_written, .. }
            | Self::Cancelled { maybe_written, .. } => *maybe_written,
        }
    }
}

fn list(conflicts: &[FieldConflict]) -> impl fmt::Display {
    conflicts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// A number of attempts, as text.
pub(crate) fn counted(attempts: u32) -> impl fmt::Display {
    format!("{attempts} attempt{}", if attempts == 1 { "" } else { "s" })
}

const fn ended(class: &Class) -> &'static str {
    if matches!(class, Class::Undecodable) { "failed" } else { "was refused" }
}

/// What the user can do about it.
fn advice(class: &Class, source: &RequestFailure) -> &'static str {
    match (class, source) {
        (Class::Undecodable, RequestFailure::Api(kube::Error::SerdeError(error)))
            if error.is_syntax() || error.is_eof() =>
        {
            NOT_JSON
        }
        (Class::Undecodable, RequestFailure::Api(kube::Error::FromUtf8(_))) => NOT_JSON,
        _ => class.advice(),
    }
}

const fn bound(reason: GiveUp) -> &'static str {
    match reason {
        GiveUp::Attempts => "which is all the policy allows",
        GiveUp::Deadline => "at the policy's deadline",
    }
}
