//! The rate limiter and the circuit breaker of a write, tested against the scripted server.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use tokio::time::Instant;

use super::fault_tests::webhook_fault;
use super::report_tests::recorded;
use super::tests::{body, conflict, error, map, maps, object, ok, options, put_new, verbs, wants};
use super::*;
use crate::freshness::{CachedObject, Newer, Source};
use crate::observe::Observer;
use crate::operation::Operation;
use crate::options::WriteOptions;
use crate::outcome::WriteError;
use crate::policy::RetryPolicy;
use crate::protect::{
    BreakerSettings, BreakerState, CircuitBreaker, KeyQueue, Protection, Rate, RateLimiter, ThrottledBy,
    Transition,
};

fn protected(protection: Protection) -> WriteOptions {
    options().with_protection(protection)
}

/// Records the states of the circuit.
#[derive(Default)]
struct States(Mutex<Vec<BreakerState>>);

impl Observer for States {
    fn circuit(&self, transition: Transition) {
        self.0.lock().unwrap().push(transition.to);
    }
}

#[tokio::test(start_paused = true)]
async fn an_open_circuit_ends_the_write_and_a_conflict_does_not_open_it() {
    let second = Duration::from_secs(1);
    let settings = BreakerSettings::new(2, second, second).unwrap();
    let breaker = CircuitBreaker::new(settings);
    let options = protected(Protection::default().with_breaker(breaker.clone()));
    let (api, _) =
        maps(vec![conflict(), ok(map("2", "x")), conflict(), ok(map("3", "x")), ok(map("4", "new"))]);
    let _ = put_new(&api, &options).await.unwrap();
    assert_eq!(breaker.state(), BreakerState::Closed);

    let (api, seen) = maps(vec![error(503, "ServiceUnavailable"), error(503, "ServiceUnavailable")]);
    let failed = update(&api, "m", wants("new")).put().with(&options).outcome().await.unwrap_err();
    assert!(
        matches!(
            &failed,
            WriteError::ClientThrottled {
                by: ThrottledBy::CircuitBreaker(_),
                attempts: 2,
                last: Some(_),
                ..
            }
        ),
        "{failed:?}"
    );
    assert_eq!((failed.category(), verbs(&seen).len()), ("circuit_open", 2));
    assert_eq!(breaker.state(), BreakerState::Open);
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_is_down_is_retried_and_does_not_open_the_circuit() {
    let second = Duration::from_secs(1);
    let breaker = CircuitBreaker::new(BreakerSettings::new(1, second, second).unwrap());
    let options = protected(Protection::default().with_breaker(breaker.clone()));
    let (api, seen) = maps(vec![webhook_fault(), ok(map("1", "old")), webhook_fault()]);
    let twice = RetryPolicy::default().with_max_attempts(2.try_into().unwrap());
    let options = options.with_policy(twice);
    let failed = put_new(&api, &options).await.unwrap_err();
    assert_eq!((failed.category(), verbs(&seen).len()), ("exhausted", 3));
    assert!(failed.is_admission_fault() && !failed.maybe_written(), "{failed:?}");
    assert_eq!(breaker.state(), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn every_change_of_the_circuit_is_reported() {
    let states = Arc::new(States::default());
    let second = Duration::from_secs(1);
    let breaker = CircuitBreaker::new(BreakerSettings::new(1, second, second).unwrap());
    let options = options()
        .with_observer(Arc::clone(&states) as Arc<dyn Observer>)
        .with_protection(Protection::default().with_breaker(breaker));
    let (api, _) = maps(vec![error(503, "ServiceUnavailable"), ok(map("1", "new"))]);
    let failed = update(&api, "m", wants("new")).put().with(&options).outcome().await.unwrap_err();
    assert_eq!(failed.category(), "circuit_open");
    tokio::time::sleep(second).await;
    let _ = update(&api, "m", wants("new")).put().with(&options).outcome().await.unwrap();
    let expected = [BreakerState::Open, BreakerState::HalfOpen, BreakerState::Closed];
    assert_eq!(*states.0.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn the_limiter_holds_up_the_read_and_not_the_write_after_it() {
    let limiter = RateLimiter::new(Rate::new(10.0, 1).unwrap());
    let options = protected(Protection::default().with_limiter(limiter.clone()));
    let answers = || vec![ok(map("1", "old")), ok(map("2", "new"))];
    let (api, seen) = maps(answers());
    let start = Instant::now();
    let _ = update(&api, "m", wants("new")).put().with(&options).outcome().await.unwrap();
    assert_eq!(verbs(&seen), ["GET", "PUT"]);
    assert_eq!(start.elapsed(), Duration::ZERO);
    // Both requests are paid for: the next read waits for two tokens.
    let (api, _) = maps(answers());
    let _ = update(&api, "m", wants("new")).put().with(&options).outcome().await.unwrap();
    let elapsed = start.elapsed();
    assert!(elapsed >= Duration::from_millis(199) && elapsed < Duration::from_millis(210), "{elapsed:?}");
}

/// Records what was overwritten.
#[derive(Default)]
struct Diary(Mutex<Vec<String>>);

impl Observer for Diary {
    fn overwrote(&self, _operation: &Operation, path: &str) {
        self.0.lock().unwrap().push(path.to_owned());
    }
}

/// A watch whose copy changes while a write waits.
struct Cache(Mutex<ConfigMap>);

impl CachedObject<ConfigMap> for Cache {
    fn latest(&self) -> Option<ConfigMap> {
        Some(self.0.lock().unwrap().clone())
    }

    fn newer(&self, _version: String) -> Newer<'_, ConfigMap> {
        Box::pin(std::future::pending())
    }

    fn wrote(&self, written: &ConfigMap) {
        *self.0.lock().unwrap() = written.clone();
    }
}

#[tokio::test(start_paused = true)]
async fn a_watched_copy_that_waited_for_the_limiter_is_taken_again() {
    let limiter = RateLimiter::new(Rate::new(10.0, 1).unwrap());
    let options = protected(Protection::default().with_limiter(limiter.clone()));
    limiter.acquire().await;
    let cache = Cache(Mutex::new(object("5", "old")));
    let (api, seen) = maps(vec![ok(map("7", "new"))]);
    let write = update(&api, "m", wants("new")).put().with(&options).from(Source::Watched(&cache)).outcome();
    let (result, ()) = tokio::join!(write, async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        *cache.0.lock().unwrap() = object("6", "old");
    });
    assert_eq!(result.unwrap().label(), "written");
    assert_eq!(verbs(&seen), ["PUT"]);
    assert_eq!(body(&seen, 0)["metadata"]["resourceVersion"], "6");
    // One request, one token.
    assert_eq!(limiter.try_take().unwrap_err(), Duration::from_millis(100));
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_waited_for_the_limiter_is_read_again() {
    let limiter = RateLimiter::new(Rate::new(10.0, 1).unwrap());
    let options = protected(Protection::default().with_limiter(limiter.clone()));
    let (api, seen) = maps(vec![ok(map("6", "other")), ok(map("7", "new"))]);
    limiter.acquire().await;
    let copy = object("5", "old");
    let written = update(&api, "m", wants("new")).put().with(&options).from(&copy).outcome().await.unwrap();
    assert_eq!(written.label(), "written");
    assert_eq!(verbs(&seen), ["GET", "PUT"]);
    assert_eq!(body(&seen, 1)["metadata"]["resourceVersion"], "6");
    // Without a wait, the copy is what is written from.
    let (api, seen) = maps(vec![ok(map("7", "new"))]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let written = update(&api, "m", wants("new")).put().with(&options).from(&copy).outcome().await.unwrap();
    assert_eq!(written.label(), "written");
    assert_eq!(verbs(&seen), ["PUT"]);
}

#[tokio::test(start_paused = true)]
async fn a_token_is_given_back_when_another_writer_reached_the_goal_during_the_wait() {
    let limiter = RateLimiter::new(Rate::new(10.0, 1).unwrap());
    let options = protected(Protection::default().with_limiter(limiter.clone()));
    limiter.acquire().await;
    let cache = Cache(Mutex::new(object("5", "old")));
    let (api, seen) = maps(vec![]);
    let write = update(&api, "m", wants("new")).put().with(&options).from(Source::Watched(&cache)).outcome();
    let (result, ()) = tokio::join!(write, async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        *cache.0.lock().unwrap() = object("6", "new");
    });
    assert_eq!((result.unwrap().label(), verbs(&seen).len()), ("unchanged", 0));
    assert_eq!(limiter.try_take(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_decision_that_was_not_sent_overwrites_nothing() {
    let diary = Arc::new(Diary::default());
    let limiter = RateLimiter::new(Rate::new(10.0, 1).unwrap());
    let options = protected(Protection::default().with_limiter(limiter.clone()))
        .with_observer(Arc::clone(&diary) as Arc<dyn Observer>);
    limiter.acquire().await;
    let cache = Cache(Mutex::new(object("5", "old")));
    let (api, _) = maps(vec![ok(map("7", "new"))]);
    let write = update(&api, "m", wants("new")).put().with(&options).from(Source::Watched(&cache)).outcome();
    let (result, ()) = tokio::join!(write, async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        *cache.0.lock().unwrap() = object("6", "other");
    });
    assert_eq!(result.unwrap().label(), "written");
    assert!(diary.0.lock().unwrap().is_empty());

    // One that was sent and refused is the one that is compared with, also after a wait.
    let cache = Cache(Mutex::new(object("5", "old")));
    let (api, _) = maps(vec![conflict(), ok(map("6", "other")), ok(map("7", "new"))]);
    let write = update(&api, "m", wants("new")).put().with(&options).from(Source::Watched(&cache)).outcome();
    assert_eq!(write.await.unwrap().label(), "written");
    assert_eq!(*diary.0.lock().unwrap(), ["/data/k"]);
}

#[tokio::test(start_paused = true)]
async fn a_watched_copy_that_is_as_wanted_does_not_wait_for_the_limiter() {
    let limiter = RateLimiter::new(Rate::new(10.0, 1).unwrap());
    let options = protected(Protection::default().with_limiter(limiter.clone()));
    limiter.acquire().await;
    let cache = Cache(Mutex::new(object("5", "new")));
    let (api, seen) = maps(vec![]);
    let start = Instant::now();
    let same = update(&api, "m", wants("new")).put().with(&options).from(Source::Watched(&cache)).outcome();
    assert_eq!(same.await.unwrap().label(), "unchanged");
    assert_eq!((verbs(&seen).len(), start.elapsed()), (0, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn waiting_for_permission_and_waiting_between_attempts_are_reported_separately() {
    let (diary, options) = recorded();
    let limiter = RateLimiter::new(Rate::new(10.0, 1).unwrap());
    let queue = KeyQueue::new();
    let (api, _) = maps(vec![ok(map("1", "old")), ok(map("2", "new"))]);
    limiter.acquire().await;
    let held = queue.lock(format!("{}/m", api.resource_url())).await;
    let options = options.with_protection(Protection::default().with_limiter(limiter).with_queue(queue));
    let write = update(&api, "m", wants("new")).put().with(&options).outcome();
    let (result, ()) = tokio::join!(write, async {
        tokio::time::sleep(Duration::from_millis(40)).await;
        drop(held);
    });
    assert_eq!(result.unwrap().label(), "written");
    let end = diary.ends.lock().unwrap().pop().unwrap();
    assert_eq!(end.waited, Duration::ZERO);
    assert!(end.queued >= Duration::from_millis(99) && end.queued < Duration::from_millis(110), "{end:?}");
}

#[tokio::test(start_paused = true)]
async fn time_spent_at_the_rate_limiter_does_not_widen_the_window_after_a_conflict() {
    let (diary, options) = recorded();
    let limiter = RateLimiter::new(Rate::new(0.5, 1).unwrap());
    let options = options.with_protection(Protection::default().with_limiter(limiter.clone()));
    // The only token is taken: the first read waits two seconds, and the one after the conflict for two tokens.
    let _ = limiter.acquire().await;
    let (api, _) = maps(vec![ok(map("1", "old")), conflict(), ok(map("2", "x")), ok(map("3", "new"))]);
    let _ = put_new(&api, &options).await.unwrap();
    let end = diary.ends.lock().unwrap().pop().unwrap();
    // The scripted server answers at once: the window is one and a half times the shortest cycle, a millisecond.
    assert!(end.waited <= Duration::from_millis(3) && end.queued >= Duration::from_millis(5_900), "{end:?}");
}
