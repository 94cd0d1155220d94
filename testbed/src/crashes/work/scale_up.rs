//! A pool that is new, and then grows.

use anyhow::Result;
use serde_json::json;

use crate::crashes::crashable::Crashable;

pub(super) async fn carry_out(test: &Crashable, pool: &str) -> Result<()> {
    test.pool(pool, &json!({"minReplicas": 2})).await?;
    test.env.settles(pool, 2).await?;
    test.env.patch_pool(pool, &json!({"replicas": 4})).await?;
    test.env.settles(pool, 4).await?;
    test.env.says(pool, "Ready", ("True", "AllNodesReady", "")).await
}
