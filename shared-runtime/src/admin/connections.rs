//! How many connections the admin server keeps, and for how long. Every client that reaches the port can open one: it
//! listens on every address of the pod and requires no authentication, because a kubelet's probes cannot authenticate.
//!
//! When the limit is reached, the newest connection replaces the oldest. If the newest had to wait instead, a client
//! that holds that many connections open could keep the probes out, and thereby have the pod restarted.

use std::collections::VecDeque;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::debug;

/// Limits of connections. Our own figures: a kubelet has three probes, Prometheus one scrape, a user a few.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Number of concurrent connections.
    pub(super) connections: usize,
    /// From the first possible byte to the end of a request's head; also how long a connection may be idle between two
    /// requests.
    pub(super) header_read: Duration,
    /// Size of a request's head in bytes.
    pub(super) header_bytes: usize,
    /// Maximum lifetime of a connection, whatever it does: a client that reads an answer slowly has to finish in that
    /// time.
    pub(super) lifetime: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 64,
            header_read: Duration::from_secs(5),
            header_bytes: 8 * 1024,
            lifetime: Duration::from_secs(60),
        }
    }
}

/// How long connections may take to end when the server stops.
const LAST_ANSWERS: Duration = Duration::from_secs(2);
/// Delay until the next attempt after the system had no socket to give.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Serves until `shutdown`, then lets requests in progress finish.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    shutdown: CancellationToken,
) {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_read)
        .max_header_size(limits.header_bytes)
        .max_buf_size(limits.header_bytes);
    let mut tasks = JoinSet::new();
    let mut oldest_first: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let stream = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(_) = tasks.join_next() => {
                oldest_first.retain(|connection| !connection.is_finished());
                continue;
            }
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(failed) => {
                    debug!(error = %failed, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                    continue;
                }
            },
        };
        if oldest_first.len() >= limits.connections
            && let Some(oldest) = oldest_first.pop_front()
        {
            oldest.abort();
        }
        let connection =
            connection(builder.clone(), stream, router.clone(), limits.lifetime, shutdown.clone());
        oldest_first.push_back(tasks.spawn(connection));
    }
    let _ = tokio::time::timeout(LAST_ANSWERS, async { while tasks.join_next().await.is_some() {} }).await;
}

/// Serves one connection to its end. Errors on it are caused by the client.
async fn connection(
    builder: http1::Builder,
    stream: TcpStream,
    router: Router,
    lifetime: Duration,
    shutdown: CancellationToken,
) {
    let mut connection =
        pin!(builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)));
    let served = async {
        tokio::select! {
            ended = connection.as_mut() => return ended,
            () = shutdown.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        connection.await
    };
    match tokio::time::timeout(lifetime, served).await {
        Ok(Ok(())) => {}
        Ok(Err(failed)) => debug!(error = %failed, "a connection to the admin server failed"),
        Err(_) => debug!(after = ?lifetime, "a connection to the admin server lasted too long"),
    }
}
