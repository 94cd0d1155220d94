//! What the demo observes: the pool, its pods, nodes and machines, read again and again, and each change printed.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::{Api, Client};
use shared_crds::NodePool;
use shared_crds::names::node_selector;
use tokio::time::{Duration, Instant};

use super::Screen;
use super::machinery::MachineStates;
use super::names::{NAMESPACE, POOL};
use super::setup::{PATIENCE, Setup};
use crate::test_env::is_ready;

/// Interval between two reads.
const LOOK: Duration = Duration::from_millis(200);

/// The observed state at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClusterState {
    pending: usize,
    pub(super) running: usize,
    desired: Option<i32>,
    pub(super) nodes: usize,
    ready: usize,
    /// Cordoned, or being deleted.
    pub(super) leaving: usize,
    generation: i64,
    resource_version: String,
    reported_ready: i32,
    /// `None` where there are only Nodes.
    pub(super) machines: Option<MachineStates>,
}

impl ClusterState {
    /// Whether machines, nodes, wanted count and reported status agree, and no change is in progress.
    pub(super) fn settled(&self) -> bool {
        let desired = usize::try_from(self.desired.unwrap_or(0)).unwrap_or(0);
        let reported = usize::try_from(self.reported_ready).unwrap_or(usize::MAX);
        self.pending == 0
            && self.leaving == 0
            && self.nodes == desired
            && self.ready == desired
            && reported == desired
            && self.machines.as_ref().is_none_or(|machines| machines.len() == desired)
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
        if let (Some(machines), Some(before)) = (&self.machines, &before.machines)
            && tally(machines.values()) != tally(before.values())
        {
            let states = tally(machines.values());
            let states = if states.is_empty() { "none".to_owned() } else { states };
            screen.say("machines", &states);
        }
        if (self.nodes, self.ready, self.leaving) != (before.nodes, before.ready, before.leaving) {
            let leaving =
                if self.leaving > 0 { format!(", {} draining", self.leaving) } else { String::new() };
            screen.say("nodes", &format!("{} of {} ready{leaving}", self.ready, self.nodes));
        }
    }
}

/// Counts how often each word occurs, as in "Pending ×1, Running ×3".
pub(super) fn tally(words: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let mut counts = BTreeMap::<String, usize>::new();
    for word in words {
        *counts.entry(word.as_ref().to_owned()).or_default() += 1;
    }
    counts.iter().map(|(word, count)| format!("{word} ×{count}")).collect::<Vec<_>>().join(", ")
}

/// Reads the cluster repeatedly.
pub(super) struct StateReader {
    client: Client,
    pods: Api<Pod>,
    nodes: Api<Node>,
    pools: Api<NodePool>,
}

impl StateReader {
    pub(super) fn new(client: Client) -> Self {
        Self {
            pods: Api::namespaced(client.clone(), NAMESPACE),
            nodes: Api::all(client.clone()),
            pools: Api::namespaced(client.clone(), NAMESPACE),
            client,
        }
    }

    /// Prints every change until `done`, and returns the last state.
    pub(super) async fn watch(
        &self,
        screen: &Screen,
        setup: &Setup,
        what: &str,
        done: impl Fn(&ClusterState) -> bool,
    ) -> Result<ClusterState> {
        let deadline = Instant::now() + PATIENCE;
        let mut before = self.read(setup).await?;
        loop {
            let state = self.read(setup).await?;
            state.print_changes(&before, screen);
            if done(&state) {
                return Ok(state);
            }
            setup.keep_alive().await?;
            if Instant::now() > deadline {
                bail!("{what}: not within {PATIENCE:?}; last seen {state:?}\n{}", setup.log_tails());
            }
            before = state;
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn read(&self, setup: &Setup) -> Result<ClusterState> {
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
            machines: setup.machines(&self.client).await?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_settled_while_a_machine_is_left_or_missing() {
        let machine = |name: &str| (name.to_owned(), "Running".to_owned());
        let state = |names: &[&str]| ClusterState {
            desired: Some(1),
            nodes: 1,
            ready: 1,
            reported_ready: 1,
            machines: Some(names.iter().map(|name| machine(name)).collect()),
            ..ClusterState::default()
        };
        assert!(state(&["a"]).settled());
        assert!(!state(&["a", "b"]).settled());
        assert!(!state(&[]).settled());
        assert!(ClusterState { machines: None, ..state(&[]) }.settled(), "there are only Nodes");
    }

    #[test]
    fn words_are_counted_in_their_order() {
        assert_eq!(tally(["Running", "Pending", "Running"]), "Pending ×1, Running ×2");
        assert_eq!(tally(Vec::<String>::new()), "");
    }
}
