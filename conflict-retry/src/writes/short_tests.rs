//! The short forms: what they send, what they return, and what a closure may do.

use std::panic::AssertUnwindSafe;

use futures::FutureExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use serde_json::{Value, json};

use super::tests::{Reply, body, conflict, error, map, maps, object, ok, options, scripted, verbs};
use super::*;
use crate::classify::Class;
use crate::freshness::Source;
use crate::operation::Verb;
use crate::options::WriteOptions;
use crate::outcome::{Outcome, WriteError};
use crate::protect::{KeyQueue, Protection};

fn blue(map: &mut ConfigMap) {
    map.data.get_or_insert_default().insert("k".to_owned(), "blue".to_owned());
}

/// The error of a caller.
#[derive(Debug, thiserror::Error)]
enum OwnError {
    #[error("the map is not ours")]
    NotOurs,
    #[error("not written")]
    Write(#[from] WriteError),
}

#[tokio::test(start_paused = true)]
async fn an_update_sends_what_has_changed_at_the_version_that_was_read() {
    let mut stored = map("7", "red");
    stored["unknown"] = json!({"deep": [1]});
    let (api, seen) = maps(vec![ok(stored), ok(map("8", "blue"))]);
    let written: ConfigMap = update(&api, "m", blue).await.unwrap();
    assert_eq!(written, object("8", "blue"));
    assert_eq!(verbs(&seen), ["GET", "PATCH"]);
    assert_eq!(body(&seen, 1), json!({"metadata": {"resourceVersion": "7"}, "data": {"k": "blue"}}));
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_decided_again_and_an_equal_object_is_not_sent() {
    let (api, seen) =
        maps(vec![ok(map("1", "red")), conflict(), ok(map("2", "green")), ok(map("3", "blue"))]);
    update(&api, "m", blue).await.unwrap();
    assert_eq!(verbs(&seen), ["GET", "PATCH", "GET", "PATCH"]);
    assert_eq!(body(&seen, 3)["metadata"]["resourceVersion"], "2");
    let (api, seen) = maps(vec![ok(map("3", "blue"))]);
    assert_eq!(update(&api, "m", blue).await.unwrap(), object("3", "blue"));
    assert_eq!(verbs(&seen), ["GET"]);
}

#[tokio::test(start_paused = true)]
async fn the_error_of_a_closure_ends_the_write_and_is_returned() {
    let (api, seen) = maps(vec![ok(map("1", "red"))]);
    let refused: Result<ConfigMap, OwnError> = update(&api, "m", |_| Err::<(), _>(OwnError::NotOurs)).await;
    assert!(matches!(refused, Err(OwnError::NotOurs)));
    assert_eq!(verbs(&seen), ["GET"]);
    // Errors of the write arrive as the closure's type.
    let (api, _) = maps(vec![error(403, "Forbidden")]);
    let refused = update(&api, "m", |_| Ok::<(), OwnError>(())).await;
    assert!(matches!(refused, Err(OwnError::Write(WriteError::Rejected { .. }))));
    let (api, _) = maps(vec![]);
    let view = ScaleView { replicas: Some(1), ..ScaleView::default() };
    let scaled = scale(&api, "m", |_| Err::<i32, _>(OwnError::NotOurs)).from(Source::Copy(view)).await;
    assert!(matches!(scaled, Err(OwnError::NotOurs)));
    let patched =
        merge_patch(&api, "m", |_| Err::<Option<Value>, _>(OwnError::NotOurs)).from(Some(object("1", "x")));
    assert!(matches!(patched.await, Err(OwnError::NotOurs)));
}

#[tokio::test(start_paused = true)]
async fn an_error_turns_into_that_of_kube() {
    async fn paint(api: &Api<ConfigMap>) -> Result<ConfigMap, kube::Error> {
        Ok(update(api, "m", blue).await?)
    }
    let code = |answer: Result<ConfigMap, kube::Error>| match answer.unwrap_err() {
        kube::Error::Api(status) => status.code,
        other => panic!("{other}"),
    };
    assert_eq!(code(paint(&maps(vec![error(404, "NotFound")]).0).await), 404);
    assert_eq!(code(paint(&maps(vec![error(403, "Forbidden")]).0).await), 403);
    let refused = update(&maps(vec![]).0, "", blue).await.unwrap_err();
    let turned = kube::Error::from(refused);
    assert_eq!(Class::of(Verb::MergePatch, &turned), Class::Other, "nothing was sent");
    let kube::Error::Service(source) = turned else { panic!("{turned}") };
    assert!(source.source().is_some_and(<dyn std::error::Error>::is::<WriteError>), "{source}");
    let gone = update(&maps(vec![error(404, "NotFound")]).0, "m", blue).await.unwrap_err();
    assert_eq!(
        gone.to_string(),
        "there is no such object as configmaps m; create it first, or stop writing to it"
    );
    assert_eq!(Class::of(Verb::MergePatch, &gone.into()), Class::NotFound);
}

#[tokio::test(start_paused = true)]
async fn a_missing_object_and_a_decision_not_to_write_are_errors_or_outcomes() {
    let missing = || maps(vec![error(404, "NotFound")]).0;
    assert!(matches!(update(&missing(), "m", blue).await, Err(WriteError::Gone { .. })));
    assert_eq!(update(&missing(), "m", blue).outcome().await.unwrap(), Outcome::Gone);
    let (api, _) = maps(vec![]);
    let abort = || update(&api, "m", |_| UpdateDecision::Abort).from(Some(object("1", "x")));
    assert!(matches!(abort().await, Err(WriteError::Aborted { .. })));
    assert_eq!(abort().outcome().await.unwrap(), Outcome::Aborted);
}

#[tokio::test(start_paused = true)]
async fn a_change_within_a_list_of_objects_reads_what_the_type_does_not_know() {
    let stored = |version: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": version},
            "spec": {"containers": [{"name": "a", "image": "1", "unknown": true}, {"name": "b", "image": "1"}]},
        })
    };
    let (client, seen) = scripted(vec![ok(stored("5")), ok(stored("6"))]);
    let pods: Api<Pod> = Api::namespaced(client, "ns");
    let copy: Pod = serde_json::from_value(stored("4")).unwrap();
    update(&pods, "p", |pod| {
        if let Some(spec) = &mut pod.spec {
            spec.containers[0].image = Some("2".to_owned());
        }
    })
    .from(Some(copy.clone()))
    .await
    .unwrap();
    assert_eq!(verbs(&seen), ["GET", "PATCH"]);
    let containers = json!([{"name": "a", "image": "2", "unknown": true}, {"name": "b", "image": "1"}]);
    let wanted = json!({"metadata": {"resourceVersion": "5"}, "spec": {"containers": containers}});
    assert_eq!(body(&seen, 1), wanted);
    // Anything else is sent from the copy.
    let (client, seen) = scripted(vec![ok(stored("6"))]);
    let pods: Api<Pod> = Api::namespaced(client, "ns");
    update(&pods, "p", |pod| {
        pod.metadata.labels.get_or_insert_default().insert("l".to_owned(), "x".to_owned());
    })
    .from(std::sync::Arc::new(copy))
    .await
    .unwrap();
    assert_eq!(verbs(&seen), ["PATCH"]);
    assert_eq!(body(&seen, 0), json!({"metadata": {"resourceVersion": "4", "labels": {"l": "x"}}}));
}

