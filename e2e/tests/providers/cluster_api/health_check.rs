//! Machines that a `MachineHealthCheck` of Cluster API selects, in a pool whose unhealthy nodes Tandem would replace, too.

use anyhow::{Result, ensure};
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde_json::json;
use shared_crds::NodePool;
use shared_crds::names::{DRAIN_STARTED_ANNOTATION, DRAIN_WAITS_ANNOTATION, DRAINED_BY_PROVIDER_ANNOTATION};
use shared_crds::v1alpha1::{ConditionStatus, RepairCondition, RepairSpec};
use testbed::cluster_api::{self, CLUSTER, ClusterApi};
use testbed::test_env::TestEnv;

use super::{begin, end, has, mentions, names, pool_of, scaled_by, size, stays, wait_for};

/// The health check, as kubectl names it.
const CHECK: &str = "machinehealthchecks.cluster.x-k8s.io/watch";

/// A pool of two nodes that are replaced when their kubelets have been silent for two seconds.
fn repaired_pool() -> NodePool {
    let mut pool = pool_of("racks", Some(2));
    let silent = RepairCondition { type_: "Ready".to_owned(), status: ConditionStatus::Unknown, seconds: 2 };
    pool.spec.repair = Some(RepairSpec { conditions: vec![silent], ..RepairSpec::default() });
    pool
}

/// Lets Cluster API delete Machines whose kubelets have been silent for so many seconds.
async fn watch(env: &TestEnv, seconds: u32) {
    let silent = json!({"type": "Ready", "status": "Unknown", "timeoutSeconds": seconds});
    let check = json!({
        "apiVersion": format!("{}/v1beta2", cluster_api::GROUP), "kind": "MachineHealthCheck", "metadata": {"name": "watch"},
        "spec": {
            "clusterName": CLUSTER,
            "selector": {"matchLabels": {"set": "workers"}},
            // Without the other check that it has by default.
            "checks": {"nodeStartupTimeoutSeconds": 0, "unhealthyNodeConditions": [silent]},
        },
    });
    let apply = ["--namespace", env.namespace(), "apply", "--server-side", "--filename", "-"];
    env.cluster.kubectl_with_input(&apply, &check.to_string()).await.unwrap();
}

/// Checks that all nodes `before` are there, none of them drained or left, and their machines, too.
async fn check_untouched(env: &TestEnv, before: &[String]) -> Result<()> {
    let nodes = env.nodes("racks").await?;
    let there = names(&nodes);
    ensure!(there.len() == before.len() && before.iter().all(|name| there.contains(name)), "{there:?}");
    for node in &nodes {
        let is_cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
        let marks = [DRAIN_STARTED_ANNOTATION, DRAIN_WAITS_ANNOTATION, DRAINED_BY_PROVIDER_ANNOTATION];
        let is_drained = marks.iter().any(|mark| node.annotations().contains_key(*mark));
        let is_touched = is_cordoned || is_drained || node.metadata.deletion_timestamp.is_some();
        ensure!(!is_touched, "{:?} {:?}", node.metadata, node.spec);
    }
    let machines = cluster_api::machines(env.client.clone(), env.namespace());
    for machine in machines.list(&ListParams::default()).await?.items {
        ensure!(machine.metadata.deletion_timestamp.is_none(), "{} is deleted", machine.name_any());
    }
    ensure!(size(env).await? == 2, "the number of machines was changed");
    Ok(())
}

/// Waits until the node of this name is gone.
async fn goes(env: &TestEnv, capi: &ClusterApi, name: &str) {
    wait_for(env, capi, &format!("{name} is gone"), async || {
        let there = names(&env.nodes("racks").await?);
        ensure!(there.iter().all(|it| it != name), "{there:?}");
        Ok(Some(()))
    })
    .await;
}

/// The reasons of all events of the namespace.
async fn event_reasons(env: &TestEnv) -> Result<String> {
    env.kubectl(&["get", "events", "--output=jsonpath={.items[*].reason}"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unhealthy_node_is_left_to_the_health_check_that_selects_its_machine_until_that_is_deleted() {
    let (env, capi) = begin("capi-check").await;
    // It watches, and does nothing for a day.
    watch(&env, 86_400).await;
    env.create(&repaired_pool()).await.unwrap();
    let before = names(&has(&env, &capi, 2).await);
    let (silent, other) = (before[0].as_str(), &before[1]);
    env.set_silent(silent, true).await.unwrap();
    let said = format!("unhealthy node {silent} is left to its provider, which replaces it");
    mentions(&env, &capi, &said).await;
    // For longer than the two seconds after which it would be replaced; and a pass sees it after them.
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    let changed = env.patch_pool("racks", &json!({"maxReplicas": 32})).await.unwrap();
    wait_for(&env, &capi, "a pass has seen the change", async || {
        let seen = env.pool("racks").await?.status.unwrap_or_default().observed_generation;
        ensure!(seen == changed.metadata.generation, "{seen:?}");
        Ok(Some(()))
    })
    .await;
    stays("nothing is done to the node", async || check_untouched(&env, &before).await).await;
    assert!(!event_reasons(&env).await.unwrap().contains("NodeRepaired"));

    env.kubectl(&["delete", CHECK]).await.unwrap();
    // What becomes of a health check is no event of the pool, and a change of the pool is.
    env.patch_pool("racks", &json!({"maxReplicas": 31})).await.unwrap();
    goes(&env, &capi, silent).await;
    let after = names(&has(&env, &capi, 2).await);
    assert!(after.contains(other), "{other} was replaced: {after:?}");
    wait_for(&env, &capi, "it is said who replaced it", async || {
        let reasons = event_reasons(&env).await?;
        ensure!(reasons.contains("NodeRepaired"), "{reasons}");
        Ok(Some(()))
    })
    .await;
    end(env, capi).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_a_health_check_deletes_is_replaced_by_cluster_api_alone() {
    let (env, capi) = begin("capi-checked").await;
    // Four times as long as after which Tandem would replace it.
    watch(&env, 8).await;
    env.create(&repaired_pool()).await.unwrap();
    let before = names(&has(&env, &capi, 2).await);
    let (silent, other) = (before[0].as_str(), &before[1]);
    let mark = env.audit().unwrap().end().unwrap();
    env.set_silent(silent, true).await.unwrap();
    goes(&env, &capi, silent).await;
    let after = names(&has(&env, &capi, 2).await);
    assert!(after.contains(other), "{other} was replaced: {after:?}");
    assert_eq!(scaled_by(&env, mark), [""; 0], "its successor comes without a request");
    let reasons = event_reasons(&env).await.unwrap();
    assert!(!reasons.contains("NodeRepaired"), "{reasons}");
    // The pool is deleted with its nodes, which must not look like machines to replace.
    env.kubectl(&["delete", CHECK]).await.unwrap();
    end(env, capi).await;
}
