//! A client that writes down every request it sends and what came of it, whatever cluster it talks to.
//!
//! The lab's own eyes: an audit log is better, but somebody else's cluster gives none. Bodies are buffered, except those
//! of watches and logs.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{HeaderValue, Response, StatusCode, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use kube::client::Body;
use serde_json::Value;
use timeline::AUDIT_PREFIX;
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

use crate::event::RecordedRequest;

/// `OnRequest` of each request when its answer is there.
pub type OnRequest = Arc<dyn Fn(RecordedRequest) + Send + Sync>;

/// Puts an actor's name on every request and tells of it.
#[derive(Clone)]
pub struct RequestRecorder {
    /// Who sends.
    pub actor: String,
    /// Who hears.
    pub hears: OnRequest,
}

impl<S> Layer<S> for RequestRecorder {
    type Service = Recording<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Recording { inner, recorder: self.clone() }
    }
}

/// A client's service with a [`RequestRecorder`] in front.
#[derive(Clone)]
pub struct Recording<S> {
    inner: S,
    recorder: RequestRecorder,
}

/// A body of an answer, buffered or not.
type AnswerBody = UnsyncBoxBody<Bytes, BoxError>;

impl<S, B> Service<http::Request<Body>> for Recording<S>
where
    S: Service<http::Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<AnswerBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let RequestRecorder { actor, hears } = self.recorder.clone();
        let (mut parts, body) = request.into_parts();
        let audit_id = format!("{AUDIT_PREFIX}{:016x}/{actor}", rand::random::<u64>());
        // A name that cannot stand in a header is left out; the log then has the user alone.
        if let Ok(audit_id) = HeaderValue::from_str(&audit_id) {
            parts.headers.insert("audit-id", audit_id);
        }
        // What kube sends is in memory as a whole, so it is there at once.
        let Some(Ok(sent)) = body.collect_bytes().now_or_never() else {
            return Box::pin(async {
                Err("a request is sent in pieces, which the lab cannot record".into())
            });
        };
        let content_type = parts.headers.get(http::header::CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok()).unwrap_or_default();
        let mut told = RecordedRequest {
            actor,
            verb: verb(parts.method.as_str(), &parts.uri, content_type),
            target: target(&parts.uri),
            from: serde_json::from_slice(&sent).ok().and_then(|body| base(&parts.method, &body)),
            ..RecordedRequest::default()
        };
        let is_stream = told.verb == "WATCH" || told.target.ends_with("/log");
        let began = Instant::now();
        let answer = self.inner.call(http::Request::from_parts(parts, Body::from(sent.to_vec())));
        Box::pin(async move {
            let answer = match answer.await {
                Ok(answer) => answer,
                Err(error) => {
                    let error = error.into();
                    told.message = format!("no answer: {error}");
                    told.millis = millis(began.elapsed());
                    hears(told);
                    return Err(error);
                }
            };
            let (parts, body) = answer.into_parts();
            told.code = parts.status.as_u16();
            if is_stream && parts.status == StatusCode::OK {
                told.millis = millis(began.elapsed());
                hears(told);
                return Ok(Response::from_parts(parts, body.map_err(Into::into).boxed_unsync()));
            }
            let received = body.collect().await.map_err(Into::into);
            told.millis = millis(began.elapsed());
            let received = match received {
                Ok(received) => received.to_bytes(),
                Err(error) => {
                    told.message = format!("the answer broke off: {error}");
                    hears(told);
                    return Err(error);
                }
            };
            read_answer(&mut told, &received);
            hears(told);
            let whole = Full::new(received).map_err(|never| match never {});
            Ok(Response::from_parts(parts, whole.boxed_unsync()))
        })
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// What the answer says of the object, or of what was wrong.
fn read_answer(told: &mut RecordedRequest, body: &[u8]) {
    let Ok(answer) = serde_json::from_slice::<Value>(body) else {
        if !told.succeeded() {
            String::from_utf8_lossy(body).trim().clone_into(&mut told.message);
        }
        return;
    };
    let text = |pointer: &str| answer.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    if answer["kind"] == "Status" {
        if !told.succeeded() {
            told.reason = text("/reason").unwrap_or_default();
            told.message = text("/message").unwrap_or_default();
        }
        return;
    }
    told.version = text("/metadata/resourceVersion").filter(|version| !version.is_empty());
    told.generation = answer.pointer("/metadata/generation").and_then(Value::as_i64);
    told.items = answer["items"].as_array().map(Vec::len);
}

