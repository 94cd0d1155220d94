//! Three nodes are replaced, one after the other.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use serde_json::json;

use crate::crashes::crashable::Crashable;
use crate::nodes_over_time::NodesOverTime;
use crate::objects;
use crate::test_env::PATIENCE;
use crate::wait::eventually;

pub(super) async fn prepare(test: &Crashable, pool: &str) -> Result<()> {
    test.pool(pool, &json!({"replicas": 3})).await?;
    test.env.settles(pool, 3).await?;
    test.env.create(&objects::deployment(pool, pool, 3, "3")).await?;
    test.budget(pool, 2).await?;
    test.running(pool, 3).await
}

pub(super) async fn carry_out(test: &Crashable, pool: &str) -> Result<()> {
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
