//! The work during which the operator is killed, and the writes that it consists of.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use shared_crds::names::{DRAIN_WAITS_ANNOTATION, OUT_OF_SERVICE_TAINT};
use testbed::nodes_over_time::NodesOverTime;
use testbed::objects;
use testbed::test_env::PATIENCE;
use testbed::wait::eventually;

use super::super::repairs::set_silent;
use super::{Crashable, Source};

const STATUS: &str = "PATCH nodepools/status";
/// Makes a Node a node of the pool.
const JOIN: &str = "PATCH nodes finalizers machine nodepool nodepool-namespace note pool provider template-applied template-hash";
const READY: &str = "PATCH nodes ready-time";
const BEGIN_DRAIN: &str = "PATCH nodes disruption-reason drain-start-time exclude-from-external-load-balancers taints unschedulable";
/// The same of a Node that is deleted to be repaired, for which [`NOTE_CAUSE`] came before.
const BEGIN_DRAIN_OF_DELETED: &str =
    "PATCH nodes drain-start-time exclude-from-external-load-balancers taints unschedulable";
const NOTE_CAUSE: &str = "PATCH nodes disruption-reason";
const EVICT: &str = "POST pods/eviction";
const DELETE: &str = "DELETE nodes";
/// Takes the finalizer off a Node.
const RELEASE: &str = "PATCH nodes finalizers";

/// Work on a pool.
pub(super) trait Work {
    /// Makes what is there before the operator is killed.
    async fn prepare(&self, test: &Crashable, pool: &str) -> Result<()>;

    /// Does the work, and waits for its effects.
    async fn carry_out(&self, test: &Crashable, pool: &str) -> Result<()>;

    /// The writes that it takes, and how many of each at least.
    fn writes(&self, source: Source) -> Vec<(&'static str, usize)>;
}

/// The writes that `nodes` new nodes take.
fn comes(source: Source, nodes: usize) -> Vec<(&'static str, usize)> {
    match source {
        Source::Operator => vec![("POST nodes", nodes), (READY, nodes)],
        Source::Kubelets => vec![("machine create", nodes), (JOIN, nodes), (READY, nodes)],
    }
}

/// The writes that `nodes` nodes with a pod each take to go.
fn goes(source: Source, nodes: usize) -> Vec<(&'static str, usize)> {
    [(BEGIN_DRAIN, nodes)].into_iter().chain(goes_on(source, nodes)).collect()
}

/// The same without the first one.
fn goes_on(source: Source, nodes: usize) -> Vec<(&'static str, usize)> {
    let mut writes = vec![(EVICT, nodes), (DELETE, nodes), (RELEASE, nodes)];
    writes.extend((source == Source::Kubelets).then_some(("machine delete", nodes)));
    writes
}

/// A pool that is new, and then grows.
pub(super) struct ScaleUp;

impl Work for ScaleUp {
    async fn prepare(&self, _: &Crashable, _: &str) -> Result<()> {
        Ok(())
    }

    async fn carry_out(&self, test: &Crashable, pool: &str) -> Result<()> {
        test.pool(pool, &json!({"minReplicas": 2})).await?;
        test.env.settles(pool, 2).await?;
        test.env.patch_pool(pool, &json!({"replicas": 4})).await?;
        test.env.settles(pool, 4).await?;
        test.env.says(pool, "Ready", ("True", "AllNodesReady", "")).await
    }

    fn writes(&self, source: Source) -> Vec<(&'static str, usize)> {
        let of_pool = [("PATCH nodepools finalizers", 1), ("PATCH nodepools replicas", 1), (STATUS, 2)];
        of_pool.into_iter().chain(comes(source, 4)).collect()
    }
}

/// One node of two goes when the disruption budget of its pod allows it.
pub(super) struct Drain;

impl Work for Drain {
    async fn prepare(&self, test: &Crashable, pool: &str) -> Result<()> {
        test.pool(pool, &json!({"replicas": 2})).await?;
        test.env.settles(pool, 2).await?;
        // One pod fits on a node, and none may go.
        test.env.create(&objects::deployment(pool, pool, 2, "3")).await?;
        test.budget(pool, 2).await?;
        test.running(pool, 2).await
    }

    async fn carry_out(&self, test: &Crashable, pool: &str) -> Result<()> {
        test.env.patch_pool(pool, &json!({"replicas": 1})).await?;
        eventually(PATIENCE, "a node says what it waits for", async || {
            let nodes = test.env.nodes(pool).await?;
            let waits = nodes.iter().find_map(|node| node.annotations().get(DRAIN_WAITS_ANNOTATION));
            ensure!(waits.context("no annotation")?.contains("disruption budget"), "{waits:?}");
            Ok(Some(()))
        })
        .await?;
        test.env.says(pool, "Reconciling", ("True", "DrainBlocked", "")).await?;
        let freed = r#"{"spec": {"minAvailable": 1}}"#;
        test.env.kubectl(&["patch", "pdb", pool, "--type=merge", "-p", freed]).await?;
        test.env.settles(pool, 1).await?;
        test.env.kubectl(&["scale", &format!("deployment/{pool}"), "--replicas=1"]).await?;
        test.running(pool, 1).await?;
        test.env.says(pool, "Ready", ("True", "AllNodesReady", "")).await
    }

