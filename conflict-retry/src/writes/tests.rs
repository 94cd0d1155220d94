//! Which requests the write functions send, in which order, against a scripted server. How a real server answers them
//! is tested end to end: a script proves nothing about conflicts.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::classify::Class;
use crate::freshness::{CachedObject, Newer, Source};
use crate::observe::{AttemptEvent, FinishedEvent, Observer};
use crate::operation::{Operation, ReadSource};
use crate::options::WriteOptions;
use crate::outcome::{Outcome, Refusal, WriteError};
use crate::policy::RetryPolicy;

/// What the scripted server does with one request.
pub(super) enum Reply {
    Json(u16, Value),
    Silence,
}

/// Requests seen: method, path with query, body.
pub(super) type Seen = Arc<Mutex<Vec<(String, String, Value)>>>;

/// A client whose server answers from a script, and the requests that the server got.
pub(super) fn scripted(replies: Vec<Reply>) -> (Client, Seen) {
    let seen = Seen::default();
    let script = Arc::new(Mutex::new(VecDeque::from(replies)));
    let log = Arc::clone(&seen);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (script, log) = (Arc::clone(&script), Arc::clone(&log));
        async move {
            let (parts, body) = request.into_parts();
            let bytes = body.collect_bytes().await.unwrap();
            let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
            log.lock().unwrap().push((parts.method.to_string(), parts.uri.to_string(), body));
            let reply = script.lock().unwrap().pop_front();
            match reply.expect("the script has no further reply") {
                Reply::Json(code, value) => {
                    let response =
                        Response::builder().status(code).body(Body::from(value.to_string().into_bytes()));
                    Ok::<_, tower::BoxError>(response.unwrap())
                }
                Reply::Silence => pending().await,
            }
        }
    });
    (Client::new(service, "ns"), seen)
}

pub(super) fn maps(replies: Vec<Reply>) -> (Api<ConfigMap>, Seen) {
    let (client, seen) = scripted(replies);
    (Api::namespaced(client, "ns"), seen)
}

pub(super) fn map(version: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "m", "namespace": "ns", "uid": "u1", "resourceVersion": version},
        "data": {"k": value},
    })
}

pub(super) fn object(version: &str, value: &str) -> ConfigMap {
    serde_json::from_value(map(version, value)).unwrap()
}

pub(super) fn ok(value: Value) -> Reply {
    Reply::Json(200, value)
}

pub(super) fn error(code: u16, reason: &str) -> Reply {
    let details = json!({"name": "m", "kind": "configmaps"});
    Reply::Json(
        code,
        json!({"kind": "Status", "status": "Failure", "reason": reason, "code": code, "message": "no", "details": details}),
    )
}

pub(super) fn conflict() -> Reply {
    error(409, "Conflict")
}

pub(super) fn failed_test() -> Reply {
    Reply::Json(
        422,
        json!({"kind": "Status", "status": "Failure", "reason": "Invalid", "code": 422, "message": "no", "details": {}}),
    )
}

pub(super) fn options() -> WriteOptions {
    WriteOptions::new("tests")
}

/// A closure that wants `k` to be `value`.
pub(super) fn wants(value: &'static str) -> impl FnMut(&mut ConfigMap) -> UpdateDecision {
    move |map| {
        map.data.get_or_insert_default().insert("k".to_owned(), value.to_owned());
        UpdateDecision::Write
    }
}

/// Wants `k` to be `new`, from a copy in which it is `old`, by a PUT.
pub(super) async fn put_new(
    api: &Api<ConfigMap>,
    options: &WriteOptions,
) -> Result<Outcome<ConfigMap>, WriteError> {
    update(api, "m", wants("new")).put().with(options).from(&object("1", "old")).outcome().await
}

pub(super) fn verbs(seen: &Seen) -> Vec<String> {
    seen.lock().unwrap().iter().map(|(method, _, _)| method.clone()).collect()
}

pub(super) fn body(seen: &Seen, index: usize) -> Value {
    seen.lock().unwrap()[index].2.clone()
}

