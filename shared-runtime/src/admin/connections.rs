//! How many connections the admin server keeps, and for how long. Whoever reaches the port can open one: it is on every
//! address of the pod and asks nobody who they are, because a kubelet's probes cannot say.
//!
//! When there are as many as may be, the oldest makes room for the newest. A limit that made the newest wait would let
//! anyone who holds that many connections open keep the probes out, and with them have the pod restarted.

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

/// What a connection may take. Our own figures: a kubelet has three probes, Prometheus one scrape, a person a few.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Connections at the same time.
    pub(super) connections: usize,
    /// From the first byte that may come to the last of a request's head; also how long a connection may be idle between
    /// two requests.
    pub(super) header_read: Duration,
    /// Bytes of a request's head.
    pub(super) header_bytes: usize,
    /// How long a connection may last, whatever it does: who reads an answer slowly has it in that time or not at all.
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

/// How long connections may take to end when the server does.
const LAST_ANSWERS: Duration = Duration::from_secs(2);
/// Until the next try after the system had no socket to give.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Serves until `shutdown`, then lets answers that are under way end.
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

/// One connection, to its end. What goes wrong on it is the other side's doing.
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
