//! The loop against a server that answers from a script, on paused time. Tests against a real API server are in `e2e`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use futures::{FutureExt as _, StreamExt as _, stream};
use http::{Request, Response, StatusCode};
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::{Instant, advance, sleep};

use super::*;
use crate::clock::Clock;
use crate::readiness::Readiness;

/// What the server does with one request.
enum Answer {
    Json(Value),
    Status(u16),
    /// These lines, each after its delay in seconds, then the end of the stream after that many.
    Lines(Vec<(u64, String)>, u64),
    /// No answer.
    Silence,
    /// A stream that is opened and never sends anything.
    SilentStream,
}

type Script = Box<dyn FnMut(&HashMap<String, String>) -> Answer + Send>;

/// The requests to the server: `list`, `list next`, `newest`, `watch 7 for 15`.
type Log = Arc<Mutex<Vec<String>>>;

fn queries(request: &Request<Body>) -> HashMap<String, String> {
    let pairs = request.uri().query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn name(query: &HashMap<String, String>) -> String {
    let of = |key: &str| query.get(key).map(String::as_str);
    match (of("watch"), of("continue"), of("fieldSelector")) {
        (Some(_), ..) => format!("watch {} for {}", query["resourceVersion"], query["timeoutSeconds"]),
        (_, _, Some(_)) => "newest".to_owned(),
        (_, Some(next), _) => format!("list {next}"),
        _ => "list".to_owned(),
    }
}

fn client(script: Script) -> (Client, Log) {
    let (script, log) = (Arc::new(Mutex::new(script)), Log::default());
    let said = Arc::clone(&log);
    let service = tower::service_fn(move |request: Request<Body>| {
        let query = queries(&request);
        said.lock().unwrap().push(name(&query));
        let answer = (script.lock().unwrap())(&query);
        async move {
            let body = match answer {
                Answer::Json(value) => axum::body::Body::from(value.to_string()),
                Answer::Status(code) => {
                    let status = json!({"kind": "Status", "code": code, "reason": "R", "message": "m", "status": "Failure"});
                    let body = axum::body::Body::from(status.to_string());
                    return Ok(Response::builder()
                        .status(StatusCode::from_u16(code).unwrap())
                        .body(body)
                        .unwrap());
                }
                Answer::Lines(lines, end) => {
                    let lines = stream::iter(lines).then(|(after, line)| async move {
                        sleep(Duration::from_secs(after)).await;
                        Ok::<_, std::convert::Infallible>(format!("{line}\n"))
                    });
                    let end = stream::once(sleep(Duration::from_secs(end))).filter_map(|()| async { None });
                    axum::body::Body::from_stream(lines.chain(end))
                }
                Answer::Silence => std::future::pending().await,
                Answer::SilentStream => axum::body::Body::from_stream(stream::pending::<
                    Result<String, std::convert::Infallible>,
                >()),
            };
            Ok::<_, std::convert::Infallible>(Response::new(body))
        }
    });
    (Client::new(service, "default"), log)
}

fn node(name: &str, version: u64) -> Value {
    json!({"metadata": {"name": name, "uid": name, "resourceVersion": version.to_string()}})
}

fn page(version: u64, next: &str, items: &[Value]) -> Answer {
    Answer::Json(
        json!({"metadata": {"resourceVersion": version.to_string(), "continue": next}, "items": items}),
    )
}

/// In the API server's format: the type first.
fn event(kind: &str, object: &Value) -> String {
    format!(r#"{{"type":"{kind}","object":{object}}}"#)
}

fn bookmark(version: u64) -> String {
    let metadata = json!({"resourceVersion": version.to_string()});
    event("BOOKMARK", &json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata}))
}

fn called(object: &Decoded<Node>) -> String {
    match object {
        Decoded::Read(node) => node.metadata.name.clone().unwrap_or_default(),
        Decoded::Unreadable(unreadable) => format!("?{unreadable}"),
    }
}

/// Records what it is told, as text.
struct Heard(Vec<String>);

impl Sink<Node> for Heard {
    type Out = String;

