//! The state of one running operation: its clock, its attempts, and whether a write is in doubt. What is done with it has a
//! module each: requests, waits, protections, errors, reports.

mod errors;
mod pace;
mod protections;
mod reports;
mod request;
mod waits;

use std::time::Duration;

use tokio::time::Instant;

use self::pace::Pace;
use self::protections::Held;
use super::Writable;
use super::target::WriteTarget;
use crate::classify::Class;
use crate::observe::FinishedEvent;
use crate::operation::{Operation, Subresource, Verb};
use crate::options::WriteOptions;
use crate::outcome::{RequestFailure, WriteError};
use crate::policy::Attempts;

/// A request that failed, with its class.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) verb: Verb,
    pub(super) class: Class,
    pub(super) failure: RequestFailure,
}

/// The state of one operation.
pub(super) struct OperationState<'a> {
    options: &'a WriteOptions,
    operation: Operation,
    start: Instant,
    attempts: Attempts,
    requests: u32,
    /// The highest attempt number in which a request was sent.
    rounds: u32,
    waited: Duration,
    queued: Duration,
    maybe_written: bool,
    last: Option<Failed>,
    /// How often the API server has refused a request without having judged it.
    undecided: u32,
    pace: Pace,
    held: Held,
}

impl<'a> OperationState<'a> {
    /// Starts an operation. Call [`Self::ready`] before anything else and [`Self::end`] with the result.
    pub(super) fn begin(options: &'a WriteOptions, operation: Operation) -> Self {
        Self {
            options,
            operation,
            start: Instant::now(),
            attempts: options.policy().attempts(),
            requests: 0,
            rounds: 0,
            waited: Duration::ZERO,
            queued: Duration::ZERO,
            maybe_written: false,
            last: None,
            undecided: 0,
            pace: Pace::default(),
            held: Held::default(),
        }
    }

    /// Fails before the first request if the token is already cancelled, the deadline is zero, or the options are
    /// invalid. Then waits for its turn to write `target`, if there is a queue.
    pub(super) async fn ready<K: Writable>(&mut self, target: WriteTarget<'_, K>) -> Result<(), WriteError> {
        self.options.check()?;
        if !self.options.policy().may_start() || self.options.policy().cancellation().is_cancelled() {
            return Err(self.cancelled());
        }
        self.enter(target).await?;
        // The wait for the queue is not part of the first attempt, whose duration later waits are derived from.
        self.attempts.begin(self.start.elapsed());
        Ok(())
    }

    /// Reports to the observer how the operation ended.
    pub(super) fn end<T>(
        &self,
        result: Result<T, WriteError>,
        label: impl FnOnce(&T) -> &'static str,
    ) -> Result<T, WriteError> {
        self.give_back();
        self.options.observer().finished(&FinishedEvent {
            operation: &self.operation,
            result: result.as_ref().map_or_else(WriteError::category, label),
            exhausted: matches!(result, Err(WriteError::Exhausted { .. })),
            attempts: self.rounds,
            requests: self.requests,
            elapsed: self.start.elapsed(),
            waited: self.waited,
            queued: self.queued,
            maybe_written: self.maybe_written || result.as_ref().is_err_and(WriteError::maybe_written),
        });
        result
    }

    /// Marks the attempts as based on a cache that a watch feeds.
    pub(super) fn watched(&mut self) {
        self.attempts = self.attempts.clone().watched();
    }

    /// Whether the answer to a write was lost.
    pub(super) fn maybe_written(&self) -> bool {
        self.maybe_written
    }

    /// Whether the operation writes a subresource that the CRD may not declare.
    pub(super) fn writes_subresource(&self) -> bool {
        matches!(self.operation.subresource, Subresource::Status | Subresource::Scale)
    }

    /// The number of the current attempt.
    fn running(&self) -> u32 {
        self.attempts.made().saturating_add(1)
    }
}
