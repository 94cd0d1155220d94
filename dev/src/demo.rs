//! `cargo demo`: the whole system, with live output. The steps are in `testbed::demo`; here are the arguments.

use std::path::PathBuf;

use anyhow::ensure;
use clap::ValueEnum;
use testbed::demo::DemoOptions;

/// The whole system on a real control plane: pending pods, more nodes, fewer nodes, and what every write cost.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Who makes the machines. All but simulated run on a control plane of the demo's own; what they need is built at the
    /// first use
    #[arg(long, value_enum, default_value = "simulated")]
    provider: Provider,

    /// With `--provider exec`: play the kubelets also where real ones can run
    #[arg(long)]
    simulated_kubelets: bool,

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

/// As in `spec.provider`.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Provider {
    /// Node objects without machines
    Simulated,
    /// Cluster API's real controllers with in-memory machines; built in 5 to 10 minutes
    #[value(name = "clusterApi", alias = "cluster-api")]
    ClusterApi,
    /// The real Karpenter with its simulated cloud; built in 2 to 5 minutes
    Karpenter,
    /// A program: as root on Debian it makes real nodes, elsewhere their kubelets are played
    Exec,
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
    /// Server-side apply of one's own fields, and replicas guarded by the generation that they were decided from
    Guarded,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let Args { provider, simulated_kubelets, write_strategy, kubeconfig, json, audit_log } = args;
    ensure!(
        provider == Provider::Exec || !simulated_kubelets,
        "--simulated-kubelets goes with --provider exec: the kubelets of all other providers are always played"
    );
    let provider = match provider {
        Provider::Simulated => testbed::demo::Provider::Simulated,
        Provider::ClusterApi => testbed::demo::Provider::ClusterApi,
        Provider::Karpenter => testbed::demo::Provider::Karpenter,
        Provider::Exec => testbed::demo::Provider::Exec { simulated_kubelets },
    };
    let write_strategy = match write_strategy {
        Strategy::Lazy => "lazy",
        Strategy::Retry => "retry",
        Strategy::Patch => "patch",
        Strategy::Guarded => "guarded",
    };
    let options =
        DemoOptions { provider, kubeconfig, write_strategy: write_strategy.to_owned(), json, audit_log };
    testbed::demo::run(options).await?;
    Ok(())
}
