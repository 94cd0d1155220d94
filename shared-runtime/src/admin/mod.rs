//! The admin server: `/livez`, `/readyz` with its reasons, `/metrics`.
//!
//! It serves data that others maintain ([`Readiness`], [`Metrics`]) and decides nothing. There is no authentication,
//! and nothing that is served is secret: names of caches and of definitions, and counts without the names of objects.
//! The limits of a connection are in `connections`.

mod connections;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::info;

use self::connections::Limits;
use crate::liveness::{Liveness, StuckTask};
use crate::metrics::{self, Metrics};
use crate::readiness::Readiness;

/// The admin server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// Another process uses the port.
    #[error("{address} is in use; choose another address with --admin-address, port 0 takes any free one")]
    InUse {
        /// The requested address.
        address: SocketAddr,
    },
    /// Any other reason: no such address on this machine, a port below 1024 without the privilege.
    #[error("cannot listen on {address}; choose another address with --admin-address")]
    Listen {
        /// The requested address.
        address: SocketAddr,
        /// The operating system's error.
        source: std::io::Error,
    },
}

#[derive(Clone)]
struct Served {
    readiness: Readiness,
    liveness: Liveness,
    metrics: Metrics,
}

/// Whether there is no IPv6 here: a kernel without it, or one where it is off.
fn has_no_ipv6(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::AddrNotAvailable
        || error.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error())
}

/// Binds to `address`, and where that is `[::]` and there is no IPv6, to every address of IPv4.
async fn bind<L, F: Future<Output = std::io::Result<L>>>(
    address: SocketAddr,
    listen: impl Fn(SocketAddr) -> F,
) -> std::io::Result<L> {
    match listen(address).await {
        Err(error) if address.ip() == Ipv6Addr::UNSPECIFIED && has_no_ipv6(&error) => {
            listen((Ipv4Addr::UNSPECIFIED, address.port()).into()).await
        }
        bound => bound,
    }
}

/// Listens on `address` and serves until `shutdown`. Port 0 takes any free port, which is logged and returned. `[::]` is every address
/// of the machine, of both families, and those of IPv4 where there is no IPv6.
pub async fn serve(
    address: SocketAddr,
    readiness: Readiness,
    liveness: Liveness,
    metrics: Metrics,
    shutdown: CancellationToken,
) -> Result<(SocketAddr, JoinHandle<()>), AdminError> {
    let bound = bind(address, TcpListener::bind).await;
    let listener = bound.map_err(|source| match source.kind() {
        std::io::ErrorKind::AddrInUse => AdminError::InUse { address },
        _ => AdminError::Listen { address, source },
    })?;
    let address = listener.local_addr().map_err(|source| AdminError::Listen { address, source })?;
    info!(%address, "admin server listens");
    let router = Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(render))
        .with_state(Served { readiness, liveness, metrics });
    let task = tokio::spawn(connections::serve(listener, router, Limits::default(), shutdown));
    Ok((address, task))
}

