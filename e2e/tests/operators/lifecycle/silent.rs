//! Nodes whose kubelet has stopped reporting, and nodes that never had one: what may be concluded from that, and what
//! not.
//!
//! kwok simulates the kubelet of every node with its annotation. A node that loses the annotation does not become Ready
//! again, and while kwok is frozen no pod ends.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use shared_crds::NodePool;
use shared_crds::names::READY_TIME_ANNOTATION;
use shared_crds::v1alpha1::DrainSpec;
use testbed::cluster::{Cluster, ClusterOptions};
use testbed::frozen::FrozenProcess;
use testbed::operators::{Launch, OperatorKind, OperatorProcess};
use testbed::process_supervisor::Exit;
use testbed::test_env::{EXITS, PATIENCE, TestEnv};
use testbed::wait::eventually;
use testbed::{objects, places};

use super::{observed, scale};

/// A node that kwok no longer simulates, in its state at that time.
pub(super) async fn silenced(env: &TestEnv, pool: &str) -> Node {
    let nodes = env.nodes(pool).await.unwrap();
    assert_eq!(nodes.len(), 1, "{pool} has {} nodes", nodes.len());
    let off = Patch::Merge(json!({"metadata": {"annotations": {"kwok.x-k8s.io/node": null}}}));
    let api = Api::<Node>::all(env.client.clone());
    api.patch(&nodes[0].name_any(), &PatchParams::default(), &off).await.unwrap()
}

/// kwok while it is frozen. Dropping this continues it.
pub(super) async fn frozen_kwok(cluster: &Cluster) -> FrozenProcess {
    let pid = cluster.pids().into_iter().find_map(|(name, pid)| (name == "kwok").then_some(pid)).unwrap();
    FrozenProcess::freeze(pid).await.unwrap()
}

/// The status that a node lifecycle controller or a kubelet reports for a node that is not Ready.
pub(super) fn not_ready() -> Patch<Value> {
    let now = jiff::Timestamp::now();
    let now = jiff::Timestamp::from_second(now.as_second()).unwrap().to_string();
    Patch::Strategic(json!({"status": {"conditions": [{
        "type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "a test says so",
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    }]}}))
}

/// A pod on the nodes of `pool` that may take `grace` seconds to end, and a `PodDisruptionBudget` that allows no
/// eviction of it.
pub(super) async fn guarded_pod(env: &TestEnv, pool: &str, grace: u32) {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "db", "labels": {"app": "db"}},
        "spec": {
            "nodeSelector": {"pool": pool},
            "terminationGracePeriodSeconds": grace,
            "containers": [{"name": "db", "image": "example.invalid/db"}],
        },
    }))
    .unwrap();
    env.create(&pod).await.unwrap();
    let budget: PodDisruptionBudget = serde_json::from_value(json!({
        "metadata": {"name": "db"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "db"}}},
    }))
    .unwrap();
    env.create(&budget).await.unwrap();
    env.pods_run(1).await.unwrap();
}

/// A pool of one node whose drain timeout is a second, after which pods are deleted, with a guarded pod on the node.
/// Returns the node's name.
async fn short_drain(env: &TestEnv, pool: &str, grace: u32) -> String {
    let mut object = objects::pool(pool, 0, 3);
    object.spec.replicas = Some(1);
    object.spec.drain = Some(DrainSpec { timeout_seconds: Some(1), ..DrainSpec::default() });
    env.create(&object).await.unwrap();
    guarded_pod(env, pool, grace).await;
    env.settles(pool, 1).await.unwrap();
    env.nodes(pool).await.unwrap()[0].name_any()
}

