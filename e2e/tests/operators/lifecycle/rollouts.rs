//! Nodes that are out of date: how they are replaced, what changes in place, and what stops a rollout.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use shared_crds::names::TEMPLATE_HASH_ANNOTATION;
use testbed::nodes_over_time::NodesOverTime;
use testbed::objects;
use testbed::test_env::{PATIENCE, TestEnv};
use testbed::wait::eventually;

use super::{QUICK_LEASE, scale};

/// The part of a spec that makes every node of [`objects::pool`] out of date.
fn other_machines() -> Value {
    json!({ "template": { "spec": { "capacity": { "cpu": "6" } } } })
}

/// A pool of `replicas` nodes.
async fn pool_of(env: &TestEnv, pool: &str, replicas: i32, max: i32, spec: Value) -> BTreeSet<String> {
    let mut object = serde_json::to_value(objects::pool(pool, 0, max)).unwrap();
    object["spec"]["replicas"] = json!(replicas);
    json_patch::merge(&mut object["spec"], &spec);
    let object: shared_crds::NodePool = serde_json::from_value(object).unwrap();
    env.create(&object).await.unwrap();
    env.settles(pool, replicas).await.unwrap();
    uids(env, pool).await
}

async fn uids(env: &TestEnv, pool: &str) -> BTreeSet<String> {
    env.nodes(pool).await.unwrap().iter().filter_map(Node::uid).collect()
}

