//! The task runner: generators and checks; what needs a cluster it hands on to `dev/`. `cargo xtask --help` lists the tasks;
//! the aliases in `.cargo/config.toml` shorten the common ones.

mod api;
mod bench;
mod chart;
#[cfg(test)]
mod commands_tests;
mod crds;
mod deny;
mod dependencies;
mod dev;
mod features;
mod functions;
mod guide;
mod image;
mod job_lines;
mod links;
mod modules;
mod named_tests;
mod package;
mod packaged;
mod product;
mod purity;
mod release;
mod spdx;
mod style;
mod suites;
mod tidy;
mod tracked_files;
mod type_names;
mod words;
mod workspace;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use toolbox::arguments;

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
    /// Write the transcripts of docs/guides.
    Guide {
        /// Write nothing; fail when a transcript is not what would be written.
        #[arg(long)]
        check: bool,
    },
    /// Write the pages of docs/reference: fields, conditions, metrics and events.
    Reference(dev::Args),
    /// What CI checks beside the tests: generated files, sizes, purity of the planners, circles of modules, words,
    /// dependencies, the features of `conflict-retry`, the chart.
    Check,
    /// The licences, sources and versions of all dependencies, as deny.toml has them.
    Deny,
    /// `conflict-retry` with none of its cargo features, with each alone, and with all.
    Features,
    /// Every test, as `cargo test` runs them, with several test programs side by side and with what is left to do.
    Suites {
        /// Only the programs with this in their name, as in `e2e --test operators`
        #[arg(value_name = "PROGRAM")]
        only: Option<String>,
        /// Minutes after which a test is ended with its program, which has failed then; a wait for a share of the machine is not
        /// counted
        #[arg(long, value_name = "MINUTES", default_value_t = 10)]
        test_limit_minutes: u64,
        /// Minutes after which all of it is ended and has failed; the build before it has as many
        #[arg(long, value_name = "MINUTES", default_value_t = 60)]
        limit_minutes: u64,
    },
    /// Write the list of what `conflict-retry` makes public.
    Api {
        /// Write nothing; fail when the list is not what would be written.
        #[arg(long)]
        check: bool,
    },
    /// `conflict-retry` alone: packaged, and built from the package with the oldest Rust it promises, with none, each and all of its
    /// features.
    Package,
    Bench(bench::Args),
    /// The operator that makes nodes is killed after the k-th write of its work, in a run of its own for each k, and what is left is
    /// compared with what an undisturbed run leaves.
    Crashes(dev::Args),
    /// The whole system on a real control plane: pending pods, more nodes, fewer nodes, and what every write cost.
    Demo(dev::Args),
    /// The tests of the installed chart, with the operators as Pods: on a kind cluster that is made for them and deleted afterwards,
    /// or on a cluster of yours.
    E2e(dev::Args),
    Image(image::Args),
    Release(release::Args),
    /// The planner against inputs that were made from public bug reports, each with what is right.
    Reports(dev::Args),
    /// Hundreds of simulated nodes are filled, rolled, repaired and emptied on a real control plane, and the API server's audit log
    /// is held against what the pool and the budgets of its pods allow.
    Soak(dev::Args),
    /// A control plane that keeps running between commands.
    Dev(dev::Args),
}

/// Prints an error with its causes and no backtrace: that of a task is the same each time, and where the end of a log is all that
/// is read it takes the place of the tests that failed.
fn main() -> ExitCode {
    let task = Args::parse_from(arguments::of_task(std::env::args_os())).task;
    match tokio::runtime::Runtime::new().map_err(Into::into).and_then(|runtime| runtime.block_on(run(task))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(task: Task) -> anyhow::Result<()> {
    match task {
        Task::Crds { check } => crds::run(check),
        Task::Chart { check } => chart::run(check).await,
        Task::Table { check } => tidy::table(check),
        Task::Reference(args) => dev::run("reference", args),
        Task::Guide { check } => guide::run(check),
        Task::Api { check } => api::run(check),
        Task::Check => {
            crds::run(true)?;
            tidy::table(true)?;
            dev::check_reference().await?;
            println!("generated files are what the sources generate");
            guide::run(true)?;
            println!("the guides' transcripts are what is printed");
            api::run(true)?;
            tidy::run()?;
            println!("sizes, planners, modules, arrows and words are as the house style has them");
            deny::run()?;
            println!("licences, sources and versions of the dependencies are as deny.toml has them");
            features::run()?;
            println!("conflict-retry passes clippy with none of its features, with each alone and with all");
            chart::run(true).await?;
            println!("the chart passes lint, unit tests and golden renders");
            Ok(())
        }
        Task::Bench(args) => bench::run(args),
        Task::Package => package::run(),
        Task::Suites { only, test_limit_minutes, limit_minutes } => {
            let minutes = |count: u64| Duration::from_secs(count.saturating_mul(60));
            let limits = suites::Limits::new(minutes(test_limit_minutes), minutes(limit_minutes));
            suites::run(only.as_deref(), limits).await
        }
        Task::Deny => deny::run(),
        Task::Features => features::run(),
        Task::Crashes(args) => dev::run("crashes", args),
        Task::Demo(args) => dev::run("demo", args),
        Task::E2e(args) => dev::run("e2e", args),
        Task::Image(args) => image::run(args),
        Task::Release(args) => release::run(args).await,
        Task::Reports(args) => dev::run("reports", args),
        Task::Soak(args) => dev::run("soak", args),
        Task::Dev(args) => dev::run("dev", args),
    }
}
