//! client-go's `RetryOnConflict`: calls an operation again while it reports a conflict that a retry can resolve.
//!
//! The operation reads, decides and writes; this module only calls, waits and counts. The write functions
//! ([`crate::update`] and the others) do the reading and writing as well, and are what most callers want.

use std::time::Duration;

use tokio::time::Instant;

use crate::classify::{self, Class, Classified};
use crate::operation::Verb;
use crate::outcome::{WriteError, counted};
use crate::policy::{Cause, GiveUp, Next, RetryPolicy};

/// An error that may be a conflict: another writer wrote first.
///
/// Implement it for your own error type that wraps `kube::Error`, so that the wrapper does not hide a conflict.
pub trait MaybeConflict {
    /// Whether reading again and deciding again may succeed.
    fn is_conflict(&self) -> bool;
}

impl MaybeConflict for kube::Error {
    /// True for a stale version, and when admission lost a race for a `ResourceQuota`. False for the conflicts that no
    /// retry resolves: a field manager conflict, a recreated object, a deleted one, a webhook that denies with 409.
    /// client-go retries those too, because its `errors.IsConflict` ([`is_conflict`](crate::is_conflict)) is true for any
    /// 409 but `AlreadyExists`.
    fn is_conflict(&self) -> bool {
        // The operation may send several requests; a PUT is what a conflict without details most likely answers.
        classify::is_conflict(self)
            && matches!(Class::of(Verb::Put, self), Class::Conflict | Class::Transient { .. })
    }
}

impl MaybeConflict for WriteError {
    /// A conflict that a single attempt or an apply has met. The functions that retry have done what can be done.
    fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. })
    }
}

/// Why [`retry_on_conflict`] has no result. Whatever the reason, no write was acknowledged. One that holds a `kube::Error`
/// becomes a `kube::Error` by `?`.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RetryError<E> {
    /// The operation failed with an error that [`MaybeConflict`] does not take for a conflict; it was not retried.
    #[error("the operation failed")]
    Op(#[source] E),
    /// Every allowed attempt ended in a conflict.
    #[error("gave up after {} that conflicted, in {elapsed:.1?}; requeue, or allow more attempts", counted(*attempts))]
    #[non_exhaustive]
    Exhausted {
        /// Number of attempts made.
        attempts: u32,
        /// Time since the first attempt began.
        elapsed: Duration,
        /// The last conflict.
        #[source]
        last: E,
    },
    /// There was no time left for another attempt.
    #[error("gave up at the deadline after {} in {elapsed:.1?}; requeue, or allow more time", counted(*attempts))]
    #[non_exhaustive]
    DeadlineExceeded {
        /// Number of attempts made.
        attempts: u32,
        /// Time since the first attempt began.
        elapsed: Duration,
        /// The last conflict; `None` when the deadline did not allow even the first attempt.
        #[source]
        last: Option<E>,
    },
    /// The policy's token was cancelled. A running attempt was dropped: whether it wrote is unknown.
    #[error("cancelled after {} that conflicted; read the object before relying on its state", counted(*attempts))]
    #[non_exhaustive]
    Cancelled {
        /// Number of attempts that ended in a conflict before.
        attempts: u32,
        /// The last conflict; `None` when there was none.
        #[source]
        last: Option<E>,
    },
}

impl<E> RetryError<E> {
    /// The operation's own error, which client-go would have returned; `None` when there is none.
    pub fn into_inner(self) -> Option<E> {
        match self {
            Self::Op(error) | Self::Exhausted { last: error, .. } => Some(error),
            Self::DeadlineExceeded { last, .. } | Self::Cancelled { last, .. } => last,
        }
    }
}

