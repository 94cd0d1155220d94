//! Waits until a control plane is ready, or reports why it is not.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{Api, Client};
use tokio::time::Instant;

use crate::process_supervisor::Running;
use crate::wait::PATIENCE;

const POLL: Duration = Duration::from_millis(50);
/// Log lines that are shown for a program that ended.
const TAIL: usize = 15;

/// Waits until the API server reports ready. `programs` are those it depends on, including itself.
///
/// # Errors
/// As soon as one of them ends, with the end of its log; or after the time limit.
pub async fn api_server(client: &Client, programs: &[Running]) -> Result<()> {
    wait("the API server", programs, || async {
        let request = http::Request::get("/readyz").body(Vec::new())?;
        Ok(client.request_text(request).await? == "ok")
    })
    .await
}

/// Waits until the controller manager works: it creates each namespace's default service account, without which no pod
/// is admitted.
///
/// # Errors
/// Same as [`api_server`].
pub async fn controllers(client: &Client, programs: &[Running]) -> Result<()> {
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), "default");
    wait("the controller manager", programs, || async { Ok(accounts.get_opt("default").await?.is_some()) })
        .await
}

async fn wait<F>(what: &str, programs: &[Running], probe: impl Fn() -> F) -> Result<()>
where
    F: Future<Output = Result<bool>>,
{
    let deadline = Instant::now() + PATIENCE;
    loop {
        alive(programs)?;
        // A probe may hang when its program dies, so it has a shorter time limit than the whole wait.
        let answer = tokio::time::timeout(Duration::from_secs(5), probe()).await;
        let why = match answer {
            Ok(Ok(true)) => return Ok(()),
            Ok(Ok(false)) => "not yet".to_owned(),
            Ok(Err(error)) => format!("{error:#}"),
            Err(_) => "no answer".to_owned(),
        };
        if Instant::now() > deadline {
            let logs: String = programs.iter().map(described_log).collect();
            bail!("{what} was not ready within {PATIENCE:?} ({why}){logs}");
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Checks that all programs are running.
///
/// # Errors
/// When one has ended, with its exit and the end of its log.
pub fn alive(programs: &[Running]) -> Result<()> {
    for program in programs {
        if let Some(exit) = program.exit() {
            return Err(anyhow!("{} ended with {exit}{}", program.spec.name, described_log(program)));
        }
    }
    Ok(())
}

fn described_log(program: &Running) -> String {
    let tail = tail(&program.spec.log, TAIL);
    format!("\nthe end of {}'s log:\n{tail}", program.spec.name)
}

/// The last `lines` of a log, or a note that it cannot be read.
pub fn tail(path: &Path, lines: usize) -> String {
    match std::fs::read(path) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let all: Vec<&str> = text.lines().collect();
            let from = all.len().saturating_sub(lines);
            all.get(from..).unwrap_or_default().iter().map(|line| format!("  {line}\n")).collect()
        }
        Err(error) => format!("  (cannot read {}: {error})\n", path.display()),
    }
}
