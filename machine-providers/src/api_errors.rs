//! What the API server's errors mean for a provider whose machines are objects of another controller.

use shared_runtime::error::chain;
use shared_runtime::write::WriterError;

use super::ProviderError;

/// What to tell the user about the objects of one provider.
#[derive(Clone, Copy, Debug)]
pub(super) struct Advice {
    /// When the API server does not know their kind.
    pub absent: &'static str,
    /// When it forbids a request.
    pub forbidden: &'static str,
}

impl Advice {
    /// The meaning of a read that failed.
    pub(super) fn of_read(self, error: &kube::Error) -> ProviderError {
        let message = chain(error);
        match error {
            kube::Error::Api(status) if status.code == 404 => ProviderError::Absent(self.absent.to_owned()),
            kube::Error::Api(status) if matches!(status.code, 401 | 403) => self.unauthorized(&message),
            kube::Error::Api(_) => ProviderError::Transient(message),
            _ => ProviderError::Unreachable(message),
        }
    }

    /// The meaning of a write that failed.
    pub(super) fn of_write(self, error: &WriterError) -> ProviderError {
        let message = chain(error);
        if error.is_fenced() {
            ProviderError::Conflict
        } else if error.is_forbidden() {
            self.unauthorized(&message)
        } else if error.is_invalid() {
            ProviderError::Invalid(message)
        } else if error.maybe_written() {
            ProviderError::Unreachable(message)
        } else {
            ProviderError::Transient(message)
        }
    }

    fn unauthorized(self, message: &str) -> ProviderError {
        ProviderError::Unauthorized(format!("{message}; {}", self.forbidden))
    }
}
