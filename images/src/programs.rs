//! Builds the operators as static programs, which need nothing of the system they run on.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;

use crate::{About, WrittenImage};

/// The operators: their packages, which are also the names of their programs and of their images.
pub const OPERATORS: [&str; 2] = ["nodepool-operator", "autoscaler-operator"];

/// The registry and the account that the chart names.
const REPOSITORY: &str = "ghcr.io/tandem-dev";

/// How much is optimized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Quick to build, for tests.
    Dev,
    /// What is published.
    Release,
}

/// Builds both operators with `cargo` and writes their images into `directory`, in the order of [`OPERATORS`]. `target`
/// is Cargo's target directory.
///
/// # Errors
/// When Cargo cannot build them, with its output, or an image cannot be written.
pub fn build(
    cargo: Command,
    workspace: &Path,
    target: &Path,
    profile: Profile,
    directory: &Path,
) -> Result<Vec<WrittenImage>> {
    let programs = compile(cargo, workspace, target, profile)?;
    let about = about(workspace)?;
    let write =
        |name: &&str| crate::write(&format!("{REPOSITORY}/{name}"), &programs.join(name), &about, directory);
    OPERATORS.iter().map(write).collect()
}

/// The directory with the static programs.
fn compile(mut command: Command, workspace: &Path, target: &Path, profile: Profile) -> Result<PathBuf> {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    ensure!(cfg!(target_os = "linux"), "images are built on Linux: their programs are linked for {platform}");
    // Named, even where it is the platform of the build: then the flags are not those of build scripts and macros, which
    // cannot be static.
    let (profile, below) = match profile {
        Profile::Dev => ("dev", "debug"),
        Profile::Release => ("release", "release"),
    };
    let home = std::env::var("CARGO_HOME")
        .or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.cargo")))
        .context("neither CARGO_HOME nor HOME is set")?;
    // No path of this machine gets into the programs, so that another one builds the same.
    let flags = [
        "-Ctarget-feature=+crt-static".to_owned(),
        "-Cstrip=symbols".to_owned(),
        format!("--remap-path-prefix={home}=/cargo"),
        format!("--remap-path-prefix={}=/tandem", workspace.display()),
    ];
    command
        .args(["build", "--locked", "--profile", profile, "--target", &platform, "--target-dir"])
        .arg(target)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .current_dir(workspace)
        .stdin(Stdio::null());
    for operator in OPERATORS {
        command.args(["--package", operator]);
    }
    let output = command.output().context("cannot run cargo")?;
    ensure!(
        output.status.success(),
        "cargo cannot build the operators:\n{}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(target.join(platform).join(below))
}

/// The version, and the commit with its time. Without git, as in an unpacked archive, the image says no commit and 1970.
fn about(workspace: &Path) -> Result<About> {
    let git = |format: &str| {
        let output = Command::new("git")
            .args(["log", "-1", format])
            .current_dir(workspace)
            .stdin(Stdio::null())
            .output();
        let output = output.ok().filter(|output| output.status.success());
        output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
    };
    let created = git("--format=%ct").parse().unwrap_or(0);
    Ok(About {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        revision: git("--format=%H"),
        created: Timestamp::from_second(created)?,
        source: env!("CARGO_PKG_REPOSITORY").to_owned(),
    })
}
