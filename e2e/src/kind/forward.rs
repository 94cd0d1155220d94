//! A TCP port of this machine that leads to an address in another network namespace.
//!
//! A network namespace belongs to a thread. So one thread listens here, enters the other namespace, and connects from there: a
//! socket stays in the namespace it was made in.

use std::fs::File;
use std::net::{SocketAddr, TcpListener};

use anyhow::{Context as _, Result};
use nix::sched::{CloneFlags, setns};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

/// A port that is open until this is dropped.
pub(super) struct Forward {
    /// Where it is.
    pub(super) address: SocketAddr,
    _open: oneshot::Sender<()>,
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
        let namespace = File::open(format!("/proc/{pid}/ns/net")).context("the container engine is gone")?;
        let (open, closed) = oneshot::channel();
        let (ready, is_ready) = oneshot::channel();
        std::thread::Builder::new().name("kind-network".to_owned()).spawn(move || {
            let runtime = setns(namespace, CloneFlags::CLONE_NEWNET)
                .context("cannot enter the network of the container engine")
                .and_then(|()| Ok(tokio::runtime::Builder::new_current_thread().enable_io().build()?));
            match runtime {
                Ok(runtime) => {
                    ready.send(Ok(())).ok();
                    runtime.block_on(serve(listener, inside, closed));
                }
                Err(error) => {
                    ready.send(Err(error)).ok();
                }
            }
        })?;
        is_ready.await??;
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