fn verb(method: &str, uri: &Uri, content_type: &str) -> &'static str {
    let query = uri.query().unwrap_or_default();
    let is_watch = query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1"));
    match method {
        "GET" if is_watch => "WATCH",
        "GET" if split(uri).1.len() > 1 || split(uri).0.is_empty() => "GET",
        "GET" => "LIST",
        "PUT" => "PUT",
        "POST" => "CREATE",
        "DELETE" => "DELETE",
        "PATCH" if content_type.starts_with("application/json-patch") => "JSON",
        "PATCH" if content_type.starts_with("application/merge-patch") => "MERGE",
        "PATCH" if content_type.starts_with("application/apply-patch") => "APPLY",
        "PATCH" => "STRATEGIC",
        _ => "OTHER",
    }
}

/// The API's prefix, and what follows it: resource, name, subresource.
fn split(uri: &Uri) -> (String, Vec<&str>) {
    let mut parts: Vec<&str> = uri.path().trim_matches('/').split('/').collect();
    let prefix = match parts.first() {
        Some(&"api") => 2,
        Some(&"apis") => 3,
        _ => 0,
    };
    if parts.len() <= prefix {
        return (String::new(), parts);
    }
    let mut rest = parts.split_off(prefix);
    if prefix > 0 && rest.len() > 2 && rest[0] == "namespaces" {
        rest.drain(..2);
    }
    (parts.join("/"), rest)
}

fn target(uri: &Uri) -> String {
    split(uri).1.join("/")
}

/// What the body was decided from: the version in it, or the guard of a JSON Patch. An empty version in a PUT is shown as
/// empty, because it means something.
fn base(method: &http::Method, body: &Value) -> Option<String> {
    if let Some(operations) = body.as_array() {
        // A test of the UID only says which object is meant; where there is another one, that is what was decided from.
        let tests = || operations.iter().filter(|operation| operation["op"] == "test");
        let guard = tests().find(|test| test["path"] != "/metadata/uid").or_else(|| tests().next())?;
        let path = guard["path"].as_str().unwrap_or_default();
        return Some(if path == "/metadata/resourceVersion" {
            guard["value"].as_str().unwrap_or_default().to_owned()
        } else {
            format!("test {path} = {}", guard["value"])
        });
    }
    let version = body.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default();
    match (version, method) {
        ("", &http::Method::PUT) => Some("\"\"".to_owned()),
        ("", _) => None,
        (version, _) => Some(version.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn uri(text: &str) -> Uri {
        text.parse().unwrap()
    }

    #[test]
    fn a_target_is_resource_name_and_subresource() {
        for (path, found) in [
            ("/apis/lab.tandem.dev/v1/namespaces/n/pools/p/status?x=y", "pools/p/status"),
            ("/apis/lab.tandem.dev/v1/namespaces/n/pools", "pools"),
            ("/api/v1/namespaces/n", "namespaces/n"),
            ("/api/v1/nodes/a", "nodes/a"),
            ("/version", "version"),
        ] {
            assert_eq!(target(&uri(path)), found);
        }
    }

    #[test]
    fn a_verb_is_what_kubernetes_calls_it() {
        let plain = "application/json";
        assert_eq!(verb("GET", &uri("/api/v1/nodes"), plain), "LIST");
        assert_eq!(verb("GET", &uri("/api/v1/nodes/a"), plain), "GET");
        assert_eq!(verb("GET", &uri("/version"), plain), "GET");
        assert_eq!(verb("GET", &uri("/api/v1/nodes?&watch=true&x=1"), plain), "WATCH");
        assert_eq!(verb("PATCH", &uri("/api/v1/nodes/a"), "application/json-patch+json"), "JSON");
    }

    #[test]
    fn a_base_is_a_version_or_a_guard() {
        let put = http::Method::PUT;
        let patch = http::Method::PATCH;
        assert_eq!(base(&put, &json!({"metadata": {}})).unwrap(), "\"\"");
        assert_eq!(base(&patch, &json!({"metadata": {}})), None);
        assert_eq!(base(&patch, &json!({"metadata": {"resourceVersion": "7"}})).unwrap(), "7");
        let guard = json!([{"op": "test", "path": "/spec/replicas", "value": 3}, {"op": "replace"}]);
        assert_eq!(base(&patch, &guard).unwrap(), "test /spec/replicas = 3");
        let uid = json!({"op": "test", "path": "/metadata/uid", "value": "u"});
        assert_eq!(base(&patch, &json!([uid, guard[0]])).unwrap(), "test /spec/replicas = 3");
        assert_eq!(base(&patch, &json!([uid])).unwrap(), "test /metadata/uid = \"u\"");
    }
}
