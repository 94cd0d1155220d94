//! Processes that are stopped with SIGSTOP, like a machine that is suspended.

use anyhow::{Context as _, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::wait::{PATIENCE, eventually};

/// A stopped process. It continues when this is dropped, however the test ends.
#[derive(Debug)]
pub struct FrozenProcess(Pid);

impl FrozenProcess {
    /// Stops the process, and returns once no thread of it runs.
    ///
    /// # Errors
    /// There is no such process, or a thread of it still runs after [`PATIENCE`].
    pub async fn freeze(pid: u32) -> Result<Self> {
        let process = Self(Pid::from_raw(i32::try_from(pid)?));
        kill(process.0, Signal::SIGSTOP).with_context(|| format!("cannot stop process {pid}"))?;
        stopped(pid).await?;
        Ok(process)
    }

    /// Lets it continue.
    ///
    /// # Errors
    /// The process has ended.
    pub fn resume(self) -> Result<()> {
        kill(self.0, Signal::SIGCONT).with_context(|| format!("cannot continue process {}", self.0))
    }

    /// Ends it without letting it continue.
    ///
    /// # Errors
    /// The process has ended.
    pub fn kill(self) -> Result<()> {
        kill(self.0, Signal::SIGKILL).with_context(|| format!("cannot kill process {}", self.0))
    }
}

impl Drop for FrozenProcess {
    fn drop(&mut self) {
        kill(self.0, Signal::SIGCONT).ok();
    }
}

/// Waits until no thread of the process runs. The kernel hands SIGSTOP to one thread, which stops the others when it is
/// scheduled: on a busy machine they run on after `kill` has returned, and may still answer a request.
///
/// # Errors
/// A thread still runs after [`PATIENCE`], or the process has ended.
pub async fn stopped(pid: u32) -> Result<()> {
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    // As long as the kernel takes to end what it is doing for one of the threads.
    eventually(PATIENCE, &format!("process {pid} is stopped"), async || {
        for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
            let stat = std::fs::read_to_string(thread?.path().join("stat"))?;
            // The state follows the name, which is in parentheses and may contain any character.
            let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
            if state != Some('T') {
                return Ok(None);
            }
        }
        Ok(Some(()))
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_frozen_process_runs_again_when_it_is_dropped() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let state = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
            stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
        };
        let frozen = FrozenProcess::freeze(child.id()).await.unwrap();
        assert_eq!(state(), 'T');
        drop(frozen);
        let runs = eventually(PATIENCE, "it continues", async || Ok((state() != 'T').then_some(())));
        runs.await.unwrap();
        FrozenProcess::freeze(child.id()).await.unwrap().kill().unwrap();
        assert!(!child.wait().unwrap().success());
    }

    #[tokio::test]
    async fn a_process_that_runs_is_not_stopped() {
        let error = tokio::time::timeout(Duration::from_millis(300), stopped(std::process::id())).await;
        assert!(error.is_err(), "{error:?}");
    }
}
