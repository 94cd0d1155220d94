//! From a signal to a token: SIGTERM and SIGINT request an orderly stop, a second one ends the process at once.
//!
//! The order of the stop is in [`crate::bootstrap`].

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// The signals that tell a process to stop.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    async fn recv(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// A token that is cancelled at the first SIGTERM or SIGINT. After a second one the process exits with code 130 without
/// waiting: a user who presses Ctrl-C twice wants that.
pub fn on_signals() -> std::io::Result<CancellationToken> {
    let mut signals =
        Signals { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? };
    let token = CancellationToken::new();
    let cancel = token.clone();
    tokio::spawn(async move {
        let first = signals.recv().await;
        info!(signal = first, "stopping");
        cancel.cancel();
        let second = signals.recv().await;
        warn!(signal = second, "asked twice to stop, not waiting for anything");
        exit_at_once();
    });
    Ok(token)
}

#[expect(clippy::exit, reason = "the second signal means: now, whatever is still running")]
fn exit_at_once() -> ! {
    std::process::exit(130)
}
