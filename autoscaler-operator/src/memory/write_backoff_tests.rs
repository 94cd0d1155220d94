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
    Refusal { problem: problem.to_owned(), is_final: true, decision: None }
}

fn waits(backoff: &WriteBackoff, object: &ObjectMeta, write: Write, now: Duration) -> bool {
    backoff.waiting(slice::from_ref(object).iter(), now).refusal(object, write).is_some()
}

#[test]
fn the_pause_doubles_up_to_a_minute_and_belongs_to_one_write_of_one_object() {
    let (mut backoff, a, b) = (WriteBackoff::default(), object("a"), object("b"));
    let mut now = MS(0);
    for expected in [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 51_200, 60_000, 60_000] {
        assert_eq!(backoff.refused(&a, Write::Growth, refusal("no"), now, 1.0), MS(expected));
        assert_eq!(backoff.next(), Some(now + MS(expected)));
        assert!(waits(&backoff, &a, Write::Growth, now + MS(expected - 1)));
        assert!(!waits(&backoff, &a, Write::Growth, now + MS(expected)));
        for (object, write) in [(&b, Write::Growth), (&a, Write::Removal), (&a, Write::Status)] {
            assert!(!waits(&backoff, object, write, now));
        }
        now += MS(expected);
    }
    backoff.over(&a, Write::Growth);
    assert_eq!(backoff.refused(&a, Write::Growth, refusal("no"), now, 1.0), MS(100), "a success ends it");
}

#[test]
fn an_object_that_changes_is_tried_at_once_and_our_own_status_is_no_change() {
    let mut backoff = WriteBackoff::default();
    let before = object("a");
    for _ in 0..10 {
        backoff.refused(&before, Write::Growth, refusal("no"), MS(0), 1.0);
    }
    let changed = |change: fn(&mut ObjectMeta)| {
        let mut now = object("a");
        change(&mut now);
        !waits(&backoff, &now, Write::Growth, MS(1))
    };
    assert!(!changed(|object| object.resource_version = Some("2".into())));
    assert!(!changed(|object| object.managed_fields = Some(vec![])));
    assert!(changed(|object| object.generation = Some(2)));
    assert!(changed(|object| object.labels = Some([("team".into(), "b".into())].into())));
    assert!(changed(|object| object.annotations = Some([("approved".into(), "yes".into())].into())));
    // It does not count as a success: the backoff continues to grow.
    let mut now = object("a");
    now.generation = Some(2);
    assert_eq!(backoff.refused(&now, Write::Growth, refusal("no"), MS(1), 1.0), MS(60_000));
    assert!(waits(&backoff, &now, Write::Growth, MS(2)));
}

#[test]
fn a_refusal_is_forgotten_when_it_is_due_and_there_is_nothing_to_write_any_more() {
    let (mut backoff, a) = (WriteBackoff::default(), object("a"));
    backoff.refused(&a, Write::Growth, refusal("no"), MS(0), 1.0);
    backoff.passed(MS(99));
    assert_eq!(backoff.len(), 1);
    // A pass that began when it was due, and was refused again.
    backoff.refused(&a, Write::Growth, refusal("no"), MS(105), 1.0);
    backoff.passed(MS(100));
    assert_eq!(backoff.next(), Some(MS(305)));
    // A pass that wrote nothing.
    backoff.passed(MS(305));
    assert!(backoff.len() == 0 && backoff.next().is_none());
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
    let refusal = Refusal { problem: "the budget is spent".into(), is_final: true, decision };
    backoff.refused(&grown.object.metadata, Write::of(grown), refusal, MS(0), 1.0);
    (cluster, backoff, name)
}

fn waiting(cluster: &TestCluster, backoff: &WriteBackoff, now: Duration) -> Waiting {
    backoff.waiting(cluster.observed.pools.iter().map(|pool| &pool.metadata), now)
}

#[test]
fn pods_go_to_another_pool_while_one_cannot_be_written_and_its_status_keeps_what_was_refused() {
    let (mut cluster, backoff, refused) = refused_world();
    let other = if refused == "a" { "b" } else { "a" };
    let now = waiting(&cluster, &backoff, MS(50));
    cluster.observed.closed_pools = now.closed_pools();
    let mut plan = plan_for_cluster(&cluster.observed);
    assert_eq!((plan.desired(&refused), plan.desired(other)), (0, 1));
    now.stand_in(&mut plan);
    assert_eq!((plan.desired(&refused), plan.desired(other)), (1, 1));
    assert_eq!(plan.pool(&refused).triggering_pods, 1);

    // When it is due, the pool is treated like the others.
    cluster.observed.closed_pools = waiting(&cluster, &backoff, MS(100)).closed_pools();
    assert_eq!(plan_for_cluster(&cluster.observed).desired(&refused), 1);
}

#[test]
fn a_pod_without_another_pool_is_unschedulable_because_its_pool_cannot_be_written() {
    let (mut cluster, backoff, refused) = refused_world();
    cluster.observed.pools.retain(|pool| pool.metadata.name.as_ref() == Some(&refused));
    cluster.observed.closed_pools = waiting(&cluster, &backoff, MS(50)).closed_pools();
    let plan = plan_for_cluster(&cluster.observed);
    assert_eq!(plan.results(), ["no WriteRefused"]);
    // Nodes that were requested before still come.
    let pool = json!({ "metadata": { "uid": "1" }, "spec": { "replicas": 1 } });
    let mut cluster =
        TestCluster::new().autoscaler("x", json!({})).pool("a", pool).pending("p", 1, "4", &json!({}));
    cluster.observed.closed_pools = [("1".to_owned(), "no".to_owned())].into();
    assert_eq!(plan_for_cluster(&cluster.observed).results(), ["fits upcoming ns/a"]);
}

#[test]
fn an_answer_that_was_lost_closes_no_pool_and_one_that_never_comes_does() {
    let (mut backoff, pool) = (WriteBackoff::default(), object("a"));
    let lost = || Refusal { is_final: false, ..refusal("no answer") };
    for (failures, closed) in [(1, false), (2, false), (3, true)] {
        backoff.refused(&pool, Write::Growth, lost(), Duration::ZERO, 0.5);
        let waiting = backoff.waiting([&pool].into_iter(), Duration::ZERO);
        assert!(waiting.refusal(&pool, Write::Growth).is_some(), "it waits all the same");
        assert_eq!(!waiting.closed_pools().is_empty(), closed, "{failures}");
    }
}
