//! Kubernetes events, best effort: an event that cannot be published is counted and never fails or delays a reconcile.
//!
//! The caller decides when an event is worth publishing (on a change or a refusal, never on a visit). Whatever the user
//! must act on is in the object's status too.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use conflict_retry::{Class, Verb};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder as KubeRecorder, Reporter};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tracing::{debug, warn};

use crate::error::{chain, client_category};
use crate::fence::Fence;
use crate::metrics::Metrics;

/// Number of events that wait to be published; further ones are dropped. A burst of a few hundred new nodes fits.
const QUEUE: usize = 1024;
/// Timeout of publishing one event.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Number of series that are remembered.
const MAX_SERIES: usize = 4096;
/// The API allows 1,024 bytes of note.
const MAX_NOTE_BYTES: usize = 1024;

/// Type, reason and action of an event, machine-readable. A constant of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventKind {
    type_: EventType,
    reason: &'static str,
    action: &'static str,
}

impl EventKind {
    /// A normal event. `reason` is why it happened and `action` what was done, both in CamelCase.
    pub const fn normal(reason: &'static str, action: &'static str) -> Self {
        Self { type_: EventType::Normal, reason, action }
    }

    /// A warning, which the user should look at.
    pub const fn warning(reason: &'static str, action: &'static str) -> Self {
        Self { type_: EventType::Warning, reason, action }
    }

    /// The reason, as `kubectl get events` shows it.
    pub const fn reason(self) -> &'static str {
        self.reason
    }

    /// What was done.
    pub const fn action(self) -> &'static str {
        self.action
    }

    /// `Normal` or `Warning`.
    pub const fn type_name(self) -> &'static str {
        match self.type_ {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        }
    }
}

/// An event that an operator publishes, for `docs/reference/events.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventDescription {
    /// Its type, reason and action.
    pub kind: EventKind,
    /// The kinds of the objects it is on.
    pub regarding: &'static str,
    /// When it is published.
    pub when: &'static str,
}

/// Accepts events and publishes them one after another in its own task. Cheap to clone.
///
/// The same event about the same object within six minutes, note included, becomes a count on the first one. An event
/// with another note is an event of its own, because "from 3 to 5" must not be hidden behind "from 1 to 3".
#[derive(Clone, Debug)]
pub struct Recorder {
    queue: mpsc::Sender<Item>,
    fence: Fence,
    metrics: Metrics,
}

struct Item {
    regarding: ObjectReference,
    event: Event,
}

impl Recorder {
    /// A recorder for the operator `controller`, and its task. The task ends when every clone of the recorder is
    /// dropped and all waiting events are published.
    ///
    /// No event is accepted while `fence` is closed: the findings of a replica that lost its lease are no longer true.
    pub fn new(
        client: Client,
        controller: &str,
        instance: &str,
        fence: Fence,
        metrics: Metrics,
    ) -> (Self, JoinHandle<()>) {
        let reporter = Reporter { controller: controller.to_owned(), instance: Some(instance.to_owned()) };
        let (queue, items) = mpsc::channel(QUEUE);
        let series = Series { client, reporter, last: HashMap::new() };
        let task = tokio::spawn(publish(series, items, metrics.clone()));
        (Self { queue, fence, metrics }, task)
    }

    /// Queues an event. `note` is the human-readable message; kube's `object_ref` makes the reference. Never waits,
    /// never fails.
    pub fn publish(&self, regarding: &ObjectReference, kind: EventKind, note: impl Into<String>) {
        let event = Event {
            type_: kind.type_,
            reason: kind.reason.to_owned(),
            action: kind.action.to_owned(),
            note: Some(cut(note.into())),
            secondary: None,
        };
        let taken = self.fence.pass().is_ok()
            && self.queue.try_send(Item { regarding: regarding.clone(), event }).is_ok();
        if !taken {
            self.metrics.event_dropped();
        }
    }
}

/// kube counts repetitions without looking at the note. A separate series for each note fixes that.
struct Series {
    client: Client,
    reporter: Reporter,
    /// By object and reason: the last note, and the recorder that counts its repetitions.
    last: HashMap<(String, String), (Option<String>, KubeRecorder)>,
}

