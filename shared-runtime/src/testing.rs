//! For unit tests: an API server of one closure, which records its requests. It does not model how a real one treats
//! conflicts; that is what the end-to-end tests are for.

use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

/// One request, as the server received it.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) body: Value,
}

/// The requests to the server, in order.
pub(crate) type Log = Arc<Mutex<Vec<Asked>>>;

/// A client of a server whose answers come from `answer`: a status code and a body.
pub(crate) fn server(mut answer: impl FnMut(&Asked) -> (u16, Value) + Send + 'static) -> (Client, Log) {
    let log: Log = Arc::default();
    let (asked, answer) = (log.clone(), Arc::new(Mutex::new(move |asked: &Asked| answer(asked))));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (log, answer) = (asked.clone(), answer.clone());
        async move {
            let (parts, body) = request.into_parts();
            let bytes = body.collect_bytes().await.unwrap();
            let asked = Asked {
                method: parts.method,
                path: parts.uri.path().to_owned(),
                query: parts.uri.query().unwrap_or_default().to_owned(),
                body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
            };
            let (code, body) = (answer.lock().unwrap())(&asked);
            log.lock().unwrap().push(asked);
            Response::builder().status(code).body(Body::from(body.to_string().into_bytes()))
        }
    });
    (Client::new(service, "default"), log)
}

/// An error in the API server's format.
pub(crate) fn failure(code: u16, reason: &str, message: &str) -> (u16, Value) {
    let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message, "code": code });
    (code, status)
}

/// The requests so far, as `METHOD path`.
pub(crate) fn lines(log: &Log) -> Vec<String> {
    log.lock().unwrap().iter().map(|asked| format!("{} {}", asked.method, asked.path)).collect()
}
