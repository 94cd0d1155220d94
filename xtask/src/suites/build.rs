//! Builds what the tests need before the first one runs: a build beside them would take the processors from tests that watch
//! the clock. What cargo builds and what Go builds is built at the same time: at the end of each, one processor links.

use std::process::Stdio;

use anyhow::{Context as _, ensure};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use super::program::Program;
use crate::{dev, workspace};

/// Builds everything, and returns the test programs.
///
/// # Errors
/// When something cannot be built, with what to do.
pub(super) async fn everything() -> anyhow::Result<Vec<Program>> {
    // With a cluster or binaries of the user's, a test builds what it needs besides those.
    if ["TANDEM_KUBECONFIG", "KUBEBUILDER_ASSETS"].iter().any(|name| std::env::var_os(name).is_some()) {
        return rust().await;
    }
    // Before the tests: of two builds by cargo, one waits for the other.
    let program = dev::built().await?;
    let (programs, ()) = tokio::try_join!(rust(), dev::prepare(&program))?;
    Ok(programs)
}

async fn rust() -> anyhow::Result<Vec<Program>> {
    let mut cargo = Command::from(workspace::cargo())
        .args(["test", "--locked", "--workspace", "--no-run", "--message-format=json-render-diagnostics"])
        .current_dir(workspace::root())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("cannot run cargo")?;
    let output = cargo.stdout.take().context("cargo has no standard output")?;
    let (mut lines, mut programs) = (BufReader::new(output).lines(), Vec::new());
    while let Some(line) = lines.next_line().await? {
        programs.extend(Program::announced(&line)?);
    }
    ensure!(cargo.wait().await?.success(), "the tests do not compile");
    programs.push(Program::documentation());
    Ok(programs)
}