/// Waits until none of the nodes in `before` is left, and the pool is at rest with `wanted` nodes of one template.
async fn all_replaced(env: &TestEnv, pool: &str, before: &BTreeSet<String>, wanted: i32) {
    eventually(PATIENCE, "every node is replaced", async || {
        let now = uids(env, pool).await;
        ensure!(now.is_disjoint(before), "{} are left", now.intersection(before).count());
        Ok(Some(()))
    })
    .await
    .unwrap();
    env.settles(pool, wanted).await.unwrap();
    let nodes = env.nodes(pool).await.unwrap();
    let hashes: BTreeSet<_> =
        nodes.iter().map(|node| node.annotations().get(TEMPLATE_HASH_ANNOTATION)).collect();
    assert_eq!(hashes.len(), 1, "{hashes:?}");
    env.says(pool, "RollingOut", ("False", "UpToDate", "")).await.unwrap();
    env.says(pool, "Ready", ("True", "AllNodesReady", "")).await.unwrap();
    let status = env.pool(pool).await.unwrap().status.unwrap();
    assert_eq!((status.up_to_date_replicas, status.rollout), (Some(wanted), None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_template_replaces_one_node_after_another_and_no_budget_is_violated() {
    let env = TestEnv::begin("rolls", &[]).await.unwrap();
    let before = pool_of(&env, "rolled", 3, 9, json!({})).await;
    env.create(&objects::deployment("web", "rolled", 3, "3")).await.unwrap();
    let budget: PodDisruptionBudget = serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}},
    }))
    .unwrap();
    env.create(&budget).await.unwrap();
    env.pods_run(3).await.unwrap();

    let recording = NodesOverTime::begin(&env, "rolled").await.unwrap();
    env.patch_pool("rolled", &other_machines()).await.unwrap();
    env.says("rolled", "RollingOut", ("True", "RollingOut", "out of date")).await.unwrap();
    all_replaced(&env, "rolled", &before, 3).await;
    env.pods_run(3).await.unwrap();
    let counts = recording.end().await.unwrap();
    let (most, least) =
        (counts.iter().map(|count| count.all).max(), counts.iter().map(|count| count.ready).min());
    assert_eq!((most, least), (Some(4), Some(3)), "one more than wanted, and never one less: {counts:?}");
    env.published(&["RollingOut"]).await.unwrap();
    env.kubectl(&["delete", "deployment", "web"]).await.unwrap();
    env.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_annotations_and_taints_change_on_the_nodes_that_are_there() {
    let env = TestEnv::begin("in-place", &[]).await.unwrap();
    let before = pool_of(&env, "changed", 2, 9, json!({})).await;
    let set = json!({ "template": {
        "metadata": { "labels": { "tier": "db" }, "annotations": { "example.com/note": "x" } },
        "spec": { "taints": [{ "key": "dedicated", "value": "db", "effect": "NoSchedule" }] },
    } });
    let has = async |tier: Option<&str>| {
        eventually(PATIENCE, "every node is as the template says", async || {
            for node in env.nodes("changed").await? {
                let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
                let taint =
                    taints.filter(|taint| taint.key == "dedicated").find_map(|taint| taint.value.clone());
                let note = node.annotations().get("example.com/note").map(|_| "db");
                let label = node.labels().get("tier").map(String::as_str);
                ensure!((label, note, taint.as_deref()) == (tier, tier, tier), "{:?}", node.metadata);
            }
            Ok(Some(()))
        })
        .await
        .unwrap();
    };
    env.patch_pool("changed", &set).await.unwrap();
    has(Some("db")).await;
    let unset = json!({ "template": {
        "metadata": { "labels": { "tier": null }, "annotations": null },
        "spec": { "taints": null },
    } });
    env.patch_pool("changed", &unset).await.unwrap();
    has(None).await;
    env.settles("changed", 2).await.unwrap();
    assert_eq!(uids(&env, "changed").await, before, "no node was replaced");
    env.says("changed", "RollingOut", ("False", "UpToDate", "")).await.unwrap();
    env.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_whose_new_nodes_do_not_come_stops_and_goes_back_with_the_template() {
    let env = TestEnv::begin("stuck", &[]).await.unwrap();
    let deadline = json!({ "rollout": { "progressDeadlineSeconds": 3 } });
    let before = pool_of(&env, "stuck", 2, 9, deadline).await;
    let mut broken = other_machines();
    broken["provider"] = json!({ "simulated": { "neverRegisterPercent": 100 } });
    env.patch_pool("stuck", &broken).await.unwrap();
    let why = "2 nodes are out of date, and there has been no progress since";
    env.says("stuck", "RollingOut", ("True", "ProgressDeadlineExceeded", why)).await.unwrap();
    env.says("stuck", "Stalled", ("True", "ProgressDeadlineExceeded", "")).await.unwrap();
    env.says("stuck", "Ready", ("False", "RollingOut", "")).await.unwrap();
    assert_eq!(uids(&env, "stuck").await, before, "no node has gone");
    assert_eq!(env.pool("stuck").await.unwrap().status.unwrap().nodes.unwrap().provisioning, 1);

    let reverted = json!({
        "template": { "spec": { "capacity": { "cpu": "4" } } },
        "provider": { "simulated": { "neverRegisterPercent": null } },
    });
    env.patch_pool("stuck", &reverted).await.unwrap();
    env.says("stuck", "Ready", ("True", "AllNodesReady", "")).await.unwrap();
    env.says("stuck", "Stalled", ("False", "Settled", "")).await.unwrap();
    env.settles("stuck", 2).await.unwrap();
    assert_eq!(uids(&env, "stuck").await, before);
    env.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_quota_or_room_for_one_more_node_one_goes_before_its_successor_comes() {
    let env = TestEnv::begin("no-room", &[]).await.unwrap();
    let quota = json!({ "provider": { "simulated": { "quota": 2 } } });
    let before = pool_of(&env, "quota", 2, 9, quota).await;
    let full = pool_of(&env, "full", 2, 2, json!({})).await;
    let recordings = [
        NodesOverTime::begin(&env, "quota").await.unwrap(),
        NodesOverTime::begin(&env, "full").await.unwrap(),
    ];
    for pool in ["quota", "full"] {
        env.patch_pool(pool, &other_machines()).await.unwrap();
    }
    all_replaced(&env, "quota", &before, 2).await;
    all_replaced(&env, "full", &full, 2).await;
    for recording in recordings {
        let counts = recording.end().await.unwrap();
        let (most, least) =
            (counts.iter().map(|count| count.all).max(), counts.iter().map(|count| count.ready).min());
        assert_eq!((most, least), (Some(2), Some(1)), "{counts:?}");
    }
    env.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_pool_and_one_of_type_on_delete_replace_nothing_by_themselves() {
    let env = TestEnv::begin("held-rollout", &[]).await.unwrap();
    let paused = pool_of(&env, "paused", 1, 9, json!({})).await;
    let on_delete = pool_of(&env, "ondelete", 2, 9, json!({ "rollout": { "type": "OnDelete" } })).await;
    let mut change = other_machines();
    env.patch_pool("ondelete", &change).await.unwrap();
    change["paused"] = json!(true);
    env.patch_pool("paused", &change).await.unwrap();
    env.says("paused", "RollingOut", ("False", "Paused", "1 node is out of date")).await.unwrap();
    env.says("ondelete", "RollingOut", ("False", "OnDelete", "2 nodes are out of date")).await.unwrap();
    env.says("ondelete", "Ready", ("True", "AllNodesReady", "2 nodes are out of date")).await.unwrap();

    let nodes = env.nodes("ondelete").await.unwrap();
    let deleted = nodes.first().context("no node").unwrap();
    env.kubectl(&["delete", "node", &deleted.name_any()]).await.unwrap();
    env.says("ondelete", "RollingOut", ("False", "OnDelete", "1 node is out of date")).await.unwrap();
    env.settles("ondelete", 2).await.unwrap();
    let now = uids(&env, "ondelete").await;
    assert_eq!(now.intersection(&on_delete).count(), 1, "only the deleted one is another");
    assert_eq!(uids(&env, "paused").await, paused);
    env.patch_pool("paused", &json!({ "paused": false })).await.unwrap();
    all_replaced(&env, "paused", &paused, 1).await;
    env.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_goes_on_where_it_was_when_the_operator_is_killed_and_the_pool_is_scaled() {
    let mut env = TestEnv::begin("roll-kill", &QUICK_LEASE).await.unwrap();
    let before = pool_of(&env, "rolling", 4, 9, json!({ "rollout": { "maxSurge": "50%" } })).await;
    let recording = NodesOverTime::begin(&env, "rolling").await.unwrap();
    env.patch_pool("rolling", &other_machines()).await.unwrap();
    for left in [3, 1] {
        eventually(PATIENCE, "the rollout has come some way", async || {
            let now = uids(&env, "rolling").await;
            let old = now.intersection(&before).count();
            ensure!(old <= left, "{old} are left");
            Ok(Some(()))
        })
        .await
        .unwrap();
        env.operators.node_pool.kill_9().await.unwrap();
        scale(&env, "npool/rolling", if left == 3 { 5 } else { 3 }).await;
        env.operators.node_pool.start_again().await.unwrap();
    }
    all_replaced(&env, "rolling", &before, 3).await;
    let counts = recording.end().await.unwrap();
    let most = counts.iter().map(|count| count.all).max();
    assert!(most <= Some(8), "five wanted, and a half more: {counts:?}");
    assert!(counts.iter().all(|count| count.ready >= 3), "{counts:?}");
    env.end().await.unwrap();
}
