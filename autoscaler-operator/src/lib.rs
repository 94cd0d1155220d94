//! **The Autoscaler operator**: decides how many nodes each `NodePool` should have, from the pods that wait for nodes and
//! the nodes that nothing needs, and says why. It never makes or removes a node: it writes `spec.replicas` through the
//! scale subresource, and its own part of the status.
//!
//! One pass over the cluster is [`reconcile`]: `observe → plan → apply → report`, one file each. Everything that is decided
//! is decided in [`plan`], which does no I/O and is what [`simulate`] runs on files. This file is the command line and the
//! wiring.

pub mod apply;
pub mod context;
pub mod error;
pub mod metrics;
pub mod observe;
pub mod plan;
pub mod prune;
pub mod reconcile;
pub mod report;
pub mod simulate;

use std::{io::Write as _, sync::Arc, time::Duration};

use clap::{Args, Parser, Subcommand};
use futures::{Stream, StreamExt as _, stream};
use kube::{Api, runtime::watcher};
use shared_crds::{NodePool, NodePoolAutoscaler, names, ownership::Owner};
use shared_runtime::{
    bootstrap::{self, Operator, OperatorSpec},
    cli::CommonArgs,
    clock::Clock,
    controller,
};

use crate::{
    context::{Caches, Cluster, Context},
    error::Error,
    simulate::{SimulateArgs, SimulateError},
};

/// A burst of pods becomes one pass.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// Finished pods take nothing from a node; leaving them out keeps the cache small.
const UNFINISHED: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// Decides how many nodes each NodePool should have.
///
/// Reads pods that wait for nodes, sets spec.replicas of the NodePools that a NodePoolAutoscaler selects, and says why
/// in their status and in events. `autoscaler-operator simulate --help` shows how to ask it without a cluster.
#[derive(Debug, Parser)]
#[expect(clippy::doc_markdown, reason = "it is help text for a terminal")]
#[command(name = "autoscaler-operator", version, max_term_width = 120)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
#[expect(clippy::doc_markdown, reason = "it is help text for a terminal")]
enum Command {
    /// Run the operator until SIGTERM or SIGINT
    Run(RunArgs),
    /// Print the custom resource definitions as YAML: `autoscaler-operator crd | kubectl apply -f -`
    Crd,
    /// Print what the operator would decide about the objects in some files, without a cluster
    ///
    /// Takes NodePools, NodePoolAutoscalers, Nodes and Pods, as `kubectl get -o yaml` prints them:
    ///
    ///   kubectl get nodepools,nodepoolautoscalers,pods -A -o yaml > a.yaml
    ///   kubectl get nodes -o yaml > b.yaml
    ///   autoscaler-operator simulate -f a.yaml -f b.yaml -o table
    ///
    /// Objects of other kinds, and constraints this version does not plan with, are named on standard error.
    /// Exit code 0: planned; 1: the objects cannot be read; 2: wrong usage.
    #[command(verbatim_doc_comment)]
    Simulate(SimulateArgs),
}

#[derive(Args, Debug)]
struct RunArgs {
    #[command(flatten)]
    common: CommonArgs,
}

/// Why the program ended otherwise than well.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The operator could not go on.
    #[error("the operator stopped")]
    Run(#[from] bootstrap::Error),
    /// The definitions could not be written as YAML.
    #[error("cannot write the custom resource definitions")]
    Definitions(#[from] shared_crds::Error),
    /// Nothing could be simulated.
    #[error(transparent)]
    Simulate(#[from] SimulateError),
    /// Standard output is closed or full.
    #[error("cannot write to standard output")]
    Output(#[from] std::io::Error),
}

/// The program. Wrong usage ends the process with clap's message and exit code 2.
pub async fn main() -> Result<(), Failure> {
    match Cli::parse().command {
        Command::Run(args) => Ok(bootstrap::run_operator(SPEC, args.common, start).await?),
        Command::Crd => Ok(std::io::stdout().write_all(shared_crds::yaml()?.as_bytes())?),
        Command::Simulate(args) => Ok(simulate::run(&args, Clock::system().now())?),
    }
}

const SPEC: OperatorSpec = OperatorSpec {
    name: names::AUTOSCALER_OPERATOR,
    version: env!("CARGO_PKG_VERSION"),
    owner: Owner::AutoscalerOperator,
    crds: &["nodepools.tandem.dev", "nodepoolautoscalers.tandem.dev"],
};

/// Wires caches, triggers and the loop together, and runs until the operator stops.
async fn start(operator: Operator) -> Result<(), Error> {
    let all = watcher::Config::default;
    let (pools, pool_changes) = operator.reflect(operator.api_watched::<NodePool>(), all(), |_| {});
    let (autoscalers, autoscaler_changes) =
        operator.reflect(operator.api_watched::<NodePoolAutoscaler>(), all(), |_| {});
    let (nodes, node_changes) = operator.reflect(Api::all(operator.client.clone()), all(), prune::node);
    let unfinished = all().fields(UNFINISHED);
    let (pods, pod_changes) = operator.reflect(Api::all(operator.client.clone()), unfinished, prune::pod);

    let triggers = stream::select(
        stream::select(whole(pool_changes), whole(autoscaler_changes)),
        stream::select(whole(node_changes), whole(pod_changes)),
    );
    let ctx = Arc::new(Context::new(&operator, Caches { pools, autoscalers, nodes, pods })?);
    let config = operator.controller("autoscaler").debounce(DEBOUNCE);
    let reconcile = move |Cluster| reconcile::reconcile(Arc::clone(&ctx));
    controller::run(config, triggers, reconcile, operator.shutdown.clone()).await;
    Ok(())
}

/// Every change is a reason to look at everything: a pod of any namespace may go to a node of any pool.
fn whole<T>(changes: impl Stream<Item = T> + Send + 'static) -> impl Stream<Item = Cluster> + Send + 'static {
    changes.map(|_| Cluster)
}
