//! What can go wrong in a reconcile, and the short name under which metrics count it.

use std::time::Duration;

use shared_runtime::{
    error::{Categorised, client_category},
    metrics::MetricsError,
    write::WriteError,
};

/// A reconcile failed. A conflict is not an error; see `shared_runtime::controller::Step`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A live read failed.
    #[error("cannot list {what}")]
    List {
        /// What was listed.
        what: &'static str,
        /// Why it failed.
        source: kube::Error,
    },
    /// A live read did not come back.
    #[error("listing {what} took longer than {} s", limit.as_secs())]
    ListTimeout {
        /// What was listed.
        what: &'static str,
        /// How long it was waited for.
        limit: Duration,
    },
    /// A write failed.
    #[error("cannot write {what}")]
    Write {
        /// What was written.
        what: &'static str,
        /// Why it failed.
        source: WriteError,
    },
    /// A metric could not be registered.
    #[error("cannot register the metrics")]
    Metrics(#[from] MetricsError),
}

impl Categorised for Error {
    fn category(&self) -> &'static str {
        match self {
            Self::List { source, .. } => client_category(source),
            Self::ListTimeout { .. } => "timeout",
            Self::Write { source, .. } => source.category(),
            Self::Metrics(_) => "metrics",
        }
    }
}
