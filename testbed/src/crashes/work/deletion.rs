//! A pool is deleted, and goes with its nodes when the disruption budget of their pods allows it. The pods' Deployment stays, so
//! others come, and wait for a node.

use anyhow::Result;
use kube::api::DeleteParams;
use serde_json::json;
use shared_crds::NodePool;

use super::drain;
use crate::crashes::crashable::Crashable;
use crate::objects;
use crate::test_env::PATIENCE;
use crate::wait::eventually;

/// Nodes of the pool. One pod fits on each, and none may go.
const NODES: i32 = 2;

pub(super) async fn prepare(test: &Crashable, pool: &str) -> Result<()> {
    // All at a time: otherwise one would leave after the other.
    let budgets = json!({"budgets": [{"nodes": NODES}]});
    test.pool(pool, &json!({"replicas": NODES, "disruption": budgets})).await?;
    test.env.settles(pool, NODES).await?;
    test.env.create(&objects::deployment(pool, pool, NODES, "3")).await?;
    test.budget(pool, NODES).await?;
    test.running(pool, usize::try_from(NODES)?).await
}

pub(super) async fn carry_out(test: &Crashable, pool: &str) -> Result<()> {
    let _ = test.env.api::<NodePool>().delete(pool, &DeleteParams::default()).await?;
    drain::wait_for_the_budget(test, pool, usize::try_from(NODES)?).await?;
    test.budget_becomes(pool, 0).await?;
    eventually(PATIENCE, &format!("there is no {pool}, no node and no machine of it"), async || {
        test.env.operators.keep_alive().await?;
        test.state(pool).await?.check_gone()?;
        Ok(Some(()))
    })
    .await
}
