use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::client::Body;
use kube::core::DynamicObject;
use serde_json::{Value, json};
use shared_crds::NodePool;
use shared_crds::conditions::{ConditionType, Reason, Statement};
use shared_crds::v1alpha1::{AutoscalingStatus, NodePoolStatus};

use super::*;
use crate::clock::Clock;
use crate::fence::Fenced;
use crate::freshness::Freshness;
use crate::metrics::Metrics;
use crate::testing::{Asked, Log, failure, lines, server};

const STATUS: &str = "/apis/tandem.dev/v1alpha1/namespaces/ns/nodepools/p/status";
const STRATEGIES: [WriteStrategy; 4] =
    [WriteStrategy::Lazy, WriteStrategy::Retry, WriteStrategy::Patch, WriteStrategy::Guarded];

fn pool(version: &str, status: &Value) -> Value {
    json!({
        "apiVersion": "tandem.dev/v1alpha1",
        "kind": "NodePool",
        "metadata": { "name": "p", "namespace": "ns", "uid": "u", "resourceVersion": version },
        "spec": {
            "replicas": 2,
            "maxReplicas": 5,
            "template": { "spec": { "capacity": { "cpu": "4", "memory": "8Gi" } } },
            "provider": { "simulated": {} },
        },
        "status": status,
    })
}

fn cached(status: &Value) -> NodePool {
    serde_json::from_value(pool("5", status)).unwrap()
}

fn owned(replicas: i32) -> NodePoolStatus {
    NodePoolStatus { replicas: Some(replicas), ..NodePoolStatus::default() }
}

fn status(status: &Value) -> NodePoolStatus {
    serde_json::from_value(status.clone()).unwrap()
}

fn writer(
    strategy: WriteStrategy,
    answer: impl FnMut(&Asked) -> (u16, Value) + Send + 'static,
) -> (Writer, Log, Metrics) {
    let (clock, _) = Clock::fake(Timestamp::UNIX_EPOCH);
    let metrics = Metrics::new("nodepool-operator", "0").unwrap();
    let (client, log) = server(answer);
    let writer = Writer::new(
        client,
        Owner::NodepoolOperator,
        strategy,
        &clock,
        Arc::new(metrics.writes("test").unwrap()),
    )
    .unwrap();
    (writer, log, metrics)
}

fn unasked(asked: &Asked) -> (u16, Value) {
    panic!("unexpected request {asked:?}")
}

#[tokio::test]
async fn an_equal_status_sends_nothing_whatever_the_strategy() {
    for strategy in STRATEGIES {
        let (writer, _, metrics) = writer(strategy, unasked);
        let written =
            writer.node_pool_status(&cached(&json!({ "replicas": 2 })), |_| owned(2)).await.unwrap();
        assert!(matches!(written, Outcome::Unchanged(_)), "{strategy}: {written:?}");
        assert_eq!(
            writer.replicas(&cached(&json!({})), |_| ScaleDecision::Set(2)).await.unwrap(),
            Outcome::Unchanged(Some(2))
        );
        let text = String::from_utf8(metrics.render().unwrap()).unwrap();
        assert!(!text.contains("conflict_retry_requests_total{"), "{text}");
    }
}

#[tokio::test]
async fn each_strategy_sends_what_it_says() {
    for (strategy, requests) in [
        (WriteStrategy::Lazy, vec![format!("PUT {STATUS}")]),
        (
            WriteStrategy::Retry,
            vec![format!("GET {}", STATUS.trim_end_matches("/status")), format!("PUT {STATUS}")],
        ),
        (WriteStrategy::Patch, vec![format!("PATCH {STATUS}")]),
        (WriteStrategy::Guarded, vec![format!("PATCH {STATUS}")]),
    ] {
        let (writer, log, _) = writer(strategy, |asked| match asked.method {
            http::Method::GET => (200, pool("5", &json!({ "replicas": 2 }))),
            _ => (200, pool("6", &json!({ "replicas": 3 }))),
        });
        let written =
            writer.node_pool_status(&cached(&json!({ "replicas": 2 })), |_| owned(3)).await.unwrap();
        assert!(matches!(written, Outcome::Written(_)), "{strategy}");
        assert_eq!(lines(&log), requests, "{strategy}");
    }
}

