//! Builds programs of this workspace, as a user would.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use tokio::process::Command;

use crate::messages::inform;
use crate::workspace::{cargo, root, target_directory};

/// Which features the dependencies of a binary are built with. Cargo turns on what the selected packages ask for, so another selection
/// compiles a hundred dependencies once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Features {
    /// Those of the binaries' own packages, as users have them.
    Own,
    /// Those of the whole workspace and its tests, as `cargo test --workspace` has built everything.
    OfTests,
}

impl Features {
    /// Those that the calling program was built with.
    ///
    /// # Errors
    /// When the system does not say which program this is.
    pub fn of_caller() -> Result<Self> {
        Ok(if is_test(&this()?) { Self::OfTests } else { Self::Own })
    }

    /// The selection for `cargo build`: each binary has its package's name.
    fn selection<'a>(self, binaries: &[&'a str]) -> Vec<&'a str> {
        let (first, option): (&[&str], _) = match self {
            Self::Own => (&[], "--package"),
            // What only tests depend on counts when a test or an example is selected, and an example takes the least time.
            Self::OfTests => (&["--workspace", "--example", "status"], "--bin"),
        };
        first.iter().copied().chain(binaries.iter().flat_map(|binary| [option, *binary])).collect()
    }
}

/// Builds binaries, in the profile of the calling one, and returns where they are.
///
/// # Errors
/// When Cargo fails; the message contains Cargo's output.
pub async fn build_binaries(what: &str, binaries: &[&str], features: Features) -> Result<PathBuf> {
    build(what, &features.selection(binaries)).await
}

fn this() -> Result<PathBuf> {
    std::env::current_exe().context("cannot tell which binary this is")
}

/// Cargo puts tests into `target/<profile>/deps`, and binaries beside that directory.
fn is_test(program: &Path) -> bool {
    program.parent().is_some_and(|directory| directory.ends_with("deps"))
}

/// Builds with these arguments to `cargo build`, in the profile of the calling binary, and returns where the programs are.
///
/// # Errors
/// When Cargo fails; the message contains Cargo's output.
pub async fn build(what: &str, args: &[&str]) -> Result<PathBuf> {
    let this = this()?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_builds_binaries_with_the_features_that_it_has_itself() {
        assert_eq!(Features::of_caller().unwrap(), Features::OfTests);
        assert!(!is_test(Path::new("/target/debug/xtask")));
        let args = Features::OfTests.selection(&["a", "b"]);
        assert_eq!(args, ["--workspace", "--example", "status", "--bin", "a", "--bin", "b"]);
        assert_eq!(Features::Own.selection(&["a", "b"]), ["--package", "a", "--package", "b"]);
    }
}
