//! Builds programs of this workspace, as a user would.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use tokio::process::Command;

use crate::messages::inform;
use crate::workspace::{cargo, root, target_directory};

/// Builds with these arguments to `cargo build`, in the profile of the calling binary, and returns where the programs are.
///
/// # Errors
/// When Cargo fails; the message contains Cargo's output.
pub async fn build(what: &str, args: &[&str]) -> Result<PathBuf> {
    let this = std::env::current_exe().context("cannot tell which binary this is")?;
    let target = target_directory();
    // target/<profile>/deps/<test> for a test, otherwise target/<profile>/<binary>; Cargo calls the profile of `debug`
    // dev.
    let below = this.strip_prefix(&target).ok().and_then(Path::parent);
    let directory =
        below.map(|path| if path.ends_with("deps") { path.parent().unwrap_or(path) } else { path });
    let directory = target.join(directory.with_context(|| {
        format!(
            "{} is not in a target directory of cargo, so it cannot tell which profile to build",
            this.display()
        )
    })?);
    let profile = match directory.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(profile) => profile,
    };
    let mut command = Command::from(cargo());
    inform(&format!("building {what}"));
    let output = command
        .args(["build", "--locked", "--profile", profile, "--target-dir"])
        .arg(&target)
        .args(args)
        .current_dir(root())
        .stdin(Stdio::null())
        .output()
        .await
        .context("cannot run cargo")?;
    if !output.status.success() {
        bail!("cargo cannot build {what}:\n{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(directory)
}
