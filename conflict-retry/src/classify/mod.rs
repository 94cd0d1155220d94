//! Classifies API server errors for a writer. A 409 can mean several things, and so can a 422.
//!
//! Pure: it reads a `kube::Error` and classifies it; the only retry decision it makes is [`Class::cause`].

pub(crate) mod admission;
mod classified;
mod code;
mod etcd;
mod role;
mod transport;
mod undecided;

use std::fmt;
use std::time::Duration;

use kube::core::Status;
use kube::core::response::{StatusCause, reason};

use self::admission::{is_quota_race, is_webhook_denial, is_webhook_fault, of_denial, of_forbidden};
pub(crate) use self::classified::{Classified, explained};
use self::code::of_code;
pub(crate) use self::role::of_missing_role;
use self::transport::of_transport;
pub(crate) use self::undecided::is_undecided;
use crate::operation::Verb;
use crate::policy::Cause;

/// The cause that server-side apply returns for a field owned by another manager
/// (`metav1.CauseTypeFieldManagerConflict`).
const FIELD_MANAGER_CONFLICT: &str = "FieldManagerConflict";

/// What an error means for a writer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Class {
    /// 409: the write was based on a stale version. Read the object again and decide again.
    Conflict,
    /// 409 of a server-side apply: other managers own the fields. No retry helps.
    FieldManager {
        /// Every conflicting field, with its owner.
        conflicts: Vec<FieldConflict>,
    },
    /// 409, or 422 of an apply or a patch: the object of that name is not the intended one, because it was deleted and
    /// recreated.
    UidMismatch,
    /// 409: the object was deleted while it was being written.
    Deleted,
    /// 409: an object of that name already exists.
    AlreadyExists,
    /// 404: there is no such object.
    NotFound,
    /// 404 of a create or an apply: there is no such namespace.
    NamespaceNotFound,
    /// 404: the API server does not serve this resource or subresource at all. A subresource that a CRD does not
    /// declare is [`NotFound`](Self::NotFound) instead: the server answers as if the object were missing (measured on
    /// v1.36).
    NotServed,
    /// 422 of a JSON Patch: a `test` failed, or a path does not exist. The server answers both the same way.
    TestFailed,
    /// 422: the object is not valid. See [`cause`](Self::cause) for a server that has not judged yet.
    Invalid,
    /// 403: rejected by RBAC or by admission. A webhook that rejects chooses the code: any but 401, 413, 422, 429 and 500
    /// is this, too. See [`cause`](Self::cause) for a server that has not judged yet.
    Forbidden,
    /// 403 of a creation: the namespace is being deleted and takes no new objects.
    NamespaceTerminating,
    /// 401: the client is not authenticated.
    Unauthorized,
    /// 429: too many requests, or an eviction blocked by a `PodDisruptionBudget`.
    Throttled {
        /// How long the server asks the client to wait; `None` when the answer does not state it.
        retry_after: Option<Duration>,
    },
    /// The request was not executed, and a retry may succeed: the API server's own 503, `ServerTimeout`, no connection, no
    /// credentials to send, a webhook that could not be called, or a 409 about a `ResourceQuota`, in which admission counts the
    /// request.
    Transient {
        /// How long the server asks the client to wait; `None` when the answer does not state it.
        retry_after: Option<Duration>,
    },
    /// No answer, or one that leaves open whether the request was executed: 504, 502, a write's 503 from a proxy, a 408 or
    /// any other 5xx without the API server's `Status`, a broken connection, a timeout.
    Ambiguous,
    /// 500: etcd is full and accepts deletions only. The write was not executed, but for one exception: when concurrent
    /// writes reach the limit together, etcd executes those that it has accepted already and answers them the same way
    /// (`quotaApplierV3` of etcd 3.6). The write functions therefore report that it may have been executed.
    StorageFull,
    /// 413, or 500 with etcd's text: the object, or the patch, is too large for the API server (3 MiB) or for etcd (1.5 MiB
    /// unless configured otherwise). Nothing was executed.
    TooLarge,
    /// The answer to a read cannot be decoded as the object's Rust type, or is a scale without a name. The answer to a write
    /// is [`Ambiguous`](Self::Ambiguous) then: the server has accepted it, or something else has answered in its place.
    Undecodable,
    /// 410: the requested version is too old to be served.
    Gone,
    /// Any other error.
    Other,
}

