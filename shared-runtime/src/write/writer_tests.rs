use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::client::Body;
use kube::core::DynamicObject;
use serde_json::{Value, json};
use shared_crds::NodePool;
use shared_crds::conditions::{ConditionType, Reason, Statement};
use shared_crds::v1alpha1::NodePoolStatus;

use super::testing::{STATUS, autoscaler, cached, pool, status, unasked, with_replicas};
use super::*;
use crate::clock::Clock;
use crate::fence::Fenced;
use crate::metrics::Metrics;
use crate::testing::{Asked, Log, failure, lines, server};

const STRATEGIES: [WriteStrategy; 4] =
    [WriteStrategy::Lazy, WriteStrategy::Retry, WriteStrategy::Patch, WriteStrategy::Guarded];

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

#[tokio::test]
async fn an_equal_status_sends_nothing_whatever_the_strategy() {
    for strategy in STRATEGIES {
        let (writer, _, metrics) = writer(strategy, unasked);
        let written =
            writer.node_pool_status(&cached(&json!({ "replicas": 2 })), |_| with_replicas(2)).await.unwrap();
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
            writer.node_pool_status(&cached(&json!({ "replicas": 2 })), |_| with_replicas(3)).await.unwrap();
        assert!(matches!(written, Outcome::Written(_)), "{strategy}");
        assert_eq!(lines(&log), requests, "{strategy}");
    }
}

#[tokio::test]
async fn a_guarded_status_applies_only_the_own_part_by_force_under_the_own_name() {
    let (writer, log, _) = writer(WriteStrategy::Guarded, |_| (200, pool("6", &json!({ "replicas": 3 }))));
    let foreign = json!({ "replicas": 2, "autoscaling": { "autoscaler": "a" } });
    let _ = writer.node_pool_status(&cached(&foreign), |_| with_replicas(3)).await.unwrap();
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
        writer.node_pool_status(&cached(&json!({ "selector": "old" })), |_| with_replicas(3)).await.unwrap();
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
    assert_eq!(
        writer.node_pool_status(&cached(&json!({})), |_| with_replicas(3)).await.unwrap(),
        Outcome::Gone
    );
}

#[tokio::test]
async fn a_closed_fence_refuses_before_anything_is_sent() {
    let (clock, _) = Clock::fake(Timestamp::UNIX_EPOCH);
    let (writer, _, _) = writer(WriteStrategy::Guarded, unasked);
    let writer = writer.with_fence(Fence::standby(clock.clone()));
    let failed = writer.node_pool_status(&cached(&json!({})), |_| with_replicas(3)).await.unwrap_err();
    assert!(matches!(failed, WriterError::Fenced(Fenced::Standby)));
    assert!(writer.replicas(&cached(&json!({})), |_| ScaleDecision::Set(4)).await.unwrap_err().is_fenced());
    assert!(writer.for_lease(&clock).fence.pass().is_ok());
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
    let status = writer.node_pool_status(&pool, |_| with_replicas(3));
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

/// What a definition without `status.rollout` and `status.disruption` lacks.
fn outdated() -> ServedFields {
    let (served, known) = (ServedFields::default(), shared_crds::all().unwrap().remove(0));
    let mut older = known.clone();
    let schema = older.spec.versions[0].schema.as_mut().unwrap().open_api_v3_schema.as_mut().unwrap();
    let status = schema.properties.as_mut().unwrap().get_mut("status").unwrap();
    status.properties.as_mut().unwrap().retain(|field, _| field != "rollout" && field != "disruption");
    served.learn("nodepools.tandem.dev", &known, &older);
    served
}

#[tokio::test]
async fn what_the_installed_definition_lacks_is_not_sent_and_the_rest_is() {
    let full = |replicas: i32| status(&json!({ "replicas": replicas, "disruption": { "rollout": 1 } }));
    for strategy in STRATEGIES {
        let (writer, log, _) = writer(strategy, |asked| match asked.method {
            http::Method::GET => (200, pool("5", &json!({ "replicas": 2 }))),
            _ => (200, pool("6", &json!({ "replicas": 3 }))),
        });
        let writer = writer.with_served_fields(outdated());
        let unchanged =
            writer.node_pool_status(&cached(&json!({ "replicas": 2 })), |_| full(2)).await.unwrap();
        assert!(matches!(unchanged, Outcome::Unchanged(_)), "{strategy}: {unchanged:?}");
        let written = writer.node_pool_status(&cached(&json!({ "replicas": 2 })), |_| full(3)).await.unwrap();
        assert!(matches!(written, Outcome::Written(_)), "{strategy}: {written:?}");
        let sent = log.lock().unwrap().last().unwrap().body["status"].clone();
        assert_eq!((&sent["replicas"], &sent["disruption"]), (&json!(3), &Value::Null), "{strategy}: {sent}");
    }
}

#[tokio::test]
async fn a_field_that_is_refused_as_undeclared_has_the_definition_read_again() {
    let message = "failed to create typed patch object (ns/p; tandem.dev/v1alpha1, Kind=NodePool): .status.rollout: field not declared in schema";
    let (writer, ..) = writer(WriteStrategy::Guarded, move |_| failure(500, "InternalError", message));
    let served = ServedFields::default();
    let writer = writer.with_served_fields(served.clone());
    let failed =
        writer.node_pool_status(&cached(&json!({ "replicas": 2 })), |_| with_replicas(3)).await.unwrap_err();
    assert!(failed.is_undeclared_field(), "{failed:?}");
    tokio::time::timeout(Duration::from_secs(10), served.doubted()).await.unwrap();
}
