//! Replica counts and single attempts: which requests they send, against a scripted server.

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::{DeleteParams, Preconditions};
use serde_json::json;

use super::tests::{
    Reply, body, conflict, error, failed_test, map, maps, object, ok, options, scale_body, scripted,
    seen_view, verbs,
};
use super::*;
use crate::freshness::Source;
use crate::operation::Subresource;
use crate::outcome::{DeleteOutcome, EvictOutcome, Outcome, Refusal, WriteError};

#[tokio::test(start_paused = true)]
async fn put_once_returns_the_conflict() {
    let (api, seen) = maps(vec![conflict()]);
    let outcome = once::put(&api, "m", Subresource::Main, &options(), &object("1", "new")).await.unwrap();
    assert!(matches!(outcome, Outcome::Conflict(status) if status.code == 409));
    assert_eq!(verbs(&seen), ["PUT"]);
    let unversioned: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "m"}})).unwrap();
    let failed = once::put(&api, "m", Subresource::Main, &options(), &unversioned).await.unwrap_err();
    assert!(matches!(failed, WriteError::Refused { reason: Refusal::NoVersion, .. }));
}

#[tokio::test(start_paused = true)]
async fn a_single_put_without_an_answer_is_unknown() {
    let (api, _) = maps(vec![Reply::Silence]);
    let failed = once::put(&api, "m", Subresource::Main, &options(), &object("1", "new")).await.unwrap_err();
    assert!(matches!(failed, WriteError::Unknown { .. }) && failed.maybe_written());
}

