//! One round of one autoscaler: it starts, the pods come, the pods go, it stops. What it used meanwhile is measured.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde::Serialize;
use serde_json::json;
use testbed::audit::AuditLog;
use testbed::cluster::{Cluster, TestNamespace};
use tokio::time::Instant;

use super::autoscaler::{Autoscaler, Installed, Running, nothing_is_left};
use super::objects::{self, NAME};
use super::requests::Requests;
use super::watched::{Seen, Watched};
use crate::numbers::rounded;

/// How long each step may take.
const PATIENCE: Duration = Duration::from_secs(300);
/// Before and after each phase: an autoscaler that has nothing to do any more still writes what it has to report. What it uses
/// in the rest after a phase belongs to the phase.
pub(crate) const REST: Duration = Duration::from_secs(10);

/// One way: pods come, or pods go.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Phase {
    /// Until all pods run, or until the last node is gone.
    pub(crate) seconds: f64,
    pub(crate) requests: Requests,
    /// Processor time of the autoscaler's processes, in user and kernel mode.
    pub(crate) cpu_seconds: f64,
}

/// The memory of a process.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Memory {
    pub(crate) name: &'static str,
    /// The most that was ever resident, from its start on.
    #[serde(rename = "peakRssMiB")]
    pub(crate) peak_mib: f64,
}

/// What was measured in a round.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Round {
    #[serde(rename = "round")]
    pub(crate) number: usize,
    pub(crate) autoscaler: &'static str,
    pub(crate) pods: usize,
    /// When all pods ran.
    pub(crate) nodes: usize,
    /// Until all pods existed, which no autoscaler has a part in.
    pub(crate) created_seconds: f64,
    pub(crate) up: Phase,
    pub(crate) down: Phase,
    pub(crate) processes: Vec<Memory>,
}

/// What a round needs.
pub(crate) struct Setting<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) installed: &'a Installed,
    pub(crate) pods: usize,
}

impl Setting<'_> {
    /// Plays a round of `which`.
    pub(crate) async fn play(&self, number: usize, which: Autoscaler) -> Result<Round> {
        nothing_is_left(self.cluster).await.context("before it starts")?;
        let namespace = self.cluster.namespace(NAME).await?;
        let running = self.installed.start(self.cluster, which).await?;
        let played = self.measure(number, &running, namespace).await;
        let played =
            played.map_err(|error| error.context(format!("the logs end with\n{}", running.log_tails())))?;
        running.stop().await?;
        Ok(played)
    }

    async fn measure(&self, number: usize, running: &Running, namespace: TestNamespace) -> Result<Round> {
        let Self { cluster, installed: _, pods } = *self;
        let client = cluster.client().await?;
        // No pool is so small that it would limit the autoscaler: at worst each pod has a node of its own.
        running.make_pool(cluster, namespace.name(), pods).await?;
        let mut watched = Watched::open(&client, namespace.name());
        let deployments = Api::<Deployment>::namespaced(client.clone(), namespace.name());
        let log = cluster.audit_log().context("no audit log")?;
        tokio::time::sleep(REST).await;

        let meter = Meter::start(running, &log)?;
        let object = serde_json::from_value(objects::deployment(pods))?;
        deployments.create(&PostParams::default(), &object).await.context("cannot create the pods")?;
        let created = watched.wait_for("all pods exist", PATIENCE, |seen| seen.pods == pods).await?;
        let run = watched.wait_for("all pods run", PATIENCE, |seen| seen.running == pods).await?;
        let created_seconds = meter.seconds_until(created);
        let up = meter.stop(running, run).await?;
        let Seen { at: _, pods: _, running: still, nodes } = watched.now();
        ensure!(still == pods, "all {pods} pods ran, and {REST:?} later {still} do");
        objects::check_size(&nodes_of(&client).await?)?;

        let meter = Meter::start(running, &log)?;
        let none = Patch::Merge(json!({"spec": {"replicas": 0}}));
        deployments
            .patch(NAME, &PatchParams::default(), &none)
            .await
            .context("cannot scale the pods down")?;
        let gone = |seen: &Seen| seen.pods == 0 && seen.nodes == 0;
        let gone = watched.wait_for("all pods and nodes are gone", PATIENCE, gone).await?;
        let down = meter.stop(running, gone).await?;

        running.check_alive()?;
        let memory = |(name, mib)| Memory { name, peak_mib: rounded(mib, 10.0) };
        let processes = running.peaks()?.into_iter().map(memory).collect();
        running.delete_pool(cluster, namespace.name()).await?;
        namespace.delete(PATIENCE).await?;
        nothing_is_left(cluster).await?;
        let autoscaler = running.which.name();
        Ok(Round { number, autoscaler, pods, nodes, created_seconds, up, down, processes })
    }
}

async fn nodes_of(client: &Client) -> Result<Vec<Node>> {
    Ok(Api::<Node>::all(client.clone()).list(&ListParams::default()).await?.items)
}

/// What has been used at the beginning of a phase.
struct Meter<'a> {
    log: &'a AuditLog,
    start: Instant,
    offset: u64,
    cpu_seconds: f64,
}

impl<'a> Meter<'a> {
    fn start(running: &Running, log: &'a AuditLog) -> Result<Self> {
        running.check_alive()?;
        let (offset, cpu_seconds) = (log.end()?, running.cpu_seconds()?);
        Ok(Self { log, offset, cpu_seconds, start: Instant::now() })
    }

    /// To a tenth.
    fn seconds_until(&self, end: Instant) -> f64 {
        rounded(end.duration_since(self.start).as_secs_f64(), 10.0)
    }

    /// The phase that ended at `end`; [`REST`] passes first.
    async fn stop(self, running: &Running, end: Instant) -> Result<Phase> {
        tokio::time::sleep_until(end + REST).await;
        running.check_alive()?;
        let cpu_seconds = rounded(running.cpu_seconds()? - self.cpu_seconds, 100.0);
        let events = self.log.follow_from(self.offset).read_new()?;
        let requests = Requests::of(&events, &running.which.users());
        ensure!(requests.all > 0, "no request of {:?} is in the audit log", running.which.users());
        Ok(Phase { seconds: self.seconds_until(end), requests, cpu_seconds })
    }
}
