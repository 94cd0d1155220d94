//! `cargo demo`: the whole system, with live output. The steps are in `e2e::demo`; here are the arguments.

use std::path::PathBuf;

use clap::ValueEnum;

/// The whole system on a real control plane: pending pods, more nodes, fewer nodes, and what every write cost.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How both operators write the object they share
    #[arg(long, value_enum, default_value = "guarded")]
    write_strategy: Strategy,

    /// A cluster of yours (kind, vcluster, any) instead of a control plane of its own; the ambient KUBECONFIG is never
    /// used
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Print the table as JSON on standard output; all other output goes to standard error
    #[arg(long)]
    json: bool,

    /// Keep the API server's audit log in this file; `cargo lab timeline` makes a page of it
    #[arg(long, value_name = "FILE", conflicts_with = "kubeconfig")]
    audit_log: Option<PathBuf>,
}

/// The chart's `writeStrategy`.
#[derive(Clone, Copy, ValueEnum)]
enum Strategy {
    /// PUT of the cached object; on a conflict the whole reconcile starts again
    Lazy,
    /// GET, change, PUT; on a conflict the same again
    Retry,
    /// Merge patch that carries the version; on a conflict the same again
    Patch,
    /// Server-side apply of one's own fields, and replicas guarded by their own value
    Guarded,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let Args { write_strategy, kubeconfig, json, audit_log } = args;
    let write_strategy = match write_strategy {
        Strategy::Lazy => "lazy",
        Strategy::Retry => "retry",
        Strategy::Patch => "patch",
        Strategy::Guarded => "guarded",
    };
    let options =
        e2e::demo::DemoOptions { kubeconfig, write_strategy: write_strategy.to_owned(), json, audit_log };
    e2e::demo::run(options).await?;
    Ok(())
}
