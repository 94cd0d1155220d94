//! client-go's tests of `RetryOnConflict` and of `ExponentialBackoffWithContext`, under tokio's paused clock.

use std::cell::Cell;
use std::future::{pending, ready};
use std::num::NonZeroU32;

use tokio_util::sync::CancellationToken;

use super::*;
use crate::backoff::Backoff;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Fault {
    #[error("conflict {0}")]
    Conflict(u32),
    #[error("other")]
    Other,
}

impl MaybeConflict for Fault {
    fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict(_))
    }
}

fn steps(steps: i32) -> RetryPolicy {
    let backoff = Backoff::new(steps, Duration::ZERO, 1.0, 0.0, Duration::ZERO).unwrap();
    RetryPolicy::from_backoff(backoff).unwrap()
}

/// Runs an operation whose answer depends on the call's number, and returns how often it was called.
async fn run(
    policy: &RetryPolicy,
    answer: impl Fn(u32) -> Result<u32, Fault>,
) -> (Result<u32, RetryError<Fault>>, u32) {
    let calls = Cell::new(0);
    let result = retry_if(
        policy,
        Fault::is_conflict,
        || 0.0,
        || {
            calls.set(calls.get() + 1);
            ready(answer(calls.get()))
        },
    )
    .await;
    (result, calls.get())
}

#[tokio::test(start_paused = true)]
async fn a_success_is_one_call() {
    assert_eq!(run(&steps(3), Ok).await, (Ok(1), 1));
}

#[tokio::test(start_paused = true)]
async fn permanent_conflict_ends_with_the_last_conflict_after_all_steps() {
    let (result, calls) = run(&steps(3), |call| Err(Fault::Conflict(call))).await;
    let error = result.unwrap_err();
    assert!(matches!(error, RetryError::Exhausted { attempts: 3, .. }), "{error:?}");
    assert_eq!((error.into_inner(), calls), (Some(Fault::Conflict(3)), 3));
}

#[tokio::test(start_paused = true)]
async fn another_error_is_returned_as_it_is_after_one_call() {
    assert_eq!(run(&steps(3), |_| Err(Fault::Other)).await, (Err(RetryError::Op(Fault::Other)), 1));
}

#[tokio::test(start_paused = true)]
async fn another_error_after_a_conflict_is_returned_as_it_is() {
    let (result, calls) =
        run(&steps(3), |call| Err(if call == 1 { Fault::Conflict(1) } else { Fault::Other })).await;
    assert_eq!((result, calls), (Err(RetryError::Op(Fault::Other)), 2));
}

#[tokio::test(start_paused = true)]
async fn two_conflicts_then_a_success_succeed_within_three_steps() {
    let answer = |call| {
        if call < 3 { Err(Fault::Conflict(call)) } else { Ok(call) }
    };
    assert_eq!(run(&steps(3), answer).await, (Ok(3), 3));
    let (result, calls) = run(&steps(2), answer).await;
    assert!(matches!(result, Err(RetryError::Exhausted { attempts: 2, .. })));
    assert_eq!(calls, 2);
}

#[tokio::test(start_paused = true)]
async fn one_step_is_one_call() {
    assert_eq!(run(&steps(1), |call| Err(Fault::Conflict(call))).await.1, 1);
}