impl Series {
    /// The recorder for `event`: the one of the last such event if the note is the same.
    fn recorder(&mut self, regarding: &ObjectReference, event: &Event) -> KubeRecorder {
        if self.last.len() >= MAX_SERIES {
            // A repetition that is forgotten is published once more; nothing is lost.
            self.last.clear();
        }
        let fresh = || (event.note.clone(), KubeRecorder::new(self.client.clone(), self.reporter.clone()));
        let last = self.last.entry(key(regarding, event)).or_insert_with(fresh);
        if last.0 != event.note {
            *last = fresh();
        }
        last.1.clone()
    }

    /// The recorder for `event` as the first one of a series.
    fn recorder_anew(&mut self, regarding: &ObjectReference, event: &Event) -> KubeRecorder {
        self.last.remove(&key(regarding, event));
        self.recorder(regarding, event)
    }
}

/// The object and the reason of an event.
fn key(regarding: &ObjectReference, event: &Event) -> (String, String) {
    let object = regarding.uid.clone().or_else(|| regarding.name.clone()).unwrap_or_default();
    (object, event.reason.clone())
}

/// Publishes one after another, because kube names an event after the nanosecond of its publication.
async fn publish(mut series: Series, mut items: mpsc::Receiver<Item>, metrics: Metrics) {
    let warned = Arc::new(AtomicBool::new(false));
    while let Some(Item { regarding, event }) = items.recv().await {
        let recorder = series.recorder(&regarding, &event);
        let mut published = tokio::time::timeout(TIMEOUT, recorder.publish(&event, &regarding)).await;
        if matches!(&published, Ok(Err(kube::Error::Api(status))) if status.code == 404) {
            // The event that it is a repetition of was deleted. As in client-go, it is published as a new one.
            let recorder = series.recorder_anew(&regarding, &event);
            published = tokio::time::timeout(TIMEOUT, recorder.publish(&event, &regarding)).await;
        }
        let failed = match published {
            Ok(Ok(())) => continue,
            Ok(Err(failed)) => failed,
            Err(_) => {
                metrics.event_dropped();
                debug!(reason = event.reason, "an event was not published in time");
                continue;
            }
        };
        metrics.event_dropped();
        let category = client_category(&failed);
        if lacks_right(&failed) && !warned.swap(true, Ordering::Relaxed) {
            let advice = "allow create and patch on events in API group \"events.k8s.io\"";
            warn!(category, advice, error = %chain(&failed), "cannot publish events");
        } else {
            debug!(category, reason = event.reason, error = %chain(&failed), "cannot publish an event");
        }
    }
}

/// Whether the operator may not publish events. In a namespace that is being deleted none may, and that says nothing about others.
fn lacks_right(failed: &kube::Error) -> bool {
    matches!(failed, kube::Error::Api(status) if Class::of_status(Verb::Create, status) == Class::Forbidden)
}

