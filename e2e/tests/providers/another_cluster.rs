//! Two clusters with a pool of one namespace and name, and one back end for the machines of both.

#![expect(clippy::unwrap_used, reason = "a test says so by panicking")]

use std::hash::Hasher as _;

use anyhow::{Result, ensure};
use fnv::FnvHasher;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;
use shared_crds::NodePool;
use shared_crds::names::MACHINE_LABEL;
use testbed::machines::{Machines, PROGRAM};
use testbed::test_env::{PATIENCE, TestEnv};
use testbed::wait::eventually;

use super::exec::{begin, pool_of};

/// The name that version 0.1 gave the machine of this slot, in every cluster.
fn name_of_old(env: &TestEnv, slot: usize) -> String {
    let mut hasher = FnvHasher::default();
    hasher.write(format!("{}/racks", env.namespace()).as_bytes());
    let mut rest = hasher.finish();
    let mut hash = String::new();
    for _ in 0..5 {
        hash.extend(char::from_digit(u32::try_from(rest % 36).unwrap(), 36));
        rest /= 36;
    }
    format!("racks-{hash}-{slot}")
}

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
    let mut foreign: Vec<String> = (0..4).map(|slot| name_of_old(&env, slot)).collect();
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

#[tokio::test(flavor = "multi_thread")]
async fn machines_that_may_be_another_clusters_stop_a_new_pool_until_it_is_known_whose_they_are() {
    let (env, machines) = begin("exec-unknown").await;
    let mut unknown: Vec<String> = (0..20).map(|slot| name_of_old(&env, slot)).collect();
    unknown.sort();
    for name in &unknown {
        machines.add_elsewhere(&env, "racks", name, None).unwrap();
    }
    env.create(&pool_of(PROGRAM, "racks", 1)).await.unwrap();
    let text = "20 of the provider's machines carry no cluster and have no Node here";
    env.says("racks", "Stalled", ("True", "TooManyMachines", text)).await.unwrap();
    assert_eq!(machines.names().unwrap(), unknown);
    for name in &unknown {
        machines.add_elsewhere(&env, "racks", name, Some("another")).unwrap();
    }
    // A change of the pool has its machines listed at once.
    env.patch_pool("racks", &json!({"replicas": 2})).await.unwrap();
    settles_with(&env, &machines, 2, 22).await.unwrap();
    deleted(&env, &machines, &unknown).await;
    end(env, machines, &unknown).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_from_before_becomes_a_node_under_its_name_and_goes_with_its_pool() {
    let (env, machines) = begin("exec-adopted").await;
    let old = name_of_old(&env, 0);
    machines.add(&env, "racks", &old).unwrap();
    env.create(&pool_of(PROGRAM, "racks", 2)).await.unwrap();
    settles_with(&env, &machines, 2, 2).await.unwrap();
    let nodes = env.nodes("racks").await.unwrap();
    let is_old = |node: &&k8s_openapi::api::core::v1::Node| {
        node.metadata.labels.as_ref().unwrap()[MACHINE_LABEL] == old
    };
    assert_eq!((nodes.iter().filter(is_old).count(), machines.names().unwrap().contains(&old)), (1, true));
    deleted(&env, &machines, &[]).await;
    end(env, machines, &[]).await;
}
