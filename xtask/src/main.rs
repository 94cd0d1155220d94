//! The one task runner: what is generated, checked, shown and kept running while one works. `cargo xtask --help` lists
//! it; the aliases in `.cargo/config.toml` make the common ones short.

mod chart;
mod crds;
mod demo;
mod dev;
mod tidy;
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
    /// Write the ownership table into README.md.
    Table {
        /// Write nothing; fail when the table is not what would be written.
        #[arg(long)]
        check: bool,
    },
    /// Check the chart: lint, unit tests, golden renders, generated README.
    Chart {
        /// Write nothing; fail when a file is not what would be written.
        #[arg(long)]
        check: bool,
    },
    /// What CI checks beside the tests: generated files, sizes, purity of the planners, the chart.
    Check,
    Demo(demo::Args),
    #[command(subcommand)]
    Dev(dev::Command),
}

fn main() -> anyhow::Result<()> {
    // What the demo starts is held by this same binary, in another process; see `e2e::lifeline`.
    if e2e::lifeline::serve_if_asked()? {
        return Ok(());
    }
    let task = Args::parse().task;
    tokio::runtime::Runtime::new()?.block_on(run(task))
}

async fn run(task: Task) -> anyhow::Result<()> {
    match task {
        Task::Crds { check } => crds::run(check),
        Task::Chart { check } => chart::run(check).await,
        Task::Table { check } => tidy::table(check),
        Task::Check => {
            crds::run(true)?;
            tidy::table(true)?;
            tidy::run()?;
            chart::run(true).await
        }
        Task::Demo(args) => demo::run(args).await,
        Task::Dev(command) => dev::run(command).await,
    }
}
