//! How a write can end. All of these are outcomes to act on, none is an error.

use std::time::Duration;

use conflict_retry::Outcome;

/// The result of a change of an object.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a conflict or a vanished object asks for something else than a success"]
pub enum Written<T> {
    /// The server acknowledged the write; this is what it stored. Also if an answer was lost and a live read then
    /// showed that the goal is met.
    Changed(T),
    /// The object is already in the wanted state; nothing was sent.
    Unchanged,
    /// Another writer was first, and the strategy does not retry: the reconcile should.
    Conflict,
    /// The object does not exist any more, or another one of the same name has replaced it.
    Gone,
    /// `decide` decided not to write.
    Aborted,
}

impl<T> Written<T> {
    /// A stable name for labels.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Changed(_) => "changed",
            Self::Unchanged => "unchanged",
            Self::Conflict => "conflict",
            Self::Gone => "gone",
            Self::Aborted => "aborted",
        }
    }

    /// Whether the cluster is now in the wanted state.
    pub const fn is_met(&self) -> bool {
        matches!(self, Self::Changed(_) | Self::Unchanged)
    }

    pub(super) fn map<U>(self, view: impl FnOnce(T) -> U) -> Written<U> {
        match self {
            Self::Changed(object) => Written::Changed(view(object)),
            Self::Unchanged => Written::Unchanged,
            Self::Conflict => Written::Conflict,
            Self::Gone => Written::Gone,
            Self::Aborted => Written::Aborted,
        }
    }
}

impl<T> From<Outcome<T>> for Written<T> {
    fn from(outcome: Outcome<T>) -> Self {
        match outcome {
            Outcome::Written(object) | Outcome::AlreadyDone(object) => Self::Changed(object),
            Outcome::Unchanged(_) => Self::Unchanged,
            Outcome::Gone => Self::Gone,
            Outcome::Aborted => Self::Aborted,
            Outcome::Conflict(_) => Self::Conflict,
        }
    }
}

/// The result of a creation.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "an object of that name may have been there already"]
pub enum Created<K> {
    /// This is what the server stored.
    Created(K),
    /// An object of that name exists; perhaps our own, if an answer was lost.
    AlreadyExists,
}

/// The result of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an object that is not as it was seen was not deleted"]
pub enum Deleted {
    /// The object is gone, or terminating until its finalizers or its grace period end.
    Accepted,
    /// There was no such object.
    Gone,
    /// An object of that name exists, but it is another one, or it has changed since and was not to be deleted then.
    Spared,
}

/// The result of an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a blocked eviction has to be tried again"]
pub enum Evicted {
    /// The pod is being deleted.
    Accepted,
    /// A `PodDisruptionBudget` blocks the eviction for now.
    Blocked {
        /// The API server's message about the budget.
        message: String,
        /// The delay that the server requests; usually `None`.
        retry_after: Option<Duration>,
    },
    /// There was no such pod.
    Gone,
    /// A pod of that name exists, but it is another one; it was spared.
    Replaced,
}
