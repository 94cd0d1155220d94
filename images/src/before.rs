//! The commit before this one: its chart, and its operators as images under a tag of their own, for tests of upgrades.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::WrittenImage;
use crate::programs::{Build, Profile, build_operators};

/// Names another commit.
const FROM: &str = "TANDEM_UPGRADE_FROM";
/// The tag of its images: the version may be the same.
pub const TAG: &str = "before";

/// What an upgrade begins from.
#[derive(Debug)]
pub struct Before {
    /// Its chart.
    pub chart: PathBuf,
    /// Its operators.
    pub images: Vec<WrittenImage>,
}

/// Unpacks it below `target`, Cargo's target directory, and builds it with `cargo`, if it is not there from another run. `workspace` is
/// in a git repository. Where its history is cut, the commit itself takes the place of the one before.
///
/// # Errors
/// When git cannot show it, or it cannot be built.
pub fn build(cargo: Command, workspace: &Path, target: &Path) -> Result<Before> {
    let commit = commit(workspace)?;
    let (sources, made) = (target.join("upgrade/sources"), target.join("upgrade/commit"));
    if std::fs::read_to_string(&made).ok().as_ref() != Some(&commit) {
        // An unpacking that is interrupted must not pass for a complete one of the commit from before.
        if made.exists() {
            std::fs::remove_file(&made).with_context(|| format!("cannot remove {}", made.display()))?;
        }
        unpack(workspace, &commit, &sources)?;
        std::fs::write(&made, &commit)?;
    }
    let build = Build {
        cargo,
        workspace: &sources,
        target,
        profile: Profile::Dev,
        directory: target.join("upgrade/images"),
        tag: Some(TAG),
    };
    Ok(Before { images: build_operators(build)?, chart: sources.join("charts/tandem") })
}

/// The commit before, or the present one where the history is cut there.
fn commit(workspace: &Path) -> Result<String> {
    if let Ok(wanted) = std::env::var(FROM) {
        return git(workspace, &["rev-parse", "--verify", &format!("{wanted}^{{commit}}")]);
    }
    git(workspace, &["rev-parse", "--verify", "--quiet", "HEAD~1"])
        .or_else(|_| git(workspace, &["rev-parse", "--verify", "HEAD"]))
}

fn git(workspace: &Path, args: &[&str]) -> Result<String> {
    let output = Command::new("git").args(args).current_dir(workspace).stdin(Stdio::null()).output();
    let output = output.context("cannot run git")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git {} failed: {}", args.join(" "), said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The files of a commit, as new ones: their own times would let Cargo take what it built of another commit for theirs.
fn unpack(workspace: &Path, commit: &str, directory: &Path) -> Result<()> {
    if directory.exists() {
        std::fs::remove_dir_all(directory)
            .with_context(|| format!("cannot remove {}", directory.display()))?;
    }
    std::fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let archive = tempfile::NamedTempFile::new()?;
    let path = archive.path().to_str().context("a path is not text")?;
    git(workspace, &["archive", "--output", path, "--format", "tar", commit])?;
    let unpacked = Command::new("tar")
        .args(["--extract", "--touch", "--file", path, "--directory"])
        .arg(directory)
        .stdin(Stdio::null())
        .status();
    ensure!(unpacked.context("cannot run tar")?.success(), "tar cannot unpack the files of {commit}");
    Ok(())
}
