//! `cargo soak`: hundreds of simulated nodes, and an audit log that is held against what was allowed. The story and the checks
//! are in `testbed::soak`; here are the arguments.

use std::path::PathBuf;

use testbed::soak::{SoakOptions, SoakOutputs};

/// Hundreds of simulated nodes are filled, rolled, repaired and emptied on a real control plane, and the API server's audit log
/// is held against what the pool and the budgets of its pods allow.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many nodes the pods fill
    #[arg(long, default_value_t = 500)]
    nodes: usize,

    /// Draw the nodes over time into this SVG file: all phases, by state
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,

    /// Draw the rollout and its bounds into this SVG file
    #[arg(long, value_name = "FILE")]
    rollout_picture: Option<PathBuf>,

    /// Write the report into this page, such as docs/benchmarks/soak.md: between its marks, or all of it if it is not there
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,

    /// Keep the API server's audit log in this file
    #[arg(long, value_name = "FILE")]
    audit_log: Option<PathBuf>,

    /// Start nothing: check, and draw, what this audit log of an earlier soak holds
    #[arg(long, value_name = "FILE", conflicts_with_all = ["nodes", "audit_log", "markdown"])]
    from: Option<PathBuf>,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let Args { nodes, picture, rollout_picture, markdown, audit_log, from } = args;
    let outputs = SoakOutputs { picture, rollout_picture, markdown };
    let report = match from {
        Some(log) => testbed::soak::recheck(&log, &outputs)?,
        None => testbed::soak::run(SoakOptions { nodes, outputs, audit_log }).await?,
    };
    println!("{report}");
    Ok(())
}
