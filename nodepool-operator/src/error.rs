//! Errors of a reconcile, and the short name under which the metrics count each.

use std::time::Duration;

use machine_providers::ProviderError;
use node_lifecycle::outcome::{Rejected, RejectedWrite};
use shared_crds::conditions::Reason;
use shared_runtime::error::{Categorised, chain, client_category};
use shared_runtime::metrics::MetricsError;
use shared_runtime::write::WriterError;

/// What a creation writes, as named in [`Error::Write`].
pub(crate) const NEW_NODE: &str = "a new node";

/// A reconcile failed. A conflict is not an error; see `shared_runtime::controller::Step`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A live read failed.
    #[error("cannot list {what}")]
    List {
        /// The kind of object that was listed.
        what: &'static str,
        /// The client's error.
        source: kube::Error,
    },
    /// A live read timed out.
    #[error("listing {what} took longer than {:.1} s", limit.as_secs_f32())]
    ListTimeout {
        /// The kind of object that was listed.
        what: &'static str,
        /// The timeout.
        limit: Duration,
    },
    /// A write failed.
    #[error("cannot write {what}")]
    Write {
        /// The object that was written.
        what: &'static str,
        /// The writer's error.
        source: WriterError,
    },
    /// A call to the provider failed.
    #[error("cannot delete {what}")]
    Provider {
        /// What was to be deleted.
        what: &'static str,
        /// The provider's error.
        source: ProviderError,
    },
    /// A metric could not be registered.
    #[error("cannot register the metrics")]
    Metrics(#[from] MetricsError),
}

impl Error {
    /// What to report to the user: a write that a retry cannot help, or a creation that is never answered.
    pub(crate) fn rejection(&self) -> Option<Rejected> {
        let (what, source) = match self {
            Self::Write { what, source } => (what, source),
            Self::Provider { what: _, source } => {
                let (write, reason) = (RejectedWrite::Machine, source.reason());
                return Some(Rejected { write, reason, message: chain(self) });
            }
            _ => return None,
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
            Self::Provider { .. } => "provider",
            Self::Metrics(_) => "metrics",
        }
    }
}
