//! The events on pods and autoscalers, pass by pass.

use k8s_openapi::jiff::SignedDuration;
use planner::fixtures::TestCluster;
use serde_json::json;

use super::*;

/// A world in which `count` pods request more than a node has.
fn crowded(count: usize, cpu: &str) -> TestCluster {
    let mut cluster = TestCluster::eager().pool("a", json!({})).pending("p", count, cpu, &json!({}));
    for pod in &mut cluster.observed.pods {
        let pod = std::sync::Arc::make_mut(pod);
        let name = pod.key().1.to_owned();
        pod.identify(&name, &name);
    }
    cluster
}

fn new(
    published: &EventDeduplicator,
    cluster: &TestCluster,
    outcome: &PoolOutcome,
) -> (usize, Vec<NewEvent>) {
    let outcomes = [match outcome {
        PoolOutcome::Scaled => PoolOutcome::Scaled,
        _ => PoolOutcome::Settled,
    }];
    let events = published.new_events(&cluster.observed, &cluster.plan(), &outcomes);
    let (pods, others): (Vec<_>, Vec<_>) =
        events.into_iter().partition(|event| event.regarding.kind.as_deref() == Some("Pod"));
    (pods.len(), others)
}

fn later(cluster: &mut TestCluster, seconds: i64) {
    cluster.observed.now = cluster.observed.now.checked_add(SignedDuration::from_secs(seconds)).unwrap();
}

#[test]
fn a_pod_gets_one_event_about_its_reason_and_another_when_the_reason_changes() {
    let published = EventDeduplicator::default();
    let mut cluster = crowded(1, "64");
    assert_eq!(new(&published, &cluster, &PoolOutcome::Settled).0, 1);
    later(&mut cluster, 300);
    assert_eq!(new(&published, &cluster, &PoolOutcome::Settled).0, 0);
    let mut changed = crowded(1, "lots");
    changed.observed.now = cluster.observed.now;
    assert_eq!(new(&published, &changed, &PoolOutcome::Settled).0, 1);
    assert_eq!(new(&published, &changed, &PoolOutcome::Settled).0, 0);
}

#[test]
fn a_pod_that_the_scheduler_refuses_for_volume_limits_gets_an_event_that_names_them() {
    for (message, note) in [
        ("0/1 nodes are available: 1 Insufficient cpu.", None),
        (
            "0/1 nodes are available: 1 node(s) exceed max volume count.",
            Some("pod didn't trigger scale-up: 1 VolumeLimitsNotPlanned (ns/a)"),
        ),
    ] {
        let condition = json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message });
        let cluster = TestCluster::eager()
            .pool("a", json!({ "spec": { "replicas": 1 } }))
            .node("a", "n", json!({}))
            .pending("p", 1, "1", &json!({ "status": { "conditions": [condition] } }));
        let outcomes = [PoolOutcome::Settled];
        let events = EventDeduplicator::default().new_events(&cluster.observed, &cluster.plan(), &outcomes);
        assert_eq!(events.first().map(|event| event.note.as_str()), note, "{message}");
    }
}

#[test]
fn a_hundred_pods_a_minute_get_an_event_and_the_autoscaler_gets_the_number_of_all() {
    let published = EventDeduplicator::default();
    let mut cluster = crowded(250, "64");
    let (pods, others) = new(&published, &cluster, &PoolOutcome::Settled);
    assert_eq!(pods, 100);
    assert_eq!(
        others.iter().map(|event| event.note.as_str()).collect::<Vec<_>>(),
        ["250 pods didn't trigger scale-up, too many for an event each: 250 InsufficientCpu; run \
          `autoscaler-operator explain pod NAME` for the reason of one pod"]
    );
    assert_eq!(others[0].regarding.kind.as_deref(), Some("NodePoolAutoscaler"));
    // Passes of the same minute add nothing.
    assert_eq!(new(&published, &cluster, &PoolOutcome::Settled), (0, vec![]));
    later(&mut cluster, 59);
    assert_eq!(new(&published, &cluster, &PoolOutcome::Settled), (0, vec![]));
    // The next hundred follow later; an unchanged number of pods is not reported again.
    later(&mut cluster, 1);
    assert_eq!(new(&published, &cluster, &PoolOutcome::Settled), (100, vec![]));
    later(&mut cluster, 60);
    assert_eq!(new(&published, &cluster, &PoolOutcome::Settled), (50, vec![]));
    later(&mut cluster, 60);
    assert_eq!(new(&published, &cluster, &PoolOutcome::Settled), (0, vec![]));
}

#[test]
fn pods_that_a_pool_was_scaled_up_for_get_an_event_only_when_the_replicas_were_written() {
    let cluster = crowded(3, "1");
    assert_eq!(new(&EventDeduplicator::default(), &cluster, &PoolOutcome::Settled).0, 0);
    assert_eq!(new(&EventDeduplicator::default(), &cluster, &PoolOutcome::Scaled).0, 3);
}
