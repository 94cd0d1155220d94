//! The operator that makes nodes is down: what a pool owes is capacity for as long as a node may take, and no longer.

use std::time::{Duration, Instant};

use anyhow::bail;
use k8s_openapi::api::apps::v1::Deployment;
use serde_json::json;
use shared_crds::NodePool;
use testbed::objects;
use testbed::test_env::{PATIENCE, TestEnv};
use testbed::wait::eventually;

/// How long a node of the first pool may take.
const MAY_TAKE: Duration = Duration::from_secs(8);

fn pool(name: &str) -> NodePool {
    let mut pool = objects::pool(name, 0, 5);
    pool.spec.template.metadata.as_mut().unwrap().labels = [("group".to_owned(), "both".to_owned())].into();
    pool
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_get_another_pool_when_the_nodes_that_one_owes_do_not_come() {
    let mut env = TestEnv::begin("owed", &[]).await.unwrap();
    env.operators.node_pool.kill_9().await.unwrap();
    let mut owing = pool("owing");
    owing.spec.replicas = Some(2);
    owing.spec.provisioning_timeout_seconds = i32::try_from(MAY_TAKE.as_secs()).unwrap();
    let begun = Instant::now();
    env.create(&owing).await.unwrap();
    env.create(&pool("other")).await.unwrap();
    env.create(&objects::autoscaler("all", 600)).await.unwrap();
    let mut deployment = serde_json::to_value(objects::deployment("web", "any", 1, "1")).unwrap();
    deployment["spec"]["template"]["spec"]["nodeSelector"] = json!({"group": "both"});
    env.create(&serde_json::from_value::<Deployment>(deployment).unwrap()).await.unwrap();

    eventually(PATIENCE, "the other pool is to have a node", async || {
        let (owing, other) = (env.pool("owing").await?, env.pool("other").await?);
        match (owing.spec.replicas, other.spec.replicas) {
            (Some(2), Some(1)) => Ok(Some(())),
            counts => bail!("{counts:?}"),
        }
    })
    .await
    .unwrap();
    assert!(begun.elapsed() >= MAY_TAKE, "after {:?}, it was still counted on", begun.elapsed());

    // What was owed is not forgotten.
    env.operators.node_pool.start_again().await.unwrap();
    env.settles("owing", 2).await.unwrap();
    env.settles("other", 1).await.unwrap();
    env.pods_run(1).await.unwrap();
    env.end().await.unwrap();
}