#[tokio::test]
async fn a_guarded_status_applies_only_the_own_part_by_force_under_the_own_name() {
    let (writer, log, _) = writer(WriteStrategy::Guarded, |_| (200, pool("6", &json!({ "replicas": 3 }))));
    let foreign = json!({ "replicas": 2, "autoscaling": { "autoscaler": "a" } });
    let _ = writer.node_pool_status(&cached(&foreign), |_| owned(3)).await.unwrap();
    let asked = log.lock().unwrap()[0].clone();
    assert!(
        asked.query.contains("fieldManager=nodepool-operator") && asked.query.contains("force=true"),
        "{asked:?}"
    );
    assert_eq!(asked.body["status"], json!({ "replicas": 3 }));
    assert_eq!(asked.body["metadata"].get("resourceVersion"), None);
}

#[tokio::test]
async fn an_owned_field_that_a_second_manager_keeps_alive_is_removed_by_patch() {
    let (writer, log, _) = writer(WriteStrategy::Guarded, |asked| {
        if asked.query.contains("force=true") {
            (200, pool("6", &json!({ "replicas": 3, "selector": "old" })))
        } else {
            (200, pool("7", &json!({ "replicas": 3 })))
        }
    });
    let written =
        writer.node_pool_status(&cached(&json!({ "selector": "old" })), |_| owned(3)).await.unwrap();
    let Outcome::Written(stored) = written else { panic!("{written:?}") };
    assert_eq!(stored.metadata.resource_version.as_deref(), Some("7"));
    let asked = log.lock().unwrap()[1].clone();
    assert_eq!(asked.body["status"], json!({ "selector": null }));
    assert_eq!(asked.body["metadata"]["resourceVersion"], "6");
}

#[tokio::test]
async fn a_namesake_that_took_the_write_is_no_success() {
    let (writer, _, _) = writer(WriteStrategy::Guarded, |_| {
        let mut other = pool("6", &json!({ "replicas": 3 }));
        other["metadata"]["uid"] = "other".into();
        (200, other)
    });
    assert_eq!(writer.node_pool_status(&cached(&json!({})), |_| owned(3)).await.unwrap(), Outcome::Gone);
}

#[tokio::test]
async fn a_closed_fence_refuses_before_anything_is_sent() {
    let (clock, _) = Clock::fake(Timestamp::UNIX_EPOCH);
    let (writer, _, _) = writer(WriteStrategy::Guarded, unasked);
    let writer = writer.with_fence(Fence::standby(clock.clone()));
    let failed = writer.node_pool_status(&cached(&json!({})), |_| owned(3)).await.unwrap_err();
    assert!(matches!(failed, WriterError::Fenced(Fenced::Standby)));
    assert!(writer.replicas(&cached(&json!({})), |_| ScaleDecision::Set(4)).await.unwrap_err().is_fenced());
    assert!(writer.unfenced(&clock).fence.pass().is_ok());
}

#[tokio::test]
async fn what_is_not_owned_is_refused_before_anything_is_sent() {
    let current = json!({ "autoscaling": { "autoscaler": "a" } });
    for strategy in STRATEGIES {
        for changed in [json!({}), json!({ "autoscaler": "b" })] {
            let (writer, ..) = writer(strategy, unasked);
            let decided = status(&json!({ "replicas": 3, "autoscaling": changed }));
            let failed = writer.node_pool_status(&cached(&current), |_| decided.clone()).await.unwrap_err();
            assert!(matches!(failed, WriterError::NotOwned(_)), "{strategy}, {changed}: {failed:?}");
        }
    }
}

#[tokio::test]
async fn what_is_not_owned_and_only_copied_is_not_sent() {
    let current = json!({ "replicas": 2, "autoscaling": { "autoscaler": "a" } });
    let (writer, log, _) = writer(WriteStrategy::Guarded, |_| (200, pool("6", &json!({ "replicas": 3 }))));
    let copied = |fresh: &NodePool| NodePoolStatus { replicas: Some(3), ..fresh.status.clone().unwrap() };
    let written = writer.node_pool_status(&cached(&current), copied).await.unwrap();
    assert!(matches!(written, Outcome::Written(_)), "{written:?}");
    assert_eq!(log.lock().unwrap()[0].body["status"], json!({ "replicas": 3 }));
}