    fn writes(&self, source: Source) -> Vec<(&'static str, usize)> {
        let blocked = [("PATCH nodes drain-waits-for", 1), (STATUS, 2)];
        blocked.into_iter().chain(goes(source, 1)).collect()
    }
}

/// A node whose kubelet is dead is replaced, and its pod given up, which nobody else does.
pub(super) struct Repair;

/// Keeps a pod of a dead node: kwok ends the others, as if their kubelet lived.
const HELD: &str = "example.invalid/held";

impl Repair {
    async fn hold(&self, test: &Crashable, pod: &str, finalizers: Value) -> Result<Pod> {
        let finalizers = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
        Ok(test.env.api::<Pod>().patch(pod, &PatchParams::default(), &finalizers).await?)
    }
}

impl Work for Repair {
    async fn prepare(&self, test: &Crashable, pool: &str) -> Result<()> {
        let silent = json!({"conditions": [{"type": "Ready", "status": "Unknown", "seconds": 3}]});
        test.pool(pool, &json!({"replicas": 2, "repair": silent})).await?;
        test.env.settles(pool, 2).await?;
        let database: StatefulSet = serde_json::from_value(json!({
            "metadata": {"name": pool},
            "spec": {
                "replicas": 1,
                "serviceName": pool,
                "selector": {"matchLabels": {"app": pool}},
                "template": {
                    "metadata": {"labels": {"app": pool}},
                    "spec": {
                        "nodeSelector": {"pool": pool},
                        "containers": [{"name": "db", "image": "example.invalid/db"}],
                    },
                },
            },
        }))?;
        test.env.create(&database).await?;
        test.running(pool, 1).await
    }

    async fn carry_out(&self, test: &Crashable, pool: &str) -> Result<()> {
        let name = format!("{pool}-0");
        let before = self.hold(test, &name, json!([HELD])).await?;
        let dead = before.spec.as_ref().and_then(|spec| spec.node_name.clone()).context("no node")?;
        set_silent(&test.env, &dead, true).await;
        eventually(PATIENCE, "the machine is said to be off", async || {
            let node = Api::<Node>::all(test.env.client.clone()).get(&dead).await?;
            let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
            ensure!(taints.any(|taint| taint.key == OUT_OF_SERVICE_TAINT), "{:?}", node.spec);
            Ok(Some(()))
        })
        .await?;
        self.hold(test, &name, json!(null)).await?;
        eventually(PATIENCE, "the pod is another one", async || {
            let pod = test.env.api::<Pod>().get_opt(&name).await?.context("no pod")?;
            Ok((pod.uid() != before.uid()).then_some(()))
        })
        .await?;
        test.running(pool, 1).await?;
        test.env.settles(pool, 2).await?;
        test.env.says(pool, "Ready", ("True", "AllNodesReady", "")).await
    }

    fn writes(&self, source: Source) -> Vec<(&'static str, usize)> {
        let given_up = [(NOTE_CAUSE, 1), (BEGIN_DRAIN_OF_DELETED, 1), ("PATCH nodes taints", 1), (STATUS, 2)];
        given_up.into_iter().chain(goes_on(source, 1)).chain(comes(source, 1)).collect()
    }
}

/// Three nodes are replaced, one after the other.
pub(super) struct Rollout;

impl Work for Rollout {
    async fn prepare(&self, test: &Crashable, pool: &str) -> Result<()> {
        test.pool(pool, &json!({"replicas": 3})).await?;
        test.env.settles(pool, 3).await?;
        test.env.create(&objects::deployment(pool, pool, 3, "3")).await?;
        test.budget(pool, 2).await?;
        test.running(pool, 3).await
    }

    async fn carry_out(&self, test: &Crashable, pool: &str) -> Result<()> {
        let recording = NodesOverTime::begin(&test.env, pool).await?;
        let before: Vec<_> = test.env.nodes(pool).await?.iter().map(Node::uid).collect();
        test.env.patch_pool(pool, &json!({"template": {"spec": {"capacity": {"cpu": "6"}}}})).await?;
        eventually(PATIENCE, "every node is another one", async || {
            let nodes = test.env.nodes(pool).await?;
            let left = nodes.iter().filter(|node| before.contains(&node.uid())).count();
            ensure!(left == 0, "{left} are left");
            Ok(Some(()))
        })
        .await?;
        test.env.settles(pool, 3).await?;
        test.env.says(pool, "RollingOut", ("False", "UpToDate", "")).await?;
        test.env.says(pool, "Ready", ("True", "AllNodesReady", "")).await?;
        test.running(pool, 3).await?;
        let counts = recording.end().await?;
        let most = counts.iter().map(|count| count.all).max();
        let least = counts.iter().map(|count| count.ready).min();
        let is_within = (most, least) == (Some(4), Some(3));
        ensure!(is_within, "one more than wanted, and never one less: {counts:?}");
        Ok(())
    }

    fn writes(&self, source: Source) -> Vec<(&'static str, usize)> {
        [(STATUS, 2)].into_iter().chain(goes(source, 3)).chain(comes(source, 3)).collect()
    }
}
