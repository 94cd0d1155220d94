use std::slice;

use planner::fixtures::{Read as _, TestCluster};
use planner::plan_for_cluster;
use serde_json::json;

use super::*;

const MS: fn(u64) -> Duration = Duration::from_millis;

fn object(uid: &str) -> ObjectMeta {
    ObjectMeta { uid: Some(uid.to_owned()), generation: Some(1), ..ObjectMeta::default() }
}

fn refusal(problem: &str) -> Refusal {
    Refusal { problem: problem.to_owned(), is_denied: true, decision: None }
}

fn waits(backoff: &mut WriteBackoff, object: &ObjectMeta, write: Write, now: Duration) -> bool {
    backoff.waiting(slice::from_ref(object).iter(), now).refusal(object, write).is_some()
}

#[test]
fn the_pause_doubles_up_to_a_minute_and_belongs_to_one_write_of_one_object() {
    let (mut backoff, a, b) = (WriteBackoff::default(), object("a"), object("b"));
    let mut now = MS(0);
    for expected in [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 51_200, 60_000, 60_000] {
        assert_eq!(backoff.refused(&a, Write::Growth, refusal("no"), now, 1.0), MS(expected));
        assert_eq!(backoff.next(now), Some(now + MS(expected)));
        assert!(waits(&mut backoff, &a, Write::Growth, now + MS(expected - 1)));
        assert!(!waits(&mut backoff, &a, Write::Growth, now + MS(expected)));
        for (object, write) in [(&b, Write::Growth), (&a, Write::Removal), (&a, Write::Status)] {
            assert!(!waits(&mut backoff, object, write, now));
        }
        now += MS(expected);
    }
    backoff.over(&a, Write::Growth);
    assert_eq!(backoff.refused(&a, Write::Growth, refusal("no"), now, 1.0), MS(100), "a success ends it");
}

#[test]
fn an_object_that_changes_is_tried_within_seconds_and_our_own_status_is_no_change() {
    let due = |change: fn(&mut ObjectMeta)| {
        let mut backoff = WriteBackoff::default();
        for _ in 0..10 {
            backoff.refused(&object("a"), Write::Growth, refusal("no"), MS(0), 1.0);
        }
        let mut now = object("a");
        change(&mut now);
        assert!(waits(&mut backoff, &now, Write::Growth, MS(1)), "never at once");
        backoff.next(MS(1)).unwrap()
    };
    assert_eq!(due(|object| object.resource_version = Some("2".into())), MS(51_200));
    assert_eq!(due(|object| object.managed_fields = Some(vec![])), MS(51_200));
    assert_eq!(due(|object| object.generation = Some(2)), MS(5000));
    assert_eq!(due(|object| object.labels = Some([("team".into(), "b".into())].into())), MS(5000));
    assert_eq!(due(|object| object.annotations = Some([("approved".into(), "yes".into())].into())), MS(5000));
}

#[test]
fn an_object_that_changes_all_the_time_is_tried_every_five_seconds_at_most() {
    let (mut backoff, mut a) = (WriteBackoff::default(), object("a"));
    let mut tried = Vec::new();
    for second in 0..120 {
        let now = Duration::from_secs(second);
        a.annotations = Some([("heartbeat".into(), second.to_string())].into());
        if !waits(&mut backoff, &a, Write::Growth, now) {
            backoff.refused(&a, Write::Growth, refusal("no"), now, 1.0);
            tried.push(second);
        }
    }
    assert_eq!(tried[..6], [0, 1, 2, 3, 4, 6], "the first pauses are shorter anyway");
    assert!(tried[6..].windows(2).all(|pair| pair[1] - pair[0] >= 4), "{tried:?}");
    assert!(tried.len() < 35, "{tried:?}");
    // A change does not count as a success: without one, the pause is as long as it would have been.
    let last = Duration::from_secs(120);
    assert_eq!(backoff.refused(&a, Write::Growth, refusal("no"), last, 1.0), MS(60_000));
}

#[test]
fn a_refusal_is_forgotten_when_it_is_due_and_there_is_nothing_to_write_any_more() {
    let (mut backoff, a) = (WriteBackoff::default(), object("a"));
    backoff.refused(&a, Write::Growth, refusal("no"), MS(0), 1.0);
    backoff.passed(MS(99));
    assert_eq!(backoff.len(MS(99)), 1);
    // A pass that began when it was due, and was refused again.
    backoff.refused(&a, Write::Growth, refusal("no"), MS(105), 1.0);
    backoff.passed(MS(100));
    assert_eq!(backoff.next(MS(100)), Some(MS(305)));
    // A pass that wrote nothing.
    backoff.passed(MS(305));
    assert!(backoff.0.is_empty() && backoff.len(MS(305)) == 0 && backoff.next(MS(305)).is_none());
}

/// A cluster with two pools, a pod that fits on nodes of both, and the refusal of the pool that it was planned onto.
fn refused_world() -> (TestCluster, WriteBackoff, String) {
    let identified = |uid: &str| json!({ "metadata": { "uid": uid } });
    let cluster =
        TestCluster::new().autoscaler("x", json!({})).pool("a", identified("1")).pool("b", identified("2"));
    let cluster = cluster.pending("p", 1, "4", &json!({}));
    let plan = plan_for_cluster(&cluster.observed);
    let grown = plan.pools.iter().find(|decision| decision.changes_replicas()).unwrap();
    let name = grown.object.metadata.name.clone().unwrap();
    let mut backoff = WriteBackoff::default();
    let decision = Some(Box::new(grown.clone()));
    let refusal = Refusal { problem: "the budget is spent".into(), is_denied: true, decision };
    backoff.refused(&grown.object.metadata, Write::of(grown), refusal, MS(0), 1.0);
    (cluster, backoff, name)
}

