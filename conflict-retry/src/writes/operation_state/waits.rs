//! What an operation does between two attempts.

use std::time::Duration;

use tokio::time::Instant;

use super::{Failed, OperationState};
use crate::freshness::CachedObject;
use crate::outcome::WriteError;
use crate::policy::{Cause, Next, WaitStep};

/// How often a request is sent again that was refused without having been judged. Our own limit: some 4 s, in which a server
/// that starts has read its roles, whereas a role that is missing for good is to be reported soon.
const UNDECIDED_RETRIES: u32 = 8;

impl OperationState<'_> {
    /// After a failure that may be retried: waits as the policy says, or gives up.
    pub(in crate::writes) async fn pause(&mut self, failed: Failed) -> Result<(), WriteError> {
        let delay = self.next(failed)?;
        self.wait(tokio::time::sleep(delay)).await?;
        self.begin_retry()
    }

    /// After a conflict of a writer with a watch-fed cache: waits for its turn and returns the newest object that the
    /// watch has brought since `version`; `None` when the object must be read live.
    pub(in crate::writes) async fn wait_for_newer<T>(
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
        self.held.end_retry();
        let Some(cause) = self.cause(&failed) else {
            return Err(self.reject(failed));
        };
        let next = self.attempts.next(self.start.elapsed(), cause, rand::random::<f64>);
        let delay = match next {
            Next::RetryAfter(delay) => Some(delay).filter(|delay| self.options.outlasts(*delay)),
            Next::GiveUp(_) => None,
        };
        self.report(self.attempts.made(), failed.verb, Some(&failed.class), delay);
        // Where the policy does not let it ask again, a refusal that was not judged is a refusal, too.
        if matches!(next, Next::GiveUp(_)) && failed.class.cause().is_none() {
            return Err(self.refuse(failed));
        }
        self.last = Some(failed);
        match (next, delay) {
            (_, Some(delay)) => Ok(delay),
            (Next::GiveUp(reason), None) => Err(self.exhausted(reason)),
            // The caller's right to write ends first.
            (Next::RetryAfter(_), None) => Err(self.cancelled()),
        }
    }

    /// How to pace another attempt; `None` when another attempt cannot succeed.
    fn cause(&mut self, failed: &Failed) -> Option<Cause> {
        let cause = failed.class.cause();
        if cause.is_some() || !failed.failure.is_undecided() || self.undecided >= UNDECIDED_RETRIES {
            return cause;
        }
        self.undecided = self.undecided.saturating_add(1);
        Some(Cause::Fault)
    }

    /// Waits between two attempts, until cancelled.
    async fn wait<T>(&mut self, future: impl Future<Output = T>) -> Result<T, WriteError> {
        let began = Instant::now();
        let waited = self.until_cancelled(future).await;
        self.waited = self.waited.saturating_add(began.elapsed());
        waited.ok_or_else(|| self.cancelled())
    }

    /// `None` when cancelled, or when the caller's right to write ends.
    pub(super) async fn until_cancelled<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.options.policy().cancellation().cancelled() => None,
            value = future => Some(value),
            () = self.options.until_hard_deadline() => None,
        }
    }
}
