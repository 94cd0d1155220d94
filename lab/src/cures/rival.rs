//! The other writer, in a proxy between a program and the API server: it writes at the moment at which it hurts, so that
//! the programs need no hooks.

use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use kube::Client;
use serde_json::json;
use testbed::cluster::Cluster;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// When the rival writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Never.
    Never,
    /// Once, when the program has read the object, or before its first write, whichever comes first.
    FirstUse,
    /// Once, before the program's first write.
    FirstWrite,
    /// After each of so many first reads of the object.
    EachRead(usize),
    /// Again and again with this pause, whatever the program does.
    Every(Duration),
}

impl Moment {
    /// The time between two writes of a rival that does not look at the program.
    const fn pause(self) -> Option<Duration> {
        if let Self::Every(pause) = self { Some(pause) } else { None }
    }
}

/// The end of the path of an object for which the proxy plays a server that is down.
const DOWN: &str = "/configmaps/down";

/// The rival's write; the argument counts from 0.
pub type RivalWrite = Arc<dyn Fn(usize) -> Pin<Box<dyn Future<Output = Result<()>> + Send>> + Send + Sync>;

/// What went through the proxy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traffic {
    /// Requests of the program, reads included.
    pub requests: usize,
    /// Its writes that were granted.
    pub written: usize,
    /// Its requests that were answered 409.
    pub conflicts: usize,
    /// Its requests that were answered 503, by the proxy itself.
    pub unavailable: usize,
    /// Its reads of the object that both write.
    pub reads: usize,
    /// Time from the first to the last of these reads.
    pub reading: Duration,
    /// When the first of them was answered.
    first_read: Option<Instant>,
    /// Writes of the rival.
    pub rivals: usize,
}

impl Traffic {
    fn read(&mut self, now: Instant) {
        self.reads += 1;
        self.reading = now.duration_since(*self.first_read.get_or_insert(now));
    }

    /// Whether the reads came one after another with this pause, or nearly so: up to a half is for the way to here.
    pub fn is_paced(&self, pause: Duration) -> bool {
        let pauses = u32::try_from(self.reads.saturating_sub(1)).unwrap_or(u32::MAX);
        pauses > 0 && self.reading >= pause / 2 * pauses
    }
}

/// A proxy that runs. Dropping it closes every connection.
pub struct RivalProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    serving: AbortHandle,
    rival: Option<AbortHandle>,
}

struct Shared {
    upstream: Client,
    /// The path of the object that both write; its subresources belong to it.
    object: String,
    moment: Moment,
    write: RivalWrite,
    traffic: Mutex<Traffic>,
}

impl RivalProxy {
    /// Listens on a free port of the loopback address, and forwards everything to `cluster` as its administrator.
    ///
    /// # Errors
    /// When there is no free port, or no client of the cluster.
    pub async fn start(cluster: &Cluster, object: String, moment: Moment, write: RivalWrite) -> Result<Self> {
        let mut config = cluster.client_config().await?;
        config.default_retry = false;
        let upstream = kube::client::ClientBuilder::try_from(config)?.build();
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no free port")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { upstream, object, moment, write, traffic: Mutex::default() });
        let router = Router::new().fallback(pass).with_state(Arc::clone(&shared));
        let serving = tokio::spawn(async move {
            // It ends with the program's run.
            axum::serve(listener, router).await.ok();
        });
        let keep_writing = |pause| tokio::spawn(keep_writing(Arc::clone(&shared), pause)).abort_handle();
        let rival = moment.pause().map(keep_writing);
        Ok(Self { address, shared, serving: serving.abort_handle(), rival })
    }

    /// Writes a kubeconfig for the proxy, with `namespace` as the default.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_kubeconfig(&self, file: &Path, namespace: &str) -> Result<()> {
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "cure",
            "clusters": [{"name": "cure", "cluster": {"server": format!("http://{}", self.address)}}],
            "contexts": [{"name": "cure", "context": {"cluster": "cure", "user": "cure", "namespace": namespace}}],
            "users": [{"name": "cure", "user": {}}],
        });
        std::fs::write(file, text.to_string()).with_context(|| format!("cannot write {}", file.display()))
    }

    /// What has gone through it.
    pub async fn traffic(&self) -> Traffic {
        *self.shared.traffic.lock().await
    }
}

impl Drop for RivalProxy {
    fn drop(&mut self) {
        self.serving.abort();
        if let Some(rival) = &self.rival {
            rival.abort();
        }
    }
}

/// A rival that does not look at the program: it writes until it is aborted, or until it cannot.
async fn keep_writing(shared: Arc<Shared>, pause: Duration) {
    for count in 0.. {
        if (shared.write)(count).await.is_err() {
            return;
        }
        shared.traffic.lock().await.rivals += 1;
        tokio::time::sleep(pause).await;
    }
}

/// The answer of a server that is down.
fn unavailable() -> Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "reason": "ServiceUnavailable", "message": "the server is down", "code": 503,
    });
    let head = [(header::CONTENT_TYPE, "application/json")];
    (StatusCode::SERVICE_UNAVAILABLE, head, status.to_string()).into_response()
}

async fn pass(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    shared
        .pass(request)
        .await
        .unwrap_or_else(|error| (StatusCode::BAD_GATEWAY, format!("{error:#}")).into_response())
}

impl Shared {
    async fn pass(&self, request: Request) -> Result<Response> {
        let is_write = !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
        let path = request.uri().path();
        if path.ends_with(DOWN) {
            self.traffic.lock().await.unavailable += 1;
            return Ok(unavailable());
        }
        let is_ours = path.ends_with(&self.object) || path.contains(&format!("{}/", self.object));
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch="));
        if is_write {
            self.before_write().await?;
        }
        let answer = self.forwarded(request).await?;
        let mut traffic = self.traffic.lock().await;
        traffic.requests += 1;
        traffic.written += usize::from(is_write && answer.status().is_success());
        traffic.conflicts += usize::from(answer.status() == StatusCode::CONFLICT);
        if is_ours && !is_write && !is_watch {
            traffic.read(Instant::now());
            let is_due = match self.moment {
                Moment::Never | Moment::FirstWrite | Moment::Every(_) => false,
                Moment::FirstUse => traffic.rivals == 0,
                Moment::EachRead(most) => traffic.rivals < most,
            };
            if is_due {
                self.rival(&mut traffic).await?;
            }
        }
        drop(traffic);
        Ok(answer)
    }

    async fn before_write(&self) -> Result<()> {
        let mut traffic = self.traffic.lock().await;
        let is_once = matches!(self.moment, Moment::FirstUse | Moment::FirstWrite);
        if is_once && traffic.rivals == 0 { self.rival(&mut traffic).await } else { Ok(()) }
    }

    async fn rival(&self, traffic: &mut Traffic) -> Result<()> {
        (self.write)(traffic.rivals).await.context("the rival cannot write")?;
        traffic.rivals += 1;
        Ok(())
    }

    async fn forwarded(&self, request: Request) -> Result<Response> {
        let (mut head, body) = request.into_parts();
        let body = axum::body::to_bytes(body, usize::MAX).await?.to_vec();
        head.headers.remove(header::HOST);
        head.headers.remove(header::AUTHORIZATION);
        head.uri = head.uri.path_and_query().map(ToString::to_string).unwrap_or_default().parse()?;
        let request = http::Request::from_parts(head, kube::client::Body::from(body));
        Ok(self.upstream.send(request).await?.map(Body::new))
    }
}