#[tokio::test]
async fn an_owned_condition_that_cannot_be_decoded_stays_when_another_is_stated() {
    let odd = json!({ "type": "NodesReady", "status": "True", "since": "a later version" });
    let (writer, log, _) = writer(WriteStrategy::Guarded, |_| (200, pool("6", &json!({}))));
    let raw = pool("5", &json!({ "replicas": 2, "conditions": [odd] }));
    let raw: DynamicObject = serde_json::from_value(raw).unwrap();
    let statement = Statement::new(ConditionType::Stalled, true, Reason::Unreadable, "no");
    let now = Time(Timestamp::UNIX_EPOCH);
    let _ = writer.unreadable_node_pool(&raw, &[statement], &now).await.unwrap();
    let asked = log.lock().unwrap()[0].clone();
    assert_eq!(asked.body["status"]["conditions"][0], odd);
    assert_eq!(asked.body["status"]["conditions"][1]["type"], "Stalled");
    assert_eq!(asked.body["status"]["replicas"], 2);
}

#[tokio::test]
async fn an_aborted_decision_sends_nothing() {
    let (writer, _, _) = writer(WriteStrategy::Lazy, unasked);
    assert_eq!(
        writer.replicas(&cached(&json!({})), |_| ScaleDecision::Abort).await.unwrap(),
        Outcome::Aborted
    );
}

/// The Autoscaler's writer, and a pool at generation 7 with `autoscaling` in its status.
fn autoscaler(
    autoscaling: &Value,
    answer: impl FnMut(&Asked) -> (u16, Value) + Send + 'static,
) -> (Writer, Log, NodePool) {
    let (clock, _) = Clock::fake(Timestamp::UNIX_EPOCH);
    let (client, log) = server(answer);
    let writer =
        Writer::new(client, Owner::AutoscalerOperator, WriteStrategy::Guarded, &clock, unobserved()).unwrap();
    let mut pool = cached(&json!({ "autoscaling": autoscaling }));
    pool.metadata.generation = Some(7);
    (writer, log, pool)
}

fn test(path: &str, value: impl Into<Value>) -> Value {
    json!({ "op": "test", "path": path, "value": value.into() })
}

#[tokio::test]
async fn a_guarded_count_is_a_patch_of_the_object_at_its_generation_with_its_list() {
    let list = json!({ "decisionID": "d", "targetReplicas": 1, "nodes": ["n"] });
    let (writer, log, pool) = autoscaler(&json!({ "scaleDown": list }), |_| (200, pool("6", &json!({}))));
    let written = writer.replicas(&pool, |_| ScaleDecision::Set(1)).await.unwrap();
    assert_eq!(written, Outcome::Written(Some(2)), "what the server says it is");
    let asked = log.lock().unwrap()[0].clone();
    assert_eq!(asked.path, STATUS.trim_end_matches("/status"));
    let expected = json!([
        test("/metadata/uid", "u"),
        test("/metadata/generation", 7),
        test("/status/autoscaling/scaleDown/decisionID", "d"),
        { "op": "add", "path": "/spec/replicas", "value": 1 },
    ]);
    assert_eq!(asked.body, expected);
}

/// A pass writes the list and then applies the rest. If that fails, the next pass must still wait for the list.
#[tokio::test]
async fn a_list_that_was_written_is_waited_for_although_the_rest_was_refused() {
    let list = || json!({ "decisionID": "d", "targetReplicas": 1, "nodes": [] });
    let wrote = json!({ "autoscaling": { "autoscaler": "a", "scaleDown": list() } });
    let answer = move |asked: &Asked| match asked.body.as_array() {
        Some(_) => (200, pool("6", &wrote)),
        None => failure(403, "Forbidden", "no"),
    };
    let (writer, log, pool) = autoscaler(&json!({ "autoscaler": "a" }), answer);
    let _feed = writer.write_tracker().feed::<NodePool>().unwrap();
    let wanted = json!({ "autoscaler": "b", "scaleDown": list() });
    let decide = |_: &NodePool| status(&json!({ "autoscaling": wanted }));
    assert!(writer.node_pool_status(&pool, decide).await.is_err());
    assert_eq!(lines(&log).len(), 2, "the list, and the rest");
    assert_eq!(writer.write_tracker().check(&pool), Freshness::Stale);
}