#[tokio::test(start_paused = true)]
async fn the_presets_take_as_long_as_client_gos_and_never_sleep_after_the_last_attempt() {
    for (policy, calls, millis) in
        [(RetryPolicy::client_go_default_retry(), 5, 40), (RetryPolicy::client_go_default_backoff(), 4, 310)]
    {
        let start = Instant::now();
        let (result, called) = run(&policy, |call| Err(Fault::Conflict(call))).await;
        let elapsed = Duration::from_millis(millis);
        assert_eq!(start.elapsed(), elapsed);
        assert_eq!(called, calls);
        assert_eq!(
            result,
            Err(RetryError::Exhausted { attempts: calls, elapsed, last: Fault::Conflict(calls) })
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_token_calls_nothing() {
    let token = CancellationToken::new();
    token.cancel();
    let (result, calls) = run(&steps(3).with_cancellation(token), Ok).await;
    assert_eq!((result, calls), (Err(RetryError::Cancelled { attempts: 0, last: None }), 0));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_of_zero_calls_nothing() {
    let (result, calls) = run(&steps(3).with_deadline(Some(Duration::ZERO)), Ok).await;
    let none = RetryError::DeadlineExceeded { attempts: 0, elapsed: Duration::ZERO, last: None };
    assert_eq!((result, calls), (Err(none), 0));
}

#[tokio::test(start_paused = true)]
async fn the_deadline_carries_the_last_conflict() {
    let policy = RetryPolicy::client_go_default_backoff().with_deadline(Some(Duration::from_millis(50)));
    let (result, calls) = run(&policy, |call| Err(Fault::Conflict(call))).await;
    let elapsed = Duration::from_millis(10);
    let wanted = RetryError::DeadlineExceeded { attempts: 2, elapsed, last: Some(Fault::Conflict(2)) };
    assert_eq!((result, calls), (Err(wanted), 2));
}

#[tokio::test(start_paused = true)]
async fn cancelling_during_an_attempt_is_cancelled_with_the_conflict_before_it() {
    let token = CancellationToken::new();
    let calls = Cell::new(0);
    let policy = steps(9).with_cancellation(token.clone());
    let result = retry_if(
        &policy,
        Fault::is_conflict,
        || 0.0,
        || {
            calls.set(calls.get() + 1);
            let call = calls.get();
            let token = token.clone();
            async move {
                if call == 4 {
                    token.cancel();
                    pending::<()>().await;
                }
                Err::<u32, _>(Fault::Conflict(call))
            }
        },
    )
    .await;
    assert_eq!(result, Err(RetryError::Cancelled { attempts: 3, last: Some(Fault::Conflict(3)) }));
    assert_eq!(calls.get(), 4);
}

#[tokio::test(start_paused = true)]
async fn cancelling_during_a_sleep_ends_it_at_once() {
    let token = CancellationToken::new();
    let minute = Duration::from_secs(60);
    let backoff = Backoff::new(3, minute, 1.0, 0.0, Duration::ZERO).unwrap();
    let policy = RetryPolicy::from_backoff(backoff).unwrap().with_cancellation(token.clone());
    let start = Instant::now();
    let second = Duration::from_secs(1);
    let (outcome, ()) = tokio::join!(run(&policy, |call| Err(Fault::Conflict(call))), async {
        tokio::time::sleep(second).await;
        token.cancel();
    });
    assert_eq!(outcome.0, Err(RetryError::Cancelled { attempts: 1, last: Some(Fault::Conflict(1)) }));
    assert_eq!(start.elapsed(), second);
}

#[tokio::test(start_paused = true)]
async fn the_future_can_be_spawned() {
    let policy = RetryPolicy::default().with_max_attempts(NonZeroU32::MIN);
    let task = tokio::spawn(async move { retry_on_conflict(&policy, || async { Ok::<_, Fault>(7) }).await });
    assert_eq!(task.await.unwrap(), Ok(7));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(128))]

    /// Whether it is cancelled during an attempt, during a wait, or between them.
    #[test]
    fn cancelled_at_any_point_a_run_ends_there_and_never_looks_like_a_success(
        at in 0_u64..400, takes in 0_u64..20, conflicts in 0_usize..12, random in 0.0_f64..1.0,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let token = CancellationToken::new();
            let policy = RetryPolicy::default().with_cancellation(token.clone());
            let start = Instant::now();
            let calls = std::cell::RefCell::new(Vec::new());
            let run = async {
                let done = retry_if(&policy, Fault::is_conflict, || random, || async {
                    calls.borrow_mut().push(start.elapsed());
                    let number = calls.borrow().len();
                    tokio::time::sleep(Duration::from_millis(takes)).await;
                    if number > conflicts { Ok(number) } else { Err(Fault::Conflict(1)) }
                });
                (done.await, start.elapsed())
            };
            let cancel = async {
                tokio::time::sleep(Duration::from_millis(at)).await;
                token.cancel();
            };
            let ((result, ended), ()) = tokio::join!(run, cancel);
            let (at, tick) = (Duration::from_millis(at), Duration::from_millis(1));
            let calls = calls.into_inner();
            match result {
                Ok(number) => {
                    assert_eq!((number, calls.len()), (conflicts + 1, conflicts + 1));
                    assert!(ended <= at + tick, "it ended {ended:?} after it was cancelled at {at:?}");
                }
                Err(RetryError::Cancelled { attempts, last }) => {
                    assert!(ended >= at && ended <= at + tick, "cancelled at {at:?}, ended at {ended:?}");
                    assert_eq!(last.is_some(), attempts > 0);
                    assert!(calls.iter().all(|call| *call <= at + tick), "called after the end: {calls:?}");
                }
                Err(other) => panic!("{other:?}"),
            }
        });
    }
}
