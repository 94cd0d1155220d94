//! The backoff per object, and what a reconciler returns.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::Status;
use serde_json::json;

use super::*;

fn map(name: &str) -> Arc<ConfigMap> {
    serde_json::from_value(json!({"metadata": {"name": name, "namespace": "ns"}})).map(Arc::new).unwrap()
}

/// Whether `wait` is `nominal`, 20 % more or less.
fn is_about(wait: Duration, nominal: Duration) -> bool {
    wait >= nominal.mul_f64(0.8) && wait <= nominal.mul_f64(1.2)
}

#[test]
fn each_failure_in_a_row_doubles_the_wait_up_to_the_cap_and_objects_are_apart() {
    let backoff = ObjectBackoff::new(Duration::from_secs(1), Duration::from_secs(10)).unwrap();
    for seconds in [1, 2, 4, 8, 10, 10] {
        let wait = backoff.failed(&*map("a"));
        assert!(is_about(wait, Duration::from_secs(seconds)), "{wait:?} is not about {seconds} s");
    }
    assert!(is_about(backoff.failed(&*map("b")), Duration::from_secs(1)));
    for _ in 0..100 {
        assert!(backoff.failed(&*map("a")) <= Duration::from_secs(12), "no number of failures overflows");
    }
}

#[test]
fn waits_differ() {
    let waits: Vec<Duration> =
        (0..20).map(|number| ObjectBackoff::default().failed(&*map(&number.to_string()))).collect();
    assert!(waits.iter().any(|wait| *wait != waits[0]), "{waits:?}");
    assert!(waits.iter().all(|wait| is_about(*wait, BASE)), "{waits:?}");
}

#[tokio::test]
async fn a_success_resets_the_wait_and_is_forgotten() {
    let backoff = ObjectBackoff::new(Duration::from_secs(1), Duration::from_secs(100)).unwrap();
    let mut answers = vec![true, false, false].into_iter();
    let mut reconcile = backoff.reconciler(|_map: Arc<ConfigMap>, _context: Arc<()>| {
        let answer = answers.next().unwrap();
        async move { if answer { Ok(Action::await_change()) } else { Err(fmt::Error) } }
    });
    let policy = backoff.error_policy::<ConfigMap, fmt::Error, ()>();
    backoff.failed(&*map("a"));
    backoff.failed(&*map("a"));
    assert_eq!(reconcile(map("a"), Arc::new(())).await, Ok(Action::await_change()));
    assert!(backoff.failures().is_empty());
    for _ in 0..2 {
        let error = reconcile(map("a"), Arc::new(())).await.unwrap_err();
        assert_ne!(policy(map("a"), &error, Arc::new(())), Action::await_change());
    }
    assert!(is_about(backoff.failed(&*map("a")), Duration::from_secs(4)), "the policy has counted twice");
    backoff.succeeded(&*map("a"));
    assert!(backoff.failures().is_empty());
}

#[test]
fn only_a_conflict_comes_back_by_itself() {
    let conflict = Outcome::<()>::Conflict(Box::new(Status::failure("stale", "Conflict")));
    assert_eq!(conflict.action(), Action::requeue(AFTER_CONFLICT));
    for done in [
        Outcome::Written(()),
        Outcome::Unchanged(()),
        Outcome::AlreadyDone(()),
        Outcome::Gone,
        Outcome::Aborted,
    ] {
        assert_eq!(done.action(), Action::await_change());
    }
}

#[test]
fn a_wait_that_cannot_grow_is_refused() {
    let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
    assert!(ObjectBackoff::new(Duration::ZERO, minute).is_err());
    assert!(ObjectBackoff::new(minute, second).is_err());
    assert!(ObjectBackoff::new(second, second).is_ok());
}
