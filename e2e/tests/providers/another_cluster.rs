//! Two clusters with a pool of one namespace and name, and one back end for the machines of both.

#![expect(clippy::unwrap_used, reason = "a test says so by panicking")]

use anyhow::{Result, ensure};
use kube::api::{DeleteParams, ListParams};
use serde_json::json;
use shared_crds::NodePool;
use testbed::machines::{Machines, PROGRAM};
use testbed::test_env::{PATIENCE, TestEnv};
use testbed::wait::eventually;

use super::exec::{begin, pool_of};

/// Deletes the pool, and waits until it is gone and these machines are left.
async fn deleted(env: &TestEnv, machines: &Machines, left: &[String]) {
    env.api::<NodePool>().delete("racks", &DeleteParams::default()).await.unwrap();
    eventually(PATIENCE, "the pool is gone with its own machines", async || {
        let (pools, there) =
            (env.api::<NodePool>().list(&ListParams::default()).await?.items, machines.names()?);
        ensure!(pools.is_empty() && there == left, "{} pools, {there:?}", pools.len());
        Ok(Some(()))
    })
    .await
    .unwrap();
}

/// Ends the test after these machines of others were taken away.
async fn end(env: TestEnv, machines: Machines, foreign: &[String]) {
    for name in foreign {
        machines.remove(&env, "racks", name).unwrap();
    }
    env.end().await.unwrap();
}

async fn settles_with(env: &TestEnv, machines: &Machines, replicas: i32, all: usize) -> Result<()> {
    env.settles("racks", replicas).await?;
    eventually(PATIENCE, "as many machines as there should be", async || {
        let there = machines.names()?;
        ensure!(there.len() == all, "{there:?}");
        Ok(Some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_of_another_cluster_are_left_alone_with_a_pool_of_the_same_name() {
    let (env, machines) = begin("exec-clusters").await;
    let mut foreign: Vec<String> = (0..4).map(|slot| format!("racks-11111-{slot}")).collect();
    for name in &foreign {
        machines.add_elsewhere(&env, "racks", name, Some("another")).unwrap();
    }
    // A program that records no cluster: the name says that it is not this one's.
    foreign.push("racks-00000-0".to_owned());
    machines.add_elsewhere(&env, "racks", &foreign[4], None).unwrap();
    foreign.sort();
    env.create(&pool_of(PROGRAM, "racks", 2)).await.unwrap();
    settles_with(&env, &machines, 2, 7).await.unwrap();
    env.patch_pool("racks", &json!({"replicas": 3})).await.unwrap();
    settles_with(&env, &machines, 3, 8).await.unwrap();
    env.patch_pool("racks", &json!({"replicas": 1})).await.unwrap();
    settles_with(&env, &machines, 1, 6).await.unwrap();
    deleted(&env, &machines, &foreign).await;
    end(env, machines, &foreign).await;
}
