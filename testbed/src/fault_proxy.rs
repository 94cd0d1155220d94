//! An HTTP proxy to the API server that injects faults: it silences watches, refuses requests, or holds back the answers
//! to writes on demand. It parses requests, unlike [`crate::lossy_proxy`], which loses bytes.
//!
//! A client connects without TLS and with its own token, which is forwarded, so it keeps its identity and its rights.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header, request};
use axum::response::{IntoResponse as _, Response};
use futures::{StreamExt as _, stream};
use kube::Client;
use kube::client::ClientBuilder;
use kube::config::{AuthInfo, Kubeconfig};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::cluster::Cluster;
use crate::process_supervisor::lock;
use crate::write_gate::{GatedWrite, WriteGate};

/// Requests that are refused.
#[derive(Clone, Debug)]
pub struct InjectedRefusal {
    /// A substring of their path and query.
    pub target: String,
    /// The status code of the refusal.
    pub code: u16,
    /// Refuses every n-th of them, starting with the first; 1 for all.
    pub one_in: usize,
}

/// A running proxy. Dropping it closes every connection.
pub struct FaultProxy {
    address: SocketAddr,
    faults: Faults,
    serving: AbortHandle,
}

#[derive(Clone)]
struct Faults {
    upstream: Client,
    /// Watches that were opened before this count are silent; the count grows with each call.
    silent_before: watch::Sender<u64>,
    moment: Arc<Mutex<u64>>,
    /// Watches that are opened while this is true are silent, too.
    silent: watch::Sender<bool>,
    refusals: Arc<Mutex<Vec<Refused>>>,
    writes: WriteGate,
}

/// A refusal and the number of requests that matched it.
struct Refused(InjectedRefusal, AtomicUsize);

impl FaultProxy {
    /// Listens on a free port of the loopback address and forwards everything to `cluster`.
    ///
    /// # Errors
    /// When there is no port or the cluster's kubeconfig cannot be used.
    pub async fn start(cluster: &Cluster) -> Result<Self> {
        let mut config = cluster.client_config().await?;
        // The client authenticates itself.
        config.auth_info = AuthInfo::default();
        config.default_retry = false;
        let upstream = ClientBuilder::try_from(config)?.build();
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no free port")?;
        let address = listener.local_addr()?;
        let faults = Faults {
            upstream,
            silent_before: watch::Sender::new(0),
            moment: Arc::default(),
            silent: watch::Sender::new(false),
            refusals: Arc::default(),
            writes: WriteGate::default(),
        };
        let router = Router::new().fallback(pass).with_state(faults.clone());
        let serving = tokio::spawn(async move {
            // It ends with the test.
            axum::serve(listener, router).await.ok();
        });
        Ok(Self { address, faults, serving: serving.abort_handle() })
    }

    /// Writes a copy of a kubeconfig that uses the proxy, next to the original.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn kubeconfig(&self, of: &Path) -> Result<PathBuf> {
        let mut config = Kubeconfig::read_from(of)?;
        for cluster in config.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
            cluster.server = Some(format!("http://{}", self.address));
            cluster.certificate_authority = None;
            cluster.certificate_authority_data = None;
        }
        let path = of.with_extension(format!("through-{}", self.address.port()));
        std::fs::write(&path, serde_saphyr::to_string(&config)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// From now on no watch gets any events, open or new, until [`FaultProxy::restore_watches`]. Other requests are
    /// forwarded.
    pub fn silence_watches(&self) {
        self.faults.silent.send_replace(true);
        self.silence_open_watches();
    }

    /// The currently open watches get no more events; new ones work.
    pub fn silence_open_watches(&self) {
        let mut moment = lock(&self.faults.moment);
        *moment += 1;
        self.faults.silent_before.send_replace(*moment);
    }

    /// New watches work again.
    pub fn restore_watches(&self) {
        self.faults.silent.send_replace(false);
    }

    /// Refuses requests from now on.
    pub fn refuse(&self, refusal: InjectedRefusal) {
        lock(&self.faults.refusals).push(Refused(refusal, AtomicUsize::new(0)));
    }

    /// Forwards all requests from now on, and counts the refused ones anew.
    pub fn stop_refusing(&self) {
        lock(&self.faults.refusals).clear();
    }

    /// Decides which writes pass.
    pub fn writes(&self) -> &WriteGate {
        &self.faults.writes
    }

    /// Number of refused requests.
    pub fn refused(&self) -> usize {
        let refusals = lock(&self.faults.refusals);
        refusals
            .iter()
            .map(|Refused(refusal, seen)| seen.load(Ordering::SeqCst).div_ceil(refusal.one_in))
            .sum()
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Faults {
    /// The status code with which a request is refused; `None` when it is forwarded.
    fn refusal(&self, target: &str) -> Option<u16> {
        let refusals = lock(&self.refusals);
        let Refused(refusal, seen) =
            refusals.iter().find(|Refused(refusal, _)| target.contains(&refusal.target))?;
        seen.fetch_add(1, Ordering::SeqCst).is_multiple_of(refusal.one_in).then_some(refusal.code)
    }
}

async fn pass(State(faults): State<Faults>, request: Request) -> Response {
    let target = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
    if let Some(code) = faults.refusal(&target) {
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": "Refused", "message": "refused by the test"});
        let code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        return (code, axum::Json(status)).into_response();
    }
    let is_watch = target.contains("watch=true") || target.contains("watch=1");
    if is_watch && *faults.silent.borrow() {
        std::future::pending::<()>().await;
    }
    let opened = *lock(&faults.moment);
    match forwarded(&faults, request).await {
        Ok(response) if is_watch => {
            response.map(|body| silenced(body, opened, faults.silent_before.subscribe()))
        }
        Ok(response) => response,
        Err(error) => (StatusCode::BAD_GATEWAY, format!("{error:#}")).into_response(),
    }
}

async fn forwarded(faults: &Faults, request: Request) -> Result<Response> {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await?.to_vec();
    let write = GatedWrite::of(&head.method, head.uri.path(), &body);
    let answer = answered(faults.upstream.clone(), head, body);
    match write {
        Some(write) => faults.writes.pass(write, answer, Response::status).await,
        None => answer.await,
    }
}

async fn answered(upstream: Client, mut head: request::Parts, body: Vec<u8>) -> Result<Response> {
    head.headers.remove(header::HOST);
    head.uri = head.uri.path_and_query().map(ToString::to_string).unwrap_or_default().parse()?;
    let request = http::Request::from_parts(head, kube::client::Body::from(body));
    Ok(upstream.send(request).await?.map(Body::new))
}

/// The body until watches of its age are silenced; from then on it stays open without data.
fn silenced(body: Body, opened: u64, silent_before: watch::Receiver<u64>) -> Body {
    let frames = body.into_data_stream();
    let said = stream::unfold((frames, silent_before), move |(mut frames, mut silent)| async move {
        let frame = tokio::select! {
            biased;
            _ = silent.wait_for(|before| *before > opened) => None,
            frame = frames.next() => Some(frame),
        };
        match frame {
            Some(frame) => frame.map(|frame| (frame, (frames, silent))),
            None => std::future::pending().await,
        }
    });
    Body::from_stream(said)
}
