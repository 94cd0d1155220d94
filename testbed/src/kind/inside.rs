//! A thread in the network of the container engine.
//!
//! A network namespace belongs to a thread. So what connects or listens there runs on one of its own, and a socket stays in the
//! namespace it was made in.

use std::fs::File;

use anyhow::{Context as _, Result};
use nix::sched::{CloneFlags, setns};
use tokio::sync::oneshot;

/// Ends what runs on the thread when it is dropped.
pub(super) type Open = oneshot::Sender<()>;

/// Runs `serve` on a thread named `name` in the network of process `pid`. It says when it is ready, and ends when its second
/// argument does.
///
/// # Errors
/// When the network cannot be entered, or what `serve` says.
pub(super) async fn run<T, F>(
    pid: u32,
    name: &str,
    serve: impl FnOnce(oneshot::Sender<Result<T>>, oneshot::Receiver<()>) -> F + Send + 'static,
) -> Result<(T, Open)>
where
    T: Send + 'static,
    F: Future<Output = ()>,
{
    let namespace = File::open(format!("/proc/{pid}/ns/net")).context("the container engine is gone")?;
    let (open, closed) = oneshot::channel();
    let (ready, is_ready) = oneshot::channel();
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        let runtime = setns(namespace, CloneFlags::CLONE_NEWNET)
            .context("cannot enter the network of the container engine")
            .and_then(|()| Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?));
        match runtime {
            Ok(runtime) => runtime.block_on(serve(ready, closed)),
            Err(error) => {
                ready.send(Err(error)).ok();
            }
        }
    })?;
    Ok((is_ready.await??, open))
}
