//! **The `NodePool` operator**: turns a `NodePool` into nodes. It requests machines from a provider, registers, adopts,
//! drains and removes nodes, and reports. It never decides how many nodes there should be: it reads `spec.replicas`,
//! whichever writer set it.
//!
//! One pass over a pool is `reconcile`: observe, read pods, plan, apply, report, and when to come back. All decisions are
//! made in `node_lifecycle`, which does no I/O; what is reported about their results is computed in `status`, which does
//! none either. This file is the command line and the wiring.

mod apply;
mod attachments;
mod cache;
mod check;
mod cluster;
mod context;
mod error;
#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures;
mod kept_pod;
mod left_behind;
mod memory;
mod metrics;
mod observe;
mod pod_reads;
mod reconcile;
pub mod reference;
mod report;
mod status;
#[cfg(test)]
mod testing;
mod triggers;

use std::io::Write as _;
use std::num::NonZeroU8;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use futures::stream;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::runtime::watcher;
use machine_providers::cluster_api::management::Management;
use machine_providers::exec::{self, Exec, Program};
use machine_providers::provisioner::Provisioner;
pub use node_lifecycle::ClusterId;
use shared_crds::names;
use shared_crds::ownership::Owner;
use shared_runtime::bootstrap::{self, Operator, OperatorSpec};
use shared_runtime::cli::CommonArgs;
use shared_runtime::controller::{self, Debounce};
use shared_runtime::other_cluster::OtherCluster;
use shared_runtime::rate::{InvalidRate, Rate};
use tracing::warn;

pub use crate::check::CheckError;
use crate::context::Context;
use crate::error::Error;
pub use crate::left_behind::LeftBehindError;
use crate::memory::orphans;
use crate::metrics::NodePoolMetrics;

/// Merges a burst of node events into one pass.
const DEBOUNCE: Debounce = Debounce::fixed(Duration::from_millis(50));

/// Turns node pools into nodes.
///
/// Reads spec.replicas, asks the pool's provider for machines, drains and removes the nodes that are too many, and
/// reports in the pool's status. See `nodepool-operator run --help` for the flags.
#[derive(Debug, Parser)]
#[command(name = "nodepool-operator", version, max_term_width = 120)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the operator until SIGTERM or SIGINT
    Run(Box<RunArgs>),
    /// Print the custom resource definitions as YAML: `nodepool-operator crd | kubectl apply -f -`
    Crd,
    /// Say whether both operators of a Helm release work, and why not: `helm test` runs it
    Check(check::CheckArgs),
    /// Name the pools that are there: `helm uninstall` runs it first, where the chart is told to
    LeftBehind(left_behind::LeftBehindArgs),
}

#[derive(Args, Debug)]
struct RunArgs {
    #[command(flatten)]
    common: CommonArgs,

    /// A program that makes machines, by the name that pools use in spec.provider.exec.name; may be repeated
    ///
    /// Example: --exec-provider rack=/opt/providers/rack
    ///
    /// In the environment variable, several are separated by commas. The protocol: docs/providers/exec.md
    #[arg(
        long,
        env = "TANDEM_EXEC_PROVIDER",
        value_name = "NAME=PATH",
        value_delimiter = ',',
        help_heading = "Providers"
    )]
    exec_provider: Vec<Program>,

    /// How many processes of each such program run at the same time
    ///
    /// They share the memory limit of the operator's container. Further requests wait for up to a minute.
    #[arg(
        long,
        env = "TANDEM_EXEC_MAX_CONCURRENT",
        value_name = "N",
        default_value_t = exec::MAX_CONCURRENT,
        help_heading = "Providers"
    )]
    exec_max_concurrent: NonZeroU8,

    /// How many calls a second each program of `exec` gets in the long run, over all pools
    ///
    /// Further calls wait for up to a minute. API servers bound their clients themselves. From 1/3600 to 1000000.
    #[arg(
        long,
        env = "TANDEM_EXEC_CALLS_PER_SECOND",
        value_name = "N",
        default_value_t = 10.0,
        help_heading = "Providers"
    )]
    exec_calls_per_second: f64,

    /// How many calls each program of `exec` gets at once after a time with fewer than it may have
    #[arg(
        long,
        env = "TANDEM_EXEC_CALL_BURST",
        value_name = "N",
        default_value_t = 20,
        help_heading = "Providers"
    )]
    exec_call_burst: u32,

    /// How many nodes are drained at a time, over all pools
    ///
    /// Further nodes are cordoned and wait. One whose pods do not go, because of a budget for instance, lets others have its
    /// turn. More take more memory, and more requests to the API server.
    #[arg(
        long,
        env = "TANDEM_MAX_PARALLEL_DRAINS",
        value_name = "N",
        default_value_t = 50,
        value_parser = clap::value_parser!(u16).range(1..),
        help_heading = "Drains"
    )]
    max_parallel_drains: u16,

    /// The kubeconfig of the cluster that holds Cluster API's objects; without it, that of the pools
    ///
    /// It is read again when it changes. A pool's machines are in the namespace there that has the name of its namespace here.
    #[arg(long, env = "TANDEM_CLUSTER_API_KUBECONFIG", value_name = "FILE", help_heading = "Providers")]
    cluster_api_kubeconfig: Option<PathBuf>,

    /// What tells this cluster's machines from those of others; without it, the UID of the namespace kube-system
    ///
    /// It is written on every machine, and machines that carry another one are left alone. Set it where a cluster is made anew
    /// from a backup and keeps its machines: docs/providers/README.md
    #[arg(long, env = "TANDEM_CLUSTER_ID", value_name = "ID", value_parser = cluster::parse, help_heading = "Providers")]
    cluster_id: Option<ClusterId>,
}

