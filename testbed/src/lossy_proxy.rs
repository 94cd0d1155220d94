//! A TCP proxy to the API server that loses data: it forwards bytes until it is asked to lose one request or one answer.
//!
//! It does not parse TLS or HTTP, so it selects by time: the next bytes that a client sends after [`LossyProxy::lose`]
//! are treated as the request. Warm the connection up first, or those bytes are a handshake. A client that does not have its connection
//! back yet opens another one: [`LossyProxy::has_lost_a_handshake`] tells.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

use crate::process_supervisor::lock;

/// What is lost, and how the client notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The request: the connection breaks, and the server never gets it.
    Request,
    /// The answer: the connection breaks when the answer arrives, so the server has executed the request by then.
    Answer,
    /// The answer, without an error: the connection stays open and silent.
    SilentAnswer,
}

/// A running proxy. Dropping it closes every connection, and the port refuses new ones.
pub struct LossyProxy {
    address: SocketAddr,
    losses: Arc<Losses>,
    listening: AbortHandle,
}

/// What is lost next, and what the last loss has met.
#[derive(Default)]
struct Losses {
    next: Mutex<Option<Loss>>,
    /// The first bytes of a connection.
    met_a_handshake: AtomicBool,
}

impl Losses {
    /// The loss of these bytes, which are the first of their connection if it `is_new`.
    fn take(&self, is_new: bool) -> Option<Loss> {
        let taken = lock(&self.next).take();
        if taken.is_some() {
            self.met_a_handshake.store(is_new, Ordering::SeqCst);
        }
        taken
    }
}

impl LossyProxy {
    /// Listens on `port` of the loopback address (0 for any free port) and forwards everything to `server`.
    ///
    /// # Errors
    /// When the port is taken.
    pub async fn start(port: u16, server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
        let listener = listener.with_context(|| format!("cannot listen on port {port}"))?;
        let address = listener.local_addr()?;
        let losses = Arc::<Losses>::default();
        let listening = tokio::spawn(listen(listener, server, Arc::clone(&losses))).abort_handle();
        Ok(Self { address, losses, listening })
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Loses the next request or its answer. Everything after that is forwarded.
    pub fn lose(&self, loss: Loss) {
        *lock(&self.losses.next) = Some(loss);
    }

    /// Whether the loss requested by [`LossyProxy::lose`] has begun.
    pub fn has_lost(&self) -> bool {
        lock(&self.losses.next).is_none()
    }

    /// Whether the last loss has met the first bytes of a connection. With TLS, these are a handshake and not a request.
    pub fn has_lost_a_handshake(&self) -> bool {
        self.has_lost() && self.losses.met_a_handshake.load(Ordering::SeqCst)
    }
}

impl Drop for LossyProxy {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn listen(listener: TcpListener, server: SocketAddr, losses: Arc<Losses>) {
    // The connections end with the listener, because it owns them.
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let losses = Arc::clone(&losses);
        connections.spawn(async move {
            // A broken connection is the purpose of this proxy.
            pass(client, server, &losses).await.ok();
        });
    }
}

/// Forwards one connection. Returning closes both sides.
async fn pass(mut client: TcpStream, server: SocketAddr, losses: &Losses) -> std::io::Result<()> {
    let mut server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut up, mut down) = (vec![0; 16 * 1024], vec![0; 16 * 1024]);
    let (mut loss, mut is_new) = (None, true);
    loop {
        tokio::select! {
            read = client.read(&mut up) => {
                let length = read?;
                if length == 0 {
                    return Ok(());
                }
                loss = loss.or_else(|| losses.take(is_new));
                is_new = false;
                if loss == Some(Loss::Request) {
                    return Ok(());
                }
                server.write_all(&up[..length]).await?;
            }
            read = server.read(&mut down) => {
                let length = read?;
                if length == 0 || loss == Some(Loss::Answer) {
                    return Ok(());
                }
                if loss.is_none() {
                    client.write_all(&down[..length]).await?;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::wait::{PATIENCE, eventually};

    /// A server that answers each byte with the next one, and records the bytes it got.
    async fn server() -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let got = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&got);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let log = Arc::clone(&log);
                tokio::spawn(async move {
                    while let Ok(byte) = client.read_u8().await {
                        lock(&log).push(byte);
                        client.write_u8(byte + 1).await.unwrap();
                    }
                });
            }
        });
        (address, got)
    }

    async fn ask(client: &mut TcpStream, byte: u8) -> Option<u8> {
        client.write_u8(byte).await.ok()?;
        client.read_u8().await.ok()
    }

    #[tokio::test]
    async fn it_loses_what_was_asked_once_and_nothing_else() {
        for (loss, arrives) in [(Loss::Request, false), (Loss::Answer, true)] {
            let (server, got) = server().await;
            let proxy = LossyProxy::start(0, server).await.unwrap();
            let mut client = TcpStream::connect(proxy.address()).await.unwrap();
            assert_eq!(ask(&mut client, 1).await, Some(2));
            proxy.lose(loss);
            assert!(!proxy.has_lost());
            assert_eq!(ask(&mut client, 3).await, None, "{loss:?}");
            assert!(proxy.has_lost() && !proxy.has_lost_a_handshake());
            let mut client = TcpStream::connect(proxy.address()).await.unwrap();
            assert_eq!(ask(&mut client, 5).await, Some(6));
            assert_eq!(*lock(&got), if arrives { vec![1, 3, 5] } else { vec![1, 5] }, "{loss:?}");
        }
    }

    #[tokio::test]
    async fn a_loss_that_meets_the_first_bytes_of_a_connection_is_told_apart() {
        let (server, _got) = server().await;
        let proxy = LossyProxy::start(0, server).await.unwrap();
        let mut client = TcpStream::connect(proxy.address()).await.unwrap();
        proxy.lose(Loss::Request);
        assert!(!proxy.has_lost_a_handshake());
        assert_eq!(ask(&mut client, 1).await, None);
        assert!(proxy.has_lost_a_handshake());
    }

    #[tokio::test]
    async fn a_silent_loss_keeps_the_connection_open() {
        let (server, got) = server().await;
        let proxy = LossyProxy::start(0, server).await.unwrap();
        let mut client = TcpStream::connect(proxy.address()).await.unwrap();
        proxy.lose(Loss::SilentAnswer);
        let silence = tokio::time::timeout(Duration::from_millis(200), ask(&mut client, 1)).await;
        assert!(silence.is_err(), "{silence:?}");
        // How soon the request is there depends on the machine.
        let arrives =
            eventually(PATIENCE, "the request is there", async || Ok((!lock(&got).is_empty()).then_some(())));
        arrives.await.unwrap();
        assert_eq!(*lock(&got), [1]);
    }

    #[tokio::test]
    async fn without_it_the_port_refuses() {
        let (server, _got) = server().await;
        let proxy = LossyProxy::start(0, server).await.unwrap();
        let address = proxy.address();
        drop(proxy);
        // The task ends when it next runs.
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    }
}
