//! Several pools under one autoscaler: they grow together, half-empty nodes are drained, schedules apply, and a user's
//! `kubectl scale` is respected or overwritten, depending on the autoscaler.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::bail;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use shared_crds::{NodePool, NodePoolAutoscaler};
use testbed::objects;
use testbed::test_env::{PATIENCE, TestEnv};
use testbed::wait::eventually;

use super::scale;

/// A pool of the group `shop` in a zone; two of them differ only in their names and zones.
fn pool_in(zone: &str) -> NodePool {
    let mut pool = objects::pool(&format!("shop-{zone}"), 0, 5);
    pool.spec.template.metadata.as_mut().unwrap().labels = [
        ("group".to_owned(), "shop".to_owned()),
        ("topology.kubernetes.io/zone".to_owned(), zone.to_owned()),
    ]
    .into();
    pool
}

/// A Deployment that runs on nodes of the group, with additional fields in its pods' spec.
fn of_the_group(name: &str, replicas: i32, cpu: &str, more: &Value) -> Deployment {
    let mut deployment = serde_json::to_value(objects::deployment(name, "any", replicas, cpu)).unwrap();
    let spec = deployment.pointer_mut("/spec/template/spec").unwrap();
    spec["nodeSelector"] = json!({"group": "shop"});
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    serde_json::from_value(deployment).unwrap()
}

/// How many pods of a Deployment run in each zone.
async fn running_in(env: &TestEnv, app: &str, zone: &str) -> anyhow::Result<usize> {
    let nodes = env.nodes(&format!("shop-{zone}")).await?;
    let names: Vec<_> = nodes.into_iter().filter_map(|node| node.metadata.name).collect();
    let pods = env.api::<Pod>().list(&ListParams::default().labels(&format!("app={app}"))).await?;
    let there = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    Ok(pods.items.iter().filter(|pod| there(pod).is_some_and(|node| names.contains(&node))).count())
}

