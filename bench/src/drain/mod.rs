//! `drain`: what a large drain costs the `NodePool` operator, on a real control plane: memory, and lists of pods, while a
//! budget lets nothing go, when it is killed then and starts again, and when the budget is gone.
//!
//! The nodes are made by the operator, the pods by the bench. The controller of `ReplicaSets` is off, so nothing takes the
//! place of an evicted pod.

mod fill;
mod lists;
mod objects;
mod row;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Client;
use kube::api::DeleteParams;
use lists::Lists;
use objects::{Kind, NAME, NAMESPACE};
use row::{Phase, Row};
use testbed::cluster::Cluster;
use testbed::memory::{self, Field};
use testbed::operators::{OperatorKind, OperatorProcess};
use testbed::tandem::Release;
use testbed::wait::eventually;
use tokio::time::Instant;
use toolbox::messages::inform;

use crate::filling::{self, namespaced};
use crate::numbers::rounded;
use crate::page;

const RELEASE_NAMESPACE: &str = "tandem-system";
/// Until an operator in a full cluster has nothing left to do.
const REST: Duration = Duration::from_secs(10);
/// Until an operator that was started drains: one that was killed had the lease until it expires.
const BEGINS: Duration = Duration::from_secs(120);
/// The operator may list 68 nodes at once and 10 a second in the long run: in fewer seconds than this, an average says nothing
/// about the bar.
const BURST: u64 = 70;
/// How long the removal of everything may take.
const PATIENCE: Duration = Duration::from_secs(3600);

/// What a large drain costs the operator that makes nodes: resident memory, and lists of pods
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Nodes of the pool, a cluster for each number; by default 100 and 500, with --protected 5000, with --ordinary 100
    #[arg(long, value_delimiter = ',')]
    nodes: Vec<usize>,
    /// Pods on each node; by default 30, with --protected 1, with --ordinary 5
    #[arg(long)]
    pods: Option<usize>,
    /// How long nothing can go, in seconds
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// All nodes have a pod that asks to be left alone, and one of them is to go
    #[arg(long)]
    protected: bool,
    /// The pods are small and no budget holds them
    #[arg(long, conflicts_with = "protected")]
    ordinary: bool,
    /// Write the rows into this file, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Put the tables into this file, between the marks there
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

/// What happens to the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scenario {
    /// All nodes are to go and a budget lets none of them go.
    Blocked,
    /// One is to go, and all ask to be left alone.
    Protected,
    /// All nodes are to go and nothing holds them.
    Ordinary,
}

impl Scenario {
    /// The kind of the pods, how many there are on a node, and the numbers of nodes.
    const fn defaults(self) -> (Kind, usize, &'static [usize]) {
        match self {
            Self::Blocked => (Kind::Large, 30, &[100, 500]),
            Self::Protected => (Kind::Protected, 1, &[5000]),
            Self::Ordinary => (Kind::Small, 5, &[100]),
        }
    }

    /// The name of the bench on its page.
    const fn marks(self) -> &'static str {
        match self {
            Self::Blocked => "drain",
            Self::Protected => "drain --protected",
            Self::Ordinary => "drain --ordinary",
        }
    }
}

pub(crate) async fn run(args: Args) -> Result<()> {
    let Args { nodes, pods, seconds, protected, ordinary, json, markdown } = args;
    let scenario = match (protected, ordinary) {
        (true, _) => Scenario::Protected,
        (_, true) => Scenario::Ordinary,
        _ => Scenario::Blocked,
    };
    let (kind, per_node, sizes) = scenario.defaults();
    let per_node = pods.unwrap_or(per_node);
    let sizes = if nodes.is_empty() { sizes.to_vec() } else { nodes };
    ensure!((1..=100).contains(&per_node), "{per_node} pods are not 1 to 100");
    ensure!(sizes.iter().all(|nodes| *nodes > 1), "a pool of less than two nodes measures nothing");
    ensure!(
        scenario == Scenario::Ordinary || seconds >= BURST,
        "in {seconds} s the lists of the beginning alone exceed the bar: {BURST} s at least"
    );
    // Before there is a cluster, so that nothing is built while something is measured.
    OperatorKind::NodePool.binary().await?;
    let mut rows = Vec::new();
    for nodes in sizes {
        let cluster = Cluster::start(filling::options()).await?;
        let bench = Bench { cluster: &cluster, client: cluster.client().await?, scenario, seconds };
        let measured = bench.measure(nodes, kind, per_node).await;
        let stopped = cluster.stop().await;
        let row = measured?;
        stopped?;
        println!("{}", row.table());
        rows.push(row);
    }
    if let Some(file) = json {
        let text = serde_json::to_string_pretty(&rows)?;
        std::fs::write(&file, text + "\n").with_context(|| format!("cannot write {}", file.display()))?;
    }
    if let Some(file) = markdown {
        let tables: Vec<String> = rows.iter().map(Row::markdown).collect();
        page::fill(&file, scenario.marks(), &tables.join("\n"))?;
    }
    let complaints: Vec<String> = rows.iter().flat_map(Row::complaints).collect();
    if complaints.is_empty() { Ok(()) } else { bail!("{}", complaints.join("\n")) }
}