    fn begin(&mut self) {
        self.0 = vec!["begin".to_owned()];
    }
    fn listed(&mut self, object: Decoded<Node>) {
        self.0.push(called(&object));
    }
    fn finish(&mut self) -> Vec<String> {
        vec![self.0.join(" ")]
    }
    fn applied(&mut self, object: Decoded<Node>) -> Vec<String> {
        vec![format!("+{}", called(&object))]
    }
    fn deleted(&mut self, object: Decoded<Node>) -> Vec<String> {
        vec![format!("-{}", called(&object))]
    }
    fn rewound(&mut self) {
        self.0.push("rewound".to_owned());
    }
    fn failed(&mut self, failure: &Failure) {
        self.0.push(failure.category().to_owned());
    }
    fn recovered(&mut self) {}
}

struct Trial {
    told: stream::BoxStream<'static, String>,
    log: Log,
    caches: Caches,
    readiness: Readiness,
    metrics: Metrics,
}

impl Trial {
    fn new(script: impl FnMut(&HashMap<String, String>) -> Answer + Send + 'static) -> Self {
        let (client, log) = client(Box::new(script));
        let (caches, readiness) = (Caches::default(), Readiness::default());
        let metrics = Metrics::new("test", "0").unwrap();
        let gate = readiness.gate("cache of nodes", "not listed yet");
        let (api, liveness) = (Api::<Node>::all(client), Liveness::new(Clock::system()));
        let told =
            follow(api, &Config::default(), Heard(Vec::new()), &caches, gate, &metrics, &liveness).boxed();
        Self { told, log, caches, readiness, metrics }
    }

