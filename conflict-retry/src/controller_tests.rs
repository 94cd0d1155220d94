use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::{ObjectMeta, Status};
use kube::runtime::{Controller, watcher};
use kube::{Api, Client};
use proptest::prelude::*;

use super::*;
use crate::freshness::ChangeKind;
use crate::outcome::WriteError;

const S: Duration = Duration::from_secs(1);

fn map(name: &str, uid: &str, version: &str) -> Arc<ConfigMap> {
    let metadata = ObjectMeta {
        namespace: Some("default".into()),
        name: Some(name.into()),
        uid: Some(uid.into()),
        resource_version: Some(version.into()),
        ..ObjectMeta::default()
    };
    Arc::new(ConfigMap { metadata, ..ConfigMap::default() })
}

fn failing(base: Duration, cap: Duration) -> Failing {
    Failing { base, cap, objects: HashMap::new(), swept: Instant::now() }
}

/// The waits of the first `count` failures without jitter.
fn waits(base: Duration, cap: Duration, count: usize) -> Vec<Duration> {
    let mut failing = failing(base, cap);
    (0..count).map(|_| failing.failed(key(&*map("a", "1", "1")), Instant::now(), 0.0)).collect()
}

/// Fails if the object's data say so.
async fn reconcile(object: Arc<ConfigMap>, _context: Arc<()>) -> Result<Action, WriteError> {
    tokio::task::yield_now().await;
    if object.data.is_some() {
        Err(WriteError::from(crate::Refusal::NoName))
    } else {
        Ok(Action::await_change())
    }
}

#[test]
fn a_wait_doubles_with_each_failure_up_to_the_cap() {
    assert_eq!(waits(S, 5 * S, 5), [S, 2 * S, 4 * S, 5 * S, 5 * S]);
    assert_eq!(waits(S, S, 2), [S, S]);
    let cap = Duration::MAX;
    assert_eq!(waits(S, cap, 40)[39], cap, "an overflow is the cap");
}

#[test]
fn objects_fail_apart_and_start_anew_after_a_success() {
    let backoff = ObjectBackoff::new(S, 100 * S).unwrap();
    let (first, second, again) = (map("a", "1", "1"), map("b", "2", "1"), map("a", "3", "1"));
    for _ in 0..3 {
        backoff.failed(&*first);
    }
    backoff.failed(&*second);
    assert_eq!((backoff.failures(&*first), backoff.failures(&*second)), (3, 1));
    assert_eq!(backoff.failures(&*again), 0, "another object of the same name");
    backoff.clone().succeeded(&*first);
    assert_eq!((backoff.failures(&*first), backoff.failures(&*second)), (0, 1));
    assert!(backoff.failed(&*first) <= S);
    backoff.succeeded(&*first);
    backoff.succeeded(&*second);
    assert!(backoff.lock().objects.is_empty(), "what succeeds is forgotten");
}

#[test]
fn the_failures_of_a_newer_version_are_those_of_the_same_object() {
    let backoff = ObjectBackoff::default();
    backoff.failed(&*map("a", "1", "1"));
    assert_eq!(backoff.failures(&*map("a", "1", "2")), 1);
}

#[test]
fn an_object_that_is_not_heard_of_any_more_is_forgotten() {
    let mut failing = failing(S, 5 * S);
    let start = failing.swept;
    failing.failed(key(&*map("deleted", "1", "1")), start, 0.0);
    failing.failed(key(&*map("kept", "2", "1")), start + KEPT / 2, 0.0);
    assert_eq!(failing.objects.len(), 2);
    assert_eq!(failing.failed(key(&*map("kept", "2", "1")), start + KEPT, 0.0), 2 * S);
    assert_eq!(failing.objects.len(), 1);
}

#[test]
fn waits_that_make_no_sense_are_refused() {
    assert_eq!(ObjectBackoff::new(Duration::ZERO, S).unwrap_err(), InvalidObjectBackoff::NoWait);
    let above = InvalidObjectBackoff::AboveCap { base: 2 * S, cap: S };
    assert_eq!(ObjectBackoff::new(2 * S, S).unwrap_err(), above);
    ObjectBackoff::new(S, S).unwrap();
}

