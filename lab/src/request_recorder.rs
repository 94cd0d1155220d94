//! A client layer that records every request and its answer, on any cluster.
//!
//! An audit log would be better, but the one of a user's cluster cannot be read. Bodies are buffered, except those of
//! watches and logs.

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

/// Called with each request once its answer has arrived.
pub type OnRequest = Arc<dyn Fn(RecordedRequest) + Send + Sync>;

/// Puts an actor's name into every request, and records the request.
#[derive(Clone)]
pub struct RequestRecorder {
    /// The sender's name.
    pub actor: String,
    /// Called for each request.
    pub on_request: OnRequest,
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
        let RequestRecorder { actor, on_request } = self.recorder.clone();
        let (mut parts, body) = request.into_parts();
        let audit_id = format!("{AUDIT_PREFIX}{:016x}/{actor}", rand::random::<u64>());
        // A name that is invalid in a header is left out; the log then has only the user.
        if let Ok(audit_id) = HeaderValue::from_str(&audit_id) {
            parts.headers.insert("audit-id", audit_id);
        }
        // kube's request bodies are complete in memory, so this does not wait.
        let Some(Ok(sent)) = body.collect_bytes().now_or_never() else {
            return Box::pin(async {
                Err("a request is sent in pieces, which the lab cannot record".into())
            });
        };
        let content_type = parts.headers.get(http::header::CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok()).unwrap_or_default();
        let mut record = RecordedRequest {
            actor,
            verb: verb(parts.method.as_str(), &parts.uri, content_type),
            target: target(&parts.uri),
            from: serde_json::from_slice(&sent).ok().and_then(|body| base(&parts.method, &body)),
            ..RecordedRequest::default()
        };
        let is_stream = record.verb == "WATCH" || record.target.ends_with("/log");
        let began = Instant::now();
        let answer = self.inner.call(http::Request::from_parts(parts, Body::from(sent.to_vec())));
        Box::pin(async move {
            let answer = match answer.await {
                Ok(answer) => answer,
                Err(error) => {
                    let error = error.into();
                    record.message = format!("no answer: {error}");
                    record.millis = millis(began.elapsed());
                    on_request(record);
                    return Err(error);
                }
            };
            let (parts, body) = answer.into_parts();
            record.code = parts.status.as_u16();
            if is_stream && parts.status == StatusCode::OK {
                record.millis = millis(began.elapsed());
                on_request(record);
                return Ok(Response::from_parts(parts, body.map_err(Into::into).boxed_unsync()));
            }
            let received = body.collect().await.map_err(Into::into);
            record.millis = millis(began.elapsed());
            let received = match received {
                Ok(received) => received.to_bytes(),
                Err(error) => {
                    record.message = format!("the answer broke off: {error}");
                    on_request(record);
                    return Err(error);
                }
            };
            read_answer(&mut record, &received);
            on_request(record);
            let whole = Full::new(received).map_err(|never| match never {});
            Ok(Response::from_parts(parts, whole.boxed_unsync()))
        })
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Reads the object's version, or the error, from the answer.
fn read_answer(record: &mut RecordedRequest, body: &[u8]) {
    let Ok(answer) = serde_json::from_slice::<Value>(body) else {
        if !record.succeeded() {
            String::from_utf8_lossy(body).trim().clone_into(&mut record.message);
        }
        return;
    };
    let text = |pointer: &str| answer.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    if answer["kind"] == "Status" {
        if !record.succeeded() {
            record.reason = text("/reason").unwrap_or_default();
            record.message = text("/message").unwrap_or_default();
        }
        return;
    }
    record.version = text("/metadata/resourceVersion").filter(|version| !version.is_empty());
    record.generation = answer.pointer("/metadata/generation").and_then(Value::as_i64);
    record.items = answer["items"].as_array().map(Vec::len);
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

/// The base of the write: the version in the body, or the guard of a JSON Patch. An empty version in a PUT is shown as
/// empty, because it has a meaning.
fn base(method: &http::Method, body: &Value) -> Option<String> {
    if let Some(operations) = body.as_array() {
        // A test of the UID only identifies the object; another test, if there is one, is the base of the decision.
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
