//! `latency`: how long a pod waits until its pool is scaled, and how much memory the operators have, on a real control
//! plane with a large cluster in it.
//!
//! The nodes are made by the `NodePool` operator, the pods of `DaemonSets` by their controller, the others by the
//! bench, on chosen nodes; so the controllers of `ReplicaSets` and `StatefulSets` are off.

mod deal;
mod fill;
mod objects;
mod row;
mod sample;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use deal::Deal;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use row::{BAR_MIB, Memory, Row};
use sample::{Sample, Sampler};
use testbed::cluster::Cluster;
use testbed::memory::{self, Field};
use testbed::operators::{OperatorKind, OperatorProcess};
use testbed::tandem::{Release, RunningOperators};
use testbed::wait::eventually;
use toolbox::messages::inform;

use crate::filling;
use crate::numbers::rounded;
use crate::page;

const RELEASE_NAMESPACE: &str = "tandem-system";
/// How long an operator may take to end, or to begin again.
const PATIENCE: Duration = Duration::from_secs(120);
/// Until an operator in an empty cluster, or a full one, has nothing left to do.
const REST: Duration = Duration::from_secs(10);
/// With a memory limit of one's own, the share of it that an operator may have: the rest is for what is not measured.
const SHARE_OF_LIMIT: f64 = 0.75;
/// Most time between two samples, so that they do not come in step with the passes that the last one caused.
const GAP_MS: f64 = 1000.0;

/// How long a pending pod waits for the write of its pool's scale on a large cluster, and the operators' memory there
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Nodes in the cluster
    #[arg(long, default_value_t = 1000)]
    nodes: usize,
    /// Pods in the cluster, as many for each node
    #[arg(long, default_value_t = 30_000)]
    pods: usize,
    /// Pending pods, one after the other
    #[arg(long, default_value_t = 100)]
    samples: usize,
    /// The memory limit of each operator, in MiB; with one, three quarters of it are the bar
    #[arg(long, value_name = "MIB")]
    memory_limit: Option<u32>,
    /// Write the rows into this file, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Put the tables into this file, between the marks there
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// 100 nodes, 2,000 pods, 10 samples: for a look while one works
    #[arg(long, conflicts_with_all = ["nodes", "pods", "samples"])]
    quick: bool,
}

pub(crate) async fn run(args: Args) -> Result<()> {
    let Args { nodes, pods, samples, memory_limit, json, markdown, quick } = args;
    let (nodes, pods, samples) = if quick { (100, 2000, 10) } else { (nodes, pods, samples) };
    ensure!(samples > 0, "0 samples measure nothing; give at least 1");
    let deal = Deal::of(nodes, pods)?;
    // Before there is a cluster, so that nothing is built while something is measured.
    for operator in [OperatorKind::NodePool, OperatorKind::Autoscaler] {
        operator.binary().await?;
    }
    let cluster = Cluster::start(filling::options()).await?;
    let measured = measure(&cluster, &deal, samples, memory_limit).await;
    let stopped = cluster.stop().await;
    let (row, failed) = measured?;
    stopped?;

    println!("{}", row.table());
    if let Some(file) = json {
        let text = serde_json::to_string_pretty(&[&row])?;
        std::fs::write(&file, text + "\n").with_context(|| format!("cannot write {}", file.display()))?;
    }
    if let Some(file) = markdown {
        page::fill(&file, "latency", &row.markdown())?;
    }
    let complaints: Vec<String> = failed
        .into_iter()
        .chain(
            row.complaints(samples, memory_limit.map_or(BAR_MIB, |limit| f64::from(limit) * SHARE_OF_LIMIT)),
        )
        .collect();
    if complaints.is_empty() { Ok(()) } else { bail!("{}", complaints.join("\n")) }
}