pub(super) fn scale_body(version: &str, replicas: i32) -> Value {
    json!({"kind": "Scale", "metadata": {"name": "m", "uid": "u1", "resourceVersion": version}, "spec": {"replicas": replicas}, "status": {"replicas": 0}})
}

pub(super) fn seen_view(replicas: Option<i32>) -> ScaleView {
    ScaleView { replicas, current: None, uid: Some("u1".to_owned()), resource_version: Some("1".to_owned()) }
}

#[tokio::test(start_paused = true)]
async fn a_fresh_copy_costs_one_request_and_a_conflict_adds_a_live_read() {
    let (api, seen) = maps(vec![ok(map("2", "new"))]);
    let outcome = put_new(&api, &options()).await.unwrap();
    assert_eq!(outcome, Outcome::Written(object("2", "new")));
    assert_eq!(verbs(&seen), ["PUT"]);

    let (api, seen) = maps(vec![conflict(), ok(map("7", "other")), ok(map("8", "new"))]);
    let outcome = put_new(&api, &options()).await.unwrap();
    assert_eq!(outcome, Outcome::Written(object("8", "new")));
    assert_eq!(verbs(&seen), ["PUT", "GET", "PUT"]);
    assert_eq!(body(&seen, 2)["metadata"]["resourceVersion"], "7", "the retry is made from what was read");
}

#[tokio::test(start_paused = true)]
async fn a_retry_decides_again_and_may_find_nothing_left_to_do() {
    let (api, seen) = maps(vec![conflict(), ok(map("7", "new"))]);
    let outcome = put_new(&api, &options()).await.unwrap();
    assert_eq!(outcome, Outcome::Unchanged(object("7", "new")));
    assert_eq!(verbs(&seen), ["PUT", "GET"]);
}

