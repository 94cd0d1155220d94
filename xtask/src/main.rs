//! The one task runner: what is generated, checked, shown and kept running while one works. `cargo xtask --help` lists
//! it; the aliases in `.cargo/config.toml` make the common ones short.

mod crds;
mod workspace;

use clap::{Parser, Subcommand};

/// Tandem's task runner.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Write the custom resource definitions into the chart.
    Crds {
        /// Write nothing; fail when a file is not what would be written.
        #[arg(long)]
        check: bool,
    },
}

fn main() -> anyhow::Result<()> {
    match Args::parse().task {
        Task::Crds { check } => crds::run(check),
    }
}
