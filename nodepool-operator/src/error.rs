//! What can go wrong in a reconcile, and the short name under which metrics count it.

use std::time::Duration;

use shared_crds::conditions::Reason;
use shared_runtime::error::{Categorised, chain, client_category};
use shared_runtime::metrics::MetricsError;
use shared_runtime::write::WriteError;

use crate::plan::{Rejected, RejectedWrite};

/// What a creation writes, in the words of [`Error::Write`].
pub const NEW_NODE: &str = "a new node";

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

impl Error {
    /// What the pool's owner has to be told: a write that no repetition can help, or a creation that is never answered.
    pub fn rejection(&self) -> Option<Rejected> {
        let Self::Write { what, source } = self else {
            return None;
        };
        if *what == NEW_NODE && source.maybe_written() {
            let message = format!("{}; is an admission webhook for nodes slow or down?", chain(self));
            let (write, reason) = (RejectedWrite::Creation, Reason::WriteTimedOut);
            return Some(Rejected { write, reason, message });
        }
        let reason = if source.is_forbidden() {
            Reason::WriteForbidden
        } else if source.is_invalid() {
            Reason::WriteInvalid
        } else {
            return None;
        };
        let write = if *what == NEW_NODE { RejectedWrite::Creation } else { RejectedWrite::Change };
        Some(Rejected { write, reason, message: chain(self) })
    }
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