/// The row, and why it ended early.
async fn measure(
    cluster: &Cluster,
    deal: &Deal,
    samples: usize,
    memory_limit: Option<u32>,
) -> Result<(Row, Option<String>)> {
    let limits = memory_limit.map(|mib| {
        ["nodepoolOperator", "autoscalerOperator"].map(|it| format!("{it}.resources.limits.memory={mib}Mi"))
    });
    let release =
        Release::install(cluster, RELEASE_NAMESPACE, limits.as_ref().map_or(&[], |it| &it[..])).await?;
    let mut operators = release.start(cluster).await?;
    let measured = with(cluster, &mut operators, deal, samples).await;
    let measured = measured.map_err(|error| {
        let (pools, scaler) = (operators.node_pool.log_tail(), operators.autoscaler.log_tail());
        error.context(format!("the operators' logs end with\n{pools}\n{scaler}"))
    })?;
    operators.stop().await?;
    Ok(measured)
}

async fn with(
    cluster: &Cluster,
    operators: &mut RunningOperators,
    deal: &Deal,
    samples: usize,
) -> Result<(Row, Option<String>)> {
    let client = cluster.client().await?;
    tokio::time::sleep(REST).await;
    operators.check_alive()?;
    let empty = resident(operators, Field::Resident)?;

    inform(&format!("making {} nodes", deal.nodes));
    fill::namespaces(&client).await?;
    fill::nodes(&client, deal, samples, || operators.check_alive()).await?;
    inform(&format!("making {} pods", deal.pods()));
    fill::pods(&client, deal).await?;
    fill::plan(&client).await?;
    tokio::time::sleep(REST).await;
    operators.check_alive()?;
    fill::check(&client, deal).await?;

    inform(&format!("taking {samples} samples"));
    let (taken, failed) = take(&client, samples).await?;
    operators.check_alive()?;
    let (now, peak) = (resident(operators, Field::Resident)?, resident(operators, Field::Peak)?);
    inform("starting the operators again");
    start_again(operators).await?;
    let again = resident(operators, Field::Peak)?;
    let memory = [(OperatorKind::NodePool, 0), (OperatorKind::Autoscaler, 1)].map(|(operator, at)| Memory {
        name: operator.name(),
        empty_rss_mib: empty[at],
        rss_mib: now[at],
        peak_rss_mib: peak[at],
        restarted_peak_rss_mib: again[at],
    });
    Ok((Row::new(deal.nodes, deal.pods(), &taken, memory.into()), failed))
}

/// Takes samples up to the first that fails: what would come after it would begin in another state.
async fn take(client: &kube::Client, count: usize) -> Result<(Vec<Sample>, Option<String>)> {
    let mut sampler = Sampler::open(client, count).await?;
    let mut random = StdRng::seed_from_u64(0);
    let mut taken = Vec::new();
    for number in 1..=count {
        tokio::time::sleep(Duration::from_secs_f64(random.random::<f64>() * GAP_MS / 1000.0)).await;
        let sample = sampler.take().await.with_context(|| format!("sample {number}"))?;
        let failed = sample.failed.as_ref().map(|why| format!("sample {number}: {why}"));
        taken.push(sample);
        if failed.is_some() {
            return Ok((taken, failed));
        }
    }
    Ok((taken, None))
}

/// Ends both and starts them again, until each has worked on the cluster.
async fn start_again(operators: &mut RunningOperators) -> Result<()> {
    for process in [&mut operators.node_pool, &mut operators.autoscaler] {
        process.stop(PATIENCE).await?;
        process.start_again().await?;
        let process = &*process;
        eventually(PATIENCE, "an operator that was started again works", || async {
            process.check_alive()?;
            let passes = process.metric("tandem_reconcile_total", &[]).await?;
            Ok((passes > 0.0).then_some(()))
        })
        .await?;
    }
    tokio::time::sleep(REST).await;
    operators.check_alive()
}

/// Of the `NodePool` operator and the Autoscaler, in MiB, to a tenth.
fn resident(operators: &RunningOperators, field: Field) -> Result<[f64; 2]> {
    let of = |process: &OperatorProcess| memory::of(&process.pid().to_string(), field);
    Ok([of(&operators.node_pool)?, of(&operators.autoscaler)?].map(|mib| rounded(mib, 10.0)))
}
