//! Metrics as Prometheus scrapes them: served over HTTP on a local port, and requested over that port.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use prometheus::{Registry, TEXT_FORMAT, TextEncoder};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

use crate::context::PATIENCE;

/// Answers `GET /metrics` until it is dropped.
pub(super) struct Endpoint {
    address: SocketAddr,
    _served: AbortOnDropHandle<()>,
}

/// A received response.
pub(super) struct Scrape {
    /// The status line.
    pub(super) status: String,
    /// The Content-Type.
    pub(super) format: String,
    /// The exposition.
    pub(super) body: String,
}

impl Endpoint {
    /// Serves the current content of `registry`.
    pub(super) async fn serve(registry: Registry) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("no port for the metrics")?;
        let address = listener.local_addr().context("the port has no number")?;
        let served = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A client that disconnects gets no answer; the next one is served.
                answer(stream, &registry).await.ok();
            }
        });
        Ok(Self { address, _served: AbortOnDropHandle::new(served) })
    }

    /// `GET path`, as a scraper sends it.
    pub(super) async fn get(&self, path: &str) -> Result<Scrape> {
        let asked = tokio::time::timeout(PATIENCE, get(self.address, path)).await;
        let text = asked.context("the metrics have no answer")?.context("the metrics cannot be read")?;
        let (head, body) = text.split_once("\r\n\r\n").context("an answer without a head")?;
        let status = head.lines().next().unwrap_or_default().to_owned();
        let format = head.lines().find(|line| line.starts_with("Content-Type:")).unwrap_or_default();
        Ok(Scrape { status, format: format.to_owned(), body: body.to_owned() })
    }
}

async fn get(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

/// Reads the head of one request, and answers it.
async fn answer(mut stream: TcpStream, registry: &Registry) -> Result<()> {
    let mut lines = BufReader::new(&mut stream).lines();
    let asked = lines.next_line().await?.unwrap_or_default();
    while lines.next_line().await?.is_some_and(|line| !line.is_empty()) {}
    let (status, body) = if asked.starts_with("GET /metrics ") {
        ("200 OK", TextEncoder::new().encode_to_string(&registry.gather())?)
    } else {
        ("404 Not Found", String::new())
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {TEXT_FORMAT}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    Ok(stream.shutdown().await?)
}
