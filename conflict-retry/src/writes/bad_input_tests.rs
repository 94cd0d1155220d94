//! Input and answers that make no sense: what is sent, and what the error says.

use std::collections::BTreeMap;
use std::sync::Mutex;

use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::{ApiResource, DeleteParams};
use kube::core::{NotUsed, Object};
use serde_json::{Value, json};

use super::tests::{Reply, error, map, maps, object, ok, options, scripted, seen_view, verbs, wants};
use super::*;
use crate::freshness::{CachedObject, Newer, Source};
use crate::operation::{Subresource, Verb};
use crate::outcome::{Outcome, Refusal, RequestFailure, WriteError};

fn pod(version: &str, label: &str, phase: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": version, "labels": {"l": label}},
        "status": {"phase": phase},
    })
}

fn fail(pod: &mut Pod) {
    pod.status.get_or_insert_default().phase = Some("Failed".to_owned());
}

#[tokio::test(start_paused = true)]
async fn a_copy_without_a_version_is_refused_and_the_text_says_what_to_pass() {
    for version in [None, Some(String::new())] {
        let (api, seen) = maps(vec![]);
        let mut copy = object("1", "old");
        copy.metadata.resource_version = version;
        let patch = |_: &ConfigMap| Some(json!({"data": {"k": "new"}}));
        let refused = [
            update(&api, "m", wants("new")).from(&copy).await.unwrap_err(),
            update(&api, "m", wants("new")).put().from(&copy).await.unwrap_err(),
            merge_patch(&api, "m", patch).from(&copy).await.unwrap_err(),
        ];
        for error in refused {
            assert!(matches!(error, WriteError::Refused { reason: Refusal::NoVersion, .. }), "{error:?}");
            assert!(error.to_string().contains("pass one read from the API server"), "{error}");
        }
        assert!(verbs(&seen).is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_without_a_name_in_an_answer_is_not_taken_for_a_copy_of_the_caller() {
    let (api, seen) = maps(vec![ok(json!({"metadata": {}}))]);
    let error = update(&api, "m", wants("new")).await.unwrap_err();
    assert!(matches!(error, WriteError::Refused { reason: Refusal::WrongObject { .. }, .. }), "{error:?}");
    assert!(error.to_string().contains("what answered in the API server's place"), "{error}");
    assert_eq!(verbs(&seen), ["GET"]);
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_missing_object_is_gone_for_a_writer_that_may_write_nothing_else() {
    let script = || scripted(vec![error(404, "NotFound"), error(403, "Forbidden")]);
    let (client, seen) = script();
    let pods: Api<Pod> = Api::namespaced(client, "ns");
    let copy: Pod = serde_json::from_value(pod("1", "l", "Running")).unwrap();
    assert_eq!(update_status(&pods, "p", fail).from(&copy).outcome().await.unwrap(), Outcome::Gone);
    assert_eq!(verbs(&seen), ["PATCH", "GET"]);
    let (client, seen) = script();
    let pods: Api<Pod> = Api::namespaced(client, "ns");
    let body = json!({"apiVersion": "v1", "kind": "Pod", "status": {"phase": "Failed"}});
    assert_eq!(apply_status(&pods, "p", &body).outcome().await.unwrap(), Outcome::Gone);
    assert_eq!(verbs(&seen), ["PATCH", "GET"]);
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_kind_without_that_subresource_says_where_to_enable_it() {
    let (client, seen) =
        scripted(vec![ok(pod("1", "l", "Running")), error(404, "NotFound"), ok(pod("1", "l", "Running"))]);
    let pods: Api<Pod> = Api::namespaced(client, "ns");
    let error = update_status(&pods, "p", fail).await.unwrap_err();
    assert_eq!(error.category(), "not_served");
    assert!(error.to_string().contains("enable the subresource"), "{error}");
    assert_eq!(verbs(&seen), ["GET", "PATCH", "GET"]);
}

#[tokio::test(start_paused = true)]
async fn a_status_that_the_server_drops_beside_another_change_is_an_error() {
    let change = |pod: &mut Pod| {
        pod.metadata.labels.get_or_insert_default().insert("l".to_owned(), "new".to_owned());
        fail(pod);
    };
    let copy: Pod = serde_json::from_value(pod("1", "old", "Running")).unwrap();
    for (stored, is_put) in [("Running", false), ("Running", true), ("Failed", false), ("Failed", true)] {
        let (client, _) = scripted(vec![ok(pod("2", "new", stored))]);
        let pods: Api<Pod> = Api::namespaced(client, "ns");
        let write = update(&pods, "p", change).from(&copy);
        let write = if is_put { write.put() } else { write };
        match (write.outcome().await, stored) {
            // A kind without the subresource stores it.
            (Ok(outcome), "Failed") => assert_eq!(outcome.label(), "written"),
            (Err(error), "Running") => {
                assert!(error.maybe_written(), "the label is stored: {error:?}");
                assert!(error.to_string().starts_with("refused: the change touches `status`"), "{error}");
            }
            (ended, _) => panic!("{ended:?}"),
        }
    }
    // Nothing else has changed, and the whole object was sent.
    let (client, _) = scripted(vec![ok(pod("1", "old", "Running"))]);
    let pods: Api<Pod> = Api::namespaced(client, "ns");
    let error = update(&pods, "p", fail).put().from(&copy).await.unwrap_err();
    assert!(error.to_string().contains("touches `status`") && !error.maybe_written(), "{error:?}");
}

/// A watch that has brought this, and the versions that we wrote.
struct Watch(Pod, Mutex<Vec<Option<String>>>);

impl CachedObject<Pod> for Watch {
    fn latest(&self) -> Option<Pod> {
        Some(self.0.clone())
    }

    fn newer(&self, _version: String) -> Newer<'_, Pod> {
        Box::pin(std::future::pending())
    }

    fn wrote(&self, written: &Pod) {
        self.1.lock().unwrap().push(written.metadata.resource_version.clone());
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_stored_beside_a_dropped_status_is_our_own_write() {
    // All of it dropped, and the version is the old one; or the label is stored.
    for (version, wrote) in [("1", vec![]), ("2", vec![Some("2".to_owned())])] {
        let watch = Watch(serde_json::from_value(pod("1", "old", "Running")).unwrap(), Mutex::default());
        let (client, _) = scripted(vec![ok(pod(version, "new", "Running"))]);
        let pods: Api<Pod> = Api::namespaced(client, "ns");
        let change = |pod: &mut Pod| {
            pod.metadata.labels.get_or_insert_default().insert("l".to_owned(), "new".to_owned());
            fail(pod);
        };
        let refused = update(&pods, "p", change).from(Source::Watched(&watch)).await.unwrap_err();
        assert!(
            matches!(refused, WriteError::Refused { reason: Refusal::Dropped { .. }, .. }),
            "{refused:?}"
        );
        assert_eq!(*watch.1.lock().unwrap(), wrote);
    }
}

/// Bodies that a `ConfigMap` and a `Scale` can be decoded from.
fn nameless() -> [Value; 3] {
    [json!({}), json!({"metadata": {}}), json!({"metadata": {"name": "", "resourceVersion": "2"}})]
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_answered_without_an_object_is_looked_up_and_never_taken_for_written() {
    for empty in nameless() {
        let (api, seen) = maps(vec![ok(empty.clone()), ok(map("2", "new"))]);
        let outcome = update(&api, "m", wants("new")).from(&object("1", "old")).outcome().await.unwrap();
        assert_eq!(outcome, Outcome::AlreadyDone(object("2", "new")));
        assert_eq!(verbs(&seen), ["PATCH", "GET"]);

        let new = |_: &ConfigMap| Some(json!({"data": {"k": "new"}}));
        let (api, seen) =
            maps(vec![ok(empty.clone()), ok(empty.clone()), ok(empty.clone()), ok(empty.clone())]);
        for error in [
            update(&api, "m", wants("new")).put().from(&object("1", "old")).await.unwrap_err(),
            merge_patch(&api, "m", new).from(&object("1", "old")).await.unwrap_err(),
        ] {
            assert!(error.maybe_written(), "{error:?}");
            assert!(error.to_string().contains("what answered in the API server's place"), "{error}");
        }
        assert_eq!(verbs(&seen), ["PUT", "GET", "PATCH", "GET"]);

        let (api, seen) = maps(vec![ok(empty.clone()), ok(empty.clone())]);
        let failed = scale(&api, "m", |_| 5).from(Source::Copy(seen_view(Some(1)))).await.unwrap_err();
        assert!(failed.category() == "undecodable" && failed.maybe_written(), "{failed:?}");
        assert_eq!(verbs(&seen), ["PATCH", "GET"]);

        let initial = object("", "new");
        let (api, seen) = maps(vec![error(404, "NotFound"), ok(empty), ok(map("1", "new"))]);
        let outcome = create_or_update(&api, &initial, |_| {}).outcome().await.unwrap();
        assert_eq!(outcome, Outcome::AlreadyDone(object("1", "new")));
        assert_eq!(verbs(&seen), ["GET", "POST", "GET"]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_looked_for_is_not_gone_where_something_else_answers() {
    let copy: Pod = serde_json::from_value(pod("1", "l", "Running")).unwrap();
    let unset = || {
        let message = "Internal error occurred: the spec replicas field \".spec.replicas\" does not exist";
        let status = json!({"kind": "Status", "status": "Failure", "reason": "InternalError", "code": 500, "message": message});
        Reply::Json(500, status)
    };
    for empty in nameless() {
        let (client, seen) = scripted(vec![error(404, "NotFound"), ok(empty.clone())]);
        let pods: Api<Pod> = Api::namespaced(client, "ns");
        let failed = update_status(&pods, "p", fail).from(&copy).outcome().await.unwrap_err();
        assert_eq!((failed.category(), verbs(&seen).len()), ("undecodable", 2), "{empty}");
        let (api, seen) = maps(vec![unset(), ok(empty.clone())]);
        let failed = scale(&api, "m", |_| 5).await.unwrap_err();
        assert_eq!((failed.category(), verbs(&seen).len()), ("undecodable", 2), "{empty}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_single_attempt_that_is_answered_without_an_object_is_not_known_to_be_made() {
    let (main, options) = (Subresource::Main, &options());
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "new"}});
    let operations = json!([{"op": "add", "path": "/data/k", "value": "new"}]);
    let whole = object("1", "new");
    for empty in nameless() {
        let (api, seen) = maps((0..6).map(|_| ok(empty.clone())).collect());
        let generated: ConfigMap =
            serde_json::from_value(json!({"metadata": {"generateName": "m-"}})).unwrap();
        let ended = [
            once::create(&api, options, &generated).await.map(|_| ()),
            once::put(&api, "m", main, options, &whole).await.map(|_| ()),
            once::json_patch(&api, "m", main, options, &operations).await.map(|_| ()),
            once::put_scale(&api, "m", options, &seen_view(Some(1)), 5).await.map(|_| ()),
            once::delete(&api, "m", options, &DeleteParams::default()).await.map(|_| ()),
            apply(&api, "m", &body).with(options).outcome().await.map(|_| ()),
        ];
        for result in ended {
            let error = result.unwrap_err();
            assert!(matches!(error, WriteError::Unknown { .. }) && error.maybe_written(), "{error:?}");
            assert!(error.to_string().contains("read the object before trying again"), "{error}");
        }
        assert_eq!(verbs(&seen), ["POST", "PUT", "PATCH", "PUT", "DELETE", "PATCH"]);
        let (client, _) = scripted(vec![ok(empty)]);
        let pods: Api<Pod> = Api::namespaced(client, "ns");
        let evicted = once::evict(&pods, "p", options, None).await.unwrap_err();
        assert!(matches!(evicted, WriteError::Unknown { .. }), "{evicted:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_is_not_said_to_have_succeeded_is_not_known_to_be_made() {
    for status in [json!({"kind": "Status"}), json!({"kind": "Status", "status": "Failure", "code": 500})] {
        let (api, _) = maps(vec![ok(status)]);
        let failed = once::delete(&api, "m", &options(), &DeleteParams::default()).await.unwrap_err();
        assert!(matches!(failed, WriteError::Unknown { .. }) && failed.maybe_written(), "{failed:?}");
    }
}

#[test]
fn an_answer_that_is_not_json_is_not_blamed_on_the_type() {
    let said = |answer: &str| {
        let error = serde_json::from_str::<ConfigMap>(answer).unwrap_err();
        let source = Box::new(RequestFailure::Api(kube::Error::SerdeError(error)));
        let class = source.class(Verb::Get);
        let (verb, subresource) = (Verb::Get, Subresource::Main);
        WriteError::Rejected { verb, subresource, class, maybe_written: false, source }.to_string()
    };
    for answer in ["<html><body>Sign in</body></html>", "", "{\"metadata\": {"] {
        let text = said(answer);
        assert!(text.contains("what answered in the API server's place"), "{answer}: {text}");
    }
    let text = said("{\"data\": 1}");
    assert!(text.contains("does not fit the Rust type"), "{text}");
}

/// JSON has no such keys.
type Unwritable = Object<BTreeMap<(u8, u8), u8>, NotUsed>;

#[tokio::test(start_paused = true)]
async fn an_object_that_does_not_turn_into_json_is_refused_before_it_is_sent() {
    let kind = ApiResource::erase::<ConfigMap>(&());
    let mut object: Unwritable = Object::new("m", &kind, BTreeMap::from([((1, 2), 3)]));
    object.metadata.resource_version = Some("1".to_owned());
    let (client, seen) = scripted(vec![error(404, "NotFound")]);
    let api: Api<Unwritable> = Api::namespaced_with(client, "ns", &kind);
    let ended = [
        create_or_update(&api, &object, |_| {}).await.map(|_| ()),
        once::create(&api, &options(), &object).await.map(|_| ()),
        once::put(&api, "m", Subresource::Main, &options(), &object).await.map(|_| ()),
    ];
    for result in ended {
        let failed = result.unwrap_err();
        assert!(
            matches!(failed, WriteError::Refused { reason: Refusal::Encode(_), maybe_written: false, .. }),
            "{failed:?}"
        );
    }
    assert_eq!(verbs(&seen), ["GET"], "whether it is there");
}

#[tokio::test(start_paused = true)]
async fn a_review_is_answered_without_a_name_because_it_is_not_stored() {
    let (client, _) = scripted(vec![Reply::Json(201, json!({"metadata": {}, "status": {"allowed": true}}))]);
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client);
    let review = once::create(&reviews, &options(), &SelfSubjectAccessReview::default()).await.unwrap();
    assert!(review.status.is_some_and(|status| status.allowed));
}

/// Whether a write ended as it has to: with an error if the answer, a pod with this phase, shows that the status is lost.
fn is_said(ended: &Result<Outcome<Pod>, WriteError>, phase: &str) -> bool {
    match ended {
        Ok(outcome) => phase == "Failed" && outcome.label() == "written",
        Err(error) => {
            phase != "Failed" && error.maybe_written() && error.to_string().contains("touches `status`")
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_that_is_lost_in_a_creation_a_patch_or_an_apply_is_an_error() {
    let status = json!({"phase": "Failed"});
    let copy: Pod = serde_json::from_value(pod("1", "old", "Running")).unwrap();
    let initial: Pod = serde_json::from_value(pod("1", "old", "Failed")).unwrap();
    let patch = |_: &Pod| Some(json!({"metadata": {"labels": {"l": "new"}}, "status": status}));
    let body = json!({"apiVersion": "v1", "kind": "Pod", "status": status});
    for phase in ["Running", "Failed"] {
        let api = |replies| Api::<Pod>::namespaced(scripted(replies).0, "ns");
        let stored = || ok(pod("2", "new", phase));

        let pods = api(vec![error(404, "NotFound"), stored()]);
        let created = create_or_update(&pods, &initial, |_| {}).outcome().await;
        assert!(is_said(&created, phase), "{created:?}");
        // The object is there already.
        let pods = api(vec![ok(pod("1", "old", "Running")), stored()]);
        let updated = create_or_update(&pods, &initial, |pod| {
            pod.metadata.labels.get_or_insert_default().insert("l".to_owned(), "new".to_owned());
            fail(pod);
        });
        let updated = updated.outcome().await;
        assert!(is_said(&updated, phase), "{updated:?}");

        let patched = merge_patch(&api(vec![stored()]), "p", patch).from(&copy).outcome().await;
        assert!(is_said(&patched, phase), "{patched:?}");

        let applied = apply(&api(vec![stored()]), "p", &body).outcome().await;
        assert!(is_said(&applied, phase), "{applied:?}");
        // This is where it belongs.
        let applied = apply_status(&api(vec![stored()]), "p", &body).outcome().await.unwrap();
        assert_eq!(applied.label(), "written");
    }
}
