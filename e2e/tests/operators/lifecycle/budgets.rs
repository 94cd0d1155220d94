//! Budgets of `spec.disruption`: what they hold up, where it is said, and that it goes on when they allow it.

use std::collections::BTreeSet;

use anyhow::ensure;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use serde_json::{Value, json};
use shared_crds::names::DISRUPTION_REASON_ANNOTATION;
use shared_crds::v1alpha1::DisruptedNodes;
use testbed::objects;
use testbed::test_env::{PATIENCE, TestEnv};
use testbed::wait::eventually;

use super::scale;
use super::silent::guarded_pod;

fn budgets(budgets: &Value) -> Value {
    json!({ "disruption": { "budgets": budgets } })
}

async fn uids(env: &TestEnv, pool: &str) -> BTreeSet<String> {
    env.nodes(pool).await.unwrap().iter().filter_map(Node::uid).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scale_down_by_hand_waits_for_its_budget() {
    let env = TestEnv::begin("budget-scale", &[]).await.unwrap();
    let mut object = objects::pool("held", 0, 9);
    object.spec.replicas = Some(2);
    env.create(&object).await.unwrap();
    env.settles("held", 2).await.unwrap();
    env.patch_pool("held", &budgets(&json!([{ "nodes": 0, "reasons": ["ScaleDown"] }]))).await.unwrap();
    scale(&env, "npool/held", 1).await;
    let why = "has to wait: spec.disruption.budgets[0]";
    env.says("held", "Reconciling", ("True", "Draining", why)).await.unwrap();
    assert_eq!(env.nodes("held").await.unwrap().len(), 2);
    assert_eq!(env.pool("held").await.unwrap().status.unwrap().disruption, None);

    env.patch_pool("held", &budgets(&json!([{ "nodes": "1%", "reasons": ["ScaleDown"] }]))).await.unwrap();
    env.settles("held", 1).await.unwrap();
    env.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rollout_and_scale_down_share_one_budget_and_the_status_counts_what_is_taken() {
    let env = TestEnv::begin("budget-both", &[]).await.unwrap();
    let mut object = objects::pool("both", 0, 9);
    object.spec.replicas = Some(1);
    env.create(&object).await.unwrap();
    env.settles("both", 1).await.unwrap();
    guarded_pod(&env, "both", 1).await;
    env.patch_pool("both", &budgets(&json!([{ "nodes": 1, "reasons": ["ScaleDown", "Rollout"] }])))
        .await
        .unwrap();
    scale(&env, "npool/both", 0).await;
    let one = |scale_down, rollout| Some(DisruptedNodes { scale_down, rollout, ..DisruptedNodes::default() });
    eventually(PATIENCE, "the drain is in the account", async || {
        let disrupted = env.pool("both").await?.status.unwrap_or_default().disruption;
        ensure!(disrupted == one(1, 0), "{disrupted:?}");
        Ok(Some(()))
    })
    .await
    .unwrap();
    let node = env.nodes("both").await.unwrap().remove(0);
    assert_eq!(node.annotations()[DISRUPTION_REASON_ANNOTATION], "ScaleDown");
    // The drained node comes back, a second one is made, and both are out of date.
    scale(&env, "npool/both", 2).await;
    env.settles("both", 2).await.unwrap();
    let before = uids(&env, "both").await;
    env.patch_pool("both", &json!({ "template": { "spec": { "capacity": { "cpu": "6" } } } })).await.unwrap();
    eventually(PATIENCE, "the node with the pod is the only old one, and drained", async || {
        let now = uids(&env, "both").await;
        let disrupted = env.pool("both").await?.status.unwrap_or_default().disruption;
        ensure!(now.intersection(&before).count() == 1 && disrupted == one(0, 1), "{now:?} {disrupted:?}");
        Ok(Some(()))
    })
    .await
    .unwrap();
    // It is the one that the budget allows: nothing else goes.
    scale(&env, "npool/both", 1).await;
    let why = "allows 1 node at a time for ScaleDown and Rollout, and 1 is being disrupted";
    env.says("both", "RollingOut", ("True", "RollingOut", "")).await.unwrap();
    env.says("both", "Reconciling", ("True", "DrainBlocked", why)).await.unwrap();
    assert!(env.api::<Pod>().get("db").await.is_ok());
    env.kubectl(&["delete", "pdb", "db"]).await.unwrap();
    env.settles("both", 1).await.unwrap();
    env.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn budgets_that_never_allow_anything_together_are_said_to() {
    let env = TestEnv::begin("budget-never", &[]).await.unwrap();
    let mut object = objects::pool("never", 0, 9);
    object.spec.replicas = Some(1);
    env.create(&object).await.unwrap();
    env.says("never", "BudgetsValid", ("True", "BudgetsRead", "")).await.unwrap();
    let night = |effect: &str, nodes: i32| json!({ "effect": effect, "nodes": nodes, "schedule": "0 22 * * *", "timeZone": "Europe/Berlin", "durationSeconds": 3600 });
    env.patch_pool("never", &budgets(&json!([night("AllowOnly", 1), night("Limit", 0)]))).await.unwrap();
    env.says("never", "BudgetsValid", ("False", "InvalidBudget", "spec.disruption.budgets[0]"))
        .await
        .unwrap();
    let unknown = json!([{ "nodes": 1, "schedule": "0 22 * * *", "timeZone": "Europe/Atlantis", "durationSeconds": 60 }]);
    env.patch_pool("never", &budgets(&unknown)).await.unwrap();
    env.says("never", "BudgetsValid", ("False", "InvalidBudget", "Europe/Atlantis")).await.unwrap();
    env.patch_pool("never", &json!({ "disruption": null })).await.unwrap();
    env.says("never", "BudgetsValid", ("True", "BudgetsRead", "")).await.unwrap();
    env.end().await.unwrap();
}
