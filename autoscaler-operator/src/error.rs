//! What can go wrong in a pass, and the short name under which metrics count it.

use shared_runtime::error::Categorised;
use shared_runtime::metrics::MetricsError;
use shared_runtime::write::WriteError;

/// A pass failed. A conflict is not an error; see `shared_runtime::controller::Step`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A write failed.
    #[error("cannot write {what} of {kind} {name}")]
    Write {
        /// What was written.
        what: &'static str,
        /// Of which kind of object.
        kind: &'static str,
        /// Of which object.
        name: String,
        /// Why it failed.
        source: WriteError,
    },
    /// The planner did not come back.
    #[error("the planner failed")]
    Plan(#[from] tokio::task::JoinError),
    /// A metric could not be registered.
    #[error("cannot register the metrics")]
    Metrics(#[from] MetricsError),
}

impl Error {
    /// Whether the API server minds this very write, so that the next one will fare no better soon.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Write { source, .. } if source.is_refusal())
    }

    /// Whether it was refused because this replica does not lead.
    pub fn is_fenced(&self) -> bool {
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
