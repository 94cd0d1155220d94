//! **The Autoscaler operator**: decides how many nodes each `NodePool` should have, from pending pods and unneeded
//! nodes, and reports why. It never makes or removes a node: it writes `spec.replicas`, at the generation it decided
//! from unless `--write-strategy` says otherwise, and its own part of the status.
//!
//! One pass over the cluster is `reconcile`: `observe → plan → apply → report`, one file each. All decisions are made
//! in [`planner`], which does no I/O. The subcommands `simulate` and `explain` are [`simulator`]'s. This file is the
//! command line and the wiring.

mod apply;
mod cache;
mod context;
mod error;
mod memory;
mod metrics;
mod observe;
mod outcome;
mod reconcile;
pub mod reference;
mod report;
mod status;
mod triggers;

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use kube::runtime::watcher;
use planner::input::pods::UNFINISHED_SELECTOR;
use planner::input::{ClaimInfo, VolumeInfo, transform};
use shared_crds::ownership::Owner;
use shared_crds::{NodePool, NodePoolAutoscaler, names};
use shared_runtime::bootstrap::{self, Operator, OperatorSpec};
use shared_runtime::cli::CommonArgs;
use shared_runtime::clock::Clock;
use shared_runtime::controller::{self, Debounce};
use simulator::explain::{self, ExplainArgs, ExplainError};
use simulator::simulate::{self, SimulateArgs, SimulateError};

use crate::cache::Cached;
use crate::context::{Caches, Cluster, Context};
use crate::error::Error;

/// Merges a burst of pod events into one pass: planned one by one, pods get other pools and more nodes. The controller of a
/// `ReplicaSet` creates its pods in batches with a round trip between them, which takes some 10 ms. The first trigger waits as well,
/// because the first batch is one pod and each next one twice as many (`slowStartBatch`,
/// <https://github.com/kubernetes/kubernetes/blob/master/pkg/controller/replicaset/replica_set.go>): a pass at once would plan that pod
/// alone.
const DEBOUNCE: Debounce = Debounce { quiet: Duration::from_millis(25), most: Duration::from_millis(100) };

/// Decides how many nodes each NodePool should have.
///
/// Reads pods that wait for nodes, sets spec.replicas of the NodePools that a NodePoolAutoscaler selects, and reports
/// why in their status and in events. `autoscaler-operator simulate --help` shows how to ask it without a cluster.
#[derive(Debug, Parser)]
#[expect(clippy::doc_markdown, reason = "it is help text for a terminal")]
#[command(name = "autoscaler-operator", version, max_term_width = 120)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the operator until SIGTERM or SIGINT
    Run(RunArgs),
    /// Print the custom resource definitions as YAML: `autoscaler-operator crd | kubectl apply -f -`
    Crd,
    /// Print what the operator would decide, and what it would decide if something were different. Writes nothing
    ///
    /// On a cluster:
    ///
    ///   autoscaler-operator simulate --live
    ///   autoscaler-operator simulate --live --remove-node worker-3
    ///   autoscaler-operator simulate --live --add-pods deployment.yaml --count 50
    ///   autoscaler-operator simulate --live --pool demo/small=5
    ///
    /// Without one, on what `kubectl get -o yaml` prints:
    ///
    ///   kubectl get nodepools,nodepoolautoscalers,pods,daemonsets,pdb,pvc -A -o yaml > a.yaml
    ///   kubectl get nodes,pv,storageclasses,priorityclasses,namespaces -o yaml > b.yaml
    ///   autoscaler-operator simulate -f a.yaml -f b.yaml -o table
    ///
    /// Objects of other kinds, fields and constraints that this version does not plan with, and what was changed, are
    /// named on standard error. Exit code 0: planned; 1: the objects cannot be read or changed; 2: wrong usage.
    #[command(verbatim_doc_comment)]
    Simulate(SimulateArgs),
    /// Say why a pod waits, why a node stays or goes, or why a pool has as many nodes as it has. Writes nothing
    ///
    ///   autoscaler-operator explain pod default/web-7c9d
    ///   autoscaler-operator explain node worker-3 -o json
    ///   autoscaler-operator explain pool demo/small -f objects.yaml
    ///
    /// Reads the cluster; with -f, files as `simulate` takes them. Exit code 0: explained; 1: there is no such object,
    /// or the objects cannot be read; 2: wrong usage.
    #[command(verbatim_doc_comment)]
    Explain(ExplainArgs),
}

#[derive(Args, Debug)]
struct RunArgs {
    #[command(flatten)]
    common: CommonArgs,
}

