//! The steps of the demo: load is added and nodes are created; load is removed and nodes are removed; a user requests
//! too many replicas and is rejected.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::{Api, Client};
use shared_crds::NodePool;
use shared_crds::names::node_selector;
use tokio::time::Instant;

use super::setup::{NAMESPACE, PATIENCE, Setup};
use super::{DemoOptions, Screen};

/// The pool of the manifest.
const POOL: &str = "workers";
/// Interval between two reads.
const LOOK: Duration = Duration::from_millis(200);

pub(super) async fn run(screen: &Screen, setup: &Setup, options: &DemoOptions) -> Result<()> {
    let reader = StateReader::new(setup.cluster.client().await?);
    let scale = async |replicas: u32| {
        let replicas = format!("--replicas={replicas}");
        setup.cluster.kubectl(&["scale", "deployment/web", "--namespace", NAMESPACE, &replicas]).await
    };

    screen.part("A Deployment that does not fit: 24 pods of 1 cpu, no node");
    scale(24).await?;
    reader.watch(screen, setup, "24 pods run", |state| state.running == 24 && state.settled()).await?;

    screen.part("More load: 36 pods");
    scale(36).await?;
    reader.watch(screen, setup, "36 pods run", |state| state.running == 36 && state.settled()).await?;
    Screen::quote(&setup.cluster.kubectl(&["get", "npool,npa", "--namespace", NAMESPACE]).await?);

    screen.part("A user asks for more than the pool allows");
    let asked =
        setup.cluster.kubectl(&["scale", "npool/workers", "--namespace", NAMESPACE, "--replicas=99"]).await;
    match asked {
        Ok(_) => bail!("the API server accepted 99 replicas in a pool of at most 12"),
        Err(refused) => Screen::quote(&format!("{refused:#}")),
    }

    screen.part("The load goes");
    scale(9).await?;
    reader
        .watch(screen, setup, "9 pods run on few nodes", |state| {
            state.running == 9 && state.nodes < 12 && state.settled()
        })
        .await?;
    scale(0).await?;
    reader
        .watch(screen, setup, "no node is left", |state| {
            state.running == 0 && state.nodes == 0 && state.settled()
        })
        .await?;
    let reasons = setup
        .cluster
        .kubectl(&[
            "get",
            "events",
            "--namespace",
            NAMESPACE,
            "--output=custom-columns=:.reason",
            "--no-headers",
        ])
        .await?;
    screen.say("events", &tally(&reasons));
    if options.write_strategy == "lazy" {
        screen.say("lazy", "every conflict threw a whole reconcile away; the table counts them");
    }
    Ok(())
}

/// Counts how often each event reason occurs.
fn tally(reasons: &str) -> String {
    let mut counts = std::collections::BTreeMap::<&str, usize>::new();
    for reason in reasons.lines().map(str::trim).filter(|reason| !reason.is_empty()) {
        *counts.entry(reason).or_default() += 1;
    }
    counts.iter().map(|(reason, count)| format!("{reason} ×{count}")).collect::<Vec<_>>().join(", ")
}

/// The observed state at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ClusterState {
    pending: usize,
    running: usize,
    desired: Option<i32>,
    nodes: usize,
    ready: usize,
    leaving: usize,
    generation: i64,
    resource_version: String,
    reported_ready: i32,
}

impl ClusterState {
    /// Whether nodes, wanted count and reported status agree, and no change is in progress.
    fn settled(&self) -> bool {
        let desired = usize::try_from(self.desired.unwrap_or(0)).unwrap_or(0);
        let reported = usize::try_from(self.reported_ready).unwrap_or(usize::MAX);
        self.pending == 0
            && self.leaving == 0
            && self.nodes == desired
            && self.ready == desired
            && reported == desired
    }

    fn print_changes(&self, before: &Self, screen: &Screen) {
        if self.pending != before.pending || self.running != before.running {
            screen.say("pods", &format!("{} pending, {} running", self.pending, self.running));
        }
        if self.desired != before.desired {
            let name = |replicas: Option<i32>| replicas.map_or_else(|| "unset".to_owned(), |n| n.to_string());
            let (from, to) = (name(before.desired), name(self.desired));
            let (generation, version) = (self.generation, &self.resource_version);
            screen.say(
                "replicas",
                &format!("{from} → {to}   (generation {generation}, resourceVersion {version})"),
            );
        }
        if (self.nodes, self.ready, self.leaving) != (before.nodes, before.ready, before.leaving) {
            let leaving =
                if self.leaving > 0 { format!(", {} draining", self.leaving) } else { String::new() };
            screen.say("nodes", &format!("{} of {} ready{leaving}", self.ready, self.nodes));
        }
    }
}

/// Reads the cluster repeatedly.
struct StateReader {
    pods: Api<Pod>,
    nodes: Api<Node>,
    pools: Api<NodePool>,
}

impl StateReader {
    fn new(client: Client) -> Self {
        Self {
            pods: Api::namespaced(client.clone(), NAMESPACE),
            nodes: Api::all(client.clone()),
            pools: Api::namespaced(client, NAMESPACE),
        }
    }

    /// Prints every change until `done`.
    async fn watch(
        &self,
        screen: &Screen,
        setup: &Setup,
        what: &str,
        done: impl Fn(&ClusterState) -> bool,
    ) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let mut before = self.read().await?;
        loop {
            let state = self.read().await?;
            state.print_changes(&before, screen);
            if done(&state) {
                return Ok(());
            }
            setup.check_alive()?;
            if Instant::now() > deadline {
                bail!("{what}: not within {PATIENCE:?}; last seen {state:?}\n{}", setup.log_tails());
            }
            before = state;
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn read(&self) -> Result<ClusterState> {
        // A list with one element: the table counts the `get` requests of the operators, and one by the demo would be
        // included.
        let named = ListParams::default().fields(&format!("metadata.name={POOL}"));
        let pool = self.pools.list(&named).await?.items.pop().context("the pool is gone")?;
        let pods = self.pods.list(&ListParams::default()).await?.items;
        let nodes =
            self.nodes.list(&ListParams::default().labels(&node_selector(NAMESPACE, POOL))).await?.items;
        let leaving = |node: &&Node| {
            node.metadata.deletion_timestamp.is_some()
                || node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true))
        };
        let alive = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
        let phase =
            |pod: &Pod, wanted: &str| pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some(wanted);
        let status = pool.status.unwrap_or_default();
        Ok(ClusterState {
            pending: alive.clone().filter(|pod| phase(pod, "Pending")).count(),
            running: alive.filter(|pod| phase(pod, "Running")).count(),
            desired: pool.spec.replicas,
            nodes: nodes.len(),
            ready: nodes.iter().filter(|node| is_ready(node)).count(),
            leaving: nodes.iter().filter(leaving).count(),
            generation: pool.metadata.generation.unwrap_or_default(),
            resource_version: pool.metadata.resource_version.unwrap_or_default(),
            reported_ready: status.ready_replicas.unwrap_or_default(),
        })
    }
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|c| c.type_ == "Ready" && c.status == "True"))
}
