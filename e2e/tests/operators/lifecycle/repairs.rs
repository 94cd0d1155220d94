//! Nodes that have been unhealthy for too long: which are replaced, and what becomes of their pods.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use shared_crds::names::OUT_OF_SERVICE_TAINT;
use shared_crds::v1alpha1::{ConditionStatus, RepairCondition, RepairSpec};
use testbed::objects;
use testbed::test_env::{PATIENCE, TestEnv};
use testbed::wait::eventually;

/// A pool of `replicas` nodes that are replaced when their kubelets have been silent for three seconds.
async fn watched_pool(env: &TestEnv, pool: &str, replicas: i32) {
    let mut object = objects::pool(pool, 0, 9);
    object.spec.replicas = Some(replicas);
    let silent = RepairCondition { type_: "Ready".to_owned(), status: ConditionStatus::Unknown, seconds: 3 };
    object.spec.repair = Some(RepairSpec { conditions: vec![silent], ..RepairSpec::default() });
    env.create(&object).await.unwrap();
    env.settles(pool, replicas).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pods_of_a_dead_node_move_when_its_machine_is_confirmed_to_be_off() {
    let env = TestEnv::begin("dead", &[]).await.unwrap();
    watched_pool(&env, "repaired", 2).await;
    let database: StatefulSet = serde_json::from_value(json!({
        "metadata": {"name": "db"},
        "spec": {
            "replicas": 1,
            "serviceName": "db",
            "selector": {"matchLabels": {"app": "db"}},
            "template": {
                "metadata": {"labels": {"app": "db"}},
                "spec": {
                    "nodeSelector": {"pool": "repaired"},
                    "containers": [{"name": "db", "image": "example.invalid/db"}],
                },
            },
        },
    }))
    .unwrap();
    env.create(&database).await.unwrap();
    env.pods_run(1).await.unwrap();
    let before = env.api::<Pod>().get("db-0").await.unwrap();
    let dead = before.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap();
    let uid = Api::<Node>::all(env.client.clone()).get(&dead).await.unwrap().uid();
    env.set_silent(&dead, true).await.unwrap();

    eventually(PATIENCE, "the pod runs elsewhere", async || {
        let pod = env.api::<Pod>().get_opt("db-0").await?.context("no pod")?;
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        ensure!(pod.uid() != before.uid() && phase == Some("Running"), "{:?} {phase:?}", pod.uid());
        Ok(Some(()))
    })
    .await
    .unwrap();
    env.settles("repaired", 2).await.unwrap();
    let left = Api::<Node>::all(env.client.clone()).get_opt(&dead).await.unwrap();
    assert!(left.is_none_or(|node| node.uid() != uid), "the dead node is still there");
    env.published(&["NodeRepaired"]).await.unwrap();
    let said_so = env.events().unwrap().iter().any(|event| {
        event.object.as_ref().is_some_and(|object| object.name == dead)
            && event.request.as_ref().is_some_and(|body| body.to_string().contains(OUT_OF_SERVICE_TAINT))
    });
    assert!(said_so, "Kubernetes was not told that the machine is off");
    env.kubectl(&["delete", "statefulset", "db"]).await.unwrap();
    env.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_node_is_replaced_while_more_are_unhealthy_than_may_be() {
    let env = TestEnv::begin("many-sick", &[]).await.unwrap();
    watched_pool(&env, "many", 4).await;
    let names: Vec<String> = env.nodes("many").await.unwrap().iter().map(Node::name_any).collect();
    let uids = async || -> anyhow::Result<Vec<Option<String>>> {
        let mut nodes = env.nodes("many").await?;
        nodes.sort_by_key(Node::name_any);
        Ok(nodes.iter().map(Node::uid).collect())
    };
    let before = uids().await.unwrap();
    for name in &names[..2] {
        env.set_silent(name, true).await.unwrap();
    }
    let why = "2 nodes are unhealthy, and with 4 nodes wanted spec.repair.maxUnhealthy allows 1";
    env.says("many", "Ready", ("False", "NodesNotReady", why)).await.unwrap();
    assert_eq!(uids().await.unwrap(), before);

    // One comes back, so the other one may go.
    env.set_silent(&names[0], false).await.unwrap();
    eventually(PATIENCE, "the other one is replaced", async || {
        let now = uids().await?;
        let kept = before.iter().filter(|uid| now.contains(uid)).count();
        ensure!(now.len() == 4 && kept == 3, "{now:?}");
        Ok(Some(()))
    })
    .await
    .unwrap();
    env.settles("many", 4).await.unwrap();
    env.end().await.unwrap();
}