#[tokio::test(start_paused = true)]
async fn a_missing_object_is_created_and_a_race_is_decided_again() {
    let initial: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "m"}})).unwrap();
    let (api, seen) = maps(vec![error(404, "NotFound"), ok(map("1", "blue"))]);
    assert_eq!(create_or_update(&api, &initial, blue).await.unwrap(), object("1", "blue"));
    assert_eq!(verbs(&seen), ["GET", "POST"]);
    assert_eq!(body(&seen, 1)["data"]["k"], "blue");
    // Another writer is faster, then the object vanishes.
    let (api, seen) = maps(vec![
        error(404, "NotFound"),
        error(409, "AlreadyExists"),
        ok(map("2", "red")),
        error(404, "NotFound"),
        error(404, "NotFound"),
        ok(map("9", "blue")),
    ]);
    assert_eq!(create_or_update(&api, &initial, blue).await.unwrap(), object("9", "blue"));
    assert_eq!(verbs(&seen), ["GET", "POST", "GET", "PATCH", "GET", "POST"]);
    // The answer to the own POST is lost.
    let (api, seen) = maps(vec![error(404, "NotFound"), error(504, "Timeout"), ok(map("1", "blue"))]);
    let outcome = create_or_update(&api, &initial, blue).outcome().await.unwrap();
    assert_eq!(outcome, Outcome::AlreadyDone(object("1", "blue")));
    assert_eq!(verbs(&seen), ["GET", "POST", "GET"]);
    let unnamed = ConfigMap::default();
    assert_eq!(create_or_update(&api, &unnamed, blue).await.unwrap_err().category(), "refused");
}

#[tokio::test(start_paused = true)]
async fn a_closure_that_panics_sends_nothing_and_leaves_the_queue_free() {
    let options = options().with_protection(Protection::default().with_queue(KeyQueue::new()));
    let (api, seen) = maps(vec![ok(map("2", "blue"))]);
    let panics = |_: &mut ConfigMap| -> () { panic!("a mistake") };
    let write = update(&api, "m", panics).with(&options).from(Some(object("1", "red")));
    assert!(AssertUnwindSafe(write.into_future()).catch_unwind().await.is_err());
    assert!(verbs(&seen).is_empty());
    update(&api, "m", blue).with(&options).from(Some(object("1", "red"))).await.unwrap();
    assert_eq!(verbs(&seen), ["PATCH"]);
}