/// Why the program failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The operator could not continue.
    #[error("the operator stopped")]
    Run(#[from] bootstrap::BootstrapError),
    /// The flags say how often providers are called, and that is out of range.
    #[error("--exec-calls-per-second or --exec-call-burst is out of range")]
    ProviderRate(#[from] InvalidRate),
    /// The custom resource definitions could not be written as YAML.
    #[error("cannot write the custom resource definitions")]
    Definitions(#[from] shared_crds::CrdError),
    /// The release does not work.
    #[error("the release was checked")]
    Check(#[from] CheckError),
    /// There are pools, or they cannot be listed.
    #[error("NodePools were looked for")]
    LeftBehind(#[from] LeftBehindError),
    /// Standard output is closed or full.
    #[error("cannot write to standard output")]
    Output(#[from] std::io::Error),
}

/// The program. Wrong usage ends the process with clap's message and exit code 2.
pub async fn main() -> Result<(), Failure> {
    match Cli::parse().command {
        Command::Run(args) => {
            let RunArgs {
                common,
                exec_provider,
                exec_max_concurrent,
                exec_calls_per_second,
                exec_call_burst,
                max_parallel_drains,
                cluster_api_kubeconfig,
                cluster_id,
            } = *args;
            let options = Options {
                programs: exec_provider,
                exec_max_concurrent,
                provider_rate: Rate::new(exec_calls_per_second, exec_call_burst)?,
                cluster_api_kubeconfig,
                cluster_id,
                max_parallel_drains: usize::from(max_parallel_drains),
            };
            let start = |operator| start(operator, options);
            Ok(bootstrap::run_operator(SPEC, common, start).await?)
        }
        Command::Check(args) => Ok(check::check(args).await?),
        Command::LeftBehind(args) => Ok(left_behind::left_behind(args).await?),
        Command::Crd => Ok(std::io::stdout().write_all(shared_crds::yaml()?.as_bytes())?),
    }
}

const SPEC: OperatorSpec = OperatorSpec {
    name: names::NODEPOOL_OPERATOR,
    version: env!("CARGO_PKG_VERSION"),
    owner: Owner::NodepoolOperator,
    crds: &["nodepools.tandem.dev"],
};

/// What the flags say beside those that both operators have. The flags describe it.
struct Options {
    programs: Vec<Program>,
    exec_max_concurrent: NonZeroU8,
    provider_rate: Rate,
    cluster_api_kubeconfig: Option<PathBuf>,
    cluster_id: Option<ClusterId>,
    max_parallel_drains: usize,
}

/// Whether what programs leave behind stays as zombies: the first process of a container inherits it, and the operator waits for its
/// own children only.
const fn lacks_init(process: u32, programs: usize) -> bool {
    process == 1 && programs > 0
}

/// Wires caches, triggers and the reconcile loop together, and runs until the operator stops.
async fn start(operator: Operator, options: Options) -> Result<(), Error> {
    let Options {
        programs,
        exec_max_concurrent,
        provider_rate,
        cluster_api_kubeconfig,
        cluster_id,
        max_parallel_drains,
    } = options;
    if lacks_init(std::process::id(), programs.len()) {
        let advice = "run it under an init process, as the image tandem-exec does, or set shareProcessNamespace on its Pod";
        warn!(advice, "nothing reaps the processes that programs leave behind: this is process 1");
    }
    let Some(cluster) = cluster::identify(&operator, cluster_id).await else { return Ok(()) };
    let programs = programs
        .into_iter()
        .map(|program| Exec::new(program, cluster.clone()).at_most(exec_max_concurrent))
        .collect();
    let (pools, pool_changes) = operator.reflect(operator.api_watched(), &watcher::Config::default(), |_| {});
    let every_node = Api::all(operator.client.clone());
    let (nodes, node_changes) = operator.reflect(every_node, &watcher::Config::default(), cache::transform);
    let (client, writer) = (operator.client.clone(), operator.writer.clone());
    let management = match cluster_api_kubeconfig {
        Some(kubeconfig) => {
            let (clock, metrics) = (operator.clock.clone(), operator.metrics.clone());
            let connect = OtherCluster::new(SPEC.name, SPEC.version, clock, metrics, writer.clone());
            Management::Other { kubeconfig, connect }
        }
        None => Management::Own(client.clone(), writer.clone()),
    };
    let metrics = NodePoolMetrics::new(&operator.metrics)?;
    let provisioner = Provisioner::new(&cluster, client, writer, management, programs)
        .fenced(operator.fence.clone())
        .observed_by(Arc::new(metrics.clone()))
        .at_rate(provider_rate);
    let provisioner = Arc::new(provisioner);
    let awaiting = {
        let provisioner = Arc::clone(&provisioner);
        move |node: &Node| provisioner.awaiting(node)
    };
    let namespace = operator.args.client.watch_namespace.clone();
    let ctx = Context::new(&operator, cluster, pools, nodes, provisioner, metrics, max_parallel_drains);
    let ctx = Arc::new(ctx);
    let pool_changes = orphans::recorded(pool_changes, Arc::clone(&ctx.orphans));
    let triggers = stream::select(
        triggers::keys(pool_changes, node_changes, awaiting, namespace),
        triggers::every_pool(operator.served.changes(), ctx.pools.clone()),
    );
    let config = operator.controller("nodepool").debounce(DEBOUNCE);
    let reconcile = move |key| reconcile::reconcile(Arc::clone(&ctx), key);
    controller::run(config, triggers, reconcile, operator.shutdown.clone()).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_first_process_that_runs_programs_lacks_an_init_process() {
        assert!(lacks_init(1, 2));
        assert!(!lacks_init(1, 0) && !lacks_init(7, 2));
    }
}
