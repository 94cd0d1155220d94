//! The queue and the retry budget of a write, tested against the scripted server.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::tests::{Reply, conflict, map, maps, object, ok, options, put_new, verbs, wants};
use super::*;
use crate::freshness::Source;
use crate::options::WriteOptions;
use crate::outcome::{Outcome, WriteError};
use crate::protect::{BudgetLimits, KeyQueue, Protection, RetryBudget, ThrottledBy};

fn protected(protection: Protection) -> WriteOptions {
    options().with_protection(protection)
}

#[tokio::test(start_paused = true)]
async fn writes_of_one_object_run_one_after_another() {
    let queue = KeyQueue::new();
    let options = protected(Protection::default().with_queue(queue.clone()));
    let (api, seen) = maps(vec![ok(map("2", "new")), ok(map("3", "other"))]);
    let (first, second) = tokio::join!(
        put_new(&api, &options),
        update(&api, "m", wants("other")).put().with(&options).outcome(),
    );
    assert_eq!(first.unwrap(), Outcome::Written(object("2", "new")));
    // Without the wait, its read would have been the first request.
    assert_eq!(verbs(&seen), ["PUT", "GET"]);
    assert_eq!(second.unwrap(), Outcome::Unchanged(object("3", "other")));
    assert!(queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn waiting_in_the_queue_ends_when_the_token_is_cancelled() {
    let queue = KeyQueue::new();
    let (api, seen) = maps(vec![]);
    let key = format!("{}/m", api.resource_url());
    let _held = queue.lock(key).await;
    let token = tokio_util::sync::CancellationToken::new();
    let options = protected(Protection::default().with_queue(queue)).with_cancellation(token.clone());
    let write = update(&api, "m", wants("new")).put().with(&options).outcome();
    let (result, ()) = tokio::join!(write, async {
        tokio::time::sleep(Duration::from_millis(5)).await;
        token.cancel();
    });
    assert!(matches!(result, Err(WriteError::Cancelled { attempts: 0, maybe_written: false, .. })));
    assert!(verbs(&seen).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_retry_beyond_the_budget_ends_the_write() {
    let limits = BudgetLimits::new(0, 1).unwrap();
    let budget = RetryBudget::new(limits);
    let options = protected(Protection::default().with_budget(budget.clone()));
    let (api, seen) = maps(vec![conflict()]);
    let failed = put_new(&api, &options).await.unwrap_err();
    assert!(
        matches!(&failed, WriteError::ClientThrottled { by: ThrottledBy::RetryBudget(_), attempts: 1, .. }),
        "{failed:?}"
    );
    assert_eq!(verbs(&seen), ["PUT"]);
    assert_eq!(budget.counts().operations(), 0, "the operation is over");
}

#[tokio::test(start_paused = true)]
async fn a_wait_in_the_queue_past_the_deadline_ends_the_write_and_nothing_is_sent() {
    let queue = KeyQueue::new();
    let (api, seen) = maps(vec![]);
    let _held = queue.lock(format!("{}/m", api.resource_url())).await;
    let budget = RetryBudget::default();
    let options = protected(Protection::default().with_queue(queue).with_budget(budget.clone()));
    let write = update(&api, "m", wants("new")).put().with(&options).outcome();
    let (failed, ()) = tokio::join!(write, async {
        tokio::task::yield_now().await;
        assert_eq!(budget.counts().operations(), 0, "a waiting write is not a running operation");
    });
    let failed = failed.unwrap_err();
    assert!(matches!(
        failed,
        WriteError::ClientThrottled {
            by: ThrottledBy::WaitTimeout(_),
            attempts: 0,
            maybe_written: false,
            ..
        }
    ));
    assert!(verbs(&seen).is_empty());
}

#[tokio::test(start_paused = true)]
async fn no_wait_goes_on_when_the_right_to_write_ends() {
    let second = Duration::from_secs(1);
    // Until the server's own time.
    let throttled = json!({
        "kind": "Status", "status": "Failure", "code": 429, "reason": "TooManyRequests", "message": "no",
        "details": {"retryAfterSeconds": 20},
    });
    let (api, seen) = maps(vec![Reply::Json(429, throttled)]);
    let start = Instant::now();
    let failed = put_new(&api, &options().with_hard_deadline(start + second)).await.unwrap_err();
    assert!(matches!(failed, WriteError::Cancelled { attempts: 1, last: Some(_), .. }), "{failed:?}");
    assert_eq!((verbs(&seen).len(), start.elapsed()), (1, Duration::ZERO));
    // Until the queue is free.
    let queue = KeyQueue::new();
    let (api, seen) = maps(vec![]);
    let _held = queue.lock(format!("{}/m", api.resource_url())).await;
    let options = protected(Protection::default().with_queue(queue)).with_hard_deadline(start + second);
    let failed = put_new(&api, &options).await.unwrap_err();
    assert!(matches!(failed, WriteError::Cancelled { attempts: 0, .. }), "{failed:?}");
    assert!(verbs(&seen).is_empty() && start.elapsed() < second * 2, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_retry_counts_from_its_read_to_the_end_of_its_write() {
    let budget = RetryBudget::default();
    let options = protected(Protection::default().with_budget(budget.clone()));
    let (api, _) = maps(vec![conflict(), ok(map("2", "other")), ok(map("3", "new"))]);
    let mut counted = Vec::new();
    let outcome = update(&api, "m", |map| {
        counted.push(budget.counts().retries());
        wants("new")(map)
    })
    .put()
    .with(&options)
    .from(Source::Copy(object("1", "old")))
    .outcome()
    .await;
    assert_eq!(outcome.unwrap().label(), "written");
    assert_eq!(counted, [0, 1]);
    assert_eq!(budget.counts().retries(), 0);
}