struct Bench<'a> {
    cluster: &'a Cluster,
    client: Client,
    scenario: Scenario,
    /// How long nothing can go.
    seconds: u64,
}

impl Bench<'_> {
    async fn measure(&self, nodes: usize, kind: Kind, per_node: usize) -> Result<Row> {
        let release = Release::install(self.cluster, RELEASE_NAMESPACE, &[]).await?;
        let operator = release.pod(self.cluster, OperatorKind::NodePool).await?.start(self.cluster).await?;
        // It ends with the cluster.
        let _namespace = self.cluster.namespace_called(NAMESPACE, &[]).await?;
        let measured = self.with(&operator, nodes, kind, per_node).await;
        measured
            .map_err(|error| error.context(format!("the operator's log ends with\n{}", operator.log_tail())))
    }

    async fn with(
        &self,
        operator: &OperatorProcess,
        nodes: usize,
        kind: Kind,
        per_node: usize,
    ) -> Result<Row> {
        fill::nodes(&self.client, nodes, || operator.check_alive()).await?;
        fill::pods(&self.client, kind, per_node).await?;
        if self.scenario == Scenario::Blocked {
            fill::budget(&self.client).await?;
        }
        tokio::time::sleep(REST).await;
        let (pod_kib, rss_mib) = (fill::pod_kib(&self.client).await?, resident(operator, Field::Resident)?);
        let phases = match self.scenario {
            Scenario::Blocked => self.blocked(operator, (nodes, per_node)).await?,
            Scenario::Protected => {
                let phase = self.stands_still(operator, "protected", Some(nodes - 1)).await?;
                self.holds((nodes, nodes * per_node)).await?;
                vec![phase]
            }
            Scenario::Ordinary => vec![self.goes(operator).await?],
        };
        operator.check_alive()?;
        let (pod_kib, rss_mib) = (rounded(pod_kib, 10.0), rounded(rss_mib, 10.0));
        Ok(Row { nodes, pods_per_node: per_node, pod_kib, rss_mib, phases })
    }

    /// A budget that holds, the same after the operator was killed, and without it.
    async fn blocked(
        &self,
        operator: &OperatorProcess,
        (nodes, per_node): (usize, usize),
    ) -> Result<Vec<Phase>> {
        let first = self.stands_still(operator, "blocked", Some(0)).await?;
        inform("killing the operator, and starting it again");
        operator.kill_and_restart(|| Ok(())).await?;
        let second = self.stands_still(operator, "blocked, started again", None).await?;
        // One pod may go.
        self.holds((nodes, nodes * per_node - 1)).await?;
        let budgets = namespaced::<PodDisruptionBudget>(&self.client, NAMESPACE);
        budgets.delete(NAME, &DeleteParams::default()).await.context("cannot delete the budget")?;
        let last = self.goes(operator).await?;
        Ok(vec![first, second, last])
    }

    /// Scales to so many nodes, if any, and watches for a while how nothing goes, from the first list on.
    async fn stands_still(
        &self,
        operator: &OperatorProcess,
        name: &'static str,
        scale: Option<usize>,
    ) -> Result<Phase> {
        inform(&format!("{name}: {} s", self.seconds));
        let mut lists = Lists::from_now(self.cluster)?;
        if let Some(nodes) = scale {
            fill::scale(&self.client, nodes).await?;
        }
        let first = eventually(BEGINS, "the operator lists the pods of nodes", || {
            let found = lists.count();
            async move { found.map(|found| (found > 0).then_some(found)) }
        });
        let first = first.await?;
        let began = Instant::now();
        tokio::time::sleep(Duration::from_secs(self.seconds)).await;
        Self::phase(operator, name, began, first + lists.count()?, true)
    }

    /// Scales to nothing, and waits until it is.
    async fn goes(&self, operator: &OperatorProcess) -> Result<Phase> {
        inform("to 0");
        let (mut lists, began) = (Lists::from_now(self.cluster)?, Instant::now());
        fill::scale(&self.client, 0).await?;
        fill::all_are_gone(&self.client, PATIENCE).await?;
        Self::phase(operator, "to 0", began, lists.count()?, false)
    }

    fn phase(
        operator: &OperatorProcess,
        name: &'static str,
        began: Instant,
        lists: usize,
        blocked: bool,
    ) -> Result<Phase> {
        operator.check_alive()?;
        let seconds = rounded(began.elapsed().as_secs_f64(), 10.0);
        let peak_rss_mib = rounded(resident(operator, Field::Peak)?, 10.0);
        Ok(Phase { name, seconds, peak_rss_mib, lists, blocked })
    }

    /// Checks that nothing went that could not: otherwise the row would not say what was measured.
    async fn holds(&self, (nodes, pods): (usize, usize)) -> Result<()> {
        let left = fill::left(&self.client).await?;
        ensure!(
            left.0 == nodes && left.1 >= pods,
            "{left:?} nodes and pods are left, not {nodes} and {pods}"
        );
        Ok(())
    }
}

/// In MiB.
fn resident(operator: &OperatorProcess, field: Field) -> Result<f64> {
    memory::of(&operator.pid().to_string(), field)
}
