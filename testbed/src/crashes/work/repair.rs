//! A node whose kubelet is dead is replaced, and its pod given up, which no other controller does.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use shared_crds::names::OUT_OF_SERVICE_TAINT;

use crate::crashes::crashable::Crashable;
use crate::test_env::PATIENCE;
use crate::wait::eventually;

/// Keeps a pod of a dead node: kwok ends the others, as if their kubelet lived.
const HELD: &str = "example.invalid/held";

pub(super) async fn prepare(test: &Crashable, pool: &str) -> Result<()> {
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

pub(super) async fn carry_out(test: &Crashable, pool: &str) -> Result<()> {
    let name = format!("{pool}-0");
    let before = hold(test, &name, json!([HELD])).await?;
    let dead = before.spec.as_ref().and_then(|spec| spec.node_name.clone()).context("no node")?;
    test.env.set_silent(&dead, true).await?;
    eventually(PATIENCE, "the machine is said to be off", async || {
        let node = Api::<Node>::all(test.env.client.clone()).get(&dead).await?;
        let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        ensure!(taints.any(|taint| taint.key == OUT_OF_SERVICE_TAINT), "{:?}", node.spec);
        Ok(Some(()))
    })
    .await?;
    hold(test, &name, json!(null)).await?;
    eventually(PATIENCE, "the pod is another one", async || {
        let pod = test.env.api::<Pod>().get_opt(&name).await?.context("no pod")?;
        Ok((pod.uid() != before.uid()).then_some(()))
    })
    .await?;
    test.running(pool, 1).await?;
    test.env.settles(pool, 2).await?;
    test.env.says(pool, "Ready", ("True", "AllNodesReady", "")).await
}

async fn hold(test: &Crashable, pod: &str, finalizers: Value) -> Result<Pod> {
    let finalizers = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    Ok(test.env.api::<Pod>().patch(pod, &PatchParams::default(), &finalizers).await?)
}