impl From<RetryError<kube::Error>> for kube::Error {
    /// The operation's own error as it was, and the last conflict as the 409 that the API server answered. Everything else (a
    /// cancellation, a deadline before the first attempt) is a `kube::Error::Service` that contains the `RetryError` with
    /// its advice.
    fn from(error: RetryError<Self>) -> Self {
        match error {
            RetryError::Op(own)
            | RetryError::Exhausted { last: own @ Self::Api(_), .. }
            | RetryError::DeadlineExceeded { last: Some(own @ Self::Api(_)), .. } => own,
            other => {
                let class = match &other {
                    RetryError::Exhausted { last, .. }
                    | RetryError::DeadlineExceeded { last: Some(last), .. } => Class::of(Verb::Put, last),
                    _ => Class::Other,
                };
                Self::Service(Box::new(Classified::new(class, other)))
            }
        }
    }
}

/// Calls `op` until it succeeds, fails with an error other than a conflict, or the policy ends.
///
/// Of `kube::Error`, only a conflict that a retry can resolve counts as one (see the implementation of
/// [`MaybeConflict`]). To retry every conflict as client-go does, pass [`is_conflict`](crate::is_conflict) to
/// [`retry_if`]. Faults, throttling and the 403 of a server that has not judged yet are not conflicts, and end it with
/// [`RetryError::Op`]; the write functions retry these, too.
///
/// `op` must read the object again each time it is called: a cached copy only repeats the conflict. It must also decide
/// again; writing a value computed earlier is still a lost update.
///
/// ```no_run
/// use conflict_retry::{RetryPolicy, retry_on_conflict};
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # async fn example(maps: kube::Api<ConfigMap>) -> Result<(), conflict_retry::RetryError<kube::Error>> {
/// let read = retry_on_conflict(&RetryPolicy::default(), || async {
///     let fresh = maps.get("settings").await?;
///     // … change `fresh` and write it back with its resourceVersion …
///     Ok::<_, kube::Error>(fresh)
/// })
/// .await?;
/// # Ok(()) }
/// ```
pub async fn retry_on_conflict<T, E, F, Fut>(policy: &RetryPolicy, op: F) -> Result<T, RetryError<E>>
where
    E: MaybeConflict,
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, E>>,
{
    retry_if(policy, E::is_conflict, rand::random::<f64>, op).await
}

/// Like [`retry_on_conflict`], with the classifier and the random source (uniform in `[0, 1)`) as arguments.
pub async fn retry_if<T, E, C, R, F, Fut>(
    policy: &RetryPolicy,
    is_conflict: C,
    mut random: R,
    mut op: F,
) -> Result<T, RetryError<E>>
where
    C: Fn(&E) -> bool,
    R: FnMut() -> f64,
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, E>>,
{
    let cancel = policy.cancellation();
    let start = Instant::now();
    let mut attempts = policy.attempts();
    let mut last = None;
    if !policy.may_start() {
        return Err(RetryError::DeadlineExceeded { attempts: 0, elapsed: Duration::ZERO, last });
    }
    loop {
        let answer = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(RetryError::Cancelled { attempts: attempts.made(), last }),
            // Inside an async block, `op` is not even called when the token is already cancelled.
            answer = async { op().await } => answer,
        };
        let error = match answer {
            Ok(value) => return Ok(value),
            Err(error) if is_conflict(&error) => error,
            Err(error) => return Err(RetryError::Op(error)),
        };
        let elapsed = start.elapsed();
        let delay = match attempts.next(elapsed, Cause::Conflict, &mut random) {
            Next::RetryAfter(delay) => delay,
            Next::GiveUp(GiveUp::Attempts) => {
                return Err(RetryError::Exhausted { attempts: attempts.made(), elapsed, last: error });
            }
            Next::GiveUp(GiveUp::Deadline) => {
                let attempts = attempts.made();
                return Err(RetryError::DeadlineExceeded { attempts, elapsed, last: Some(error) });
            }
        };
        tracing::debug!(attempt = attempts.made(), ?delay, "conflict; trying again");
        last = Some(error);
        tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(RetryError::Cancelled { attempts: attempts.made(), last }),
            () = tokio::time::sleep(delay) => {}
        }
    }
}

#[cfg(test)]
#[path = "retry_tests.rs"]
mod tests;
