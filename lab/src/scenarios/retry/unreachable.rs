//! Actors whose requests fail: one with a connection that can be broken, one without rights.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result};
use kube::client::Body;
use kube::{Api, Client};
use tokio::net::TcpSocket;
use tower::service_fn;

use crate::context::{Actor, ScenarioContext};
use crate::pool::Pool;

/// Alice, with a connection to the API server that can be broken: then it leads to a port on which no server listens.
pub(super) struct BreakableConnection {
    whole: Actor,
    broken: Actor,
    client: Client,
    namespace: String,
    breaks: Arc<AtomicU32>,
    /// Bound and not listening, so it refuses connections.
    _port: TcpSocket,
}

impl BreakableConnection {
    /// An intact connection.
    pub(super) async fn new(ctx: &ScenarioContext) -> Result<Self> {
        let port = TcpSocket::new_v4().context("no socket")?;
        port.bind(([127, 0, 0, 1], 0).into()).context("no port")?;
        let address = port.local_addr().context("the port has no number")?;
        let mut config = ctx.cluster.client_config().await?;
        config.default_retry = false;
        config.proxy_url = None;
        config.cluster_url = format!("https://{address}").parse().context("no address")?;
        let (whole, broken) = (ctx.actor("alice").await?, ctx.actor_with("alice", config)?);
        let breaks = Arc::<AtomicU32>::default();
        let client = switch(&whole, &broken, &breaks, ctx.namespace());
        Ok(Self { whole, broken, client, namespace: ctx.namespace().to_owned(), breaks, _port: port })
    }

    /// The next `requests` requests do not arrive.
    pub(super) fn breaks_for(&self, requests: u32) {
        self.breaks.store(requests, Ordering::SeqCst);
    }

    /// The API of the pools, over this connection.
    pub(super) fn pools(&self) -> Api<Pool> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The actors that send.
    pub(super) fn actors(&self) -> Vec<Actor> {
        vec![self.whole.clone(), self.broken.clone()]
    }

    /// Number of sent requests, whether they arrived or not.
    pub(super) fn sent(&self) -> usize {
        self.whole.requests().len() + self.broken.requests().len()
    }
}

fn switch(whole: &Actor, broken: &Actor, breaks: &Arc<AtomicU32>, namespace: &str) -> Client {
    let (whole, broken, breaks) = (whole.client(), broken.client(), Arc::clone(breaks));
    let service = service_fn(move |request: http::Request<Body>| {
        let left = breaks.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        let client = if left.is_ok() { broken.clone() } else { whole.clone() };
        async move { client.send(request).await }
    });
    Client::new(service, namespace)
}

/// An authenticated actor without any rights.
pub(super) async fn without_rights(ctx: &ScenarioContext, name: &str) -> Result<Actor> {
    let mut config = ctx.cluster.client_config().await?;
    config.default_retry = false;
    config.auth_info.impersonate = Some(name.to_owned());
    ctx.actor_with(name, config)
}