#[tokio::test(start_paused = true)]
async fn without_options_a_write_carries_the_name_of_the_program() {
    let (api, seen) = maps(vec![ok(map("2", "blue"))]);
    update(&api, "m", blue).from(Some(object("1", "red"))).await.unwrap();
    let manager = WriteOptions::default().field_manager().to_owned();
    assert!(manager.starts_with("conflict_retry-"), "{manager}");
    assert!(seen.lock().unwrap()[0].1.contains(&format!("fieldManager={manager}")));
    let (api, _) = maps(vec![Reply::Json(200, map("2", "blue"))]);
    let copy = Some(ScaleView { replicas: Some(3), ..ScaleView::default() });
    assert_eq!(
        scale(&api, "m", |seen| seen.replicas.unwrap_or_default()).from(copy).await.unwrap().replicas,
        Some(3)
    );
}

#[tokio::test(start_paused = true)]
async fn what_the_server_did_not_store_is_no_write() {
    // The same version comes back: for the server nothing has changed.
    let (api, _) = maps(vec![ok(map("1", "red"))]);
    let outcome = update(&api, "m", blue).from(&object("1", "red")).outcome().await.unwrap();
    assert_eq!(outcome, Outcome::Unchanged(object("1", "red")));
    let pod = |status: Value| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "1"}, "status": status,
        })
    };
    let (client, _) = scripted(vec![ok(pod(json!({})))]);
    let pods: Api<Pod> = Api::namespaced(client, "ns");
    let copy: Pod = serde_json::from_value(pod(json!({}))).unwrap();
    let dropped = update(&pods, "p", |pod| pod.status.get_or_insert_default().phase = Some("x".to_owned()));
    let error = dropped.from(&copy).await.unwrap_err();
    assert!(error.to_string().contains("touches `status`"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_api_for_all_namespaces_and_another_namespace_are_refused() {
    let (client, seen) = scripted(vec![]);
    let all: Api<ConfigMap> = Api::all(client.clone());
    let refused = update(&all, "m", blue).from(&object("1", "red")).await.unwrap_err();
    assert!(refused.to_string().contains("Api::namespaced"), "{refused}");
    let (client, _) = scripted(vec![error(404, "NotFound")]);
    let other: Api<ConfigMap> = Api::namespaced(client, "other");
    let error = create_or_update(&other, &object("", "red"), blue).await.unwrap_err();
    assert_eq!(error.category(), "refused");
    assert!(verbs(&seen).is_empty());
}

#[tokio::test(start_paused = true)]
async fn keep_creates_what_was_given_and_a_missing_namespace_is_said_once() {
    let initial = object("", "red");
    let (api, seen) = maps(vec![error(404, "NotFound"), ok(map("1", "red"))]);
    create_or_update(&api, &initial, |_| UpdateDecision::Keep).await.unwrap();
    assert_eq!((verbs(&seen)[1].as_str(), &body(&seen, 1)["data"]["k"]), ("POST", &json!("red")));
    let namespace = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404,
        "message": "namespaces \"ns\" not found", "details": {"name": "ns", "kind": "namespaces"}});
    let (api, seen) = maps(vec![error(404, "NotFound"), Reply::Json(404, namespace)]);
    let error = create_or_update(&api, &initial, blue).await.unwrap_err();
    assert_eq!((error.category(), verbs(&seen).len()), ("namespace_not_found", 2));
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_not_forgotten_when_the_object_is_gone_then() {
    let (api, _) = maps(vec![error(504, "Timeout"), error(404, "NotFound")]);
    let error = update(&api, "m", blue).from(&object("1", "red")).await.unwrap_err();
    assert!(matches!(error, WriteError::Gone { maybe_written: true, .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_makes_no_sense_is_looked_up_and_never_taken_for_an_object() {
    let garbage = || ok(json!(["what?"]));
    let (api, seen) = maps(vec![garbage()]);
    let unread = update(&api, "m", blue).await.unwrap_err();
    assert_eq!(unread.category(), "undecodable");
    assert!(unread.to_string().contains("does not fit the Rust type"), "{unread}");
    assert_eq!(verbs(&seen), ["GET"]);
    // The write was acknowledged, and by what: the object is read.
    let (api, seen) = maps(vec![garbage(), ok(map("2", "blue"))]);
    let outcome = update(&api, "m", blue).from(&object("1", "red")).outcome().await.unwrap();
    assert_eq!(outcome, Outcome::AlreadyDone(object("2", "blue")));
    assert_eq!(verbs(&seen), ["PATCH", "GET"]);
}
