//! client-go's tests of `RetryOnConflict` and of `ExponentialBackoffWithContext`, under tokio's paused clock.

use std::cell::Cell;
use std::future::{pending, ready};
use std::num::NonZeroU32;

use kube::core::Status;
use serde_json::{Value, json};
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

/// A 409 as v1.36 answers it.
fn conflict(message: &str, details: &Value) -> kube::Error {
    let status: Status = serde_json::from_value(json!({
        "status": "Failure", "reason": "Conflict", "code": 409, "message": message, "details": details,
    }))
    .unwrap();
    kube::Error::Api(status.boxed())
}

/// How often `retry_on_conflict` calls an operation that always ends with this error, if it may three times.
async fn calls_until(error: impl Fn() -> kube::Error) -> u32 {
    let calls = Cell::new(0);
    let answer: Result<(), _> = retry_on_conflict(&steps(3), || {
        calls.set(calls.get() + 1);
        ready(Err(error()))
    })
    .await;
    assert!(answer.is_err());
    calls.get()
}

#[tokio::test(start_paused = true)]
async fn of_a_clients_errors_only_what_a_retry_can_resolve_is_retried() {
    let details = json!({"name": "n", "group": "t.dev", "kind": "pools"});
    let stale = "Operation cannot be fulfilled on pools.t.dev \"n\": the object has been modified; please apply your changes to the latest version and try again";
    assert_eq!(calls_until(|| conflict(stale, &details)).await, 3, "a stale version");
    let quota = "Operation cannot be fulfilled on resourcequotas \"q\": the object has been modified; please apply your changes to the latest version and try again";
    let of_quota = || conflict(quota, &json!({"name": "q", "kind": "resourcequotas"}));
    assert_eq!(calls_until(of_quota).await, 3, "admission lost a race");

    let recreated = "Operation cannot be fulfilled on pools.t.dev \"n\": StorageError: invalid object, Code: 4, Key: /registry/t.dev/pools/default/n, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: bad, UID in object meta: 0c62";
    let deleted = recreated.trim_end_matches("0c62");
    for message in [recreated, deleted] {
        let error = || conflict(message, &details);
        assert_eq!(calls_until(error).await, 1, "{message}");
        assert!(crate::is_conflict(&error()), "client-go retries it: {message}");
    }
    let causes = json!({"causes": [{"reason": "FieldManagerConflict", "message": "conflict with \"a\"", "field": ".spec.note"}]});
    let owned = || conflict("Apply failed with 1 conflict: conflict with \"a\": .spec.note", &causes);
    assert_eq!(calls_until(owned).await, 1, "another manager's field");
    assert!(crate::is_conflict(&owned()));
    let denied = || conflict("admission webhook \"w.example.org\" denied the request: no budget", &details);
    assert_eq!(calls_until(denied).await, 1, "a webhook chose the code");
    assert!(crate::is_conflict(&denied()));
    let webhook = "Internal error occurred: failed calling webhook \"w.example.org\": failed to call webhook: Post \"https://127.0.0.1:1/?timeout=10s\": dial tcp 127.0.0.1:1: connect: connection refused";
    for (code, reason, message) in
        [(409, "AlreadyExists", "pools.t.dev \"n\" already exists"), (500, "InternalError", webhook)]
    {
        let other = || kube::Error::Api(Status::failure(message, reason).with_code(code).boxed());
        assert_eq!(calls_until(other).await, 1, "{message}");
    }
    assert_eq!(calls_until(|| kube::Error::TlsRequired).await, 1, "no answer of the server");
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

/// What `?` turns an error of the loop into.
fn turned(error: RetryError<kube::Error>) -> kube::Error {
    fn end(answer: Result<(), RetryError<kube::Error>>) -> Result<(), kube::Error> {
        answer?;
        Ok(())
    }
    end(Err(error)).unwrap_err()
}

fn stale() -> kube::Error {
    conflict("the object has been modified", &json!({"name": "n"}))
}

#[test]
fn an_answer_of_the_server_turns_into_that_answer() {
    let second = Duration::from_secs(1);
    for error in [
        RetryError::Op(stale()),
        RetryError::Exhausted { attempts: 5, elapsed: second, last: stale() },
        RetryError::DeadlineExceeded { attempts: 5, elapsed: second, last: Some(stale()) },
    ] {
        let text = format!("{error:?}");
        let kube::Error::Api(status) = turned(error) else { panic!("{text}") };
        assert_eq!((status.code, status.message.as_str()), (409, "the object has been modified"), "{text}");
    }
    // The operation's own error, whatever it is.
    assert!(matches!(turned(RetryError::Op(kube::Error::TlsRequired)), kube::Error::TlsRequired));
}

#[test]
fn what_no_answer_has_ended_keeps_its_text_and_its_class() {
    let second = Duration::from_secs(1);
    let lost = || kube::Error::Service("the connection broke".into());
    for (error, class) in [
        // What was written is not known, which the conflict before it would hide.
        (RetryError::Cancelled { attempts: 1, last: Some(stale()) }, Class::Other),
        (RetryError::DeadlineExceeded { attempts: 0, elapsed: second, last: None }, Class::Other),
        (RetryError::Exhausted { attempts: 2, elapsed: second, last: lost() }, Class::Ambiguous),
    ] {
        let text = error.to_string();
        let turned = turned(error);
        assert_eq!(Class::of(Verb::Put, &turned), class, "{text}");
        assert!(turned.to_string().contains(&text), "{turned}");
        let kube::Error::Service(source) = turned else { panic!("{text}") };
        assert!(
            source.source().is_some_and(<dyn std::error::Error>::is::<RetryError<kube::Error>>),
            "{text}"
        );
    }
}
