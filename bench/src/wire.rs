//! A connection of a writer's own that counts its requests.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use anyhow::{Context as _, Result};
use http::{Request, Response};
use kube::client::{Body, ClientBuilder};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower::{Layer, Service};

/// What went over a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    requests: Arc<AtomicU64>,
    watches: Arc<AtomicU64>,
}

impl Counts {
    /// Requests of the measured operation since the last look.
    pub(crate) fn take_requests(&self) -> u64 {
        self.requests.swap(0, Ordering::Relaxed)
    }

    /// Watches opened since the last look.
    pub(crate) fn take_watches(&self) -> u64 {
        self.watches.swap(0, Ordering::Relaxed)
    }
}

impl<S> Layer<S> for Counts {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted { inner, counts: self.clone() }
    }
}

/// Counts what passes.
#[derive(Clone, Debug)]
pub(crate) struct Counted<S> {
    inner: S,
    counts: Counts,
}

impl<S: Service<Request<Body>, Response = Response<B>>, B> Service<Request<Body>> for Counted<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> S::Future {
        let watches = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let counter = if watches { &self.counts.watches } else { &self.counts.requests };
        counter.fetch_add(1, Ordering::Relaxed);
        self.inner.call(request)
    }
}

/// A client with a connection pool of its own, which never repeats a request by itself.
pub(crate) async fn client(kubeconfig: &Path, counts: &Counts) -> Result<Client> {
    let read = Kubeconfig::read_from(kubeconfig).context("cannot read the kubeconfig")?;
    let mut config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
        .await
        .context("cannot use the kubeconfig")?;
    config.default_retry = false;
    Ok(ClientBuilder::try_from(config).context("cannot make a client")?.with_layer(counts).build())
}
