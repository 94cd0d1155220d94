//! Builds programs of this workspace, as a user would.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use tokio::process::Command;
use tokio::sync::OnceCell;

use crate::control_plane::go::inform;
use crate::control_plane::toolbox;

/// Cargo as a user would call it: with its variables about the package that calls, it would build the dependencies that look at
/// them anew, and all that is built on those.
pub fn cargo() -> std::process::Command {
    let mut command = std::process::Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let text = name.to_str().unwrap_or_default();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(name);
        }
    }
    command
}

/// The directory of the workspace's examples, `conflict-retry`'s and the lab's, built once per process, in the profile of the calling
/// binary. With the features of the whole workspace, so that nothing below them is built anew.
///
/// # Errors
/// When Cargo cannot build them; the message contains Cargo's output.
pub async fn examples() -> Result<PathBuf> {
    static BUILT: OnceCell<PathBuf> = OnceCell::const_new();
    let args = ["--workspace", "--examples"];
    let directory = BUILT.get_or_try_init(|| build("the examples", &args)).await?;
    Ok(directory.join("examples"))
}

/// The program behind `cargo xtask`, built once per process, in the profile of the calling binary.
///
/// # Errors
/// When Cargo cannot build it; the message contains Cargo's output.
pub async fn task_runner() -> Result<PathBuf> {
    static BUILT: OnceCell<PathBuf> = OnceCell::const_new();
    let directory = BUILT.get_or_try_init(|| build("the task runner", &["--package", "xtask"])).await?;
    Ok(directory.join("xtask"))
}

/// Builds with these arguments to `cargo build`, in the profile of the calling binary, and returns where the programs are.
///
/// # Errors
/// When Cargo fails; the message contains Cargo's output.
pub(crate) async fn build(what: &str, args: &[&str]) -> Result<PathBuf> {
    let this = std::env::current_exe().context("cannot tell which binary this is")?;
    let target = toolbox::target_directory();
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
        .args(["build", "--profile", profile, "--target-dir"])
        .arg(&target)
        .args(args)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .stdin(Stdio::null())
        .output()
        .await
        .context("cannot run cargo")?;
    if !output.status.success() {
        bail!("cargo cannot build {what}:\n{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(directory)
}