#[tokio::test(start_paused = true)]
async fn an_equal_object_sends_nothing_and_abort_sends_nothing() {
    let (api, seen) = maps(vec![]);
    let outcome = update(&api, "m", wants("new"))
        .put()
        .with(&options())
        .from(Source::Copy(object("1", "new")))
        .outcome()
        .await
        .unwrap();
    assert_eq!(outcome, Outcome::Unchanged(object("1", "new")));
    let outcome = update(&api, "m", |_| UpdateDecision::Abort)
        .put()
        .with(&options())
        .from(Source::Copy(object("1", "old")))
        .outcome()
        .await
        .unwrap();
    assert_eq!(outcome, Outcome::Aborted);
    assert!(verbs(&seen).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_looked_up_before_it_is_repeated() {
    let (api, seen) = maps(vec![error(504, "Timeout"), ok(map("2", "new"))]);
    let outcome = put_new(&api, &options()).await.unwrap();
    assert_eq!(outcome, Outcome::AlreadyDone(object("2", "new")));
    assert_eq!(verbs(&seen), ["PUT", "GET"]);

    let (api, seen) = maps(vec![Reply::Silence, ok(map("1", "old")), ok(map("2", "new"))]);
    let start = Instant::now();
    let second = Duration::from_secs(1);
    let patient = options().with_attempt_timeout(second);
    let outcome = put_new(&api, &patient).await.unwrap();
    assert_eq!(outcome, Outcome::Written(object("2", "new")));
    assert_eq!(verbs(&seen), ["PUT", "GET", "PUT"]);
    assert!(start.elapsed() >= second, "an attempt has its full time");
}

#[tokio::test(start_paused = true)]
async fn a_vanished_or_recreated_object_is_gone() {
    let (api, _) = maps(vec![error(404, "NotFound")]);
    assert_eq!(
        update(&api, "m", wants("new")).put().with(&options()).outcome().await.unwrap(),
        Outcome::Gone
    );
    let mut recreated = map("9", "old");
    recreated["metadata"]["uid"] = json!("u2");
    let (api, seen) = maps(vec![conflict(), ok(recreated)]);
    let outcome = put_new(&api, &options()).await.unwrap();
    assert_eq!((outcome, verbs(&seen).len()), (Outcome::Gone, 2));
}

#[tokio::test(start_paused = true)]
async fn a_permanent_error_is_one_attempt() {
    for (code, reason, category) in
        [(403, "Forbidden", "forbidden"), (422, "Invalid", "invalid"), (401, "Unauthorized", "unauthorized")]
    {
        let (api, seen) = maps(vec![error(code, reason)]);
        let failed = put_new(&api, &options()).await.unwrap_err();
        assert_eq!((failed.category(), verbs(&seen).len()), (category, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn exhaustion_is_an_error_that_carries_the_last_conflict() {
    let (api, seen) = maps(vec![conflict(), ok(map("2", "a")), conflict(), ok(map("3", "b")), conflict()]);
    let policy = RetryPolicy::default().with_max_attempts(3.try_into().unwrap());
    let failed = put_new(&api, &options().with_policy(policy)).await.unwrap_err();
    assert!(matches!(
        failed,
        WriteError::Exhausted { attempts: 3, class: Class::Conflict, maybe_written: false, .. }
    ));
    assert_eq!(verbs(&seen).len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_identity_is_refused_before_sending() {
    let (api, seen) = maps(vec![]);
    let rename = |map: &mut ConfigMap| {
        map.metadata.resource_version = None;
        UpdateDecision::Write
    };
    let failed = update(&api, "m", rename)
        .put()
        .with(&options())
        .from(Source::Copy(object("1", "old")))
        .outcome()
        .await
        .unwrap_err();
    assert!(matches!(failed, WriteError::Refused { reason: Refusal::Identity("resourceVersion"), .. }));
    let failed = update(&api, "other", wants("new"))
        .put()
        .with(&options())
        .from(Source::Copy(object("1", "old")))
        .outcome()
        .await
        .unwrap_err();
    assert!(matches!(failed, WriteError::Refused { reason: Refusal::WrongObject { .. }, .. }));
    assert!(verbs(&seen).is_empty());
}

#[tokio::test(start_paused = true)]
async fn cancelling_a_write_under_way_says_that_it_may_have_been_made() {
    let (api, _) = maps(vec![Reply::Silence]);
    let token = CancellationToken::new();
    let options = options().with_cancellation(token.clone());
    let write = put_new(&api, &options);
    let (result, ()) = tokio::join!(write, async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        token.cancel();
    });
    assert!(matches!(result, Err(WriteError::Cancelled { attempts: 0, maybe_written: true, last: None })));
}

#[tokio::test(start_paused = true)]
async fn a_merge_patch_carries_the_version_it_was_decided_from() {
    let (api, seen) = maps(vec![conflict(), ok(map("5", "other")), ok(map("6", "new"))]);
    let decide = |_: &ConfigMap| Some(json!({"data": {"k": "new"}}));
    let base = Source::Copy(object("1", "old"));
    let outcome = merge_patch(&api, "m", decide).with(&options()).from(base).outcome().await.unwrap();
    assert_eq!(outcome, Outcome::Written(object("6", "new")));
    assert_eq!(verbs(&seen), ["PATCH", "GET", "PATCH"]);
    assert_eq!(body(&seen, 0), json!({"metadata": {"resourceVersion": "1"}, "data": {"k": "new"}}));
    assert_eq!(body(&seen, 2)["metadata"]["resourceVersion"], "5");
    let base = Source::Copy(object("1", "new"));
    let (api, seen) = maps(vec![]);
    let outcome = merge_patch(&api, "m", decide).with(&options()).from(base).outcome().await.unwrap();
    assert_eq!((outcome, verbs(&seen).len()), (Outcome::Unchanged(object("1", "new")), 0));
}

#[tokio::test(start_paused = true)]
async fn an_apply_is_repeated_after_a_fault_but_never_after_a_field_managers_conflict() {
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "new"}});
    let (api, seen) = maps(vec![error(503, "ServiceUnavailable"), ok(map("2", "new"))]);
    let outcome = apply(&api, "m", &body).with(&options()).outcome().await.unwrap();
    assert_eq!(outcome, Outcome::Written(object("2", "new")));
    assert_eq!(verbs(&seen), ["PATCH", "PATCH"]);
    assert!(seen.lock().unwrap()[0].1.contains("fieldManager=tests"));

    let owned = json!({"kind": "Status", "status": "Failure", "reason": "Conflict", "code": 409, "message": "no", "details": {"causes": [{"reason": "FieldManagerConflict", "message": "conflict with \"bob\" using v1", "field": ".data.k"}]}});
    let (api, seen) = maps(vec![Reply::Json(409, owned)]);
    let failed = apply(&api, "m", &body).with(&options()).outcome().await.unwrap_err();
    assert_eq!(
        failed.to_string(),
        "other managers own .data.k (owned by bob); leave the fields out of the apply, or force it"
    );
    assert_eq!(verbs(&seen).len(), 1);

    let (api, seen) = maps(vec![conflict(), ok(map("2", "new"))]);
    let outcome = apply_status(&api, "m", &body).with(&options().with_force(true)).outcome().await.unwrap();
    assert!(matches!(outcome, Outcome::Conflict(_)), "the same body would only meet the conflict again");
    assert!(seen.lock().unwrap()[0].1.contains("/status?&force=true"), "{:?}", seen.lock().unwrap()[0].1);
    let failed = apply(&api, "m", &json!({"data": {}})).with(&options()).outcome().await.unwrap_err();
    assert_eq!(failed.category(), "refused");
}

/// Records every event.
#[derive(Default)]
struct Diary(Mutex<Vec<Entry>>);

/// Attempt, verb, class, and whether a wait follows.
type Entry = (u32, &'static str, Option<&'static str>, bool);

impl Observer for Diary {
    fn attempt(&self, event: &AttemptEvent<'_>) {
        let class = event.class.map(Class::label);
        self.0.lock().unwrap().push((event.attempt, event.verb.label(), class, event.delay.is_some()));
    }
}

#[tokio::test(start_paused = true)]
async fn the_observer_gets_every_request_once() {
    let (api, _) = maps(vec![conflict(), ok(map("7", "other")), error(403, "Forbidden")]);
    let diary = Arc::new(Diary::default());
    let options = options().with_observer(Arc::<Diary>::clone(&diary));
    let _ = put_new(&api, &options).await.unwrap_err();
    assert_eq!(
        *diary.0.lock().unwrap(),
        [(1, "put", Some("conflict"), true), (2, "get", None, false), (2, "put", Some("forbidden"), false)]
    );
}

#[tokio::test(start_paused = true)]
async fn the_futures_can_be_spawned() {
    let (api, _) =
        maps(vec![ok(map("1", "old")), ok(map("2", "new")), ok(scale_body("1", 3)), ok(scale_body("2", 4))]);
    let task = tokio::spawn(async move {
        let written = update(&api, "m", wants("new")).put().with(&options()).outcome().await.unwrap();
        let scaled = scale(&api, "m", |_| ScaleDecision::Set(4)).with(&options()).outcome().await.unwrap();
        (written.label(), scaled.label())
    });
    assert_eq!(task.await.unwrap(), ("written", "written"));
}

/// A cache that returns the given objects, one after the other.
#[derive(Default)]
struct Shelf {
    latest: Option<ConfigMap>,
    newer: Mutex<VecDeque<ConfigMap>>,
    asked: Mutex<Vec<String>>,
    wrote: Mutex<Vec<ConfigMap>>,
}

impl CachedObject<ConfigMap> for Shelf {
    fn latest(&self) -> Option<ConfigMap> {
        self.latest.clone()
    }

    fn newer(&self, version: String) -> Newer<'_, ConfigMap> {
        self.asked.lock().unwrap().push(version);
        let newer = self.newer.lock().unwrap().pop_front();
        Box::pin(async move {
            match newer {
                Some(object) => Some(object),
                None => pending().await,
            }
        })
    }

    fn wrote(&self, written: &ConfigMap) {
        self.wrote.lock().unwrap().push(written.clone());
    }
}

#[tokio::test(start_paused = true)]
async fn a_conflict_costs_no_read_when_the_watch_brings_the_winner() {
    let (api, seen) = maps(vec![conflict(), ok(map("3", "new"))]);
    let shelf = Shelf {
        latest: Some(object("1", "old")),
        newer: Mutex::new([object("2", "other")].into()),
        ..Shelf::default()
    };
    let outcome = update(&api, "m", wants("new"))
        .put()
        .with(&options())
        .from(Source::Watched(&shelf))
        .outcome()
        .await
        .unwrap();
    assert_eq!(outcome, Outcome::Written(object("3", "new")));
    assert_eq!(verbs(&seen), ["PUT", "PUT"]);
    assert_eq!(body(&seen, 1)["metadata"]["resourceVersion"], "2");
    assert_eq!(shelf.asked.lock().unwrap()[0], "1");
    assert_eq!(*shelf.wrote.lock().unwrap(), [object("3", "new")]);
}

#[tokio::test(start_paused = true)]
async fn a_late_or_stale_watch_is_replaced_by_a_live_read() {
    let (api, seen) = maps(vec![conflict(), ok(map("2", "other")), ok(map("3", "new"))]);
    let late = Shelf { latest: Some(object("1", "old")), ..Shelf::default() };
    let outcome = update(&api, "m", wants("new"))
        .put()
        .with(&options())
        .from(Source::Watched(&late))
        .outcome()
        .await
        .unwrap();
    assert_eq!(outcome, Outcome::Written(object("3", "new")));
    assert_eq!(verbs(&seen), ["PUT", "GET", "PUT"]);

    let (api, seen) = maps(vec![ok(map("2", "other")), ok(map("3", "new"))]);
    let behind = Shelf::default();
    let _ = update(&api, "m", wants("new"))
        .put()
        .with(&options())
        .from(Source::Watched(&behind))
        .outcome()
        .await
        .unwrap();
    assert_eq!(verbs(&seen), ["GET", "PUT"]);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_looked_up_live_although_there_is_a_watch() {
    let (api, seen) = maps(vec![error(504, "Timeout"), ok(map("2", "new"))]);
    let shelf = Shelf { latest: Some(object("1", "old")), ..Shelf::default() };
    let outcome = update(&api, "m", wants("new"))
        .put()
        .with(&options())
        .from(Source::Watched(&shelf))
        .outcome()
        .await
        .unwrap();
    assert_eq!(outcome, Outcome::AlreadyDone(object("2", "new")));
    assert_eq!(verbs(&seen), ["PUT", "GET"]);
    assert!(shelf.asked.lock().unwrap().is_empty());
}

/// Records where objects came from, what was overwritten and how operations ended.
#[derive(Default)]
struct Chronicle {
    overwritten: Mutex<Vec<String>>,
    reads: Mutex<Vec<&'static str>>,
    ends: Mutex<Vec<(String, &'static str, u32, u32)>>,
}

impl Observer for Chronicle {
    fn read(&self, _operation: &Operation, source: ReadSource) {
        self.reads.lock().unwrap().push(source.label());
    }

    fn overwrote(&self, _operation: &Operation, path: &str) {
        self.overwritten.lock().unwrap().push(path.to_owned());
    }

    fn finished(&self, event: &FinishedEvent<'_>) {
        let end = (event.operation.resource.clone(), event.result, event.attempts, event.requests);
        self.ends.lock().unwrap().push(end);
    }
}

#[tokio::test(start_paused = true)]
async fn the_observer_gets_the_source_of_each_read_and_the_result_of_each_write() {
    let chronicle = Arc::new(Chronicle::default());
    let observed = options().with_observer(chronicle.clone());
    let (api, _) = maps(vec![conflict(), ok(map("2", "x")), ok(map("3", "new")), error(403, "Forbidden")]);
    let _ = put_new(&api, &observed).await.unwrap();
    let _ = update(&api, "m", wants("new"))
        .put()
        .with(&observed)
        .from(Source::Copy(object("1", "new")))
        .outcome()
        .await
        .unwrap();
    let _ = update(&api, "m", wants("new")).put().with(&observed).outcome().await.unwrap_err();
    assert_eq!(*chronicle.reads.lock().unwrap(), ["copy", "live", "copy"]);
    let end = |result, attempts, requests| ("configmaps".to_owned(), result, attempts, requests);
    let ends = [end("written", 2, 3), end("unchanged", 0, 0), end("forbidden", 1, 1)];
    assert_eq!(*chronicle.ends.lock().unwrap(), ends);
}

#[tokio::test(start_paused = true)]
async fn invalid_arguments_are_refused_before_sending() {
    let (api, seen) = maps(vec![]);
    let refused = async |name: &str, options: WriteOptions| match update(&api, name, wants("new"))
        .put()
        .with(&options)
        .outcome()
        .await
    {
        Err(WriteError::Refused { reason, .. }) => reason.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(refused("", options()).await.contains("name of the object is empty"));
    for manager in ["", "a\nb", &"x".repeat(129)] {
        assert!(refused("m", WriteOptions::new(manager)).await.contains("field manager"));
    }
    assert!(refused("m", options().with_attempt_timeout(Duration::ZERO)).await.contains("zero"));
    assert!(verbs(&seen).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_subresource_that_is_not_served_is_distinguished_from_a_missing_object() {
    let missing = || {
        Reply::Json(
            404,
            json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, "details": {"name": "m"}}),
        )
    };
    let found = || ok(map("1", "old"));
    let (api, seen) = maps(vec![missing(), found(), missing(), found()]);
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "status": {}});
    let failed = apply_status(&api, "m", &body).with(&options()).outcome().await.unwrap_err();
    assert_eq!(failed.category(), "not_served");
    assert_eq!(verbs(&seen), ["PATCH", "GET", "PATCH", "GET"]);
    // Created after the first request.
    let (api, seen) = maps(vec![missing(), found(), ok(map("2", "old"))]);
    let outcome = apply_status(&api, "m", &body).with(&options()).outcome().await.unwrap();
    assert_eq!(outcome, Outcome::Written(object("2", "old")));
    assert_eq!(verbs(&seen), ["PATCH", "GET", "PATCH"]);
    let (api, _) = maps(vec![missing(), missing()]);
    assert_eq!(apply_status(&api, "m", &body).with(&options()).outcome().await.unwrap(), Outcome::Gone);
    let (api, seen) = maps(vec![missing()]);
    let on_the_object = update(&api, "m", wants("new")).put().with(&options()).outcome().await.unwrap();
    assert_eq!((on_the_object, verbs(&seen).len()), (Outcome::Gone, 1));
}

#[tokio::test(start_paused = true)]
async fn a_closure_that_repeats_its_value_is_reported_and_one_that_decides_again_is_not() {
    let race = || vec![conflict(), ok(map("2", "theirs")), ok(map("3", "new"))];
    let chronicle = Arc::new(Chronicle::default());
    let observed = options().with_observer(chronicle.clone());
    let (api, _) = maps(race());
    let _ = put_new(&api, &observed).await.unwrap();
    assert_eq!(*chronicle.overwritten.lock().unwrap(), ["/data/k"]);
    let (api, _) = maps(race());
    let _ = update(&api, "m", |map| {
        map.data.as_mut().unwrap().get_mut("k").unwrap().push('+');
        UpdateDecision::Write
    })
    .put()
    .with(&observed)
    .from(Source::Copy(object("1", "old")))
    .outcome()
    .await
    .unwrap();
    assert_eq!(chronicle.overwritten.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn cancelled_in_any_request_a_write_ends_there_and_says_whether_it_may_have_been_made() {
    let script = || vec![ok(map("1", "a")), conflict(), ok(map("2", "b")), conflict(), ok(map("3", "c"))];
    for answered in 0..=script().len() {
        let mut replies: Vec<Reply> = script().into_iter().take(answered).collect();
        replies.push(Reply::Silence);
        let (api, seen) = maps(replies);
        let token = CancellationToken::new();
        let options = options().with_cancellation(token.clone());
        let write = update(&api, "m", wants("new")).put().with(&options).outcome();
        let (result, ()) = tokio::join!(write, async {
            while verbs(&seen).len() <= answered {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            token.cancel();
        });
        let is_write = verbs(&seen)[answered] == "PUT";
        let Err(WriteError::Cancelled { attempts, maybe_written, last }) = result else {
            panic!("{result:?}");
        };
        assert_eq!((maybe_written, verbs(&seen).len()), (is_write, answered + 1), "{answered}");
        assert_eq!((last.is_some(), usize::try_from(attempts).unwrap()), (answered >= 2, answered / 2));
    }
}

#[tokio::test(start_paused = true)]
async fn a_cache_of_another_object_is_refused_and_one_without_the_object_is_replaced_by_a_live_read() {
    let mut other = object("1", "old");
    other.metadata.name = Some("other".into());
    let (api, seen) = maps(vec![]);
    let shelf = Shelf { latest: Some(other), ..Shelf::default() };
    let failed = update(&api, "m", wants("new"))
        .put()
        .with(&options())
        .from(Source::Watched(&shelf))
        .outcome()
        .await
        .unwrap_err();
    assert!(matches!(failed, WriteError::Refused { reason: Refusal::WrongObject { .. }, .. }), "{failed:?}");
    let mut elsewhere = object("1", "old");
    elsewhere.metadata.namespace = Some("elsewhere".into());
    let failed = update(&api, "m", wants("new"))
        .put()
        .with(&options())
        .from(Source::Copy(elsewhere))
        .outcome()
        .await
        .unwrap_err();
    assert!(matches!(failed, WriteError::Refused { reason: Refusal::WrongObject { .. }, .. }), "{failed:?}");
    assert!(verbs(&seen).is_empty());

    let replies = vec![conflict(), ok(map("2", "x")), conflict(), ok(map("3", "x")), ok(map("4", "new"))];
    let (api, seen) = maps(replies);
    let policy = RetryPolicy::client_go_default_retry();
    let start = Instant::now();
    let lost = Lost(object("1", "old"));
    let slow = options().with_policy(policy);
    let outcome = update(&api, "m", wants("new"))
        .put()
        .with(&slow)
        .from(Source::Watched(&lost))
        .outcome()
        .await
        .unwrap();
    assert_eq!(outcome.label(), "written");
    assert_eq!(verbs(&seen), ["PUT", "GET", "PUT", "GET", "PUT"]);
    assert!(start.elapsed() >= Duration::from_millis(20), "the delays were left out: {:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_look_up_that_fails_after_a_lost_answer_says_that_it_may_have_been_written() {
    let (api, _) = maps(vec![error(504, "Timeout"), error(403, "Forbidden")]);
    let failed = put_new(&api, &options()).await.unwrap_err();
    assert!(failed.category() == "forbidden" && failed.maybe_written(), "{failed:?}");
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"resourceVersion": "1"}});
    let (api, seen) = maps(vec![error(504, "Timeout")]);
    let failed = apply(&api, "m", &body).with(&options()).outcome().await.unwrap_err();
    assert!(matches!(failed, WriteError::Unknown { .. }) && failed.maybe_written(), "{failed:?}");
    assert_eq!(verbs(&seen).len(), 1, "a body with a version would meet its own write");
}

#[tokio::test(start_paused = true)]
async fn the_cancellation_token_survives_a_later_policy() {
    let token = CancellationToken::new();
    token.cancel();
    let options = options().with_cancellation(token).with_policy(RetryPolicy::default());
    let (api, seen) = maps(vec![]);
    let failed = update(&api, "m", wants("new")).put().with(&options).outcome().await.unwrap_err();
    assert!(matches!(failed, WriteError::Cancelled { .. }) && verbs(&seen).is_empty());
}

/// A cache that has the object at first and loses it afterwards.
struct Lost(ConfigMap);
impl CachedObject<ConfigMap> for Lost {
    fn latest(&self) -> Option<ConfigMap> {
        Some(self.0.clone())
    }
    fn newer(&self, _version: String) -> Newer<'_, ConfigMap> {
        Box::pin(async { None })
    }
    fn wrote(&self, _written: &ConfigMap) {}
}
