//! A program with all that it starts, in a process group of its own.

use std::io;
use std::process::ExitStatus;

use nix::sys::signal::{SIGKILL, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

/// A started program that leads a process group. Dropping it kills the group.
pub(crate) struct Group {
    pub(crate) leader: Child,
}

impl Group {
    /// Starts it. A Ctrl-C of the terminal does not reach the group.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn spawn(command: &mut Command) -> io::Result<Self> {
        Ok(Self { leader: command.process_group(0).kill_on_drop(true).spawn()? })
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) async fn run(command: &mut Command) -> io::Result<ExitStatus> {
        Self::spawn(command)?.leader.wait().await
    }

    pub(crate) fn kill(&self) {
        // None after its end was waited for: then the number may be another's.
        if let Some(group) = self.leader.id().and_then(|id| i32::try_from(id).ok()) {
            killpg(Pid::from_raw(group), SIGKILL).ok();
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
