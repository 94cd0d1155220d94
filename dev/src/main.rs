//! The tasks that need a cluster or the operators' code, apart from the task runner, which is built without either. The aliases
//! `cargo demo`, `cargo soak`, `cargo e2e` and `cargo dev` run this program; `cargo xtask` hands its tasks of these names on to it.

mod cluster;
mod crashes;
mod demo;
mod e2e_suite;
mod ordinary_kind;
mod prepare;
mod reference;
mod reports;
mod soak;

use clap::{Parser, Subcommand};
use toolbox::arguments;

/// Tandem's tasks on a cluster, and with the operators' code.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    Crashes(crashes::Args),
    Demo(demo::Args),
    Dev(cluster::Args),
    E2e(e2e_suite::Args),
    /// Build what `cargo suites` needs besides the test programs
    #[command(hide = true)]
    Prepare,
    /// Write the pages of docs/reference: fields, conditions, metrics and events.
    Reference {
        /// Write nothing; fail when a page is not what would be written.
        #[arg(long)]
        check: bool,
    },
    Reports(reports::Args),
    Soak(soak::Args),
}

fn main() -> anyhow::Result<()> {
    // This same binary, in another process, supervises what the demo starts; see `testbed::process_supervisor`.
    if testbed::process_supervisor::serve_if_asked()? {
        return Ok(());
    }
    let task = Args::parse_from(arguments::of_task(std::env::args_os())).task;
    tokio::runtime::Runtime::new()?.block_on(run(task))
}

async fn run(task: Task) -> anyhow::Result<()> {
    match task {
        Task::Crashes(args) => crashes::run(args).await,
        Task::Demo(args) => demo::run(args).await,
        Task::Dev(args) => cluster::run(args).await,
        Task::E2e(args) => e2e_suite::run(args).await,
        Task::Prepare => prepare::run().await,
        Task::Reference { check } => reference::run(check),
        Task::Reports(args) => reports::run(args),
        Task::Soak(args) => soak::run(args).await,
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    #[test]
    fn flags_may_stand_behind_two_dashes_or_not() {
        for line in [&["dev", "demo", "--", "--json"][..], &["dev", "demo", "--json"]] {
            let arguments = arguments::of_task(line.iter().map(OsString::from));
            let Task::Demo(_) = Args::try_parse_from(arguments).unwrap().task else { panic!("no demo") };
        }
    }
}
