//! One operation under way: its clock, its attempts, what is in doubt, and who hears of it.

use std::time::Duration;

use tokio::time::Instant;

use crate::classify::Class;
use crate::observe::{AttemptEvent, Subresource, Verb};
use crate::options::WriteOptions;
use crate::outcome::{Failure, WriteError};
use crate::policy::{Attempts, Next};

/// A request that failed, and what that means.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) verb: Verb,
    pub(super) class: Class,
    pub(super) failure: Failure,
}

/// The state of one operation.
pub(super) struct Track<'a> {
    options: &'a WriteOptions,
    subresource: Subresource,
    start: Instant,
    attempts: Attempts,
    maybe_written: bool,
    last: Option<Box<Failure>>,
}

impl<'a> Track<'a> {
    /// Begins; an already cancelled token or a deadline of zero ends it before the first request.
    pub(super) fn begin(options: &'a WriteOptions, subresource: Subresource) -> Result<Self, WriteError> {
        let track = Self {
            options,
            subresource,
            start: Instant::now(),
            attempts: options.policy().attempts(),
            maybe_written: false,
            last: None,
        };
        if options.policy().may_start() && !options.policy().cancellation().is_cancelled() {
            Ok(track)
        } else {
            Err(WriteError::Cancelled { attempts: 0, maybe_written: false, last: None })
        }
    }

    /// Whether the answer to a write was lost on the way.
    pub(super) fn maybe_written(&self) -> bool {
        self.maybe_written
    }

    /// Sends one request, within the time for one and until cancelled.
    pub(super) async fn call<T>(
        &mut self,
        verb: Verb,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<Result<T, Failed>, WriteError> {
        let timeout = self.options.attempt_timeout();
        let answer = tokio::select! {
            biased;
            () = self.options.policy().cancellation().cancelled() => {
                self.maybe_written |= verb.writes();
                return Err(self.cancelled());
            }
            answer = tokio::time::timeout(timeout, request) => answer,
        };
        let failure = match answer {
            Ok(Ok(value)) => {
                self.tell(self.running(), verb, None, None);
                return Ok(Ok(value));
            }
            Ok(Err(error)) => Failure::Api(error),
            Err(_elapsed) => Failure::Timeout(timeout),
        };
        let class = failure.class(verb);
        self.maybe_written |= verb.writes() && class == Class::Ambiguous;
        Ok(Err(Failed { verb, class, failure }))
    }

    /// After a failure that another attempt may mend: waits as the policy says, or gives up.
    pub(super) async fn pause(&mut self, failed: Failed) -> Result<(), WriteError> {
        let Failed { verb, class, failure } = failed;
        let Some(cause) = class.cause() else {
            return Err(self.reject(Failed { verb, class, failure }));
        };
        let elapsed = self.start.elapsed();
        match self.attempts.next(elapsed, cause, rand::random::<f64>) {
            Next::GiveUp(reason) => {
                self.tell(self.attempts.made(), verb, Some(&class), None);
                Err(WriteError::Exhausted {
                    attempts: self.attempts.made(),
                    elapsed,
                    reason,
                    class,
                    maybe_written: self.maybe_written,
                    last: Box::new(failure),
                })
            }
            Next::RetryAfter(delay) => {
                self.tell(self.attempts.made(), verb, Some(&class), Some(delay));
                self.last = Some(Box::new(failure));
                tokio::select! {
                    biased;
                    () = self.options.policy().cancellation().cancelled() => Err(self.cancelled()),
                    () = tokio::time::sleep(delay) => Ok(()),
                }
            }
        }
    }

    /// Ends the operation with an error: no other attempt is made.
    pub(super) fn reject(&self, failed: Failed) -> WriteError {
        let Failed { verb, class, failure } = failed;
        self.tell(self.running(), verb, Some(&class), None);
        let source = Box::new(failure);
        match class {
            Class::FieldManager { conflicts } => WriteError::FieldManager { conflicts, source },
            Class::Ambiguous if verb.writes() => WriteError::Unknown { verb, source },
            class => WriteError::Rejected { verb, subresource: self.subresource, class, source },
        }
    }

    /// Tells of a failure that ends the operation with an outcome.
    pub(super) fn settled(&self, verb: Verb, class: &Class) {
        self.tell(self.running(), verb, Some(class), None);
    }

    fn cancelled(&mut self) -> WriteError {
        WriteError::Cancelled {
            attempts: self.attempts.made(),
            maybe_written: self.maybe_written,
            last: self.last.take(),
        }
    }

    /// The number of the attempt under way.
    fn running(&self) -> u32 {
        self.attempts.made().saturating_add(1)
    }

    fn tell(&self, attempt: u32, verb: Verb, class: Option<&Class>, delay: Option<Duration>) {
        let event = AttemptEvent {
            attempt,
            verb,
            subresource: self.subresource,
            class,
            delay,
            elapsed: self.start.elapsed(),
        };
        tracing::debug!(
            attempt = event.attempt,
            verb = event.verb.label(),
            subresource = event.subresource.label(),
            class = event.class.map_or("ok", Class::label),
            delay = ?event.delay,
            "request ended"
        );
        self.options.observer().attempt(&event);
    }
}