/// How long to wait when a throttling server states no time. Its priority and fairness layer sends the time in a header
/// that kube's errors do not carry (`Retry-After: 1`, measured on v1.36).
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);

/// One field that a server-side apply may not change without force.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FieldConflict {
    /// The field manager that owns the field, as the server names it.
    pub manager: String,
    /// The path of the field, as the server spells it.
    pub field: String,
}

impl FieldConflict {
    /// Builds a conflict, for tests of code that handles one.
    pub fn new(manager: impl Into<String>, field: impl Into<String>) -> Self {
        Self { manager: manager.into(), field: field.into() }
    }
}

impl fmt::Display for FieldConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (owned by {})", self.field, self.manager)
    }
}

impl Class {
    /// Classifies `error` as the answer to a request of kind `verb`.
    pub fn of(verb: Verb, error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::of_status(verb, status),
            kube::Error::Service(source) => match source.downcast_ref::<Classified>() {
                Some(classified) => classified.class.clone(),
                None => of_transport(source.as_ref()),
            },
            kube::Error::HyperError(source) => of_transport(source),
            kube::Error::ReadEvents(source) => of_transport(source),
            // The server accepted the write but its answer cannot be decoded: the write was executed. One that is no UTF-8 may
            // also be a gateway's page about a fault; its code is lost.
            kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) if verb.is_write() => Self::Ambiguous,
            kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => Self::Undecodable,
            // Everything else failed before the request was sent.
            _ => Self::Other,
        }
    }

    /// Classifies `status` as the answer to a request of kind `verb`.
    pub fn of_status(verb: Verb, status: &Status) -> Self {
        if is_webhook_denial(status) {
            return of_denial(status);
        }
        match status.reason.as_str() {
            reason::ALREADY_EXISTS => Self::AlreadyExists,
            reason::SERVER_TIMEOUT | reason::SERVICE_UNAVAILABLE => {
                Self::Transient { retry_after: retry_after(status) }
            }
            reason::TOO_MANY_REQUESTS => Self::Throttled { retry_after: retry_after(status) },
            reason::TIMEOUT => Self::Ambiguous,
            reason::GONE | reason::EXPIRED => Self::Gone,
            reason::UNAUTHORIZED => Self::Unauthorized,
            reason::CONFLICT => of_conflict(verb, status),
            reason::NOT_FOUND => of_not_found(verb, status),
            reason::INVALID => of_invalid(verb, status),
            reason::FORBIDDEN => of_forbidden(status),
            reason::INTERNAL_ERROR => of_internal(status),
            reason::REQUEST_ENTITY_TOO_LARGE => Self::TooLarge,
            known if reason::is_known(known) => Self::Other,
            _ => of_code(verb, status),
        }
    }

    /// A stable name for metric labels: lower case, with underscores.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::FieldManager { .. } => "field_manager",
            Self::UidMismatch => "uid_mismatch",
            Self::Deleted => "deleted",
            Self::AlreadyExists => "already_exists",
            Self::NotFound => "not_found",
            Self::NamespaceNotFound => "namespace_not_found",
            Self::NotServed => "not_served",
            Self::TestFailed => "test_failed",
            Self::Invalid => "invalid",
            Self::Forbidden => "forbidden",
            Self::NamespaceTerminating => "namespace_terminating",
            Self::Unauthorized => "unauthorized",
            Self::Throttled { .. } => "throttled",
            Self::Transient { .. } => "transient",
            Self::Ambiguous => "ambiguous",
            Self::StorageFull => "storage_full",
            Self::TooLarge => "too_large",
            Self::Undecodable => "undecodable",
            Self::Gone => "gone",
            Self::Other => "other",
        }
    }

    /// How to pace another attempt; `None` when another attempt cannot succeed.
    ///
    /// One thing a class does not tell: a [`Forbidden`](Self::Forbidden) or [`Invalid`](Self::Invalid) of a server that has not
    /// judged yet may be over in seconds. A loop of your own that is to ask again then, as the write functions do, has to ask
    /// [`RequestFailure::is_undecided`](crate::RequestFailure::is_undecided) as well, and should do so a few times only: a role
    /// that is missing for good is answered the same way.
    ///
    /// ```
    /// use conflict_retry::policy::Cause;
    /// use conflict_retry::{RequestFailure, Verb};
    ///
    /// fn cause(verb: Verb, error: kube::Error, asked: u32) -> Option<Cause> {
    ///     let failure = RequestFailure::from(error);
    ///     let may_ask = failure.is_undecided() && asked < 8;
    ///     failure.class(verb).cause().or_else(|| may_ask.then_some(Cause::Fault))
    /// }
    /// ```
    pub const fn cause(&self) -> Option<Cause> {
        match self {
            Self::Conflict | Self::TestFailed => Some(Cause::Conflict),
            Self::Throttled { retry_after: Some(delay) } | Self::Transient { retry_after: Some(delay) } => {
                Some(Cause::RetryAfter(*delay))
            }
            Self::Throttled { retry_after: None } => Some(Cause::RetryAfter(DEFAULT_RETRY_AFTER)),
            Self::Transient { retry_after: None } | Self::Ambiguous => Some(Cause::Fault),
            _ => None,
        }
    }

    /// What the user can do about it.
    pub(crate) const fn advice(&self) -> &'static str {
        match self {
            Self::Conflict => "read the object again and decide again",
            Self::FieldManager { .. } => "leave the field out of the apply, or force it",
            Self::UidMismatch => "the object was recreated; start over with the new one",
            Self::Deleted | Self::NotFound => "the object does not exist; stop writing to it",
            Self::NamespaceNotFound => "create the namespace first",
            Self::NotServed => {
                "install the CRD, enable the subresource in it, or name a namespace if the Api is for all of them"
            }
            Self::AlreadyExists => "read the existing object and adopt it, or choose another name",
            Self::TestFailed => "check that the patched paths exist, then decide again from a fresh read",
            Self::Invalid => "correct the fields that the source names",
            Self::Forbidden => "grant the verb in RBAC, or look for an admission policy that refuses it",
            Self::NamespaceTerminating => "the namespace is being deleted; create the object in another one",
            Self::Unauthorized => "renew the credentials",
            Self::Throttled { .. } => "send fewer requests, or wait as long as the server asks",
            Self::Transient { .. } => "try again later",
            Self::Ambiguous => "the change may have been made; read the object before trying again",
            Self::StorageFull => "compact and defragment etcd or raise its quota, then disarm its alarm",
            Self::TooLarge => {
                "make the object or the patch smaller, or spread it over several objects; etcd takes 1.5 MiB by default"
            }
            Self::Undecodable => {
                "the answer does not fit the Rust type; correct the field that the source names, or use a DynamicObject"
            }
            Self::Gone => "list again without a resource version",
            Self::Other => "see the source",
        }
    }
}