/// Why the program failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The operator could not continue.
    #[error("the operator stopped")]
    Run(#[from] bootstrap::BootstrapError),
    /// The custom resource definitions could not be written as YAML.
    #[error("cannot write the custom resource definitions")]
    Definitions(#[from] shared_crds::CrdError),
    /// `simulate` failed.
    #[error(transparent)]
    Simulate(#[from] SimulateError),
    /// `explain` failed.
    #[error(transparent)]
    Explain(#[from] ExplainError),
    /// Standard output is closed or full.
    #[error("cannot write to standard output")]
    Output(#[from] std::io::Error),
}

/// The program. Wrong usage ends the process with clap's message and exit code 2.
pub async fn main() -> Result<(), Failure> {
    match Cli::parse().command {
        Command::Run(args) => Ok(bootstrap::run_operator(SPEC, args.common, start).await?),
        Command::Crd => Ok(std::io::stdout().write_all(shared_crds::yaml()?.as_bytes())?),
        Command::Simulate(args) => Ok(simulate::run(&args, Clock::system().now()).await?),
        Command::Explain(args) => Ok(explain::run(&args, Clock::system().now()).await?),
    }
}

const SPEC: OperatorSpec = OperatorSpec {
    name: names::AUTOSCALER_OPERATOR,
    version: env!("CARGO_PKG_VERSION"),
    owner: Owner::AutoscalerOperator,
    crds: &["nodepools.tandem.dev", "nodepoolautoscalers.tandem.dev"],
};

/// Wires caches, triggers and the reconcile loop together, and runs until the operator stops.
async fn start(operator: Operator) -> Result<(), Error> {
    let all = watcher::Config::default;
    let (pools, pool_changes) = operator.reflect(operator.api_watched::<NodePool>(), &all(), |_| {});
    let (autoscalers, autoscaler_changes) =
        operator.reflect(operator.api_watched::<NodePoolAutoscaler>(), &all(), |_| {});
    let (nodes, node_changes) = operator.reflect(Api::all(operator.client.clone()), &all(), transform::node);
    let unfinished = all().fields(UNFINISHED_SELECTOR);
    let (pods, pod_changes) = operator.reflect_as(
        Api::all(operator.client.clone()),
        &unfinished,
        Cached::as_made_by(transform::pods()),
        cache::stand_in,
    );

    let client = || operator.client.clone();
    let (daemon_sets, daemon_set_changes) =
        operator.reflect(Api::all(client()), &all(), transform::daemon_set);
    let (budgets, budget_changes) = operator.reflect(Api::all(client()), &all(), transform::budget);
    let (volumes, volume_changes) = operator.reflect_as(
        Api::<PersistentVolume>::all(client()),
        &all(),
        Cached::as_made_by(VolumeInfo::from),
        |_| None,
    );
    let (claims, claim_changes) = operator.reflect_as(
        Api::<PersistentVolumeClaim>::all(client()),
        &all(),
        Cached::as_made_by(ClaimInfo::from),
        |_| None,
    );
    let (storage_classes, storage_class_changes) =
        operator.reflect(Api::all(client()), &all(), transform::storage_class);
    let (namespaces, namespace_changes) = operator.reflect(Api::all(client()), &all(), transform::namespace);

    let triggers = stream::select_all([
        whole(pool_changes),
        whole(autoscaler_changes),
        whole(node_changes),
        whole(pod_changes),
        whole(triggers::of_specs(daemon_set_changes)),
        whole(budget_changes),
        whole(volume_changes),
        whole(claim_changes),
        whole(storage_class_changes),
        whole(namespace_changes),
        whole(operator.served.changes()),
    ]);
    let caches = Caches {
        pools,
        autoscalers,
        nodes,
        pods,
        daemon_sets,
        budgets,
        volumes,
        claims,
        storage_classes,
        namespaces,
    };
    let ctx = Arc::new(Context::new(&operator, caches)?);
    let config = operator.controller("autoscaler").debounce(DEBOUNCE);
    let reconcile = move |Cluster| reconcile::reconcile(Arc::clone(&ctx));
    controller::run(config, triggers, reconcile, operator.shutdown.clone()).await;
    Ok(())
}

/// Every change triggers a pass over the whole cluster: a pod of any namespace may go to a node of any pool.
fn whole<T>(changes: impl Stream<Item = T> + Send + 'static) -> BoxStream<'static, Cluster> {
    changes.map(|_| Cluster).boxed()
}
