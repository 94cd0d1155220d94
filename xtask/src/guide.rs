//! `cargo xtask guide`: regenerates the transcripts of the guides. The test that compares them knows how.

use anyhow::{Context as _, ensure};

use crate::workspace;

/// Runs the test so that it writes, or compares.
pub(crate) fn run(check: bool) -> anyhow::Result<()> {
    let mut command = workspace::cargo();
    command.current_dir(workspace::root()).args(["test", "--locked", "--quiet", "--test", "guide"]);
    if check {
        // With the features of all tests, which are built when the checks come after them.
        command.arg("--workspace");
    } else {
        command.args(["--package", "autoscaler-operator"]).env("TANDEM_WRITE_GUIDES", "1");
    }
    let status = command.status().context("cannot run cargo")?;
    ensure!(status.success(), "the guides are not what this version prints; run cargo xtask guide");
    Ok(())
}