async fn livez(State(served): State<Served>) -> Response {
    let stuck = served.liveness.stuck();
    if stuck.is_empty() {
        return "ok\n".into_response();
    }
    let text: String =
        stuck.iter().map(|StuckTask { task, trouble }| format!("{task}: {trouble}\n")).collect();
    (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
}

async fn readyz(State(served): State<Served>) -> Response {
    let waiting = served.readiness.waiting_for();
    let degraded = served.readiness.degraded();
    let degraded = degraded.iter().map(|(name, reason)| format!("degraded: {name}: {reason}\n"));
    if waiting.is_empty() {
        return format!("ok\n{}", degraded.collect::<String>()).into_response();
    }
    let waiting = waiting.iter().map(|(gate, reason)| format!("{gate}: {reason}\n"));
    (StatusCode::SERVICE_UNAVAILABLE, waiting.chain(degraded).collect::<String>()).into_response()
}

async fn render(State(served): State<Served>) -> Response {
    match served.metrics.render() {
        Ok(text) => ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(failed) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{failed}\n")).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;
    use crate::clock::Clock;

    const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

    async fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn readyz_says_what_it_waits_for_and_metrics_are_served() {
        let readiness = Readiness::default();
        let gate = readiness.gate("crds", "nodepools.tandem.dev is missing");
        let shutdown = CancellationToken::new();
        let metrics = Metrics::new("test", "0").unwrap();
        let (clock, time) = Clock::fake(jiff::Timestamp::UNIX_EPOCH);
        let liveness = Liveness::new(clock);
        let pulse = liveness.pulse("controller x");
        let (address, task) =
            serve(ANY, readiness.clone(), liveness, metrics, shutdown.clone()).await.unwrap();

        let closed = get(address, "/readyz").await;
        assert!(closed.starts_with("HTTP/1.1 503"), "{closed}");
        assert!(closed.ends_with("crds: nodepools.tandem.dev is missing\n"), "{closed}");
        assert!(get(address, "/livez").await.starts_with("HTTP/1.1 200"));
        time.advance(Duration::from_secs(91));
        let stuck = get(address, "/livez").await;
        assert!(stuck.starts_with("HTTP/1.1 500"), "{stuck}");
        assert!(stuck.ends_with("controller x: not heard of for 91 s\n"), "{stuck}");
        pulse.beat();
        assert!(get(address, "/livez").await.starts_with("HTTP/1.1 200"));
        gate.open();
        let ready = get(address, "/readyz").await;
        assert!(ready.starts_with("HTTP/1.1 200") && ready.ends_with("\r\n\r\nok\n"), "{ready}");
        readiness.degrade("crd x", Some("it is old".to_owned()));
        let degraded = get(address, "/readyz").await;
        assert!(degraded.starts_with("HTTP/1.1 200"), "{degraded}");
        assert!(degraded.ends_with("\r\n\r\nok\ndegraded: crd x: it is old\n"), "{degraded}");
        assert!(get(address, "/metrics").await.contains("tandem_build_info"));

        shutdown.cancel();
        task.await.unwrap();
    }

    /// On this machine one of the two is so: it has IPv6, and `[::]` takes both families; or it has none.
    #[tokio::test]
    async fn all_addresses_are_those_of_ipv4_too() {
        let metrics = Metrics::new("test", "0").unwrap();
        let (clock, _) = Clock::fake(jiff::Timestamp::UNIX_EPOCH);
        let (shutdown, all) = (CancellationToken::new(), SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)));
        let served = serve(all, Readiness::default(), Liveness::new(clock), metrics, shutdown.clone()).await;
        let (address, task) = served.unwrap();
        let at_ipv4 = get((Ipv4Addr::LOCALHOST, address.port()).into(), "/livez").await;
        assert!(at_ipv4.starts_with("HTTP/1.1 200"), "{at_ipv4}");
        shutdown.cancel();
        task.await.unwrap();
        let errno = |errno: rustix::io::Errno| has_no_ipv6(&errno.into());
        assert!(errno(rustix::io::Errno::AFNOSUPPORT) && errno(rustix::io::Errno::ADDRNOTAVAIL));
        assert!(!errno(rustix::io::Errno::ADDRINUSE) && !errno(rustix::io::Errno::ACCESS));
    }

    /// On a machine without IPv6, where each bind of an address of its family fails with `errno`.
    async fn bound_without_ipv6(address: &str, errno: rustix::io::Errno) -> std::io::Result<SocketAddr> {
        let listen = |at: SocketAddr| async move {
            if at.is_ipv6() { Err(std::io::Error::from(errno)) } else { Ok(at) }
        };
        bind(address.parse().unwrap(), listen).await
    }

    #[tokio::test]
    async fn where_there_is_no_ipv6_all_addresses_are_those_of_ipv4() {
        use rustix::io::Errno;
        for errno in [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL] {
            let bound = bound_without_ipv6("[::]:8080", errno).await;
            assert_eq!(bound.unwrap(), SocketAddr::from((Ipv4Addr::UNSPECIFIED, 8080)));
            // One address is no other one.
            assert!(bound_without_ipv6("[::1]:8080", errno).await.is_err());
        }
        // Another program has the port.
        assert!(bound_without_ipv6("[::]:8080", Errno::ADDRINUSE).await.is_err());
    }

    /// Opens a connection and sends only the beginning of a request.
    async fn half_request(address: SocketAddr) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\nX-Slow: ").await.unwrap();
        stream
    }

    /// Whether the server has closed the connection. Data it sends before that is read and ignored.
    fn is_closed(stream: &TcpStream) -> bool {
        let mut bytes = [0; 256];
        loop {
            match stream.try_read(&mut bytes) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() != std::io::ErrorKind::WouldBlock,
            }
        }
    }

    /// Waits until the number of closed `streams` satisfies `wanted`.
    async fn closed(streams: &[TcpStream], wanted: impl Fn(usize) -> bool) {
        let patience = tokio::time::Instant::now() + Duration::from_secs(30);
        loop {
            let closed = streams.iter().filter(|stream| is_closed(stream)).count();
            if wanted(closed) {
                return;
            }
            let open = streams.len() - closed;
            assert!(
                tokio::time::Instant::now() < patience,
                "{open} of {} connections are open",
                streams.len()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn served() -> (SocketAddr, JoinHandle<()>, CancellationToken) {
        let (metrics, shutdown) = (Metrics::new("test", "0").unwrap(), CancellationToken::new());
        let (address, task) =
            serve(ANY, Readiness::default(), Liveness::new(Clock::system()), metrics, shutdown.clone())
                .await
                .unwrap();
        (address, task, shutdown)
    }

    #[tokio::test]
    async fn half_requests_neither_keep_probes_out_nor_stay() {
        const HALF_REQUESTS: usize = 200;
        let (address, task, shutdown) = served().await;
        let mut streams = Vec::new();
        for _ in 0..HALF_REQUESTS {
            streams.push(half_request(address).await);
        }
        for path in ["/livez", "/readyz", "/metrics"] {
            let answer = get(address, path).await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
        }
        let Limits { connections, .. } = Limits::default();
        closed(&streams, |closed| closed >= HALF_REQUESTS - connections).await;
        // The others have their time, and no more.
        closed(&streams, |closed| closed == HALF_REQUESTS).await;
        shutdown.cancel();
        task.await.unwrap();
    }

    #[tokio::test]
    async fn a_connection_is_kept_for_the_next_request_but_not_for_ever() {
        let (address, task, shutdown) = served().await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        for _ in 0..2 {
            stream.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
            let mut answer = Vec::new();
            while !answer.ends_with(b"\r\n\r\nok\n") {
                assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0, "closed after {answer:?}");
            }
            assert!(answer.starts_with(b"HTTP/1.1 200 OK"));
        }
        closed(&[stream], |closed| closed == 1).await;
        shutdown.cancel();
        task.await.unwrap();
    }

    #[tokio::test]
    async fn a_head_that_does_not_end_is_refused() {
        let (address, task, shutdown) = served().await;
        let mut stream = half_request(address).await;
        let mut answer = String::new();
        // The server may close before it has read all of it.
        let _ = stream.write_all(&vec![b'x'; 64 * 1024]).await;
        let _ = stream.read_to_string(&mut answer).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
        shutdown.cancel();
        task.await.unwrap();
    }

    #[tokio::test]
    async fn a_stop_does_not_wait_for_half_requests() {
        let (address, task, shutdown) = served().await;
        let stream = half_request(address).await;
        shutdown.cancel();
        tokio::time::timeout(Duration::from_secs(30), task).await.unwrap().unwrap();
        closed(&[stream], |closed| closed == 1).await;
    }

    #[tokio::test]
    async fn a_port_in_use_names_the_flag_to_change() {
        let taken = TcpListener::bind(ANY).await.unwrap();
        let address = taken.local_addr().unwrap();
        let metrics = Metrics::new("test", "0").unwrap();
        let failed = serve(
            address,
            Readiness::default(),
            Liveness::new(Clock::system()),
            metrics,
            CancellationToken::new(),
        )
        .await
        .unwrap_err();
        assert_eq!(
            failed.to_string(),
            format!(
                "{address} is in use; choose another address with --admin-address, port 0 takes any free one"
            )
        );
    }
}
