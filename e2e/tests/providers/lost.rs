//! Machines that are gone behind the operator's back, and lists that lack a part of the machines.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use shared_crds::names::MACHINE_LABEL;
use testbed::machines::{Machines, PROGRAM};
use testbed::test_env::{PATIENCE, TestEnv};
use testbed::wait::eventually;

use super::exec::{begin, end, pool_of};

/// How soon the pods of a machine that is gone run elsewhere, its minute of being missed included. Without the provider's word it
/// takes Kubernetes and a drain more than ten minutes, and for ever under a budget that allows nothing.
const SOON: Duration = Duration::from_secs(240);

/// Reports what the node lifecycle controller reports of a node whose kubelet is silent, or lets kwok simulate it again.
async fn set_silent(env: &TestEnv, node: &str, is_silent: bool) {
    let nodes = Api::<Node>::all(env.client.clone());
    let simulated = if is_silent { json!(null) } else { json!("fake") };
    let simulation = Patch::Merge(json!({"metadata": {"annotations": {"kwok.x-k8s.io/node": simulated}}}));
    nodes.patch(node, &PatchParams::default(), &simulation).await.unwrap();
    let now = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second()).unwrap().to_string();
    let status = if is_silent { "Unknown" } else { "True" };
    let condition = Patch::Strategic(json!({"status": {"conditions": [{
        "type": "Ready", "status": status, "reason": "NodeStatusUnknown", "message": "a test says so",
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    }]}}));
    nodes.patch_status(node, &PatchParams::default(), &condition).await.unwrap();
}

/// A database of one pod in the pool, which no eviction may end.
async fn guarded_database(env: &TestEnv, pool: &str) {
    let database: StatefulSet = serde_json::from_value(json!({
        "metadata": {"name": "db"},
        "spec": {
            "replicas": 1,
            "serviceName": "db",
            "selector": {"matchLabels": {"app": "db"}},
            "template": {
                "metadata": {"labels": {"app": "db"}},
                "spec": {
                    "nodeSelector": {"pool": pool},
                    "containers": [{"name": "db", "image": "example.invalid/db"}],
                },
            },
        },
    }))
    .unwrap();
    env.create(&database).await.unwrap();
    let budget: PodDisruptionBudget = serde_json::from_value(json!({
        "metadata": {"name": "db"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "db"}}},
    }))
    .unwrap();
    env.create(&budget).await.unwrap();
    env.pods_run(1).await.unwrap();
}

/// Attaches a volume to a node, for a driver that is not there to detach it.
async fn attach(env: &TestEnv, node: &str) -> String {
    let name = format!("{node}-{}", env.namespace());
    let attachment: VolumeAttachment = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "attacher": "example.invalid",
            "nodeName": node,
            "source": {"persistentVolumeName": format!("{name}-data")},
        },
    }))
    .unwrap();
    let api: Api<VolumeAttachment> = Api::all(env.client.clone());
    api.create(&PostParams::default(), &attachment).await.unwrap();
    name
}

/// The pod of the database, its node, and the machine of that.
async fn database(env: &TestEnv) -> (Pod, Node, String) {
    let pod = env.api::<Pod>().get("db-0").await.unwrap();
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap();
    let node = Api::<Node>::all(env.client.clone()).get(&node).await.unwrap();
    let machine = node.labels()[MACHINE_LABEL].clone();
    (pod, node, machine)
}

/// Waits until the pod that replaces `before` runs.
async fn moves(env: &TestEnv, before: &Pod, patience: Duration) {
    eventually(patience, "the pod runs elsewhere", async || {
        let pod = env.api::<Pod>().get_opt("db-0").await?.context("no pod")?;
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        ensure!(pod.uid() != before.uid() && phase == Some("Running"), "{:?} {phase:?}", pod.uid());
        Ok(Some(()))
    })
    .await
    .unwrap_or_else(|error| panic!("{error:#}\n{}", env.operators.node_pool.log_tail()));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pods_of_a_machine_that_is_gone_move_whatever_their_budget_says() {
    let (env, machines) = begin("gone").await;
    env.create(&pool_of(PROGRAM, "racks", 3)).await.unwrap();
    env.settles("racks", 3).await.unwrap();
    guarded_database(&env, "racks").await;

    // It loses its power, and is replaced because its provider does not list it.
    let (before, node, machine) = database(&env).await;
    let attachment = attach(&env, &node.name_any()).await;
    machines.power_off(&env, "racks", &machine).unwrap();
    set_silent(&env, &node.name_any(), true).await;
    moves(&env, &before, SOON).await;
    let nodes = Api::<Node>::all(env.client.clone());
    eventually(SOON, "the node of the machine is gone", async || {
        let left = nodes.get_opt(&node.name_any()).await?;
        ensure!(left.is_none_or(|it| it.uid() != node.uid()), "it is there");
        Ok(Some(()))
    })
    .await
    .unwrap();
    env.kubectl(&["delete", "volumeattachment", &attachment, "--ignore-not-found"]).await.unwrap();
    env.settles("racks", 3).await.unwrap();
    env.published(&["MachineLost"]).await.unwrap();

    // A cloud controller deletes the Node, so there is nothing to wait for.
    let (before, node, machine) = database(&env).await;
    machines.power_off(&env, "racks", &machine).unwrap();
    set_silent(&env, &node.name_any(), true).await;
    env.kubectl(&["delete", "node", &node.name_any(), "--wait=false"]).await.unwrap();
    moves(&env, &before, PATIENCE).await;
    env.settles("racks", 3).await.unwrap();
    env.kubectl(&["delete", "statefulset/db", "pdb/db"]).await.unwrap();
    end(env, machines).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_lacks_most_of_the_machines_costs_no_node() {
    let (env, machines) = begin("partial").await;
    env.create(&pool_of(PROGRAM, "racks", 10)).await.unwrap();
    env.settles("racks", 10).await.unwrap();
    let sorted = async |machines: &Machines| {
        let mut nodes: Vec<_> =
            env.nodes("racks").await.unwrap().into_iter().map(|it| (it.name_any(), it.uid())).collect();
        nodes.sort();
        (machines.names().unwrap(), nodes)
    };
    let before = sorted(&machines).await;
    let cut_off: Vec<(String, String)> = env.nodes("racks").await.unwrap()[..6]
        .iter()
        .map(|node| (node.name_any(), node.labels()[MACHINE_LABEL].clone()))
        .collect();
    for (node, machine) in &cut_off {
        machines.power_off(&env, "racks", machine).unwrap();
        set_silent(&env, node, true).await;
    }
    let why = "the machines of 6 nodes are not listed any more, and with 10 nodes wanted spec.repair.maxUnhealthy allows 2";
    eventually(SOON, "the pool says why nothing happens", async || {
        let (_, nodes) = sorted(&machines).await;
        ensure!(nodes == before.1, "{nodes:?}");
        env.said("racks", "Ready", ("False", "NodesNotReady", why)).await
    })
    .await
    .unwrap_or_else(|error| panic!("{error:#}\n{}", env.operators.node_pool.log_tail()));
    tokio::time::sleep(Duration::from_secs(5)).await;
    let nodes = env.nodes("racks").await.unwrap();
    assert!(nodes.iter().all(|node| node.metadata.deletion_timestamp.is_none()), "a node was deleted");
    assert_eq!(machines.names().unwrap().len(), 4, "a machine was made");

    for (node, machine) in &cut_off {
        machines.add(&env, "racks", machine).unwrap();
        set_silent(&env, node, false).await;
    }
    env.settles("racks", 10).await.unwrap();
    assert_eq!(sorted(&machines).await, before);
    end(env, machines).await;
}