/// client-go's `errors.IsConflict`: true for a stale version, but also for a field manager conflict and a UID conflict,
/// which no retry resolves. [`Class::of`] tells them apart, and so does
/// [`retry_on_conflict`](crate::retry_on_conflict).
///
/// The reason decides; the code decides only when Kubernetes does not know the reason. (`Status::is_conflict` of kube
/// 5.0 is meant to do the same, but checks whether `Conflict` itself is a known reason, so it never looks at the code.)
pub fn is_conflict(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    status.reason == reason::CONFLICT || (status.code == 409 && !reason::is_known(&status.reason))
}

/// Whether the API server reports that a custom resource's replicas are unset. `GET /scale` then answers 500, and only
/// this text distinguishes it from a real fault (measured on v1.36).
pub(crate) fn is_scale_unset(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 500
        && status.message.contains("the spec replicas field")
        && status.message.ends_with("does not exist"))
}

fn of_conflict(verb: Verb, status: &Status) -> Class {
    let conflicts: Vec<_> = causes(status)
        .iter()
        .filter(|cause| cause.reason == FIELD_MANAGER_CONFLICT)
        .map(|cause| FieldConflict { manager: quoted(&cause.message), field: cause.field.clone() })
        .collect();
    if !conflicts.is_empty() {
        return Class::FieldManager { conflicts };
    }
    // Before the texts: they would be about the quota, too.
    if is_quota_race(status) {
        return Class::Transient { retry_after: None };
    }
    of_own_conflict(verb, status)
}

