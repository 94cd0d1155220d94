//! Counts one write: every request the front door sends for it, and how it ended.

use std::sync::atomic::{AtomicU32, Ordering};

use conflict_retry::{AttemptEvent, Class, Observer};

use super::WriteError;
use crate::{
    error::Categorised as _,
    metrics::{Metrics, WriteLabels},
};

/// The observer of one write.
#[derive(Debug)]
pub(super) struct Meter {
    metrics: Metrics,
    labels: WriteLabels,
    attempts: AtomicU32,
}

impl Meter {
    pub(super) fn new(metrics: Metrics, labels: WriteLabels) -> Self {
        Self { metrics, labels, attempts: AtomicU32::new(0) }
    }

    /// The write came to an outcome.
    pub(super) fn ended(&self, result: &'static str) {
        self.metrics.write(&self.labels, result);
        self.attempts();
    }

    /// The write failed.
    pub(super) fn failed(&self, failed: &WriteError) {
        self.metrics.write(&self.labels, "error");
        if failed.category() == "exhausted" {
            self.metrics.retry_exhausted(&self.labels);
        }
        self.attempts();
    }

    fn attempts(&self) {
        match self.attempts.load(Ordering::Relaxed) {
            0 => {}
            attempts => self.metrics.write_attempts(&self.labels, attempts),
        }
    }
}

impl Observer for Meter {
    fn attempt(&self, event: &AttemptEvent<'_>) {
        self.attempts.fetch_max(event.attempt, Ordering::Relaxed);
        let outcome = event.class.map_or("ok", Class::label);
        self.metrics.write_request(&self.labels, event.verb.label(), outcome);
        if matches!(
            event.class,
            Some(
                Class::Conflict
                    | Class::TestFailed
                    | Class::FieldManager { .. }
                    | Class::UidMismatch
                    | Class::Deleted
            )
        ) {
            self.metrics.write_conflict(&self.labels, outcome);
        }
    }
}