fn waiting(cluster: &TestCluster, backoff: &mut WriteBackoff, now: Duration) -> Waiting {
    backoff.waiting(cluster.observed.pools.iter().map(|pool| &pool.metadata), now)
}

#[test]
fn pods_go_to_another_pool_while_one_cannot_be_written_and_its_status_keeps_what_was_refused() {
    let (mut cluster, mut backoff, refused) = refused_world();
    let other = if refused == "a" { "b" } else { "a" };
    let now = waiting(&cluster, &mut backoff, MS(50));
    cluster.observed.closed_pools = now.closed_pools();
    let mut plan = plan_for_cluster(&cluster.observed);
    assert_eq!((plan.desired(&refused), plan.desired(other)), (0, 1));
    now.stand_in(&mut plan);
    assert_eq!((plan.desired(&refused), plan.desired(other)), (1, 1));
    assert_eq!(plan.pool(&refused).triggering_pods, 1);

    // When it is due, the pool is treated like the others.
    cluster.observed.closed_pools = waiting(&cluster, &mut backoff, MS(100)).closed_pools();
    assert_eq!(plan_for_cluster(&cluster.observed).desired(&refused), 1);
}

#[test]
fn a_pod_without_another_pool_is_unschedulable_because_its_pool_cannot_be_written() {
    let (mut cluster, mut backoff, refused) = refused_world();
    cluster.observed.pools.retain(|pool| pool.metadata.name.as_ref() == Some(&refused));
    cluster.observed.closed_pools = waiting(&cluster, &mut backoff, MS(50)).closed_pools();
    let plan = plan_for_cluster(&cluster.observed);
    assert_eq!(plan.results(), ["no WriteRefused"]);
    // Nodes that were requested before still come.
    let pool = json!({ "metadata": { "uid": "1" }, "spec": { "replicas": 1 } });
    let mut cluster =
        TestCluster::new().autoscaler("x", json!({})).pool("a", pool).pending("p", 1, "4", &json!({}));
    cluster.observed.closed_pools = [("1".to_owned(), "no".to_owned())].into();
    assert_eq!(plan_for_cluster(&cluster.observed).results(), ["fits upcoming ns/a"]);
}

/// When the attempts at a growth end that fail at once and are repeated when they are due, and whether the pool is closed
/// after each.
fn attempts(backoff: &mut WriteBackoff, from: Duration, refusal: &Refusal) -> Vec<(Duration, bool)> {
    let (pool, mut now, mut attempts) = (object("a"), from, Vec::new());
    for _ in 0..11 {
        let due = now + backoff.refused(&pool, Write::Growth, refusal.clone(), now, 0.0);
        let waiting = backoff.waiting([&pool].into_iter(), now);
        assert!(waiting.refusal(&pool, Write::Growth).is_some(), "it waits all the same");
        assert_eq!(backoff.closes(&pool), !waiting.closed_pools().is_empty());
        attempts.push((now, backoff.closes(&pool)));
        now = due;
    }
    attempts
}

#[test]
fn a_denial_closes_a_pool_at_once_and_any_other_fault_when_it_has_lasted() {
    let denied = attempts(&mut WriteBackoff::default(), MS(0), &refusal("no"));
    assert!(denied.iter().all(|(_, closed)| *closed));
    let fault = Refusal { is_denied: false, ..refusal("no answer") };
    let failed = attempts(&mut WriteBackoff::default(), MS(7000), &fault);
    let first_closed = failed.iter().find(|(_, closed)| *closed).unwrap().0;
    assert_eq!(first_closed, MS(37_000), "the attempt that tells comes when the time is over: {failed:?}");
    assert!(failed.iter().all(|(at, closed)| *closed == (*at >= first_closed)));

    // A denial between faults counts by itself.
    let (mut backoff, pool) = (WriteBackoff::default(), object("a"));
    for (failure, closes) in [(&fault, false), (&refusal("no"), true), (&fault, false)] {
        backoff.refused(&pool, Write::Growth, failure.clone(), MS(100), 1.0);
        assert_eq!(backoff.closes(&pool), closes, "{}", failure.problem);
    }
}

#[test]
fn time_alone_does_not_make_a_fault_a_lasting_one() {
    let (mut backoff, pool) = (WriteBackoff::default(), object("a"));
    let fault = Refusal { is_denied: false, ..refusal("no answer") };
    for (second, closes) in [(0, false), (100, false), (101, true)] {
        backoff.refused(&pool, Write::Growth, fault.clone(), Duration::from_secs(second), 1.0);
        assert_eq!(backoff.closes(&pool), closes, "{second}");
    }
}

#[test]
fn a_fault_that_lasted_is_remembered_for_the_next_scale_up_but_is_not_waited_for() {
    let pool = object("a");
    let fault = Refusal { is_denied: false, ..refusal("no answer") };
    for (after, closes) in [(60, true), (200, true), (400, false)] {
        let mut backoff = WriteBackoff::default();
        let tried = attempts(&mut backoff, MS(0), &fault).last().unwrap().0;
        let now = tried + Duration::from_secs(after);
        backoff.passed(now);
        assert_eq!((backoff.next(now), backoff.len(now)), (None, 0));
        assert!(!waits(&mut backoff, &pool, Write::Growth, now), "it is tried");
        backoff.refused(&pool, Write::Growth, fault.clone(), now, 1.0);
        assert_eq!(backoff.closes(&pool), closes, "{after} s");
        backoff.over(&pool, Write::Growth);
        backoff.refused(&pool, Write::Growth, fault.clone(), now, 1.0);
        assert!(!backoff.closes(&pool), "a success ends it");
    }
}
