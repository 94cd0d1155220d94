//! How an operation ends with an error.

use super::{Failed, OperationState};
use crate::classify::Class;
use crate::outcome::{Refusal, RequestFailure, WriteError};
use crate::policy::GiveUp;
use crate::protect::ThrottledBy;

impl OperationState<'_> {
    pub(super) fn exhausted(&mut self, reason: GiveUp) -> WriteError {
        let Some(Failed { class, failure, .. }) = self.last.take() else {
            return self.cancelled();
        };
        WriteError::Exhausted {
            attempts: self.attempts.made(),
            elapsed: self.start.elapsed(),
            reason,
            class,
            maybe_written: self.maybe_written,
            last: Box::new(failure),
        }
    }

    fn last_failure(&mut self) -> Option<Box<RequestFailure>> {
        self.last.take().map(|failed| Box::new(failed.failure))
    }

    /// Ends the operation with an error: no further attempt is made.
    pub(in crate::writes) fn reject(&self, failed: Failed) -> WriteError {
        self.report(self.running(), failed.verb, Some(&failed.class), None);
        self.refuse(failed)
    }

    /// Like [`Self::reject`], for a failure that was already reported to the observer.
    pub(in crate::writes) fn refuse(&self, failed: Failed) -> WriteError {
        let Failed { verb, class, failure } = failed;
        let maybe_written = self.maybe_written;
        let source = Box::new(failure);
        match class {
            Class::FieldManager { conflicts } => {
                WriteError::FieldManager { conflicts, maybe_written, source }
            }
            Class::Ambiguous if verb.is_write() => WriteError::Unknown { verb, source },
            class => WriteError::Rejected {
                verb,
                subresource: self.operation.subresource,
                class,
                maybe_written,
                source,
            },
        }
    }

    /// The error for an operation that is rejected before anything more is sent.
    pub(in crate::writes) fn refused(&self, reason: Refusal) -> WriteError {
        WriteError::Refused { reason, maybe_written: self.maybe_written }
    }

    pub(super) fn throttled(&mut self, by: ThrottledBy) -> WriteError {
        WriteError::ClientThrottled {
            attempts: self.attempts.made(),
            by,
            maybe_written: self.maybe_written,
            last: self.last_failure(),
        }
    }

    pub(super) fn cancelled(&mut self) -> WriteError {
        WriteError::Cancelled {
            attempts: self.attempts.made(),
            maybe_written: self.maybe_written,
            last: self.last_failure(),
        }
    }
}