/// `note` within the API's limit, cut between characters.
fn cut(mut note: String) -> String {
    if note.len() > MAX_NOTE_BYTES {
        let end = (0..=MAX_NOTE_BYTES).rev().find(|end| note.is_char_boundary(*end)).unwrap_or_default();
        note.truncate(end);
    }
    note
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::testing::{failure, server};

    const KIND: EventKind = EventKind::normal("ScaledUp", "ScaleUp");

    fn open() -> Fence {
        Fence::unguarded(Clock::system())
    }

    #[tokio::test]
    async fn a_replica_that_does_not_lead_publishes_nothing() {
        let (client, log) = server(|_| panic!("nothing should be sent"));
        let metrics = Metrics::new("test", "0").unwrap();
        let standby = Fence::standby(Clock::system());
        let (recorder, task) = Recorder::new(client, "test", "test-0", standby, metrics.clone());
        recorder.publish(&ObjectReference::default(), KIND, "cannot set replicas from 1 to 2");
        drop(recorder);
        task.await.unwrap();
        assert!(log.lock().unwrap().is_empty());
        let text = String::from_utf8(metrics.render().unwrap()).unwrap();
        assert!(text.contains("tandem_events_dropped_total 1"), "{text}");
    }

    #[test]
    fn a_namespace_that_is_being_deleted_is_no_lack_of_a_right() {
        let refused = |causes: &serde_json::Value| {
            let status = serde_json::json!({
                "status": "Failure", "code": 403, "reason": "Forbidden", "message": "events is forbidden",
                "details": { "name": "a.1", "kind": "events", "causes": causes },
            });
            kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()))
        };
        let terminating = serde_json::json!([{ "reason": "NamespaceTerminating", "message": "it ends", "field": "metadata.namespace" }]);
        assert!(lacks_right(&refused(&serde_json::json!([]))));
        assert!(!lacks_right(&refused(&terminating)));
    }

    #[test]
    fn a_note_is_cut_between_characters() {
        assert_eq!(cut("ä".repeat(1000)).len(), 1024);
        assert_eq!(cut("äa".repeat(1000)).len(), 1023);
        assert_eq!(cut("short".to_owned()), "short");
    }

    #[tokio::test]
    async fn a_refused_event_is_counted_and_the_next_one_is_still_tried() {
        let (client, log) = server(|_| failure(403, "Forbidden", "no"));
        let metrics = Metrics::new("test", "0").unwrap();
        let (recorder, task) = Recorder::new(client, "test", "test-0", open(), metrics.clone());
        let reference =
            ObjectReference { name: Some("a".into()), namespace: Some("ns".into()), ..Default::default() };
        recorder.publish(&reference, KIND, "one");
        recorder.publish(&reference, KIND, "two");
        drop(recorder);
        task.await.unwrap();
        assert_eq!(log.lock().unwrap().len(), 2);
        let text = String::from_utf8(metrics.render().unwrap()).unwrap();
        assert!(text.contains("tandem_events_dropped_total 2"), "{text}");
    }

    #[tokio::test]
    async fn a_repetition_of_an_event_that_was_deleted_is_published_as_a_new_one() {
        let (client, log) = server(|asked| {
            if asked.method == http::Method::PATCH {
                return failure(404, "NotFound", "events.events.k8s.io \"a.1\" not found");
            }
            let mut event = asked.body.clone();
            event["metadata"] =
                serde_json::json!({ "name": "a.1", "namespace": "ns", "resourceVersion": "1" });
            (201, event)
        });
        let metrics = Metrics::new("test", "0").unwrap();
        let (recorder, task) = Recorder::new(client, "test", "test-0", open(), metrics.clone());
        let reference =
            ObjectReference { uid: Some("u".into()), namespace: Some("ns".into()), ..Default::default() };
        for _ in 0..2 {
            recorder.publish(&reference, KIND, "from 1 to 3");
        }
        drop(recorder);
        task.await.unwrap();
        let methods: Vec<_> = log.lock().unwrap().iter().map(|asked| asked.method.to_string()).collect();
        assert_eq!(methods, ["POST", "PATCH", "POST"]);
        let text = String::from_utf8(metrics.render().unwrap()).unwrap();
        assert!(text.contains("tandem_events_dropped_total 0"), "{text}");
    }

    #[tokio::test]
    async fn a_repetition_is_counted_and_another_note_is_another_event() {
        let (client, log) = server(|asked| {
            let mut event = asked.body.clone();
            event["metadata"] =
                serde_json::json!({ "name": "a.1", "namespace": "ns", "resourceVersion": "1" });
            (200, event)
        });
        let (recorder, task) =
            Recorder::new(client, "test", "test-0", open(), Metrics::new("test", "0").unwrap());
        let reference =
            ObjectReference { uid: Some("u".into()), namespace: Some("ns".into()), ..Default::default() };
        for note in ["from 1 to 3", "from 1 to 3", "from 3 to 5"] {
            recorder.publish(&reference, KIND, note);
        }
        drop(recorder);
        task.await.unwrap();
        let methods: Vec<_> = log.lock().unwrap().iter().map(|asked| asked.method.to_string()).collect();
        assert_eq!(methods, ["POST", "PATCH", "POST"]);
    }
}
