//! A test program: how cargo announces it, how many tests it has, how it is started.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use tokio::net::unix::pipe::Receiver;
use tokio::process::Command;
use tokio::time::timeout;
use toolbox::announcement::ANNOUNCE;
use toolbox::process_group::ProcessGroup;

use super::process::Process;
use crate::workspace;

/// The variable by which a test program and all that it starts are told from other processes.
const MARK: &str = "TANDEM_TEST_PROGRAM";

/// A test program, or all examples of the documentation, which cargo runs as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    /// What follows `cargo test --package` to run it alone.
    pub(super) label: String,
    /// `None` for the examples of the documentation.
    executable: Option<PathBuf>,
    directory: PathBuf,
}

/// A line of `--message-format=json`.
#[derive(Deserialize)]
struct Message {
    reason: String,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

impl Program {
    /// The program that a line of `cargo test --no-run --message-format=json` announces; most announce none.
    ///
    /// # Errors
    /// When the line is not one of cargo's.
    pub(super) fn announced(line: &str) -> anyhow::Result<Option<Self>> {
        let message: Message = serde_json::from_str(line).with_context(|| format!("cargo said {line}"))?;
        let Message { reason, manifest_path, target, profile, executable } = message;
        let is_test = reason == "compiler-artifact" && profile.is_some_and(|profile| profile.test);
        let (true, Some(executable), Some(manifest), Some(target)) =
            (is_test, executable, manifest_path, target)
        else {
            return Ok(None);
        };
        let directory = manifest.parent().context("a manifest has no directory")?.to_owned();
        let flag = match &*target.kind.concat() {
            kind @ ("bin" | "test" | "bench" | "example") => format!("--{kind} {}", target.name),
            _ => "--lib".to_owned(),
        };
        let label = format!("{} {flag}", package_of(&directory)?);
        Ok(Some(Self { label, executable: Some(executable), directory }))
    }

    /// The examples of the documentation.
    pub(super) fn documentation() -> Self {
        Self { label: "'*' --doc".to_owned(), executable: None, directory: workspace::root() }
    }

    fn command(&self) -> Command {
        let mut command = if let Some(executable) = &self.executable {
            let mut command = Command::new(executable);
            // As cargo starts it.
            command.env("CARGO_MANIFEST_DIR", &self.directory);
            command
        } else {
            let mut command = Command::from(workspace::cargo());
            // Not quiet: cargo would have the tests be quiet too, with a dot for each.
            command.args(["test", "--locked", "--workspace", "--doc", "--"]);
            command
        };
        command.current_dir(&self.directory).stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// The names of its tests, in the order in which they begin.
    ///
    /// # Errors
    /// When it cannot say, or not in time.
    pub(super) async fn tests(&self, patience: Duration) -> anyhow::Result<Vec<String>> {
        let output = timeout(patience, self.command().arg("--list").output()).await;
        let output = output.with_context(|| format!("{} does not list its tests in time", self.label))?;
        let output = output.with_context(|| format!("cannot run {}", self.label))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{} does not list its tests: {said}", self.label);
        let listed = String::from_utf8_lossy(&output.stdout);
        Ok(listed.lines().filter_map(|line| Some(line.strip_suffix(": test")?.to_owned())).collect())
    }

    /// Starts it, with what it prints: standard output and standard error in their order.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(super) fn start(&self) -> anyhow::Result<Process> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let (reader, writer) = std::io::pipe().context("no pipe")?;
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let mark = format!("{}-{number}", std::process::id());
        let mut command = self.command();
        command.env(ANNOUNCE, "1").env(MARK, &mark);
        command.stdout(writer.try_clone()?).stderr(writer);
        let group =
            ProcessGroup::spawn(&mut command).with_context(|| format!("cannot run {}", self.label))?;
        let output = Receiver::from_owned_fd(reader.into())?;
        Ok(Process { group, output, mark: format!("{MARK}={mark}") })
    }

    /// A program in the form of an executable file.
    #[cfg(test)]
    pub(super) fn of_file(label: &str, executable: PathBuf) -> Self {
        Self { label: label.to_owned(), executable: Some(executable), directory: workspace::root() }
    }
}

/// The name in a package's manifest.
fn package_of(directory: &Path) -> anyhow::Result<String> {
    let path = directory.join("Cargo.toml");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let manifest: toml_edit::DocumentMut = text.parse()?;
    let name = manifest.get("package").and_then(|package| package.get("name")).and_then(|it| it.as_str());
    Ok(name.with_context(|| format!("{} names no package", path.display()))?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_programs_are_told_from_all_else_that_cargo_announces() {
        let here = env!("CARGO_MANIFEST_DIR");
        let line = |kind: &str, test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"{here}/Cargo.toml","target":{{"kind":["{kind}"],
                "name":"a-name"}},"profile":{{"test":{test}}},"executable":"/target/a-name"}}"#
            )
            .replace('\n', "")
        };
        let announced = |line: &str| Program::announced(line).unwrap().map(|program| program.label);
        assert_eq!(announced(&line("test", true)).unwrap(), "xtask --test a-name");
        assert_eq!(announced(&line("bin", true)).unwrap(), "xtask --bin a-name");
        assert_eq!(announced(&line("lib", true)).unwrap(), "xtask --lib");
        assert_eq!(announced(&line("bin", false)), None);
        assert_eq!(announced(r#"{"reason":"build-finished","success":true}"#), None);
        assert!(Program::announced("warning: hello").is_err());
    }
}
