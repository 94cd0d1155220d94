//! Builds what the tests need before the first one runs: a build beside them would take the processors from tests that watch
//! the clock. What cargo builds and what Go builds is built at the same time: at the end of each, one processor links.

use std::process::Stdio;

use anyhow::{Context as _, ensure};
use images::before;
use images::programs::{Build, build};
use testbed::control_plane::go::inform;
use testbed::control_plane::toolbox::{Tool, Toolbox, target_directory};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use super::program::Program;
use crate::workspace;

/// Builds everything, and returns the test programs.
///
/// # Errors
/// When something cannot be built, with what to do.
pub(super) async fn everything() -> anyhow::Result<Vec<Program>> {
    let (programs, ()) = tokio::try_join!(rust(), go())?;
    Ok(programs)
}

async fn rust() -> anyhow::Result<Vec<Program>> {
    let mut cargo = Command::from(workspace::cargo())
        .args(["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"])
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

/// The control plane and the providers' own programs. With a cluster or binaries of the user's, a test builds what it needs
/// besides those.
async fn go() -> anyhow::Result<()> {
    if ["TANDEM_KUBECONFIG", "KUBEBUILDER_ASSETS"].iter().any(|name| std::env::var_os(name).is_some()) {
        return Ok(());
    }
    Toolbox::from_environment().find(&Tool::ORDINARY).await?;
    testbed::prometheus_operator::definitions().await?;
    testbed::karpenter::binary().await?;
    testbed::cluster_api::build().await?;
    if let Some(why) = testbed::real_nodes::unavailable() {
        inform(&format!("no test with real nodes or on a kind cluster will run: {why}"));
    } else {
        testbed::real_nodes::build().await?;
        testbed::kind::build().await?;
        images().await?;
    }
    Ok(())
}

/// The operators' images, which the tests on a kind cluster load, and those of the commit before, from which one upgrades: here, so that no test waits for a compiler.
async fn images() -> anyhow::Result<()> {
    inform("building the operators' images");
    let (root, target) = (workspace::root(), target_directory());
    let build = move || {
        build(Build::for_tests(workspace::cargo(), &root, &target))?;
        inform("building the operators of the commit before");
        before::build(workspace::cargo(), &root, &target)
    };
    tokio::task::spawn_blocking(build).await??;
    Ok(())
}
