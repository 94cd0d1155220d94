//! The environment of one end-to-end test: a control plane for its exclusive use, the chart, both operators, and a
//! namespace.

use anyhow::{Context as _, Result, bail, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use shared_crds::NodePool;
use shared_crds::names::node_selector;

use crate::audit::{AuditLog, Event, ObjectKey};
use crate::cluster::{Cluster, TestNamespace};
use crate::places::{ControlPlanePlace, ORDINARY, Places};
use crate::tandem::{Release, RunningOperators};
use crate::wait::eventually;

pub use crate::wait::{EXITS, PATIENCE};

/// Namespace of the release; the tests on a control plane share it, one after the other.
pub const RELEASE_NAMESPACE: &str = "tandem-system";

/// The environment of one end-to-end test.
pub struct TestEnv {
    /// The control plane; always a private one, because its audit log is read.
    pub cluster: &'static Cluster,
    /// A client with all rights.
    pub client: Client,
    /// The chart's release.
    pub release: Release,
    /// Both operators.
    pub operators: RunningOperators,
    namespace: TestNamespace,
    log_start: u64,
    /// Dropped last: the next test here must not meet this one's operators.
    place: ControlPlanePlace,
}

impl TestEnv {
    /// Waits for its turn, installs the chart with `values` (`key=value`), starts both operators and creates a
    /// namespace.
    ///
    /// # Errors
    /// When one of these fails.
    pub async fn begin(prefix: &str, values: &[&str]) -> Result<Self> {
        Self::begin_at(&ORDINARY, prefix, values).await
    }

    /// Like [`TestEnv::begin`], on a control plane of another kind.
    ///
    /// # Errors
    /// Same as [`TestEnv::begin`].
    pub async fn begin_at(places: &'static Places, prefix: &str, values: &[&str]) -> Result<Self> {
        let values = values.iter().map(ToString::to_string).collect();
        Self::begin_with(places, prefix, async |_| Ok(values)).await
    }

    /// Like [`TestEnv::begin_at`], with values that depend on the control plane.
    ///
    /// # Errors
    /// Same as [`TestEnv::begin`], and those of `values`.
    pub async fn begin_with(
        places: &'static Places,
        prefix: &str,
        values: impl AsyncFnOnce(&'static Cluster) -> Result<Vec<String>>,
    ) -> Result<Self> {
        let place = places.take().await?;
        let cluster = place.cluster();
        let values = values(cluster).await?;
        let release = Release::install(cluster, RELEASE_NAMESPACE, &values).await?;
        let log_start = cluster.audit_log().context("no audit log")?.end()?;
        let namespace = cluster.namespace(prefix).await?;
        let operators = release.start(cluster).await?;
        Ok(Self { cluster, client: cluster.client().await?, release, operators, namespace, log_start, place })
    }

    /// Ends the test: deletes the namespace, and with it every pool and node, which proves that the drains end; then
    /// stops the operators, which must exit by themselves. Only after that another test gets the control plane.
    ///
    /// # Errors
    /// When an object or an operator does not go away.
    pub async fn end(self) -> Result<()> {
        let namespace = self.namespace.name().to_owned();
        if let Err(error) = self.namespace.delete(PATIENCE).await {
            let (pools, scaler) = (self.operators.node_pool.log_tail(), self.operators.autoscaler.log_tail());
            return Err(error.context(format!("the operators' logs end with\n{pools}\n{scaler}")));
        }
        let nodes = Api::<Node>::all(self.client);
        let label = format!("{}={namespace}", shared_crds::names::NODEPOOL_NAMESPACE_LABEL);
        let left = nodes.list(&ListParams::default().labels(&label)).await?.items.len();
        ensure!(left == 0, "{left} nodes of {namespace} are left");
        self.operators.stop().await?;
        self.place.mark_reusable();
        Ok(())
    }

    /// The namespace's name.
    pub fn namespace(&self) -> &str {
        self.namespace.name()
    }

    /// The API for the namespace's objects of a kind.
    pub fn api<K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), self.namespace.name())
    }

    /// Creates an object in the namespace.
    ///
    /// # Errors
    /// When the API server rejects it.
    pub async fn create<K>(&self, object: &K) -> Result<K>
    where
        K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + Serialize
            + DeserializeOwned
            + std::fmt::Debug,
    {
        Ok(self.api::<K>().create(&PostParams::default(), object).await?)
    }

    /// Runs kubectl in the namespace.
    ///
    /// # Errors
    /// kubectl's standard error.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        let all: Vec<&str> =
            ["--namespace", self.namespace.name()].into_iter().chain(args.iter().copied()).collect();
        self.cluster.kubectl(&all).await
    }

    /// Reads a pool.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn pool(&self, name: &str) -> Result<NodePool> {
        Ok(self.api::<NodePool>().get(name).await?)
    }

    /// Changes the spec of a pool by a merge patch.
    ///
    /// # Errors
    /// When the API server rejects it.
    pub async fn patch_pool(&self, name: &str, spec: &Value) -> Result<NodePool> {
        let patch = Patch::Merge(json!({ "spec": spec }));
        Ok(self.api::<NodePool>().patch(name, &PatchParams::default(), &patch).await?)
    }

    /// Whether a condition of a pool has this status, this reason (any if it is empty) and a message with this text.
    ///
    /// # Errors
    /// With what it says instead.
    pub async fn said(
        &self,
        pool: &str,
        condition: &str,
        (status, reason, text): (&str, &str, &str),
    ) -> Result<Option<()>> {
        let all = self.pool(pool).await?.status.unwrap_or_default().conditions;
        let found = all.iter().find(|it| it.type_ == condition);
        let found = found.with_context(|| format!("{pool} has no condition {condition}"))?;
        let is_so = found.status == status
            && (reason.is_empty() || found.reason == reason)
            && found.message.contains(text);
        ensure!(is_so, "{condition} is {} with {}: {}", found.status, found.reason, found.message);
        Ok(Some(()))
    }

    /// Waits until that is [`said`](Self::said).
    ///
    /// # Errors
    /// When it is not in time, with what is said last and the ends of both logs.
    pub async fn says(&self, pool: &str, condition: &str, expected: (&str, &str, &str)) -> Result<()> {
        let (status, reason, text) = expected;
        let what = format!("{condition} of {pool} is {status} with {reason}: …{text}…");
        let said = eventually(PATIENCE, &what, async || {
            self.operators.keep_alive().await?;
            self.said(pool, condition, expected).await
        });
        said.await.map_err(|error| self.with_logs(error))
    }

    /// Waits until the namespace has an event with each of these reasons: an operator publishes them beside its work, so
    /// one may come after what it tells.
    ///
    /// # Errors
    /// When one does not come in time, with the reasons that there are.
    pub async fn published(&self, reasons: &[&str]) -> Result<()> {
        eventually(PATIENCE, &format!("the events {reasons:?} are published"), async || {
            let found = self.kubectl(&["get", "events", "--output=jsonpath={.items[*].reason}"]).await?;
            let is_there = |reason: &&str| found.split_whitespace().any(|it| it == *reason);
            ensure!(reasons.iter().all(is_there), "there are {found}");
            Ok(Some(()))
        })
        .await
    }

    /// Reads a pool's nodes.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn nodes(&self, pool: &str) -> Result<Vec<Node>> {
        let selector = node_selector(self.namespace.name(), pool);
        Ok(Api::<Node>::all(self.client.clone()).list(&ListParams::default().labels(&selector)).await?.items)
    }

    /// Reports what the node lifecycle controller reports of a node whose kubelet is silent, or lets kwok simulate it again.
    ///
    /// # Errors
    /// When the node is not there.
    pub async fn set_silent(&self, node: &str, is_silent: bool) -> Result<()> {
        let nodes = Api::<Node>::all(self.client.clone());
        let simulated = if is_silent { json!(null) } else { json!("fake") };
        let simulation =
            Patch::Merge(json!({"metadata": {"annotations": {"kwok.x-k8s.io/node": simulated}}}));
        nodes.patch(node, &PatchParams::default(), &simulation).await?;
        let now = Timestamp::from_second(Timestamp::now().as_second())?.to_string();
        let status = if is_silent { "Unknown" } else { "True" };
        let condition = Patch::Strategic(json!({"status": {"conditions": [{
            "type": "Ready", "status": status, "reason": "NodeStatusUnknown", "message": "a test says so",
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        }]}}));
        nodes.patch_status(node, &PatchParams::default(), &condition).await?;
        Ok(())
    }

    /// Waits until a pool has `wanted` nodes, all Ready, none being removed, and reports this in its status.
    ///
    /// # Errors
    /// When it does not settle in time, with the last observed state and the ends of both logs.
    pub async fn settles(&self, pool: &str, wanted: i32) -> Result<NodePool> {
        let what = format!("pool {pool} has {wanted} ready nodes");
        let settled = eventually(PATIENCE, &what, async || {
            self.operators.keep_alive().await?;
            let (object, nodes) = (self.pool(pool).await?, self.nodes(pool).await?);
            let status = object.status.clone().unwrap_or_default();
            let ready = nodes.iter().filter(|node| is_ready(node)).count();
            let wanted_nodes = usize::try_from(wanted)?;
            let (current, reported) = (status.replicas.unwrap_or(0), status.ready_replicas.unwrap_or(0));
            let seen = status.observed_generation == object.metadata.generation;
            if nodes.len() == wanted_nodes
                && ready == wanted_nodes
                && current == wanted
                && reported == wanted
                && seen
            {
                return Ok(Some(object));
            }
            bail!(
                "{ready} of {} nodes ready, spec.replicas {:?}, status {}",
                nodes.len(),
                object.spec.replicas,
                serde_json::to_string(&status)?
            )
        });
        settled.await.map_err(|error| self.with_logs(error))
    }

    /// Adds the ends of both operators' logs to an error.
    pub(crate) fn with_logs(&self, error: anyhow::Error) -> anyhow::Error {
        let (pools, scaler) = (self.operators.node_pool.log_tail(), self.operators.autoscaler.log_tail());
        error.context(format!("the operators' logs end with\n{pools}\n{scaler}"))
    }

    /// Waits until `wanted` pods of the namespace are running.
    ///
    /// # Errors
    /// When they are not running in time.
    pub async fn pods_run(&self, wanted: usize) -> Result<()> {
        let what = format!("{wanted} pods run");
        let running = eventually(PATIENCE, &what, async || {
            let pods = self.api::<Pod>().list(&ListParams::default()).await?.items;
            let running = pods
                .iter()
                .filter(|pod| pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Running"));
            let running = running.count();
            if running == wanted && pods.len() == wanted {
                Ok(Some(()))
            } else {
                bail!("{running} of {} run", pods.len())
            }
        });
        running.await.map_err(|error| self.with_logs(error))
    }

    /// The audit log.
    ///
    /// # Errors
    /// Never on a private control plane.
    pub fn audit(&self) -> Result<AuditLog> {
        self.cluster.audit_log().context("no audit log")
    }

    /// The audit events since the test began, about the test's objects and cluster-scoped objects.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn events(&self) -> Result<Vec<Event>> {
        self.audit()?.follow_from(self.log_start).read_new()
    }

    /// The key of one of the test's pools in the audit log.
    pub fn key(&self, pool: &str) -> ObjectKey {
        ObjectKey::node_pool(self.namespace.name(), pool)
    }
}

/// Whether a node's kubelet, real or simulated, reports it Ready.
pub fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|c| c.type_ == "Ready" && c.status == "True"))
}
