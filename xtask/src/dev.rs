//! The tasks that need a cluster or the operators' code. Another program (`dev/`) does them, so that this one is built without a
//! client of Kubernetes: what stands here is how it is run.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Context as _, Error, ensure};
use toolbox::programs::{Features, build_binaries};

use crate::workspace;

// Without a text of its own: in the list of tasks, each has another.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// The flags of the task
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAGS")]
    rest: Vec<OsString>,
}

/// Becomes the program that does the task: a Ctrl-C reaches it alone.
pub(crate) fn run(task: &str, args: Args) -> anyhow::Result<()> {
    let Args { rest } = args;
    Err(Error::from(command(task, rest).exec()).context("cannot run cargo"))
}

/// Checks that the pages of `docs/reference` are what would be written.
pub(crate) async fn check_reference() -> anyhow::Result<()> {
    let program = built().await?;
    let status =
        tokio::process::Command::new(&program).args(["reference", "--check"]).kill_on_drop(true).status();
    let status = status.await.with_context(|| format!("cannot run {}", program.display()))?;
    ensure!(status.success(), "a page of docs/reference is not what the sources generate");
    Ok(())
}

/// Builds what the tests need besides the test programs: `program` is what [`built`] returns.
pub(crate) async fn prepare(program: &OsStr) -> anyhow::Result<()> {
    let mut command = tokio::process::Command::new(program);
    let status = command.arg("prepare").kill_on_drop(true).status().await;
    let status = status.with_context(|| format!("cannot run {}", program.display()))?;
    ensure!(status.success(), "what the tests need cannot be built");
    Ok(())
}

/// The program, built, and what it shares with the tests.
pub(crate) async fn built() -> anyhow::Result<OsString> {
    let directory = build_binaries("the tasks on clusters", &["tandem-dev"], Features::OfTests).await?;
    Ok(directory.join("tandem-dev").into_os_string())
}

/// Runs in the user's directory, so that a relative path among the arguments is the user's.
fn command(task: &str, rest: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let mut command = workspace::cargo();
    command
        .args(["run", "--locked", "--quiet", "--manifest-path"])
        .arg(workspace::root().join("dev").join("Cargo.toml"))
        .args(["--", task])
        .args(rest);
    command
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::Parser as _;

    use crate::{Args, Task};

    #[test]
    fn all_flags_of_a_task_are_handed_on() {
        let none: &[&str] = &[];
        for flags in [none, &["--json"], &["--help"], &["up", "--directory", "a"]] {
            let line = ["xtask", "dev"].iter().chain(flags);
            let Task::Dev(args) = Args::try_parse_from(line).unwrap().task else { panic!("not dev") };
            let expected: Vec<OsString> = flags.iter().map(OsString::from).collect();
            assert_eq!(args.rest, expected);
        }
    }
}
