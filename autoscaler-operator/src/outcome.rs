//! What came of the decision about a pool.

use crate::error::Error;

/// What came of one pool's decision.
#[derive(Debug)]
pub enum Outcome {
    /// There was nothing to write.
    Settled,
    /// `spec.replicas` are what was decided.
    Scaled,
    /// The decision was made from something that is no longer so: it has to be made again.
    Outdated,
    /// The pool has no status yet, and what guards the count stands there. This pass writes one, which brings the next.
    Unobserved,
    /// The pool is gone.
    Gone,
    /// It could not be written.
    Failed(Error),
    /// It could not be written by a pass before, and is not tried again yet; why it could not.
    Waiting(String),
}

impl Outcome {
    /// Whether the pass has to be made again from fresh objects.
    pub const fn is_conflict(&self) -> bool {
        matches!(self, Self::Outdated)
    }

    /// Whether the decision cannot be written for now.
    pub const fn is_refused(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::Waiting(_))
    }

    /// The error, if it is one of this process and not of the pool.
    pub fn into_error(self) -> Option<Error> {
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