    async fn next(&mut self) -> String {
        self.told.next().await.unwrap()
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.log.lock().unwrap())
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_that_fails_is_asked_for_again_and_not_the_list() {
    let mut refusals = 3;
    let mut trial = Trial::new(move |query| match name(query).as_str() {
        "list" => page(7, "two", &[node("a", 1)]),
        "list two" if refusals > 0 => {
            refusals -= 1;
            Answer::Status(429)
        }
        "list two" => page(7, "", &[node("b", 2)]),
        _ => Answer::SilentStream,
    });
    assert_eq!(trial.next().await, "begin a 429 429 429 b".replace("429", "throttled"));
    let asked = trial.asked();
    assert_eq!(asked[..5], ["list", "list two", "list two", "list two", "list two"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_whose_pages_have_expired_begins_anew() {
    let mut lists = 0;
    let mut trial = Trial::new(move |query| match name(query).as_str() {
        "list" => {
            lists += 1;
            page(6 + lists, if lists == 1 { "gone" } else { "" }, &[node("a", 1)])
        }
        "list gone" => Answer::Status(410),
        _ => Answer::SilentStream,
    });
    assert_eq!(trial.next().await, "begin a");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(trial.asked(), ["list", "list gone", "list", "watch 8 for 15"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_goes_on_where_it_ended_and_an_object_that_cannot_be_read_is_told_apart() {
    let strange = json!({"metadata": {"name": "s", "resourceVersion": "9"}, "spec": 7});
    let mut trial = Trial::new(move |query| match name(query).as_str() {
        "list" => page(7, "", std::slice::from_ref(&strange)),
        "watch 7 for 15" => {
            let lines = [event("ADDED", &node("a", 8)), event("MODIFIED", &strange), bookmark(12)];
            Answer::Lines(lines.into_iter().map(|line| (0, line)).collect(), 15)
        }
        "watch 12 for 15" => Answer::Lines(vec![(0, event("DELETED", &strange)), (0, bookmark(13))], 15),
        _ => Answer::SilentStream,
    });
    let mut told = Vec::new();
    for _ in 0..4 {
        told.push(trial.next().await);
    }
    assert_eq!(told, ["begin ?s", "+a", "+?s", "-?s"]);
    sleep(Duration::from_secs(16)).await;
    assert_eq!(trial.asked(), ["list", "watch 7 for 15", "watch 12 for 15", "watch 13 for 15"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_died_silently_is_opened_anew_and_the_gate_closes_when_that_fails() {
    let mut dead = false;
    let mut trial = Trial::new(move |query| match name(query).as_str() {
        "list" => page(7, "", &[]),
        "newest" if dead => Answer::Silence,
        "watch 7 for 15" => {
            dead = true;
            Answer::SilentStream
        }
        _ => Answer::Silence,
    });
    trial.next().await;
    let began = Instant::now();
    assert!(trial.readiness.waiting_for().is_empty());
    trial.readiness.not_ready().await;
    assert!(began.elapsed() <= Duration::from_secs(24), "{:?}", began.elapsed());
    let waiting = trial.readiness.waiting_for();
    assert_eq!(waiting[0].1, "nothing was heard of the watch for 18 s");
    let text = String::from_utf8(trial.metrics.render().unwrap()).unwrap();
    assert!(text.contains(r#"tandem_cache_current{controller="test",resource="nodes"} 0"#), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_can_be_opened_and_brings_nothing_does_not_open_the_gate() {
    let mut trial = Trial::new(|query| match name(query).as_str() {
        "list" => page(7, "", &[]),
        "newest" => page(9, "", &[]),
        _ => Answer::SilentStream,
    });
    trial.next().await;
    let began = Instant::now();
    trial.readiness.not_ready().await;
    assert!(began.elapsed() <= Duration::from_secs(24), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_refused_is_tried_again_less_and_less_often_and_nothing_is_listed_meanwhile() {
    let mut trial = Trial::new(|query| match name(query).as_str() {
        "list" => page(7, "", &[]),
        "newest" => page(9, "", &[]),
        _ => Answer::Status(429),
    });
    trial.next().await;
    trial.readiness.not_ready().await;
    sleep(Duration::from_secs(60)).await;
    assert!(!trial.readiness.waiting_for().is_empty());
    let asked = trial.asked();
    assert_eq!(asked.iter().filter(|asked| *asked == "list").count(), 1, "{asked:?}");
    assert!(asked.len() < 40, "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_after_each_word_is_not_opened_again_without_a_pause() {
    let mut trial = Trial::new(|query| match name(query).as_str() {
        "list" | "newest" => page(7, "", &[]),
        _ => Answer::Lines(vec![(0, bookmark(7))], 0),
    });
    trial.next().await;
    sleep(Duration::from_secs(10)).await;
    let asked = trial.asked();
    // Two requests after each pause of 0.1 to 0.2 s, and not thousands.
    assert!(asked.len() < 220, "{}", asked.len());
}

#[tokio::test(start_paused = true)]
async fn a_page_that_will_never_come_begins_the_list_anew() {
    let mut lists = 0;
    let mut trial = Trial::new(move |query| match name(query).as_str() {
        "list" => {
            lists += 1;
            page(6 + lists, if lists == 1 { "bad" } else { "" }, &[])
        }
        "list bad" => Answer::Status(400),
        _ => Answer::SilentStream,
    });
    trial.next().await;
    assert_eq!(trial.asked()[..3], ["list", "list bad", "list"]);
}

#[tokio::test(start_paused = true)]
async fn a_question_that_is_not_answered_closes_the_gate_within_half_a_minute() {
    let mut trial = Trial::new(|query| match name(query).as_str() {
        "list" => Answer::Json(json!({"metadata": {"resourceVersion": "7"}, "items": null})),
        "watch 7 for 15" => Answer::Lines(Vec::new(), 15),
        _ => Answer::Silence,
    });
    trial.next().await;
    let began = Instant::now();
    trial.readiness.not_ready().await;
    assert!(began.elapsed() <= Duration::from_secs(26), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_cut_is_taken_up_without_closing_the_gate() {
    let mut trial = Trial::new(|query| match name(query).as_str() {
        "list" => page(7, "", &[]),
        "newest" => page(9, "", &[]),
        "watch 7 for 15" => Answer::Lines(Vec::new(), 1),
        "watch 7 for 3" => Answer::Lines(vec![(1, bookmark(9))], 2),
        _ => Answer::SilentStream,
    });
    trial.next().await;
    let closed = trial.readiness.not_ready();
    assert!(tokio::time::timeout(Duration::from_secs(10), closed).await.is_err());
    assert_eq!(trial.asked(), ["list", "watch 7 for 15", "newest", "watch 7 for 3", "watch 9 for 15"]);
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_is_asked_to_catch_up_asks_for_the_newest_version_and_waits_for_it() {
    let mut trial = Trial::new(|query| match name(query).as_str() {
        "list" => page(7, "", &[]),
        "newest" => page(9, "", &[]),
        // As the API server does: a bookmark two seconds before the end.
        "watch 7 for 3" => Answer::Lines(vec![(0, event("ADDED", &node("a", 8))), (1, bookmark(9))], 2),
        _ => Answer::SilentStream,
    });
    trial.next().await;
    sleep(Duration::from_secs(1)).await;
    let caches = trial.caches.clone();
    let mut caught_up = std::pin::pin!(caches.catch_up());
    assert!(caught_up.as_mut().now_or_never().is_none());
    let asked = Instant::now();
    assert_eq!(trial.next().await, "+a");
    assert!(caught_up.as_mut().now_or_never().is_none(), "there may be more before version 9");
    caught_up.await;
    assert_eq!(asked.elapsed().as_secs(), 1);
    assert_eq!(trial.asked(), ["list", "watch 7 for 15", "newest", "watch 7 for 3"]);
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_gets_no_bookmark_catches_up_by_a_list() {
    let mut lists = 0;
    let mut trial = Trial::new(move |query| match name(query).as_str() {
        "list" => {
            lists += 1;
            page(6 + lists, "", &[])
        }
        "newest" => page(9, "", &[]),
        "watch 7 for 3" => Answer::Lines(Vec::new(), 3),
        _ => Answer::SilentStream,
    });
    trial.next().await;
    let asked = Instant::now();
    trial.caches.catch_up().await;
    assert!(asked.elapsed().as_secs() <= 10, "{:?}", asked.elapsed());
    let requests = trial.asked();
    assert_eq!(requests.iter().filter(|asked| *asked == "list").count(), 2, "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_was_restored_from_a_backup_is_listed_anew() {
    let mut restored = false;
    let mut trial = Trial::new(move |query| match name(query).as_str() {
        "list" if restored => page(5, "", &[node("old", 3)]),
        "list" => page(9, "", &[node("new", 8)]),
        "newest" => page(5, "", &[]),
        // A version of the future: nothing comes, not even a bookmark.
        "watch 9 for 15" => {
            restored = true;
            Answer::Lines(Vec::new(), 15)
        }
        _ => Answer::SilentStream,
    });
    assert_eq!(trial.next().await, "begin new");
    assert_eq!(trial.next().await, "begin old");
    assert_eq!(trial.asked()[..4], ["list", "watch 9 for 15", "newest", "list"]);
    advance(Duration::from_millis(1)).await;
}

#[tokio::test]
async fn a_live_list_comes_in_pages_and_keeps_of_each_object_what_it_is_told_to() {
    let wide = |name: &str| {
        let mut node = node(name, 1);
        node["status"] = json!({"images": [{"names": ["an image"]}]});
        node
    };
    let script = move |query: &HashMap<String, String>| match query.get("continue").map(String::as_str) {
        None => page(7, "2", &[wide("a"), json!({"metadata": {"name": "b"}, "spec": 5})]),
        Some("2") => page(7, "3", &[]),
        Some(_) => page(7, "", &[wide("c")]),
    };
    let (client, log) = client(Box::new(script));
    let api = Api::<Node>::all(client);
    let without_status = |node: &mut Node| node.status = None;
    let params = kube::api::ListParams::default().labels("a=b");
    let listed = crate::list::list_kept(&api, &params, without_status).await.unwrap();
    let names: Vec<_> = listed.items.iter().map(|node| node.metadata.name.as_deref()).collect();
    assert_eq!(names, [Some("a"), Some("c")]);
    assert!(listed.items.iter().all(|node| node.status.is_none()));
    assert_eq!(listed.unreadable.iter().map(|it| &*it.name).collect::<Vec<_>>(), ["b"]);
    assert_eq!(*log.lock().unwrap(), ["list", "list 2", "list 3"]);
}

#[tokio::test]
async fn a_live_list_whose_moment_is_gone_fails() {
    let script = |query: &HashMap<String, String>| match query.get("continue") {
        None => page(7, "2", &[node("a", 1)]),
        Some(_) => Answer::Status(410),
    };
    let api = Api::<Node>::all(client(Box::new(script)).0);
    let listed = crate::list::list_kept(&api, &kube::api::ListParams::default(), |_| {}).await;
    assert!(matches!(listed, Err(kube::Error::Api(status)) if status.code == 410));
}