#[tokio::test]
async fn a_count_is_not_written_where_another_list_has_taken_the_place_of_its_own() {
    let list = |id: &str| json!({ "scaleDown": { "decisionID": id, "targetReplicas": 1, "nodes": [] } });
    let other = json!({ "autoscaling": list("other") });
    let (writer, log, cached) = autoscaler(&list("own"), move |asked| match asked.method {
        http::Method::GET => {
            let mut fresh = pool("9", &other);
            fresh["metadata"]["generation"] = 7.into();
            (200, fresh)
        }
        _ => failure(422, "Invalid", "the server rejected our request due to an error in our request"),
    });
    let written = writer.replicas(&cached, |_| ScaleDecision::Set(1)).await.unwrap();
    assert_eq!(written, Outcome::Aborted);
    assert_eq!(lines(&log).len(), 2, "one patch, one read");
}

#[tokio::test]
async fn a_count_is_not_written_to_a_pool_that_was_paused_since_it_was_decided() {
    let paused = |replicas: i32| {
        move |asked: &Asked| match asked.method {
            http::Method::GET => {
                let mut fresh = pool("9", &json!({ "autoscaling": {} }));
                fresh["metadata"]["generation"] = 8.into();
                fresh["spec"]["paused"] = true.into();
                fresh["spec"]["replicas"] = replicas.into();
                (200, fresh)
            }
            _ => failure(422, "Invalid", "the server rejected our request due to an error in our request"),
        }
    };
    let (writer, log, cached) = autoscaler(&json!({}), paused(2));
    let written = writer.replicas(&cached, |_| ScaleDecision::Set(1)).await.unwrap();
    assert_eq!(written, Outcome::Aborted);
    assert_eq!(lines(&log).len(), 2, "one patch, one read");
    // An existing number was perhaps our own write, whose answer was lost.
    let (writer, _, cached) = autoscaler(&json!({}), paused(1));
    let written = writer.replicas(&cached, |_| ScaleDecision::Set(1)).await.unwrap();
    assert!(written.is_met(), "{written:?}");
}

#[tokio::test]
async fn a_list_is_written_by_a_patch_of_its_own_and_the_rest_is_applied_without_it() {
    let (writer, log, cached) = autoscaler(&json!({ "autoscaler": "a" }), |asked| {
        let list = json!({ "decisionID": "d", "targetReplicas": 1, "nodes": [] });
        let autoscaler = if asked.body.is_array() { "a" } else { "b" };
        let autoscaling = json!({ "autoscaler": autoscaler, "scaleDown": list });
        let mut stored = pool("6", &json!({ "autoscaling": autoscaling }));
        stored["metadata"]["generation"] = 7.into();
        (200, stored)
    });
    let list = json!({ "decisionID": "d", "targetReplicas": 1, "nodes": [] });
    let wanted = json!({ "autoscaler": "b", "scaleDown": list });
    let decide = |_: &NodePool| status(&json!({ "autoscaling": wanted }));
    let written = writer.node_pool_status(&cached, decide).await.unwrap();
    assert!(matches!(written, Outcome::Written(_)), "{written:?}");
    let asked = log.lock().unwrap();
    assert_eq!(asked[0].body[2], test("/status/autoscaling/scaleDown", Value::Null));
    assert_eq!(asked[0].body[3]["path"], "/status/autoscaling/scaleDown");
    assert_eq!(asked[1].body["status"], json!({ "autoscaling": { "autoscaler": "b" } }));
    assert_eq!(asked.len(), 2);
}

/// The wanted rest of the status; the list is kept as it is in the given object.
fn keeping(pool: &NodePool, autoscaler: &str) -> NodePoolStatus {
    let before = pool.status.clone().unwrap_or_default().autoscaling.unwrap_or_default();
    let autoscaling = AutoscalingStatus { autoscaler: Some(autoscaler.to_owned()), ..before };
    NodePoolStatus { autoscaling: Some(autoscaling), ..NodePoolStatus::default() }
}

