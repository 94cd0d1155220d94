//! Finds a Go toolchain that can build the control plane, and runs `go build` with progress messages.

#![expect(clippy::disallowed_methods, reason = "a build says how long it has taken")]

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::messages::inform;

/// The version that is linked into every program: kubectl rejects an API server of an unknown version.
pub const KUBERNETES_VERSION: &str = "v1.36.3";

/// Interval of the build's progress messages.
const PROGRESS: Duration = Duration::from_secs(20);

/// Advice for a missing Go toolchain; also the end of the message about a version that is too old.
const WAYS_OUT: &str = "to go on, do one of these:\n  \
    - install Go (https://go.dev/dl) so that the control plane can be built\n  \
    - set TANDEM_KUBECONFIG to the kubeconfig of a cluster that tests may use (kind, vcluster, ...)\n  \
    - set KUBEBUILDER_ASSETS to a directory that holds the programs named above (envtest's etcd, kube-apiserver and \
    kubectl are enough for tests without a scheduler)";

/// A Go toolchain.
#[derive(Clone, Debug)]
pub struct Go {
    binary: PathBuf,
    version: String,
}

impl Go {
    /// Finds `go` in `path` and checks that it is new enough for the module in `module`.
    ///
    /// # Errors
    /// When there is none or it is too old. The message tells what to install or set; `wanted` names what is missing.
    pub fn find(path: Option<&OsStr>, module: &Path, wanted: &str) -> Result<Self> {
        let needed = needed_version(module)?;
        let binary = path.and_then(|path| {
            std::env::split_paths(path).map(|directory| directory.join("go")).find(|go| go.is_file())
        });
        let Some(binary) = binary else {
            bail!(
                "no go toolchain in PATH, and {wanted} must be built with go {needed} or newer; {WAYS_OUT}"
            );
        };
        // Run inside the module, so that a toolchain that downloads a newer one for it returns the newer version.
        let answer = Command::new(&binary)
            .args(["env", "GOVERSION"])
            .env("GOWORK", "off")
            .current_dir(module)
            .output()
            .with_context(|| format!("cannot run {}", binary.display()))?;
        let version = String::from_utf8_lossy(&answer.stdout).trim().trim_start_matches("go").to_owned();
        if !answer.status.success() || parse(&version) < parse(&needed) {
            let said = String::from_utf8_lossy(&answer.stderr);
            let found = if version.is_empty() { said.trim() } else { &version };
            bail!(
                "{} is too old ({found}): {wanted} must be built with go {needed} or newer; {WAYS_OUT}",
                binary.display()
            );
        }
        Ok(Self { binary, version })
    }

    /// The toolchain's version, as in `1.26.0`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Builds `packages` of `module` into `output`, with progress messages on standard error. Without `cgo` they are static.
    ///
    /// # Errors
    /// When the build fails; the end of the compiler's output is in the message.
    pub fn build(&self, module: &Path, packages: &[&str], cgo: bool, output: &Path) -> Result<()> {
        let stamp = [
            ("k8s.io/component-base/version.gitVersion", KUBERNETES_VERSION),
            ("k8s.io/component-base/version.gitMajor", "1"),
            ("k8s.io/component-base/version.gitMinor", "36"),
            ("k8s.io/client-go/pkg/version.gitVersion", KUBERNETES_VERSION),
        ];
        let stamp: String = stamp.iter().map(|(name, value)| format!(" -X {name}={value}")).collect();
        let mut child = Command::new(&self.binary)
            .args(["build", "-v", "-trimpath", "-ldflags"])
            .arg(format!("-s -w{stamp}"))
            .arg("-o")
            .arg(format!("{}/", output.display()))
            .args(packages)
            .env("GOWORK", "off")
            .current_dir(module)
            .envs((!cgo).then_some(("CGO_ENABLED", "0")))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {}", self.binary.display()))?;
        let output = child.stderr.take().context("go has no standard error")?;
        let (mut last, began, mut said) = (Vec::new(), Instant::now(), Instant::now());
        let mut compiled = 0_usize;
        for line in BufReader::new(output).lines() {
            let line = line.context("cannot read what go says")?;
            // With -v, go prints the import path of each package it compiles; any other line is a message.
            if line.contains(' ') || line.starts_with('#') {
                last.push(line);
            } else {
                compiled += 1;
            }
            if said.elapsed() > PROGRESS {
                said = Instant::now();
                inform(&format!("  … {compiled} packages compiled in {} s", began.elapsed().as_secs()));
            }
        }
        let status = child.wait().context("cannot wait for go")?;
        if !status.success() {
            let from = last.len().saturating_sub(20);
            bail!(
                "the build failed ({status}) in {}:\n{}",
                module.display(),
                last.get(from..).unwrap_or_default().join("\n")
            );
        }
        inform(&format!("built in {} s ({compiled} packages compiled)", began.elapsed().as_secs()));
        Ok(())
    }
}

/// The version in the `go` line of the module's `go.mod`.
fn needed_version(module: &Path) -> Result<String> {
    let path = module.join("go.mod");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let line = text.lines().find_map(|line| line.strip_prefix("go "));
    Ok(line.with_context(|| format!("{} has no go line", path.display()))?.trim().to_owned())
}

/// The numbers of a version: `1.26.0` is `[1, 26, 0]`. A non-numeric part ends it (`1.26rc1` is `[1, 26]`).
fn parse(version: &str) -> Vec<u32> {
    let digits = |part: &str| part.chars().take_while(char::is_ascii_digit).collect::<String>();
    version.split('.').map_while(|part| digits(part).parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number_and_not_by_letter() {
        assert!(parse("1.9.7") < parse("1.26.0"));
        assert!(parse("1.26.8") > parse("1.26.0"));
        assert!(parse("1.27") > parse("1.26.0"));
        assert!(parse("1.26rc1") < parse("1.26.0"));
        assert!(parse("") < parse("1.26.0"));
    }
}
