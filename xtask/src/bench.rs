//! `cargo xtask bench …`: builds the benches in release mode and runs them. Measurements and flags are defined
//! in `bench/`.

use std::ffi::OsString;

use anyhow::{Context as _, bail};

use crate::workspace;

/// What write conflicts cost (`conflict`), how quick the planner is (`planner`), how long a pod waits on a large
/// cluster (`latency`), what a large drain costs (`drain`), Karpenter and Tandem on the same pods (`live`);
/// `cargo xtask bench NAME --help` lists the flags
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// The bench and its flags
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "BENCH")]
    rest: Vec<OsString>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let Args { rest } = args;
    // Runs in the user's directory, so that a relative path in `--json FILE` is the user's.
    let status = workspace::cargo()
        .args(["run", "--locked", "--quiet", "--release", "--manifest-path"])
        .arg(workspace::root().join("bench").join("Cargo.toml"))
        .arg("--")
        .args(rest)
        .status()
        .context("cannot run cargo")?;
    if status.success() { Ok(()) } else { bail!("the bench ended with {status}") }
}