proptest! {
    #[test]
    fn jitter_shortens_a_wait_by_at_most_a_fifth(
        millis in 1_u64..10_000, more in 0_u64..1_000_000, count in 1_usize..40, random in 0.0_f64..1.0,
    ) {
        let base = Duration::from_millis(millis);
        let cap = base + Duration::from_millis(more);
        let mut jittered = failing(base, cap);
        for plain in waits(base, cap, count) {
            let wait = jittered.failed(key(&*map("a", "1", "1")), Instant::now(), random);
            prop_assert!(wait <= plain && plain <= cap);
            prop_assert!(wait + Duration::from_nanos(2) >= plain.mul_f64(1.0 - JITTER));
        }
    }
}

#[tokio::test]
async fn the_error_policy_counts_and_a_reconcile_that_succeeds_resets() {
    let backoff = ObjectBackoff::new(S, 100 * S).unwrap();
    let mut reconciler = backoff.reconciler(reconcile);
    let policy = backoff.error_policy::<ConfigMap, WriteError, ()>();
    let mut failing = Arc::unwrap_or_clone(map("a", "1", "1"));
    failing.data = Some(std::collections::BTreeMap::new());
    let failing = Arc::new(failing);
    for failures in 1..=3 {
        let error = reconciler(failing.clone(), Arc::new(())).await.unwrap_err();
        let action = policy(failing.clone(), &error, Arc::new(()));
        assert_ne!(action, Action::await_change());
        assert_eq!(backoff.failures(&*failing), failures);
    }
    assert_eq!(reconciler(map("b", "2", "1"), Arc::new(())).await.unwrap(), Action::await_change());
    assert_eq!(backoff.failures(&*failing), 3, "another object's success");
    reconciler(map("a", "1", "2"), Arc::new(())).await.unwrap();
    assert_eq!(backoff.failures(&*failing), 0);
}

#[tokio::test]
async fn a_copy_older_than_our_own_write_is_not_reconciled() {
    let (writes, backoff) = (Expectations::new("configmaps"), ObjectBackoff::default());
    let mut reconciler = fresh_only(&writes, backoff.reconciler(reconcile));
    let (old, written) = (map("a", "1", "9"), map("a", "1", "10"));
    backoff.failed(&*old);
    writes.wrote(&*written, ChangeKind::Updated);
    assert_eq!(reconciler(old.clone(), Arc::new(())).await.unwrap(), Action::requeue(LOOK_AGAIN));
    assert_eq!(backoff.failures(&*old), 1, "what was not reconciled has not succeeded");
    assert_eq!(writes.pending().len(), 1);
    assert_eq!(reconciler(written, Arc::new(())).await.unwrap(), Action::await_change());
    assert_eq!(backoff.failures(&*old), 0);
    assert!(writes.pending().is_empty(), "the copy tells that the watch has brought the write");
}

#[test]
fn only_a_conflict_is_looked_at_again() {
    let met = [Outcome::Written(()), Outcome::Unchanged(()), Outcome::AlreadyDone(())];
    for outcome in met.into_iter().chain([Outcome::Gone, Outcome::Aborted]) {
        assert_eq!(outcome.action(), Action::await_change(), "{outcome:?}");
    }
    let conflict = Outcome::<()>::Conflict(Box::new(Status::failure("changed", "Conflict").with_code(409)));
    assert_eq!(conflict.action(), Action::requeue(LOOK_AGAIN));
}

/// Not run: that kube's controller takes both, with nothing to spell out, and can be spawned.
#[expect(dead_code, reason = "only its types are of interest")]
fn a_controller_takes_them(client: &Client, backoff: &ObjectBackoff, writes: &Expectations) {
    fn spawned<T: Send>(_: T) {}
    let maps = || Api::<ConfigMap>::all(client.clone());
    let controller = || Controller::new(maps(), watcher::Config::default());
    spawned(controller().run(backoff.reconciler(reconcile), backoff.error_policy(), Arc::new(())));
    let fresh = fresh_only(writes, backoff.reconciler(reconcile));
    spawned(controller().run(fresh, backoff.error_policy(), Arc::new(())));
}
