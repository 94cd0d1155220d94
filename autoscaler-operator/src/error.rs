//! Errors of a pass, and the short name under which the metrics count each.

use shared_runtime::error::Categorised;
use shared_runtime::metrics::MetricsError;
use shared_runtime::write::WriterError;

/// A pass failed. A conflict is not an error; see `shared_runtime::controller::Step`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A write failed.
    #[error("cannot write {what} of {kind} {name}")]
    Write {
        /// The part that was written.
        what: &'static str,
        /// Kind of the object.
        kind: &'static str,
        /// Name of the object.
        name: String,
        /// The writer's error.
        source: WriterError,
    },
    /// The planner's task panicked or was cancelled.
    #[error("the planner failed")]
    Plan(#[from] tokio::task::JoinError),
    /// A metric could not be registered.
    #[error("cannot register the metrics")]
    Metrics(#[from] MetricsError),
}

impl Error {
    /// Whether this very write is denied, so that it fails until what denies it, or the object, changes.
    pub(crate) fn is_denial(&self) -> bool {
        matches!(self, Self::Write { source, .. } if source.is_denial())
    }

    /// Whether it was refused because this replica is not the leader.
    pub(crate) fn is_fenced(&self) -> bool {
        matches!(self, Self::Write { source, .. } if source.is_fenced())
    }
}

impl Categorised for Error {
    fn category(&self) -> &'static str {
        match self {
            Self::Write { source, .. } => source.category(),
            Self::Plan(_) => "plan",
            Self::Metrics(_) => "metrics",
        }
    }
}
