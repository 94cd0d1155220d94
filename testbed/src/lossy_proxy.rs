//! A TCP proxy to the API server that loses data: it forwards bytes until it is asked to lose one request or one answer.
//!
//! It does not parse TLS or HTTP, so it selects by time: the next bytes that a client sends after [`LossyProxy::lose`]
//! are treated as the request. Warm the connection up first, or those bytes are a handshake.

use std::net::{Ipv4Addr, SocketAddr};
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
    next: Arc<Mutex<Option<Loss>>>,
    listening: AbortHandle,
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
        let next = Arc::new(Mutex::new(None));
        let listening = tokio::spawn(listen(listener, server, Arc::clone(&next))).abort_handle();
        Ok(Self { address, next, listening })
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Loses the next request or its answer. Everything after that is forwarded.
    pub fn lose(&self, loss: Loss) {
        *lock(&self.next) = Some(loss);
    }

    /// Whether the loss requested by [`LossyProxy::lose`] has begun.
    pub fn has_lost(&self) -> bool {
        lock(&self.next).is_none()
    }
}

impl Drop for LossyProxy {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn listen(listener: TcpListener, server: SocketAddr, next: Arc<Mutex<Option<Loss>>>) {
    // The connections end with the listener, because it owns them.
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let next = Arc::clone(&next);
        connections.spawn(async move {
            // A broken connection is the purpose of this proxy.
            pass(client, server, &next).await.ok();
        });
    }
}

/// Forwards one connection. Returning closes both sides.
async fn pass(mut client: TcpStream, server: SocketAddr, next: &Mutex<Option<Loss>>) -> std::io::Result<()> {
    let mut server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut up, mut down) = (vec![0; 16 * 1024], vec![0; 16 * 1024]);
    let mut loss = None;
    loop {
        tokio::select! {
            read = client.read(&mut up) => {
                let length = read?;
                if length == 0 {
                    return Ok(());
                }
                loss = loss.or_else(|| lock(next).take());
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
            assert!(proxy.has_lost());
            let mut client = TcpStream::connect(proxy.address()).await.unwrap();
            assert_eq!(ask(&mut client, 5).await, Some(6));
            assert_eq!(*lock(&got), if arrives { vec![1, 3, 5] } else { vec![1, 5] }, "{loss:?}");
        }
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
