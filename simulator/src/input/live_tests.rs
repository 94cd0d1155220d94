//! Lists against a fake API server: pages, missing permissions, missing definitions.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};

use super::*;

type Asked = Arc<Mutex<Vec<String>>>;

/// A client whose requests `answer` answers, by path and query.
fn client(answer: impl Fn(&str, &str) -> (u16, Value) + Send + Sync + 'static) -> (Client, Asked) {
    let asked = Asked::default();
    let log = Arc::clone(&asked);
    let answer = Arc::new(answer);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (path, query) =
            (request.uri().path().to_owned(), request.uri().query().unwrap_or_default().to_owned());
        log.lock().unwrap().push(format!("{} {path}?{query}", request.method()));
        let (code, body) = answer(&path, &query);
        let body = Body::from(serde_json::to_vec(&body).unwrap());
        async move { Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap()) }
    });
    (Client::new(service, "default"), asked)
}

fn failure(code: u16) -> (u16, Value) {
    (
        code,
        json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "message": "no" }),
    )
}

fn page(names: &[&str], next: &str) -> (u16, Value) {
    let items: Vec<_> = names
        .iter()
        .map(|name| json!({ "metadata": { "name": name, "annotations": { "x": "y" }, "managedFields": [{}] } }))
        .collect();
    (200, json!({ "kind": "List", "apiVersion": "v1", "metadata": { "continue": next }, "items": items }))
}

#[tokio::test]
async fn pages_are_followed_to_the_end_and_nothing_is_written() {
    let (client, asked) = client(|path, query| match (path, query.contains("continue=second")) {
        ("/api/v1/nodes", false) => page(&["a", "b"], "second"),
        ("/api/v1/nodes", true) => page(&["c"], ""),
        _ => page(&[], ""),
    });
    let objects = list(client, "").await.unwrap();
    assert_eq!(objects.nodes.len(), 3);
    let node = objects.nodes.values().next().unwrap();
    assert!(
        node.metadata.managed_fields.iter().flatten().next().is_none(),
        "as small as in the operator's cache"
    );
    assert_eq!(objects.warnings, Vec::<String>::new());
    let asked = asked.lock().unwrap();
    assert!(
        asked.iter().all(|request| request.starts_with("GET ") && request.contains("limit=500")),
        "{asked:?}"
    );
    let pods = asked.iter().find(|request| request.contains("/api/v1/pods")).unwrap();
    assert!(pods.contains("fieldSelector=status.phase"), "{pods}");
    assert_eq!(asked.len(), 12, "{asked:?}");
}

#[tokio::test]
async fn pages_that_came_too_late_are_listed_again_in_one_answer() {
    let (client, _) = client(|path, query| match path {
        "/api/v1/nodes" if query.contains("continue=") => failure(410),
        "/api/v1/nodes" if query.contains("limit=") => page(&["a"], "second"),
        "/api/v1/nodes" => page(&["a", "b"], ""),
        _ => page(&[], ""),
    });
    assert_eq!(list(client, "").await.unwrap().nodes.len(), 2);
}

#[tokio::test]
async fn tandems_objects_can_be_those_of_one_namespace() {
    let (client, asked) = client(|_, _| page(&[], ""));
    list(client, "team-a").await.unwrap();
    let asked = asked.lock().unwrap().join("\n");
    assert!(asked.contains("/namespaces/team-a/nodepools?"), "{asked}");
    assert!(asked.contains("GET /api/v1/pods?"), "{asked}");
}

#[tokio::test]
async fn missing_rights_are_named_all_at_once() {
    let (denied, _) = client(|path, _| match path {
        "/api/v1/pods" | "/apis/policy/v1/poddisruptionbudgets" => failure(403),
        _ => page(&[], ""),
    });
    let failed = list(denied, "").await.unwrap_err().to_string();
    assert_eq!(
        failed,
        "not allowed to list pods, poddisruptionbudgets.policy; ask for the verbs get and list on them"
    );
}

#[tokio::test]
async fn what_can_be_done_without_is_a_warning() {
    let (denied, _) = client(|path, _| match path {
        "/apis/storage.k8s.io/v1/storageclasses" => failure(403),
        "/apis/policy/v1/poddisruptionbudgets" => failure(404),
        _ => page(&[], ""),
    });
    assert_eq!(
        list(denied, "").await.unwrap().warnings,
        [
            "not allowed to list storageclasses.storage.k8s.io; planned as if there were none (ask for the verbs get and \
             list on them)",
            "the cluster does not know poddisruptionbudgets.policy; planned without",
        ]
    );
}

#[tokio::test]
async fn other_failures_say_what_to_do() {
    for (code, expected) in [
        (
            404,
            "the cluster does not know nodepools.tandem.dev, nodepoolautoscalers.tandem.dev; install the definitions \
             with: autoscaler-operator crd | kubectl apply -f -",
        ),
        (
            401,
            "the cluster does not accept the kubeconfig's credentials; log in again, or choose others with --context",
        ),
        (500, "cannot list nodepools.tandem.dev: no"),
    ] {
        let (failing, _) =
            client(
                move |path, _| {
                    if path.starts_with("/apis/tandem.dev") { failure(code) } else { page(&[], "") }
                },
            );
        assert_eq!(list(failing, "").await.unwrap_err().to_string(), expected, "{code}");
    }
}
