//! What the observer receives, and what an error reports about writes in doubt, whichever way an operation ends.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::tests::{Reply, error, map, maps, object, ok, options, put_new, verbs, wants};
use super::*;
use crate::classify::Class;
use crate::freshness::Source;
use crate::observe::{AttemptEvent, FinishedEvent, Observer};
use crate::operation::Subresource;
use crate::options::WriteOptions;
use crate::outcome::{Outcome, Refusal, WriteError};

/// How one operation ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct End {
    result: &'static str,
    requests: u32,
    pub(super) waited: Duration,
    pub(super) queued: Duration,
    maybe_written: bool,
}

/// Records all observer calls.
#[derive(Default)]
pub(super) struct Diary {
    attempts: Mutex<Vec<(&'static str, &'static str)>>,
    pub(super) ends: Mutex<Vec<End>>,
}

impl Observer for Diary {
    fn attempt(&self, event: &AttemptEvent<'_>) {
        let class = event.class.map_or("ok", Class::label);
        self.attempts.lock().unwrap().push((event.verb.label(), class));
    }

    fn finished(&self, event: &FinishedEvent<'_>) {
        let FinishedEvent { result, requests, waited, queued, maybe_written, .. } = *event;
        self.ends.lock().unwrap().push(End { result, requests, waited, queued, maybe_written });
    }
}

pub(super) fn recorded() -> (Arc<Diary>, WriteOptions) {
    let diary = Arc::new(Diary::default());
    (Arc::clone(&diary), options().with_observer(diary))
}

fn unsent(result: &'static str) -> End {
    End { result, requests: 0, waited: Duration::ZERO, queued: Duration::ZERO, maybe_written: false }
}

#[tokio::test]
async fn every_refusal_and_every_unneeded_write_is_reported() {
    let (diary, options) = recorded();
    let (api, seen) = maps(vec![]);
    let unversioned: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "m"}})).unwrap();
    let refused = [
        once::put(&api, "m", Subresource::Main, &options, &unversioned).await.map(|_| ()),
        merge_patch(&api, "m", |_| None).on(Subresource::Scale).with(&options).outcome().await.map(|_| ()),
        once::json_patch(&api, "m", Subresource::Main, &options, &json!({})).await.map(|_| ()),
        apply(&api, "m", &json!({})).with(&options).outcome().await.map(|_| ()),
        once::put_scale(&api, "m", &options, &ScaleView::default(), -1).await.map(|_| ()),
    ];
    for result in refused {
        assert!(matches!(result, Err(WriteError::Refused { maybe_written: false, .. })), "{result:?}");
        assert_eq!(diary.ends.lock().unwrap().pop(), Some(unsent("refused")));
    }
    assert!(diary.ends.lock().unwrap().is_empty());
    let three = ScaleView { replicas: Some(3), ..ScaleView::default() };
    let kept = once::put_scale(&api, "m", &options, &three, 3).await.unwrap();
    assert_eq!(
        (kept, diary.ends.lock().unwrap().pop()),
        (Outcome::Unchanged(three), Some(unsent("unchanged")))
    );
    assert!(verbs(&seen).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_request_is_reported_and_one_that_was_never_sent_is_not() {
    let (diary, options) = recorded();
    let token = CancellationToken::new();
    let cancelled = options.clone().with_cancellation(token.clone());
    let (api, seen) = maps(vec![Reply::Silence]);
    let write = put_new(&api, &cancelled);
    let (result, ()) = tokio::join!(write, async {
        tokio::time::sleep(Duration::from_millis(5)).await;
        token.cancel();
    });
    assert!(matches!(result, Err(WriteError::Cancelled { maybe_written: true, .. })), "{result:?}");
    assert_eq!(*diary.attempts.lock().unwrap(), [("put", "ambiguous")]);
    assert!(diary.ends.lock().unwrap().pop().unwrap().maybe_written);
    assert_eq!(verbs(&seen), ["PUT"]);

    // Cancelled by the closure itself, between its decision and the request.
    let token = CancellationToken::new();
    let cancelled = options.with_cancellation(token.clone());
    let (api, seen) = maps(vec![]);
    let result = update(&api, "m", |map| {
        token.cancel();
        wants("new")(map)
    })
    .put()
    .with(&cancelled)
    .from(Source::Copy(object("1", "old")))
    .outcome()
    .await;
    assert!(matches!(result, Err(WriteError::Cancelled { maybe_written: false, .. })), "{result:?}");
    assert!(verbs(&seen).is_empty());
    assert_eq!(diary.attempts.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn after_a_lost_answer_an_aborted_or_refused_write_is_reported_as_maybe_written() {
    let lost = || vec![error(504, "Timeout"), ok(map("2", "theirs"))];
    let (diary, options) = recorded();
    let (api, _) = maps(lost());
    let outcome = update(&api, "m", |map| {
        if map.data.as_ref().is_some_and(|data| data["k"] == "theirs") {
            return UpdateDecision::Abort;
        }
        wants("new")(map)
    })
    .put()
    .with(&options)
    .from(Source::Copy(object("1", "old")))
    .outcome()
    .await
    .unwrap();
    assert_eq!(outcome, Outcome::Aborted);
    assert!(diary.ends.lock().unwrap().pop().unwrap().maybe_written);

    let (api, _) = maps(lost());
    let failed = update(&api, "m", |map| {
        if map.data.as_ref().is_some_and(|data| data["k"] == "theirs") {
            map.metadata.name = Some("other".into());
        }
        wants("new")(map)
    })
    .put()
    .with(&options)
    .from(Source::Copy(object("1", "old")))
    .outcome()
    .await
    .unwrap_err();
    assert!(matches!(failed, WriteError::Refused { reason: Refusal::Identity(_), .. }), "{failed:?}");
    assert!(failed.maybe_written() && diary.ends.lock().unwrap().pop().unwrap().maybe_written);
}
