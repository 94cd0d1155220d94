//! A way to the API server on which things go wrong: an HTTP proxy that keeps watches silent or refuses requests, as
//! told. It knows what a request asks for, other than [`crate::droproxy`], which loses bytes.
//!
//! A client reaches it without TLS and with its own token, which is passed on, so it keeps its identity and its rights.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
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
use crate::lifeline::lock;

/// Requests that are refused.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// What their path and query hold.
    pub asks: String,
    /// The status they get.
    pub code: u16,
    /// One in so many of them, from the first on; 1 for all.
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
    /// Watches that were opened before this moment are silent; moments are counted.
    silent_before: watch::Sender<u64>,
    moment: Arc<Mutex<u64>>,
    /// So are those that are opened while this holds.
    silent: watch::Sender<bool>,
    refusals: Arc<Mutex<Vec<Refused>>>,
}

/// A refusal and how many requests it was asked about.
struct Refused(Refusal, AtomicUsize);

impl FaultProxy {
    /// Listens on a free port of the loopback address and passes everything on to `cluster`.
    ///
    /// # Errors
    /// When there is no port or the cluster's kubeconfig cannot be used.
    pub async fn start(cluster: &Cluster) -> Result<Self> {
        let mut config = cluster.client_config().await?;
        // Whoever asks says who it is.
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
        };
        let router = Router::new().fallback(pass).with_state(faults.clone());
        let serving = tokio::spawn(async move {
            // Its end is that of the test.
            axum::serve(listener, router).await.ok();
        });
        Ok(Self { address, faults, serving: serving.abort_handle() })
    }

    /// A copy of a kubeconfig that leads through the proxy, beside the original.
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

    /// From now on nothing comes on any watch, open or new, until [`FaultProxy::let_watches_speak`]. All else passes.
    pub fn silence_watches(&self) {
        self.faults.silent.send_replace(true);
        self.silence_open_watches();
    }

    /// Nothing comes any more on the watches that are open now; new ones are well.
    pub fn silence_open_watches(&self) {
        let mut moment = lock(&self.faults.moment);
        *moment += 1;
        self.faults.silent_before.send_replace(*moment);
    }

    /// New watches are well again.
    pub fn let_watches_speak(&self) {
        self.faults.silent.send_replace(false);
    }

    /// Refuses requests from now on.
    pub fn refuse(&self, refusal: Refusal) {
        lock(&self.faults.refusals).push(Refused(refusal, AtomicUsize::new(0)));
    }

    /// How many requests were refused.
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
    /// The status with which a request is refused.
    fn refusal(&self, target: &str) -> Option<u16> {
        let refusals = lock(&self.refusals);
        let Refused(refusal, seen) =
            refusals.iter().find(|Refused(refusal, _)| target.contains(&refusal.asks))?;
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
    match forwarded(&faults.upstream, request, &target).await {
        Ok(response) if is_watch => {
            response.map(|body| silenced(body, opened, faults.silent_before.subscribe()))
        }
        Ok(response) => response,
        Err(error) => (StatusCode::BAD_GATEWAY, format!("{error:#}")).into_response(),
    }
}

async fn forwarded(upstream: &Client, request: Request, target: &str) -> Result<Response> {
    let (mut head, body) = request.into_parts();
    head.headers.remove(header::HOST);
    head.uri = target.parse()?;
    let body = axum::body::to_bytes(body, usize::MAX).await?;
    let request = http::Request::from_parts(head, kube::client::Body::from(body.to_vec()));
    Ok(upstream.send(request).await?.map(Body::new))
}

/// The body until watches of its age are silenced; from then on it is open and says nothing.
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