async fn change(env: &TestEnv, autoscaler: &str, spec: Value) {
    let autoscalers = env.api::<NodePoolAutoscaler>();
    autoscalers
        .patch(autoscaler, &PatchParams::default(), &Patch::Merge(json!({"spec": spec})))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_of_two_zones_grow_together_and_a_half_empty_node_is_cleared() {
    let env = TestEnv::begin("several", &[]).await.unwrap();
    for zone in ["east", "west"] {
        env.create(&pool_in(zone)).await.unwrap();
    }
    let mut autoscaler = objects::autoscaler("all", 1);
    autoscaler.spec.scale_down.as_mut().unwrap().utilization_threshold_percent = 80;
    env.create(&autoscaler).await.unwrap();

    // Two of them fill a node, and the zones may differ by at most one: three each, on two nodes each.
    let spread = json!({"topologySpreadConstraints": [{
        "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }]});
    env.create(&of_the_group("web", 6, "1500m", &spread)).await.unwrap();
    env.pods_run(6).await.unwrap();
    for zone in ["east", "west"] {
        env.settles(&format!("shop-{zone}"), 2).await.unwrap();
        assert_eq!(running_in(&env, "web", zone).await.unwrap(), 3, "{zone}");
    }
    env.kubectl(&["delete", "deployment/web"]).await.unwrap();
    for zone in ["east", "west"] {
        env.settles(&format!("shop-{zone}"), 0).await.unwrap();
    }

    // Four fill a node. Half of those of each node are removed, and the rest of one node move to the other one. The
    // ReplicaSet's controller would choose at random.
    env.create(&of_the_group("api", 8, "1", &json!({}))).await.unwrap();
    env.pods_run(8).await.unwrap();
    let budget: PodDisruptionBudget = serde_json::from_value(json!({
        "metadata": {"name": "api"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "api"}}},
    }))
    .unwrap();
    env.create(&budget).await.unwrap();
    let pods = env.api::<Pod>().list(&ListParams::default()).await.unwrap().items;
    let mut by_node: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pod in pods {
        let node = pod.spec.unwrap().node_name.unwrap();
        by_node.entry(node).or_default().push(pod.metadata.name.unwrap());
    }
    for first in by_node.values().flat_map(|pods| pods.iter().take(2)) {
        env.kubectl(&["annotate", "pod", first, "controller.kubernetes.io/pod-deletion-cost=-1"])
            .await
            .unwrap();
    }
    scale(&env, "deployment/api", 4).await;
    eventually(PATIENCE, "one node is left for four pods", async || {
        let east = env.pool("shop-east").await?.spec.replicas;
        let west = env.pool("shop-west").await?.spec.replicas;
        let nodes = env.nodes("shop-east").await?.len() + env.nodes("shop-west").await?.len();
        match (east, west) {
            (Some(east), Some(west)) if east + west == 1 && nodes == 1 => Ok(Some(())),
            counts => bail!("{counts:?} are set, {nodes} nodes are there"),
        }
    })
    .await
    .unwrap();
    env.pods_run(4).await.unwrap();
    let evicted = env.events().unwrap().into_iter().filter(|event| {
        event.subresource == "eviction" && event.succeeded() && event.user.contains("nodepool-operator")
    });
    assert!(evicted.count() >= 1, "a node that was not empty was cleared");
    env.end().await.unwrap();
}

/// The condition `ReplicasContested` of a pool: status and message.
async fn contested(env: &TestEnv, pool: &str) -> anyhow::Result<(String, String)> {
    let conditions = env.pool(pool).await?.status.unwrap_or_default().conditions;
    let found = conditions.into_iter().find(|condition| condition.type_ == "ReplicasContested");
    Ok(found.map(|condition| (condition.status, condition.message)).unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_users_count_is_kept_or_overwritten_and_reported_either_way() {
    let env = TestEnv::begin("contested", &[]).await.unwrap();
    env.create(&objects::pool("workers", 0, 10)).await.unwrap();
    env.create(&objects::autoscaler("all", 1)).await.unwrap();
    env.create(&objects::deployment("web", "workers", 2, "2")).await.unwrap();
    env.pods_run(2).await.unwrap();
    env.settles("workers", 1).await.unwrap();
    env.says("workers", "ReplicasContested", ("False", "", "")).await.unwrap();

    scale(&env, "npool/workers", 3).await;
    eventually(PATIENCE, "the Autoscaler reports another writer of replicas", async || {
        let (status, message) = contested(&env, "workers").await?;
        if status == "True" && message.contains('3') { Ok(Some(())) } else { bail!("{status}: {message}") }
    })
    .await
    .unwrap();
    env.settles("workers", 3).await.unwrap();
    // Two of the nodes are empty and old enough to be removed. During this time they must not be.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(env.pool("workers").await.unwrap().spec.replicas, Some(3), "the user's count is kept");

    change(&env, "all", json!({"onContested": "Reclaim"})).await;
    env.settles("workers", 1).await.unwrap();
    env.published(&["ReplicasContested", "ReplicasReclaimed"]).await.unwrap();
    env.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_holds_nodes_and_lets_them_go() {
    let env = TestEnv::begin("schedule", &[]).await.unwrap();
    env.create(&objects::pool("workers", 0, 10)).await.unwrap();
    env.create(&objects::autoscaler("all", 1)).await.unwrap();
    env.settles("workers", 0).await.unwrap();
    // It starts every minute and lasts an hour, so it is active whenever the test runs.
    let schedule = json!([{"name": "always", "schedule": "* * * * *", "timeZone": "Europe/Berlin",
        "durationSeconds": 3600, "minReplicas": 2}]);
    change(&env, "all", json!({"schedules": schedule})).await;
    env.settles("workers", 2).await.unwrap();

    change(&env, "all", json!({"schedules": [{"name": "odd", "schedule": "0 25 * * *", "durationSeconds": 60, "minReplicas": 2}]})).await;
    env.settles("workers", 0).await.unwrap();
    let message = eventually(PATIENCE, "the autoscaler says what is wrong with the schedule", async || {
        let status = env.api::<NodePoolAutoscaler>().get("all").await?.status.unwrap_or_default();
        let valid = status.conditions.into_iter().find(|condition| condition.type_ == "SchedulesValid");
        match valid {
            Some(condition) if condition.status == "False" => Ok(Some(condition.message)),
            other => bail!("{other:?}"),
        }
    })
    .await
    .unwrap();
    assert!(message.contains("odd") && message.contains("25"), "{message}");
    env.end().await.unwrap();
}