/// A conflict about the object that the request writes.
fn of_own_conflict(verb: Verb, status: &Status) -> Class {
    // A 409 without a body carries no details. For a create it can only mean that the name exists, as client-go assumes
    // too.
    if verb == Verb::Create && status.reason != reason::CONFLICT {
        return Class::AlreadyExists;
    }
    // The server gives these conflicts no reason of their own; the texts are those of v1.36 (update, delete, apply).
    let message = classified::said(&status.message);
    if message.contains("UID in object meta: ") {
        return if message.ends_with("UID in object meta: ") { Class::Deleted } else { Class::UidMismatch };
    }
    if message.contains("the UID in the precondition") {
        return Class::UidMismatch;
    }
    // A precondition that failed in the store: the object changed while it was being deleted.
    if message.contains("ResourceVersion in object meta: ")
        && !message.ends_with("ResourceVersion in object meta: ")
    {
        return Class::Conflict;
    }
    if message.contains("StorageError: invalid object") || message.contains("no existing object was found") {
        return Class::Deleted;
    }
    Class::Conflict
}

/// The class of an answer to a write of a `ResourceQuota` itself, where a conflict is about that object; `None` for any
/// other request or answer.
pub(crate) fn of_quota_write(verb: Verb, resource: &str, status: &Status) -> Option<Class> {
    let is_own = admission::is_quotas(resource) && verb != Verb::Create && is_quota_race(status);
    is_own.then(|| of_own_conflict(verb, status))
}

fn of_not_found(verb: Verb, status: &Status) -> Class {
    // Only a status with a name refers to an object; for a path that is not served there is no name, or a plain-text
    // answer.
    let named = status.details.as_ref().is_some_and(|details| !details.name.is_empty());
    // A request that creates finds no object missing but the namespace.
    let of_namespace = status.details.as_ref().is_some_and(|details| details.kind == "namespaces");
    if named && of_namespace && matches!(verb, Verb::Create | Verb::Apply) {
        return Class::NamespaceNotFound;
    }
    if named { Class::NotFound } else { Class::NotServed }
}

fn of_invalid(verb: Verb, status: &Status) -> Class {
    let Some(details) = status.details.as_ref() else {
        return if verb == Verb::JsonPatch { Class::TestFailed } else { Class::Invalid };
    };
    // The answer to an apply or a patch that carries the UID of an earlier object of the same name.
    if !details.causes.is_empty() && details.causes.iter().all(|cause| cause.field == "metadata.uid") {
        return Class::UidMismatch;
    }
    let explained = !details.causes.is_empty() || !details.name.is_empty() || !details.kind.is_empty();
    if verb == Verb::JsonPatch && !explained { Class::TestFailed } else { Class::Invalid }
}

/// Tells the faults behind a 500 apart. Admission comes first, because a webhook's text may quote any other: nothing is
/// executed before every webhook has admitted it.
fn of_internal(status: &Status) -> Class {
    if is_webhook_fault(status) {
        return Class::Transient { retry_after: None };
    }
    etcd::of_failure(status)
}

fn causes(status: &Status) -> &[StatusCause] {
    status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default()
}

fn retry_after(status: &Status) -> Option<Duration> {
    let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)))
}

/// The first quoted word of a message, or the whole message.
fn quoted(message: &str) -> String {
    message.split('"').nth(1).unwrap_or(message).to_owned()
}

#[cfg(test)]
mod tests;
