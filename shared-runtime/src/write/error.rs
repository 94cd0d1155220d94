//! Why a write failed. A conflict is not an error: it is an outcome ([`super::Outcome::Conflict`]).

use std::time::Duration;

use conflict_retry::Class;
use shared_crds::ownership::Owner;

use super::denial;
use crate::error::{Categorised, chain};
use crate::fence::Fenced;

/// How the API server answers, with code 500, an apply of a field that the schema lacks.
const UNDECLARED_FIELD: &str = "field not declared in schema";

/// A write that failed, or was refused before it was sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriterError {
    /// This replica may not write.
    #[error("refused by the fence")]
    Fenced(#[from] Fenced),
    /// The caller tried to write a part that belongs to another owner.
    #[error("refused by the ownership contract")]
    NotOwned(#[from] NotOwned),
    /// The status does not fit its type.
    #[error("the status does not turn into json and back")]
    Status(#[from] serde_json::Error),
    /// The object has no name, or a namespaced one no namespace.
    #[error("the object has no {0}")]
    Unnamed(&'static str),
    /// The API server refused, did not answer, or the retries are used up.
    #[error(transparent)]
    Write(#[from] conflict_retry::WriteError),
}

/// An attempt to write a part of a status that belongs to another owner.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOwned {
    /// A field of another owner.
    #[error("status.{field} is not a field of the {}", owner.describe())]
    Field {
        /// The field under `status`.
        field: String,
        /// The operator that tried to write it.
        owner: Owner,
    },
    /// A condition of another owner.
    #[error("condition {type_} is not one of the {}", owner.describe())]
    Condition {
        /// The condition's type.
        type_: String,
        /// The operator that tried to write it.
        owner: Owner,
    },
}

impl WriterError {
    /// Whether RBAC or admission refused the write.
    pub fn is_forbidden(&self) -> bool {
        matches!(self.class(), Some(Class::Forbidden | Class::NamespaceTerminating))
    }

    /// Whether the object is invalid: a validation rule of the schema or the API server refuses it, and no retry
    /// changes that.
    pub fn is_invalid(&self) -> bool {
        matches!(self.class(), Some(Class::Invalid))
    }

    /// Whether the request was answered with an error that is no reason to send it again at once. It may be about this
    /// write, and it may be a fault that is over in a moment, such as a webhook that is down: see
    /// [`Self::is_denial`].
    pub fn is_refusal(&self) -> bool {
        self.class().is_some_and(|class| class.cause().is_none())
            || matches!(self, Self::Write(failed) if failed.is_admission_fault())
    }

    /// Whether this very write is denied: by RBAC, by a policy, by a webhook that has judged it, by validation, or by
    /// another owner of the field. A fault of the API server, or of a webhook that cannot be asked, denies nothing.
    pub fn is_denial(&self) -> bool {
        matches!(self, Self::Write(failed) if denial::is_denial(failed))
    }

    /// Whether the installed definition lacks a field that was applied.
    pub fn is_undeclared_field(&self) -> bool {
        matches!(self, Self::Write(_)) && chain(self).contains(UNDECLARED_FIELD)
    }

    /// Whether this replica is not the leader; the reconcile should end without further reports.
    pub fn is_fenced(&self) -> bool {
        matches!(self, Self::Fenced(_))
    }

    /// Whether the write may have been carried out although it was not acknowledged.
    pub fn maybe_written(&self) -> bool {
        matches!(self, Self::Write(failed) if failed.maybe_written())
    }

    /// For how long the API server asks to be left alone; `None` when it does not. Its flow control says so in a header alone, which
    /// is not kept, and always says a second.
    pub fn retry_after(&self) -> Option<Duration> {
        self.class().and_then(retry_after)
    }

    fn class(&self) -> Option<&Class> {
        match self {
            Self::Write(failed) => failed.class(),
            Self::Fenced(_) | Self::NotOwned(_) | Self::Status(_) | Self::Unnamed(_) => None,
        }
    }
}

fn retry_after(class: &Class) -> Option<Duration> {
    match class {
        Class::Throttled { retry_after } => Some(retry_after.unwrap_or_default().max(Duration::from_secs(1))),
        Class::Transient { retry_after } => retry_after.filter(|after| !after.is_zero()),
        _ => None,
    }
}

impl Categorised for WriterError {
    fn category(&self) -> &'static str {
        match self {
            Self::Fenced(_) => "fenced",
            Self::NotOwned(_) => "not_owned",
            Self::Status(_) => "decode",
            Self::Unnamed(_) => "unnamed",
            Self::Write(failed) => failed.category(),
        }
    }
}

#[cfg(test)]
#[path = "error_tests.rs"]
mod tests;
