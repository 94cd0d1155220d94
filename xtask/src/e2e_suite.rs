//! `cargo e2e --kind`: the tests of the installed chart.

use anyhow::{Context as _, bail};

use crate::workspace;

/// The tests of the installed chart, with the operators as Pods, on a kind cluster that is made for them and deleted afterwards
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Make a kind cluster, without any container registry; Linux and root only
    #[arg(long, required = true)]
    kind: bool,

    /// Only the tests with this in their name
    #[arg(value_name = "TEST")]
    only: Option<String>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let Args { kind: _, only } = args;
    if let Some(why) = e2e::kind::unavailable() {
        bail!("there can be no kind cluster here: {why}");
    }
    let mut command = workspace::cargo();
    command
        .args(["test", "--package", "e2e", "--test", "kind", "--"])
        .args(only)
        .current_dir(workspace::root());
    let status = command.status().context("cannot run cargo")?;
    if status.success() { Ok(()) } else { bail!("the tests ended with {status}") }
}
