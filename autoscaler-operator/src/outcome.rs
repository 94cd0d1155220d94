//! The result of the decision about a pool.

use crate::error::Error;

/// The result of one pool's decision.
#[derive(Debug)]
pub(crate) enum PoolOutcome {
    /// There was nothing to write.
    Settled,
    /// `spec.replicas` has the decided value.
    Scaled,
    /// The decision was made from an object that has changed since: it has to be made again.
    Outdated,
    /// The pool has no status yet, and the precondition of the count is in the status. This pass writes one, which
    /// triggers the next pass.
    Unobserved,
    /// The pool is gone.
    Gone,
    /// It could not be written.
    Failed(Error),
    /// An earlier pass could not write it, and it is not retried yet; the text is the reason.
    Waiting(String),
}

impl PoolOutcome {
    /// Whether the pass has to be made again from fresh objects.
    pub(crate) const fn is_conflict(&self) -> bool {
        matches!(self, Self::Outdated)
    }

    /// Whether the decision cannot be written for now.
    pub(crate) const fn is_refused(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::Waiting(_))
    }

    /// The error, if it concerns this process and not the pool.
    pub(crate) fn into_error(self) -> Option<Error> {
        match self {
            Self::Failed(error) => Some(error).filter(Error::is_fenced),
            Self::Settled
            | Self::Scaled
            | Self::Outdated
            | Self::Unobserved
            | Self::Gone
            | Self::Waiting(_) => None,
        }
    }
}
