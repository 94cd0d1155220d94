//! A circuit breaker as in tutorials: every error counts, and half open lets all requests through. Time is an argument.

use std::time::Duration;

/// The breaker.
pub(super) struct NaiveBreaker {
    most: u32,
    open_for: Duration,
    failures: u32,
    opened: Option<Duration>,
}

impl NaiveBreaker {
    /// Opens after `most` errors in a row, for `open_for`.
    pub(super) const fn new(most: u32, open_for: Duration) -> Self {
        Self { most, open_for, failures: 0, opened: None }
    }

    /// Whether a request may be sent. After the open time the count restarts, for all callers.
    pub(super) fn admits(&mut self, now: Duration) -> bool {
        match self.opened {
            Some(opened) if now < opened + self.open_for => false,
            Some(_) => {
                self.opened = None;
                self.failures = 0;
                true
            }
            None => true,
        }
    }

    /// Records the result of a request.
    pub(super) fn record(&mut self, now: Duration, succeeded: bool) {
        self.failures = if succeeded { 0 } else { self.failures + 1 };
        if self.failures >= self.most {
            self.opened = Some(now);
        }
    }
}
