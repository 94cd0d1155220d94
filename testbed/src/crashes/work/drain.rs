//! One node of two goes when the disruption budget of its pod allows it.

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use serde_json::json;
use shared_crds::names::DRAIN_WAITS_ANNOTATION;

use crate::crashes::crashable::Crashable;
use crate::objects;
use crate::test_env::PATIENCE;
use crate::wait::eventually;

pub(super) async fn prepare(test: &Crashable, pool: &str) -> Result<()> {
    test.pool(pool, &json!({"replicas": 2})).await?;
    test.env.settles(pool, 2).await?;
    // One pod fits on a node, and none may go.
    test.env.create(&objects::deployment(pool, pool, 2, "3")).await?;
    test.budget(pool, 2).await?;
    test.running(pool, 2).await
}

pub(super) async fn carry_out(test: &Crashable, pool: &str) -> Result<()> {
    test.env.patch_pool(pool, &json!({"replicas": 1})).await?;
    wait_for_the_budget(test, pool, 1).await?;
    test.env.says(pool, "Reconciling", ("True", "DrainBlocked", "")).await?;
    test.budget_becomes(pool, 1).await?;
    test.env.settles(pool, 1).await?;
    test.env.kubectl(&["scale", &format!("deployment/{pool}"), "--replicas=1"]).await?;
    test.running(pool, 1).await?;
    test.env.says(pool, "Ready", ("True", "AllNodesReady", "")).await
}

/// Waits until this many nodes of `pool` say that they wait for a disruption budget.
pub(super) async fn wait_for_the_budget(test: &Crashable, pool: &str, waiting: usize) -> Result<()> {
    eventually(PATIENCE, &format!("{waiting} nodes say what they wait for"), async || {
        let nodes = test.env.nodes(pool).await?;
        let said: Vec<&String> =
            nodes.iter().filter_map(|node| node.annotations().get(DRAIN_WAITS_ANNOTATION)).collect();
        said.first().context("no annotation")?;
        let is_so = said.len() == waiting && said.iter().all(|said| said.contains("disruption budget"));
        ensure!(is_so, "{said:?}");
        Ok(Some(()))
    })
    .await
}
