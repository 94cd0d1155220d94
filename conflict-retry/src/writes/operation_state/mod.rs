//! The state of one running operation: its clock, its attempts, whether a write is in doubt, and its observer calls.

mod reports;

use std::time::Duration;

use tokio::time::Instant;

use super::Writable;
use super::target::WriteTarget;
use crate::classify::Class;
use crate::freshness::CachedObject;
use crate::observe::FinishedEvent;
use crate::operation::{Operation, Subresource, Verb};
use crate::options::WriteOptions;
use crate::outcome::{Refusal, RequestFailure, WriteError};
use crate::policy::{Attempts, GiveUp, Next, WaitStep};
use crate::protect::{self, BudgetedRetry, CircuitBreaker, Permit, Protection, RetryBudget, ThrottledBy};

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
    budgeted: Option<protect::BudgetedOperation>,
    retry: Option<BudgetedRetry>,
    key_guard: Option<protect::KeyGuard<String>>,
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
            budgeted: None,
            retry: None,
            key_guard: None,
        }
    }

    /// Fails before the first request if the token is already cancelled, the deadline is zero, or the options are
    /// invalid. Then waits for its turn to write `target`, if there is a queue.
    pub(super) async fn ready<K: Writable>(&mut self, target: WriteTarget<'_, K>) -> Result<(), WriteError> {
        self.options.check()?;
        if !self.options.policy().may_start() || self.options.policy().cancellation().is_cancelled() {
            return Err(self.cancelled());
        }
        let Protection { queue, budget, .. } = self.options.protection();
        // An object whose name the server generates has no key to queue by.
        if let Some(queue) = queue
            && target.is_named()
        {
            self.key_guard = Some(self.await_permission(queue.lock(target.key())).await?);
        }
        self.budgeted = budget.as_ref().map(RetryBudget::operation);
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

    /// Sends one request, until it ends, times out or is cancelled.
    pub(super) async fn call<T>(
        &mut self,
        verb: Verb,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<Result<T, Failed>, WriteError> {
        if let Some(limiter) = &self.options.protection().limiter {
            let queued = self.queued;
            self.await_permission(limiter.acquire()).await?;
            self.attempts.throttled(self.queued.saturating_sub(queued));
        }
        let Some(timeout) =
            self.options.time_left(verb).filter(|_| !self.options.policy().cancellation().is_cancelled())
        else {
            return Err(self.cancelled());
        };
        let breaker = self.options.protection().breaker.as_ref();
        let permit = match breaker.map(CircuitBreaker::admit).transpose() {
            Ok(permit) => permit,
            Err(open) => return Err(self.throttled(open.into())),
        };
        self.circuit(permit.as_ref().and_then(Permit::transition));
        self.requests = self.requests.saturating_add(1);
        self.rounds = self.running();
        let answer = tokio::select! {
            biased;
            // First: an answer that has arrived counts, and a request is sent before it can be cancelled.
            answer = tokio::time::timeout(timeout, request) => answer,
            () = self.options.policy().cancellation().cancelled() => {
                self.maybe_written |= verb.is_write();
                self.report(self.running(), verb, Some(&Class::Ambiguous), None);
                return Err(self.cancelled());
            }
        };
        let failure = match answer {
            Ok(Ok(value)) => {
                self.record_result(permit, None);
                self.report(self.running(), verb, None, None);
                return Ok(Ok(value));
            }
            Ok(Err(error)) => RequestFailure::Api(error),
            Err(_elapsed) => RequestFailure::Timeout(timeout),
        };
        let class = failure.class_at(verb, &self.operation.resource);
        // Where only admission failed, the server itself has answered.
        self.record_result(permit, (!failure.is_admission_fault()).then_some(&class));
        self.maybe_written |= verb.is_write() && matches!(class, Class::Ambiguous | Class::StorageFull);
        Ok(Err(Failed { verb, class, failure }))
    }

    /// After a failure that may be retried: waits as the policy says, or gives up.
    pub(super) async fn pause(&mut self, failed: Failed) -> Result<(), WriteError> {
        let delay = self.next(failed)?;
        self.wait(tokio::time::sleep(delay)).await?;
        self.begin_retry()
    }

    /// After a conflict of a writer with a watch-fed cache: waits for its turn and returns the newest object that the
    /// watch has brought since `version`; `None` when the object must be read live.
    pub(super) async fn wait_for_newer<T>(
        &mut self,
        failed: Failed,
        cache: &dyn CachedObject<T>,
        version: String,
        version_of: fn(&T) -> Option<&str>,
    ) -> Result<Option<T>, WriteError> {
        let mut rest = Duration::ZERO;
        let (mut known, mut newest) = (version, None);
        let delay = self.next(failed)?;
        let began = Instant::now();
        loop {
            // A version already in the cache returns at once, even with a wait of zero.
            let news = self.wait(tokio::time::timeout(rest, cache.newer(known.clone()))).await?;
            let is_news = news.is_ok();
            match news {
                Ok(Some(object)) => {
                    if let Some(version) = version_of(&object) {
                        version.clone_into(&mut known);
                    }
                    newest = Some(object);
                }
                // The object is no longer in the cache, so only the server can tell.
                Ok(None) => {
                    self.wait(tokio::time::sleep(delay.saturating_sub(began.elapsed()))).await?;
                    newest = None;
                    break;
                }
                Err(_elapsed) => {}
            }
            match self.attempts.wait_step(self.start.elapsed(), is_news) {
                WaitStep::Wait(more) => rest = more,
                WaitStep::Send => break,
                WaitStep::Read => {
                    newest = None;
                    break;
                }
                WaitStep::GiveUp(reason) => return Err(self.exhausted(reason)),
            }
        }
        self.begin_retry()?;
        Ok(newest)
    }

    /// Records a failure and returns how long to wait before the next attempt, or the error if there is none.
    fn next(&mut self, failed: Failed) -> Result<Duration, WriteError> {
        // A retry counts while it runs, not while the next one waits.
        self.retry = None;
        let Some(cause) = failed.class.cause() else {
            return Err(self.reject(failed));
        };
        let next = self.attempts.next(self.start.elapsed(), cause, rand::random::<f64>);
        let delay = match next {
            Next::RetryAfter(delay) => Some(delay),
            Next::GiveUp(_) => None,
        };
        self.report(self.attempts.made(), failed.verb, Some(&failed.class), delay);
        self.last = Some(failed);
        match next {
            Next::RetryAfter(delay) => Ok(delay),
            Next::GiveUp(reason) => Err(self.exhausted(reason)),
        }
    }

    fn begin_retry(&mut self) -> Result<(), WriteError> {
        self.retry = match self.budgeted.as_ref().map(protect::BudgetedOperation::retry).transpose() {
            Ok(retry) => retry,
            Err(exhausted) => return Err(self.throttled(exhausted.into())),
        };
        Ok(())
    }

    fn exhausted(&mut self, reason: GiveUp) -> WriteError {
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

    /// Waits between two attempts, until cancelled.
    async fn wait<T>(&mut self, future: impl Future<Output = T>) -> Result<T, WriteError> {
        let began = Instant::now();
        let waited = self.until_cancelled(future).await;
        self.waited = self.waited.saturating_add(began.elapsed());
        waited.ok_or_else(|| self.cancelled())
    }

    async fn until_cancelled<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.options.policy().cancellation().cancelled() => None,
            value = future => Some(value),
        }
    }

    /// Waits for permission to send, until cancelled or past the deadline.
    async fn await_permission<T>(&mut self, permission: impl Future<Output = T>) -> Result<T, WriteError> {
        let deadline = self.options.policy().deadline();
        let began = Instant::now();
        let waited = match deadline {
            None => self.until_cancelled(permission).await.map(Ok),
            Some(deadline) => {
                let left = deadline.saturating_sub(self.start.elapsed());
                self.until_cancelled(tokio::time::timeout(left, permission)).await
            }
        };
        self.queued = self.queued.saturating_add(began.elapsed());
        match (waited, deadline) {
            (Some(Ok(granted)), _) => Ok(granted),
            (Some(Err(_elapsed)), Some(deadline)) => Err(self.throttled(ThrottledBy::WaitTimeout(deadline))),
            _ => Err(self.cancelled()),
        }
    }

    /// Ends the operation with an error: no further attempt is made.
    pub(super) fn reject(&self, failed: Failed) -> WriteError {
        self.report(self.running(), failed.verb, Some(&failed.class), None);
        self.refuse(failed)
    }

    /// Like [`Self::reject`], for a failure that was already reported to the observer.
    pub(super) fn refuse(&self, failed: Failed) -> WriteError {
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
    pub(super) fn refused(&self, reason: Refusal) -> WriteError {
        WriteError::Refused { reason, maybe_written: self.maybe_written }
    }

    fn record_result(&self, permit: Option<Permit>, answer: Option<&Class>) {
        self.circuit(permit.and_then(|permit| permit.record(answer)));
    }

    fn throttled(&mut self, by: ThrottledBy) -> WriteError {
        WriteError::ClientThrottled {
            attempts: self.attempts.made(),
            by,
            maybe_written: self.maybe_written,
            last: self.last_failure(),
        }
    }

    fn cancelled(&mut self) -> WriteError {
        WriteError::Cancelled {
            attempts: self.attempts.made(),
            maybe_written: self.maybe_written,
            last: self.last_failure(),
        }
    }

    /// The number of the current attempt.
    fn running(&self) -> u32 {
        self.attempts.made().saturating_add(1)
    }
}
