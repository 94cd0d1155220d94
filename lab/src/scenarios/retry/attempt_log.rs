//! An observer that records what `conflict_retry` reports about each request.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use conflict_retry::{AttemptEvent, FinishedEvent, Observer};

/// The report about one request.
#[derive(Clone, Debug)]
pub(super) struct LoggedAttempt {
    /// The class of its error; `None` if it succeeded.
    pub(super) class: Option<&'static str>,
    /// The pause that follows.
    pub(super) pause: Option<Duration>,
}

/// All reports.
#[derive(Default)]
pub(super) struct AttemptLog {
    attempts: Mutex<Vec<LoggedAttempt>>,
    queued: Mutex<Duration>,
}

impl AttemptLog {
    /// The requests so far.
    pub(super) fn attempts(&self) -> Vec<LoggedAttempt> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The pauses so far.
    pub(super) fn pauses(&self) -> Vec<Duration> {
        self.attempts().iter().filter_map(|attempt| attempt.pause).collect()
    }

    /// Total time that finished writes waited for the rate limiter.
    pub(super) fn queued(&self) -> Duration {
        *self.queued.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for AttemptLog {
    fn attempt(&self, event: &AttemptEvent<'_>) {
        let class = event.class.map(conflict_retry::Class::label);
        let attempt = LoggedAttempt { class, pause: event.delay };
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner).push(attempt);
    }

    fn finished(&self, event: &FinishedEvent<'_>) {
        *self.queued.lock().unwrap_or_else(PoisonError::into_inner) += event.queued;
    }
}
