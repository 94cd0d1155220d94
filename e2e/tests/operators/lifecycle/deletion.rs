//! A pool that is deleted: its nodes leave some at a time, or stay where they are, and a policy asks which of the two is meant.

use std::cell::Cell;
use std::collections::BTreeSet;

use anyhow::{bail, ensure};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::DeleteParams;
use kube::{Api, ResourceExt as _};
use serde_json::json;
use shared_crds::NodePool;
use shared_crds::names::{
    DRAIN_STARTED_ANNOTATION, NODE_FINALIZER, NODEPOOL_LABEL, NODEPOOL_NAMESPACE_LABEL, ON_DELETE_ANNOTATION,
    PROVIDER_LABEL, READY_TIME_ANNOTATION,
};
use testbed::objects;
use testbed::test_env::{PATIENCE, TestEnv};
use testbed::wait::eventually;

/// A pool of so many nodes, all Ready.
async fn pool_of(env: &TestEnv, name: &str, replicas: i32) {
    let mut pool = objects::pool(name, 0, 9);
    pool.spec.replicas = Some(replicas);
    env.create(&pool).await.unwrap();
    env.settles(name, replicas).await.unwrap();
}

async fn delete(env: &TestEnv, pool: &str) {
    let _ = env.api::<NodePool>().delete(pool, &DeleteParams::default()).await.unwrap();
}

/// The number of nodes of `pool` whose drain has begun and that are still there.
fn leaving(nodes: &[Node]) -> usize {
    nodes.iter().filter(|node| node.annotations().contains_key(DRAIN_STARTED_ANNOTATION)).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_nodes_of_a_deleted_pool_leave_one_after_the_other_and_the_pool_says_what_the_others_wait_for() {
    let env = TestEnv::begin("paced", &[]).await.unwrap();
    pool_of(&env, "paced", 3).await;
    let budget: PodDisruptionBudget = serde_json::from_value(json!({
        "metadata": {"name": "paced"},
        "spec": {"minAvailable": 3, "selector": {"matchLabels": {"app": "paced"}}},
    }))
    .unwrap();
    env.create(&budget).await.unwrap();
    // One pod fits on a node, so those that are evicted find no other one.
    env.create(&objects::deployment("paced", "paced", 3, "3")).await.unwrap();
    env.pods_run(3).await.unwrap();

    delete(&env, "paced").await;
    let why = "of a pool that is deleted 1 node leaves at a time";
    env.says("paced", "Reconciling", ("True", "DrainBlocked", why)).await.unwrap();
    env.says("paced", "Ready", ("False", "Deleting", "3 nodes left: 1 leaving now, 2 later")).await.unwrap();
    assert_eq!(leaving(&env.nodes("paced").await.unwrap()), 1);

    env.kubectl(&["delete", "pdb", "paced"]).await.unwrap();
    let (pools, most) = (env.api::<NodePool>(), Cell::new(0));
    eventually(PATIENCE, "the pool goes with its last node", async || {
        env.operators.keep_alive().await?;
        let nodes = env.nodes("paced").await?;
        most.set(most.get().max(leaving(&nodes)));
        ensure!(nodes.is_empty(), "{} nodes are left", nodes.len());
        ensure!(pools.get_opt("paced").await?.is_none(), "the pool is left");
        Ok(Some(()))
    })
    .await
    .unwrap();
    assert!(most.get() <= 1, "{} nodes left at a time", most.get());
    env.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_is_deleted_with_orphan_leaves_its_nodes_and_machines_where_they_are() {
    let env = TestEnv::begin("orphan", &[]).await.unwrap();
    pool_of(&env, "kept", 2).await;
    env.create(&objects::deployment("kept", "kept", 2, "3")).await.unwrap();
    env.pods_run(2).await.unwrap();
    let before: BTreeSet<_> = env.nodes("kept").await.unwrap().iter().filter_map(Node::uid).collect();
    let names: Vec<String> = env.nodes("kept").await.unwrap().iter().map(Node::name_any).collect();

    env.kubectl(&["annotate", "npool/kept", &format!("{ON_DELETE_ANNOTATION}=Orphan")]).await.unwrap();
    env.kubectl(&["delete", "npool/kept", "--timeout=180s"]).await.unwrap();
    assert!(env.nodes("kept").await.unwrap().is_empty(), "nodes are still in the pool");

    let nodes = Api::<Node>::all(env.client.clone());
    let mut after = BTreeSet::new();
    for name in &names {
        let node = nodes.get(name).await.unwrap();
        after.extend(node.uid());
        assert!(!node.finalizers().iter().any(|it| it == NODE_FINALIZER), "{:?}", node.finalizers());
        let labels = node.labels();
        assert!(!labels.contains_key(NODEPOOL_LABEL) && !labels.contains_key(NODEPOOL_NAMESPACE_LABEL));
        assert!(labels.contains_key(PROVIDER_LABEL), "it says where its machine is");
        assert_eq!(labels.get("pool").map(String::as_str), Some("kept"), "the template's label stays");
        assert!(node.annotations().contains_key(READY_TIME_ANNOTATION));
        assert!(!node.annotations().contains_key(DRAIN_STARTED_ANNOTATION));
        let spec = node.spec.unwrap_or_default();
        assert_ne!(spec.unschedulable, Some(true), "{name} is cordoned");
    }
    assert_eq!(after, before, "the same nodes");
    env.pods_run(2).await.unwrap();

    // From now on they are the user's: nothing drains them, and nothing brings them back.
    env.kubectl(&["delete", "deployment/kept"]).await.unwrap();
    env.pods_run(0).await.unwrap();
    for name in &names {
        env.kubectl(&["delete", "node", name, "--timeout=180s"]).await.unwrap();
    }
    env.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_with_ready_nodes_is_not_deleted_without_a_word_of_intent_where_a_policy_asks_for_one() {
    let env = TestEnv::begin("intent", &["rbac.guardPoolDeletion=true"]).await.unwrap();
    pool_of(&env, "meant", 1).await;
    pool_of(&env, "with-its-namespace", 1).await;
    pool_of(&env, "empty", 0).await;
    let pools = env.api::<NodePool>();
    // A new policy is in force after a moment. What it lets through is not deleted here.
    let asked = DeleteParams { dry_run: true, ..DeleteParams::default() };
    eventually(PATIENCE, "the deletion is refused", async || {
        let Err(kube::Error::Api(refused)) = pools.delete("meant", &asked).await else { bail!("it is not") };
        ensure!(refused.message.contains("tandem.dev/on-delete=Orphan"), "{}", refused.message);
        Ok(Some(()))
    })
    .await
    .unwrap();
    env.kubectl(&["annotate", "npool/meant", &format!("{ON_DELETE_ANNOTATION}=Drain")]).await.unwrap();
    env.kubectl(&["delete", "npool/meant", "npool/empty", "--timeout=180s"]).await.unwrap();
    // The last one goes with its namespace, of which nothing can be asked.
    env.end().await.unwrap();
}
