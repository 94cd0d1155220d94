//! A TCP port of this machine that leads to an address in another network namespace: it listens here, and connects from there.

use std::net::{SocketAddr, TcpListener};

use anyhow::{Context as _, Result};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::inside::{self, Open};

/// A port that is open until this is dropped.
pub(super) struct Forward {
    /// Where it is.
    pub(super) address: SocketAddr,
    _open: Open,
}

impl Forward {
    /// Opens a port that leads to `inside`, in the network of process `pid`.
    ///
    /// # Errors
    /// When no port is free, or the network cannot be entered.
    pub(super) async fn open(pid: u32, inside: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("no port is free")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let serve = move |ready: oneshot::Sender<Result<()>>, closed| {
            ready.send(Ok(())).ok();
            serve(listener, inside, closed)
        };
        let ((), open) = inside::run(pid, "kind-network", serve).await?;
        Ok(Self { address, _open: open })
    }
}

async fn serve(listener: TcpListener, inside: SocketAddr, mut closed: oneshot::Receiver<()>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = &mut closed => return,
        };
        let Ok((mut outer, _)) = accepted else { return };
        // On this thread: the connection is made in its namespace.
        tokio::spawn(async move {
            // A connection that is refused inside is closed outside.
            if let Ok(mut inner) = TcpStream::connect(inside).await {
                tokio::io::copy_bidirectional(&mut outer, &mut inner).await.ok();
            }
        });
    }
}