/// Waits until the guarded pod has a deletion timestamp. It exists until the kubelet confirms the deletion.
pub(super) async fn deleted_pod(env: &TestEnv) -> Pod {
    eventually(PATIENCE, "the pod is deleted", async || {
        let pod = env.api::<Pod>().get("db").await?;
        Ok(pod.metadata.deletion_timestamp.is_some().then_some(pod))
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_keeps_its_grace_when_the_drain_of_its_node_runs_out_of_time() {
    let env = TestEnv::begin("grace", &[]).await.unwrap();
    // Longer than the test takes on a busy machine.
    let name = short_drain(&env, "short", 600).await;
    let frozen = frozen_kwok(env.cluster).await;
    scale(&env, "npool/short", 0).await;
    let pod = deleted_pod(&env).await;
    assert_eq!(pod.metadata.deletion_grace_period_seconds, Some(600), "less than the pod's own grace");

    // During this time the node must stay: the pod may still be writing to its volume.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let nodes = Api::<Node>::all(env.client.clone());
    let node = nodes.get_opt(&name).await.unwrap();
    assert!(node.is_some(), "the node went while a pod on it still had its grace");
    assert_eq!(node.and_then(|node| node.metadata.deletion_timestamp), None, "the node was deleted");

    // The kubelet confirms the deletion.
    drop(frozen);
    env.settles("short", 0).await.unwrap();
    env.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_deletion_no_kubelet_confirms_holds_a_drain_that_has_run_out_of_time_only_so_long() {
    let env = TestEnv::begin("unconfirmed", &[]).await.unwrap();
    let name = short_drain(&env, "short", 1).await;
    let frozen = frozen_kwok(env.cluster).await;
    scale(&env, "npool/short", 0).await;
    deleted_pod(&env).await;
    let nodes = Api::<Node>::all(env.client.clone());
    eventually(PATIENCE, "the node goes", async || Ok(nodes.get_opt(&name).await?.is_none().then_some(())))
        .await
        .unwrap();
    drop(frozen);
    // The pod garbage collector does it some time later.
    let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    let gone = env.api::<Pod>().delete("db", &at_once).await.map(drop);
    assert!(gone.is_ok() || matches!(&gone, Err(kube::Error::Api(status)) if status.code == 404), "{gone:?}");
    env.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_ready_while_its_pool_was_paused_did_not_fail_to_start() {
    let env = TestEnv::begin("unmarked", &[]).await.unwrap();
    let mut pool = objects::pool("workers", 0, 3);
    pool.spec.replicas = Some(1);
    env.create(&pool).await.unwrap();
    env.create(&objects::deployment("web", "workers", 1, "1")).await.unwrap();
    env.pods_run(1).await.unwrap();
    observed(&env, "workers", json!({"paused": true, "provisioningTimeoutSeconds": 1})).await;

    // As if it had just become Ready, without a recorded ready time, and had lost its kubelet for a moment.
    let node = silenced(&env, "workers").await;
    let (name, nodes) = (node.name_any(), Api::<Node>::all(env.client.clone()));
    nodes.patch_status(&name, &PatchParams::default(), &not_ready()).await.unwrap();
    let unmark = Patch::Merge(json!({"metadata": {"annotations": {READY_TIME_ANNOTATION: null}}}));
    nodes.patch(&name, &PatchParams::default(), &unmark).await.unwrap();
    let before = env.audit().unwrap().end().unwrap();
    observed(&env, "workers", json!({"paused": false})).await;

    eventually(PATIENCE, "it is written down that the node has run", async || {
        let node = nodes.get(&name).await?;
        if node.metadata.deletion_timestamp.is_some() {
            return Ok(Some(false));
        }
        Ok(node.annotations().contains_key(READY_TIME_ANNOTATION).then_some(true))
    })
    .await
    .map(|marked| assert!(marked, "the node was deleted as one that did not start"))
    .unwrap();
    observed(&env, "workers", json!({"maxReplicas": 4})).await;
    let events = env.audit().unwrap().follow_from(before).read_new().unwrap();
    let evictions = events.iter().filter(|event| event.subresource == "eviction").count();
    assert_eq!(evictions, 0, "a pod was evicted");
    let node = nodes.get(&name).await.unwrap();
    assert_eq!(node.metadata.deletion_timestamp, None);
    env.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_never_starts_is_replaced_also_when_the_operator_is_started_again_meanwhile() {
    let _turn = places::turn().await.unwrap();
    // No component simulates a kubelet here.
    let cluster = Cluster::start(ClusterOptions { kwok: false, ..ClusterOptions::private() }).await.unwrap();
    testbed::tandem::install_definitions(&cluster).await.unwrap();
    let args = ["run", "--leader-elect=false", "--admin-address=127.0.0.1:0", "--log-format=text"];
    let launch = Launch {
        operator: OperatorKind::NodePool,
        args: args.map(String::from).to_vec(),
        env: Vec::new(),
        kubeconfig: cluster.kubeconfig_path().to_owned(),
        memory_limit: Some(testbed::tandem::default_memory_limit(OperatorKind::NodePool).unwrap()),
    };
    let mut operator = OperatorProcess::start(&cluster, launch).await.unwrap();
    let client = cluster.client().await.unwrap();
    let mut pool = objects::pool("stuck", 1, 3);
    pool.spec.replicas = Some(1);
    // Longer than a busy machine takes from the test's look at the node to the operator's end. Then it is made short.
    pool.spec.provisioning_timeout_seconds = 3600;
    let pools = Api::<NodePool>::namespaced(client.clone(), "default");
    pools.create(&PostParams::default(), &pool).await.unwrap();
    let nodes = Api::<Node>::all(client);
    let first = eventually(PATIENCE, "a node", async || {
        Ok(nodes.list(&ListParams::default()).await?.items.into_iter().next())
    })
    .await
    .unwrap();
    let name = first.name_any();

    // Its kubelet starts while the operator is down, and never becomes Ready.
    operator.kill_9().await.unwrap();
    nodes.patch_status(&name, &PatchParams::default(), &not_ready()).await.unwrap();
    let short = Patch::Merge(json!({"spec": {"provisioningTimeoutSeconds": 15}}));
    pools.patch("stuck", &PatchParams::default(), &short).await.unwrap();
    operator.start_again().await.unwrap();
    eventually(PATIENCE, "the node is replaced", async || {
        operator.check_alive()?;
        let uid = nodes.get_opt(&name).await?.and_then(|node| node.metadata.uid);
        Ok((uid != first.metadata.uid).then_some(()))
    })
    .await
    .unwrap();
    assert_eq!(operator.stop(EXITS).await.unwrap(), Exit::Code(0));
    cluster.stop().await.unwrap();
}
