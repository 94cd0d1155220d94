//! For unit tests of API requests: a context whose server is one closure. It does not model how a real server treats
//! conflicts; that is what the end-to-end tests are for.

use std::sync::{Arc, Mutex};

use http::{Request, Response};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use kube::runtime::reflector::store;
use kube::runtime::watcher;
pub(crate) use machine_providers::testing::failure;
use serde_json::{Value, json};
use shared_crds::NodePool;
use shared_runtime::clock::{Clock, FakeClock};

use crate::context::Context;

/// A context, its fake clock, and the requests its server received.
pub(crate) struct TestContext {
    pub(crate) ctx: Context,
    pub(crate) time: FakeClock,
    requests: Arc<Mutex<Vec<String>>>,
}

impl TestContext {
    /// `answer` gets a request's path with its query and the clock, and returns the status code and the body. Needs a
    /// tokio runtime.
    pub(crate) fn new(mut answer: impl FnMut(&str, &FakeClock) -> (u16, Value) + Send + 'static) -> Self {
        let (clock, time) = Clock::fake(Timestamp::UNIX_EPOCH);
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let (log, hands) = (Arc::clone(&requests), time.clone());
        let answer = Arc::new(Mutex::new(move |path: &str| answer(path, &hands)));
        let service = tower::service_fn(move |request: Request<Body>| {
            let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
            async move {
                let (parts, body) = request.into_parts();
                let bytes = body.collect_bytes().await.unwrap();
                let (code, body) = (answer.lock().unwrap())(&parts.uri.to_string());
                let text = String::from_utf8(bytes.to_vec()).unwrap();
                log.lock().unwrap().push(format!("{} {} {text}", parts.method, parts.uri));
                Response::builder().status(code).body(Body::from(body.to_string().into_bytes()))
            }
        });
        Self { ctx: Context::for_test(Client::new(service, "default"), clock), time, requests }
    }

    /// Puts the pool into the context's cache.
    pub(crate) fn with_pool(self, pool: NodePool) -> Self {
        self.with_changing_pool(pool).0
    }

    /// The same, with a function that changes what the cache has.
    pub(crate) fn with_changing_pool(
        mut self,
        pool: NodePool,
    ) -> (Self, impl FnMut(NodePool) + Send + 'static) {
        let (reader, mut writer) = store();
        let mut set = move |mut pool: NodePool| {
            pool.metadata.resource_version = Some("1".into());
            writer.apply_watcher_event(&watcher::Event::Apply(pool));
        };
        set(pool);
        self.ctx.pools = reader;
        (self, set)
    }

    /// The context, to share, and a function that returns the requests so far.
    pub(crate) fn into_parts(self) -> (Arc<Context>, impl Fn() -> Vec<String>) {
        let requests = self.requests;
        (Arc::new(self.ctx), move || requests.lock().unwrap().clone())
    }

    /// The requests so far, as `METHOD path?query body`.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

/// The API server's answer to an accepted eviction or deletion.
pub(crate) fn success() -> (u16, Value) {
    (200, json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" }))
}