#[tokio::test]
async fn a_list_that_an_earlier_release_applied_is_moved_before_anything_else_is_applied() {
    let list = json!({ "decisionID": "old", "targetReplicas": 1, "nodes": ["n"] });
    let full = json!({ "autoscaler": "a", "scaleDown": list });
    let (writer, log, mut cached) = autoscaler(&full, {
        let list = list.clone();
        move |asked| {
            let status = match asked.body[3]["op"].as_str() {
                Some("remove") => json!({ "autoscaling": { "autoscaler": "a" } }),
                Some(_) => json!({ "autoscaling": { "autoscaler": "a", "scaleDown": list } }),
                None => json!({ "autoscaling": { "autoscaler": "b", "scaleDown": list } }),
            };
            let mut stored = pool("6", &status);
            stored["metadata"]["generation"] = 7.into();
            (200, stored)
        }
    });
    let entry = json!({ "manager": "autoscaler-operator", "operation": "Apply",
        "fieldsV1": { "f:status": { "f:autoscaling": { "f:scaleDown": {} } } } });
    cached.metadata.managed_fields = Some(vec![serde_json::from_value(entry).unwrap()]);
    let written = writer.node_pool_status(&cached, |fresh| keeping(fresh, "b")).await.unwrap();
    assert!(matches!(written, Outcome::Written(_)), "{written:?}");
    let asked = log.lock().unwrap();
    let path = "/status/autoscaling/scaleDown";
    assert_eq!(asked.len(), 3, "{asked:?}");
    assert_eq!(asked[0].body[3], json!({ "op": "remove", "path": path }));
    assert_eq!(asked[1].body[2], test(path, Value::Null));
    assert_eq!(asked[1].body[3], json!({ "op": "add", "path": path, "value": list }));
    assert_eq!(asked[2].body["status"], json!({ "autoscaling": { "autoscaler": "b" } }));
}

#[tokio::test]
async fn what_is_left_when_a_list_was_taken_away_is_not_applied_again_and_again() {
    let (writer, _, cached) = autoscaler(&json!({}), unasked);
    let written = writer.node_pool_status(&cached, |_| NodePoolStatus::default()).await.unwrap();
    assert!(matches!(written, Outcome::Unchanged(_)), "{written:?}");
}

#[tokio::test]
async fn a_deletion_that_can_become_unwanted_names_the_version_that_it_was_decided_from() {
    let (writer, log, cached) =
        autoscaler(&json!({}), |_| failure(409, "Conflict", "the ResourceVersion in the precondition"));
    let pools: Api<NodePool> = Api::namespaced(writer.client.clone(), "ns");
    for outcome in [
        writer.delete_unchanged(&pools, &cached).await.unwrap(),
        writer.delete(&pools, &cached).await.unwrap(),
    ] {
        assert!(matches!(outcome, DeleteOutcome::Conflict(_)), "{outcome:?}");
    }
    let asked = log.lock().unwrap();
    assert_eq!(asked[0].body["preconditions"], json!({ "uid": "u", "resourceVersion": "5" }));
    assert_eq!(asked[1].body["preconditions"], json!({ "uid": "u" }));
}

/// An API server that never answers, and an elector that neither renews nor closes: once another process may hold the
/// lease, no write may be in progress any more.
#[tokio::test(start_paused = true)]
async fn nothing_is_under_way_when_the_lease_may_be_anothers() {
    const EXPIRES: Duration = Duration::from_secs(8);
    let silent = tower::service_fn(|_: http::Request<Body>| async {
        std::future::pending::<Result<http::Response<Body>, tower::BoxError>>().await
    });
    let client = Client::new(silent, "default");
    let clock = Clock::system();
    let started = Instant::now();
    let fence = Fence::standby(clock.clone());
    fence.renewed(Duration::from_secs(6), EXPIRES);
    let writer =
        Writer::new(client.clone(), Owner::NodepoolOperator, WriteStrategy::Guarded, &clock, unobserved())
            .unwrap()
            .with_fence(fence);

    let pods: Api<Pod> = Api::namespaced(client, "ns");
    let pod = serde_json::from_value(json!({ "metadata": { "name": "p", "namespace": "ns", "uid": "u" } }));
    let pod = pod.unwrap();
    let eviction = writer.evict(&pods, &pod);
    let pool = cached(&json!({}));
    let status = writer.node_pool_status(&pool, |_| owned(3));
    let (eviction, status) = futures::join!(async { (eviction.await.is_err(), started.elapsed()) }, async {
        (status.await.is_err(), started.elapsed())
    },);
    for (what, (failed, ended)) in [("an eviction", eviction), ("a status", status)] {
        assert!(failed, "{what} succeeded without an answer");
        assert!(
            ended <= EXPIRES,
            "{what} was waited for until {ended:?}, and the lease expired at {EXPIRES:?}"
        );
    }
}
