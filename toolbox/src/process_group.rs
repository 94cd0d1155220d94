//! A program with all that it starts, in a process group of its own.

use std::io;
use std::process::ExitStatus;

use nix::sys::signal::{SIGKILL, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

/// A started program that leads a process group. Dropping it kills the group.
pub struct ProcessGroup {
    /// The program itself.
    pub leader: Child,
}

impl ProcessGroup {
    /// Starts it. A Ctrl-C of the terminal does not reach the group.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        Ok(Self { leader: command.process_group(0).kill_on_drop(true).spawn()? })
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn run(command: &mut Command) -> io::Result<ExitStatus> {
        Self::spawn(command)?.leader.wait().await
    }

    /// Kills it with all that it started.
    pub fn kill(&self) {
        // None after its end was waited for: then the number may be another's.
        if let Some(group) = self.leader.id().and_then(|id| i32::try_from(id).ok()) {
            killpg(Pid::from_raw(group), SIGKILL).ok();
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Waits for Ctrl-C or for a request to end, and says which. A [`ProcessGroup`], which the terminal does not reach, is killed when
/// this process drops it; what it started ends with it.
///
/// # Errors
/// When signals cannot be waited for.
pub async fn interrupted() -> io::Result<&'static str> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(tokio::select! {
        _ = hangup.recv() => "the end of the terminal",
        _ = interrupt.recv() => "Ctrl-C",
        _ = terminate.recv() => "SIGTERM",
    })
}