#[tokio::test(start_paused = true)]
async fn a_failed_guard_reads_the_scale_live_and_decides_again() {
    let (api, seen) = maps(vec![failed_test(), ok(scale_body("5", 4)), ok(scale_body("6", 6))]);
    let mut asked = Vec::new();
    let decide = |view: &ScaleView| {
        asked.push(view.replicas);
        ScaleDecision::Set(view.replicas.unwrap_or(0) + 2)
    };
    let outcome = scale(&api, "m", decide)
        .with(&options())
        .from(Source::Copy(seen_view(Some(1))))
        .outcome()
        .await
        .unwrap();
    assert_eq!(outcome.met().unwrap().replicas, Some(6));
    assert_eq!(asked, [Some(1), Some(4)]);
    assert_eq!(verbs(&seen), ["PATCH", "GET", "PATCH"]);
    assert_eq!(body(&seen, 2)[1], json!({"op": "test", "path": "/spec/replicas", "value": 4}));
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_fails_on_an_object_that_did_not_move_is_not_retried() {
    let (api, seen) = maps(vec![
        failed_test(),
        ok(scale_body("5", 4)),
        failed_test(),
        ok(scale_body("5", 4)),
        failed_test(),
    ]);
    let failed = scale(&api, "m", |_| ScaleDecision::Set(9))
        .with(&options())
        .from(Source::Copy(seen_view(Some(1))))
        .outcome()
        .await
        .unwrap_err();
    assert_eq!((failed.category(), verbs(&seen).len()), ("test_failed", 5));
}

#[tokio::test(start_paused = true)]
async fn an_unset_count_is_read_with_the_version_that_it_was_unset_at() {
    let unset = || {
        Reply::Json(
            500,
            json!({"kind": "Status", "status": "Failure", "reason": "InternalError", "code": 500, "message": "Internal error occurred: the spec replicas field \".spec.replicas\" does not exist"}),
        )
    };
    let (api, seen) = maps(vec![unset(), ok(map("5", "x")), unset(), ok(scale_body("6", 3))]);
    let outcome = scale(&api, "m", |view| {
        assert_eq!(view.replicas, None);
        ScaleDecision::Set(3)
    })
    .guarded_by(ScaleGuard::VersionByPut)
    .with(&options())
    .outcome()
    .await
    .unwrap();
    assert_eq!(outcome.met().unwrap().replicas, Some(3));
    assert_eq!(verbs(&seen), ["GET", "GET", "GET", "PUT"]);
    assert_eq!(body(&seen, 3)["metadata"]["resourceVersion"], "5");

    // Without its UID another object of the same name is not detected, so a guard on the count reads the object as
    // well.
    let (api, seen) = maps(vec![unset(), ok(map("5", "x")), unset(), ok(scale_body("6", 3))]);
    let outcome = scale(&api, "m", |_| ScaleDecision::Set(3)).with(&options()).outcome().await.unwrap();
    assert!(matches!(outcome, Outcome::Written(_)));
    assert_eq!(verbs(&seen), ["GET", "GET", "GET", "PATCH"]);
    assert_eq!(body(&seen, 3)[0], json!({"op": "test", "path": "/metadata/uid", "value": "u1"}));
    assert_eq!(body(&seen, 3)[1]["value"], json!(-2_147_483_648_i64));
}

#[tokio::test(start_paused = true)]
async fn the_three_ways_to_scale_send_nothing_when_the_count_is_right_and_refuse_a_negative_one() {
    let (api, seen) = maps(vec![]);
    let base = || Source::Copy(seen_view(Some(3)));
    let set = |count| move |_: &ScaleView| ScaleDecision::Set(count);
    let met = Outcome::Unchanged(seen_view(Some(3)));
    assert_eq!(scale(&api, "m", set(3)).with(&options()).from(base()).outcome().await.unwrap(), met);
    assert_eq!(
        scale(&api, "m", set(3))
            .guarded_by(ScaleGuard::VersionByPut)
            .with(&options())
            .from(base())
            .outcome()
            .await
            .unwrap(),
        met
    );
    assert_eq!(
        scale(&api, "m", set(3))
            .guarded_by(ScaleGuard::Version)
            .with(&options())
            .from(base())
            .outcome()
            .await
            .unwrap(),
        met
    );
    assert_eq!(once::put_scale(&api, "m", &options(), &seen_view(Some(3)), 3).await.unwrap(), met);
    let failed = scale(&api, "m", set(-1)).with(&options()).from(base()).outcome().await.unwrap_err();
    assert!(matches!(failed, WriteError::Refused { reason: Refusal::Replicas(-1), .. }));
    assert!(verbs(&seen).is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_eviction_carries_its_precondition_and_a_budget_blocks_without_an_error() {
    let blocked = json!({"kind": "Status", "status": "Failure", "reason": "TooManyRequests", "code": 429, "message": "no", "details": {"causes": [{"reason": "DisruptionBudget", "message": "needs 1"}]}});
    let done = json!({"kind": "Status", "status": "Success", "code": 201});
    let (client, seen) =
        scripted(vec![Reply::Json(429, blocked), Reply::Json(201, done), error(429, "TooManyRequests")]);
    let pods: Api<Pod> = Api::namespaced(client, "ns");
    let uid = || Some(serde_json::from_value(json!({"preconditions": {"uid": "u1"}})).unwrap());
    let outcome = once::evict(&pods, "p", &options(), uid()).await.unwrap();
    assert_eq!(outcome, EvictOutcome::Blocked { message: "needs 1".to_owned(), retry_after: None });
    assert_eq!(once::evict(&pods, "p", &options(), uid()).await.unwrap(), EvictOutcome::Evicted);
    assert_eq!(body(&seen, 0)["deleteOptions"]["preconditions"]["uid"], "u1");
    assert_eq!(once::evict(&pods, "p", &options(), None).await.unwrap_err().category(), "throttled");
}

#[tokio::test(start_paused = true)]
async fn a_deletion_distinguishes_deleted_terminating_and_refused() {
    let mut marked = map("2", "x");
    marked["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let done = json!({"kind": "Status", "status": "Success"});
    let (api, seen) = maps(vec![ok(marked), ok(done), error(404, "NotFound"), conflict()]);
    let params = DeleteParams {
        preconditions: Some(Preconditions { uid: Some("u1".to_owned()), resource_version: None }),
        ..DeleteParams::default()
    };
    assert!(matches!(
        once::delete(&api, "m", &options(), &params).await.unwrap(),
        DeleteOutcome::Terminating(_)
    ));
    assert_eq!(once::delete(&api, "m", &options(), &params).await.unwrap(), DeleteOutcome::Deleted);
    assert_eq!(once::delete(&api, "m", &options(), &params).await.unwrap(), DeleteOutcome::Gone);
    assert!(matches!(
        once::delete(&api, "m", &options(), &params).await.unwrap(),
        DeleteOutcome::Conflict(_)
    ));
    assert_eq!(body(&seen, 0)["preconditions"]["uid"], "u1");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_was_deleted_at_once_is_not_called_terminating() {
    let marked = |seconds: Option<i64>, finalizers: &[&str]| {
        let mut answer = map("2", "x");
        let meta = &mut answer["metadata"];
        meta["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        meta["deletionGracePeriodSeconds"] = json!(seconds);
        meta["finalizers"] = json!(finalizers);
        answer
    };
    let cases: [(Option<i64>, &[&str], &str); 4] = [
        (Some(0), &[], "deleted"),
        (Some(0), &["example.com/wait"], "terminating"),
        (Some(30), &[], "terminating"),
        // A namespace waits for what is in it.
        (None, &[], "terminating"),
    ];
    for (seconds, finalizers, expected) in cases {
        let (api, _) = maps(vec![ok(marked(seconds, finalizers))]);
        let outcome = once::delete(&api, "m", &options(), &DeleteParams::default()).await.unwrap();
        assert_eq!(outcome.label(), expected, "{seconds:?} {finalizers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn creating_an_object_whose_name_is_taken_is_an_error_of_its_own() {
    let (api, _) = maps(vec![error(409, "AlreadyExists"), Reply::Json(201, map("1", "x"))]);
    assert!(once::create(&api, &options(), &object("", "x")).await.unwrap_err().is_already_exists());
    assert_eq!(once::create(&api, &options(), &object("", "x")).await.unwrap(), object("1", "x"));
}

#[tokio::test(start_paused = true)]
async fn a_failed_test_of_the_callers_patch_is_a_conflict() {
    let (api, seen) = maps(vec![failed_test()]);
    let operations = json!([{"op": "test", "path": "/data/k", "value": "x"}]);
    let outcome = once::json_patch(&api, "m", Subresource::Main, &options(), &operations).await.unwrap();
    assert!(matches!(outcome, Outcome::Conflict(_)));
    assert_eq!(body(&seen, 0), operations);
}

#[tokio::test(start_paused = true)]
async fn a_recreated_object_with_an_unset_count_is_not_scaled() {
    let unset = || {
        Reply::Json(
            500,
            json!({"kind": "Status", "status": "Failure", "reason": "InternalError", "code": 500, "message": "the spec replicas field \".spec.replicas\" does not exist"}),
        )
    };
    let mut recreated = map("9", "x");
    recreated["metadata"]["uid"] = json!("u2");
    let (api, seen) = maps(vec![failed_test(), unset(), ok(recreated), unset()]);
    let copy = ScaleView { uid: Some("u1".into()), ..seen_view(Some(3)) };
    let outcome = scale(&api, "m", |_| ScaleDecision::Set(5))
        .with(&options())
        .from(Source::Copy(copy))
        .outcome()
        .await
        .unwrap();
    assert_eq!((outcome, verbs(&seen).len()), (Outcome::Gone, 4));
}
