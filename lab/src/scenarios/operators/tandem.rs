//! Tandem in a scenario: the chart is installed, both operators run, and all of it is removed however the scenario ends.

use anyhow::{Context as _, Error, Result, anyhow, bail};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::ListParams;
use shared_crds::NodePool;
use shared_crds::names::node_selector;
use testbed::audit::{AuditLog, Event, ObjectKey};
use testbed::tandem::{Release, RunningOperators};
use testbed::test_env::{RELEASE_NAMESPACE, is_ready};
use testbed::wait::eventually;

use crate::context::{PATIENCE, ScenarioContext};

/// Both operators, for the scenario's namespace.
pub(super) struct Tandem<'a> {
    /// The scenario's context.
    pub(super) ctx: &'a ScenarioContext,
    /// The operators' processes.
    pub(super) operators: RunningOperators,
    release: Release,
    audit: AuditLog,
    log_start: u64,
}

impl<'a> Tandem<'a> {
    /// Installs the chart, with `strategy` for its `writeStrategy`, and starts both operators.
    pub(super) async fn begin(ctx: &'a ScenarioContext, strategy: &str) -> Result<Self> {
        Self::begin_with(ctx, &[&format!("writeStrategy={strategy}")]).await
    }

    /// Installs the chart with these `values` (`key=value`), and starts both operators.
    pub(super) async fn begin_with(ctx: &'a ScenarioContext, values: &[&str]) -> Result<Self> {
        let cluster = &ctx.cluster;
        let audit = cluster.audit_log().context("this cluster's audit log is not ours to read")?;
        let log_start = audit.end()?;
        // Names of nodes are in the transcripts, so they are the same in every cluster.
        let values: Vec<String> =
            values.iter().map(ToString::to_string).chain(["clusterId=lab".to_owned()]).collect();
        let release = Release::named(RELEASE_NAMESPACE);
        let starting = async {
            Release::install(cluster, RELEASE_NAMESPACE, &values).await?;
            release.start(cluster).await
        };
        match starting.await {
            Ok(operators) => Ok(Self { ctx, operators, release, audit, log_start }),
            Err(error) => {
                // The error of the start is the one that matters.
                release.uninstall(cluster).await.ok();
                Err(error)
            }
        }
    }

    /// Deletes the objects in the namespace while the operators still run to drain the nodes, then stops the operators.
    /// Returns `played`; the release stays, for another [`Self::begin`].
    pub(super) async fn rest<T>(self, played: Result<T>) -> Result<T> {
        self.close(played).await.0
    }

    /// Like [`Self::rest`], and removes the release.
    pub(super) async fn end<T>(self, played: Result<T>) -> Result<T> {
        let cluster = std::sync::Arc::clone(&self.ctx.cluster);
        let (played, release) = self.close(played).await;
        let removed = release.uninstall(&cluster).await;
        let played = played?;
        removed?;
        Ok(played)
    }

    async fn close<T>(self, played: Result<T>) -> (Result<T>, Release) {
        let played = played.map_err(|error| self.with_logs(&error));
        let cleared = self.clear().await;
        let stopped = self.operators.stop().await;
        (played.and_then(|done| cleared.and(stopped).map(|()| done)), self.release)
    }

    async fn clear(&self) -> Result<()> {
        let kinds = "deployments,nodepoolautoscalers,nodepools";
        self.kubectl(&["delete", kinds, "--all", "--wait", "--timeout=90s"]).await.map(drop)
    }

    fn with_logs(&self, error: &Error) -> Error {
        let (pools, scaler) = (self.operators.node_pool.log_tail(), self.operators.autoscaler.log_tail());
        anyhow!("{error:#}\nthe operators' logs end with\n{pools}\n{scaler}")
    }

    /// Runs kubectl in the scenario's namespace.
    pub(super) async fn kubectl(&self, args: &[&str]) -> Result<String> {
        let all: Vec<&str> =
            ["--namespace", self.ctx.namespace()].into_iter().chain(args.iter().copied()).collect();
        self.ctx.cluster.kubectl(&all).await
    }

    /// Waits until a pool's spec has `wanted` nodes, they exist, all Ready, and the status reports it.
    pub(super) async fn settles(&self, pool: &str, wanted: i32) -> Result<NodePool> {
        eventually(PATIENCE, &format!("pool {pool} has {wanted} ready nodes"), || async {
            self.operators.keep_alive().await?;
            let (object, nodes) = (self.ctx.stored::<NodePool>(pool).await?, self.nodes(pool).await?);
            let ready = nodes.iter().filter(|node| is_ready(node)).count();
            let status = object.status.clone().unwrap_or_default();
            let reported = (status.replicas, status.ready_replicas, status.observed_generation);
            let count = usize::try_from(wanted)?;
            if (nodes.len(), ready) == (count, count)
                && reported == (Some(wanted), Some(wanted), object.metadata.generation)
                && object.spec.replicas == Some(wanted)
            {
                return Ok(Some(object));
            }
            bail!("{ready} of {} nodes ready, spec.replicas {:?}", nodes.len(), object.spec.replicas)
        })
        .await
    }

    /// A pool's current nodes.
    pub(super) async fn nodes(&self, pool: &str) -> Result<Vec<Node>> {
        let nodes = Api::<Node>::all(self.ctx.unrecorded_client().await?);
        let of_pool = ListParams::default().labels(&node_selector(self.ctx.namespace(), pool));
        Ok(nodes.list(&of_pool).await?.items)
    }

    /// Waits until exactly `wanted` pods exist, and all run.
    pub(super) async fn pods_run(&self, wanted: usize) -> Result<()> {
        let pods = Api::<Pod>::namespaced(self.ctx.unrecorded_client().await?, self.ctx.namespace());
        eventually(PATIENCE, &format!("{wanted} pods run"), || async {
            let found = pods.list(&ListParams::default()).await?.items;
            let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
            let running = found.iter().filter(|pod| phase(pod).as_deref() == Some("Running")).count();
            if (running, found.len()) == (wanted, wanted) {
                return Ok(Some(()));
            }
            bail!("{running} of {} run", found.len())
        })
        .await
    }

    /// The key of a pool in the audit log.
    pub(super) fn key(&self, pool: &str) -> ObjectKey {
        ObjectKey::node_pool(self.ctx.namespace(), pool)
    }

    /// The audit events since the beginning, at least up to the current version of `pool`.
    pub(super) async fn events(&self, pool: &str) -> Result<Vec<Event>> {
        let version = self.ctx.stored::<NodePool>(pool).await?.metadata.resource_version;
        let last: u64 = version.context("no version")?.parse()?;
        let key = self.key(pool);
        let what = format!("the audit log holds version {last} of {pool}");
        let found = |events: &[Event]| {
            let of_pool = events.iter().filter(|event| event.object.as_ref() == Some(&key));
            (of_pool.filter_map(Event::version).max() >= Some(last)).then(|| events.to_vec())
        };
        self.audit.wait_for(self.log_start, PATIENCE, &what, found).await
    }

    /// The audit events since the beginning.
    pub(super) fn events_so_far(&self) -> Result<Vec<Event>> {
        self.audit.follow_from(self.log_start).read_new()
    }
}

/// Whether the check passed; shows its error live if it did not.
pub(super) fn passed(ctx: &ScenarioContext, held: &Result<()>) -> bool {
    if let Err(error) = held {
        ctx.live_quote(&format!("{error:#}"));
    }
    held.is_ok()
}
