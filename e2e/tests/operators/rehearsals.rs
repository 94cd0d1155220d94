//! What the `simulated` provider rehearses: machines that never register, nodes that die, nodes that are smaller than
//! promised, and a provider that lies.

#![expect(clippy::unwrap_used, reason = "a test says so by panicking")]

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use shared_crds::NodePool;
use shared_crds::names::READY_TIME_ANNOTATION;
use testbed::cluster::ClusterOptions;
use testbed::objects;
use testbed::places::Places;
use testbed::test_env::{PATIENCE, TestEnv};
use testbed::wait::eventually;

/// Control planes on which a node that loses its label has no kubelet any more, and is found to be unreachable soon: it
/// misses its Lease, which is renewed every two seconds, for ten.
static WITH_DEATHS: Places = Places::new(1, || ClusterOptions {
    kwok_flags: vec![
        "--manage-nodes-with-label-selector=kwok.x-k8s.io/node=fake".to_owned(),
        "--node-lease-duration-seconds=8".to_owned(),
    ],
    controller_manager_flags: vec![
        "--node-monitor-grace-period=10s".to_owned(),
        "--node-monitor-period=1s".to_owned(),
    ],
    ..ClusterOptions::private()
});

/// A pool whose provider is set up like this.
fn pool_of(name: &str, replicas: i32, simulated: Value) -> NodePool {
    let mut pool = objects::pool(name, 0, 6);
    pool.spec.provider.simulated = Some(serde_json::from_value(simulated).unwrap());
    pool.spec.replicas = Some(replicas);
    pool
}

async fn uids(env: &TestEnv, pool: &str) -> Result<Vec<Option<String>>> {
    Ok(env.nodes(pool).await?.into_iter().map(|node| node.metadata.uid).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_that_never_register_are_given_up_and_asked_for_again() {
    let env = TestEnv::begin("mute", &[]).await.unwrap();
    let mut pool = pool_of("mute", 2, json!({"neverRegisterPercent": 100}));
    pool.spec.provisioning_timeout_seconds = 3;
    env.create(&pool).await.unwrap();
    let given_up = ("False", "ProvisioningTimedOut", "2 of the machines did not register a Node");
    env.says("mute", "ProvisioningHealthy", given_up).await.unwrap();
    assert_eq!(uids(&env, "mute").await.unwrap(), []);
    env.patch_pool("mute", &json!({"provider": {"simulated": {"neverRegisterPercent": 0}}})).await.unwrap();
    env.settles("mute", 2).await.unwrap();
    env.says("mute", "ProvisioningHealthy", ("True", "Provisioned", "")).await.unwrap();
    env.end().await.unwrap();
}

/// The reason of the node's condition `Ready`, while it is `Unknown`.
fn unknown_because(node: &Node) -> Option<String> {
    let conditions = node.status.as_ref()?.conditions.iter().flatten();
    conditions.into_iter().find(|it| it.type_ == "Ready" && it.status == "Unknown")?.reason.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_die_stay_in_the_pool_and_are_no_ready_capacity() {
    let env = TestEnv::begin_at(&WITH_DEATHS, "dead", &[]).await.unwrap();
    env.create(&pool_of("alive", 1, json!({}))).await.unwrap();
    env.create(&pool_of("dying", 2, json!({"deathPercent": 100, "deathAfterSeconds": 15}))).await.unwrap();
    // That both have been Ready stands on them for good. They need not have been so at the same time, on a busy machine.
    eventually(PATIENCE, "both nodes have been ready", async || {
        let nodes = env.nodes("dying").await?;
        let ready =
            nodes.iter().filter(|node| node.annotations().contains_key(READY_TIME_ANNOTATION)).count();
        ensure!(nodes.len() == 2 && ready == 2, "{ready} of {}", nodes.len());
        Ok(Some(()))
    })
    .await
    .unwrap();
    let before = uids(&env, "dying").await.unwrap();
    eventually(PATIENCE, "both nodes are unreachable", async || {
        let nodes = env.nodes("dying").await?;
        let all: Vec<_> = nodes.iter().map(unknown_because).collect();
        // Not the word of kwok, and not of this test: the node lifecycle controller misses the heartbeats.
        ensure!(all.iter().all(|it| it.as_deref() == Some("NodeStatusUnknown")), "{all:?}");
        let status = env.pool("dying").await?.status.unwrap_or_default();
        let counts = (status.replicas, status.ready_replicas, status.unavailable_replicas);
        ensure!(counts == (Some(2), Some(0), Some(2)), "{counts:?}");
        Ok(Some(()))
    })
    .await
    .unwrap_or_else(|error| panic!("{error:#}\n{}", env.operators.node_pool.log_tail()));
    env.says("dying", "NodesReady", ("False", "NodesNotReady", "0 of 2 nodes are ready, 2 not ready"))
        .await
        .unwrap();
    assert_eq!(uids(&env, "dying").await.unwrap(), before, "nothing repairs them yet");
    let nodes = env.nodes("dying").await.unwrap();
    assert!(nodes.iter().all(|node| node.metadata.deletion_timestamp.is_none()));
    // The control: the heartbeats of other nodes go on.
    env.settles("alive", 1).await.unwrap();
    // Dead nodes go when they are not wanted.
    env.patch_pool("dying", &json!({"replicas": 0})).await.unwrap();
    env.settles("dying", 0).await.unwrap();
    env.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_are_smaller_than_promised_take_fewer_pods_and_more_of_them_come() {
    let env = TestEnv::begin("small", &[]).await.unwrap();
    let mut pool = pool_of("small", 0, json!({"undersizedPercent": 100, "undersizedByPercent": 50}));
    pool.spec.replicas = None;
    env.create(&pool).await.unwrap();
    env.create(&objects::autoscaler("all", 3)).await.unwrap();
    // One node as the template describes it would take all four.
    env.create(&objects::deployment("web", "small", 4, "900m")).await.unwrap();
    env.pods_run(4).await.unwrap();
    env.settles("small", 2).await.unwrap();
    for node in env.nodes("small").await.unwrap() {
        let status = node.status.clone().unwrap();
        for amounts in [status.capacity.unwrap(), status.allocatable.unwrap()] {
            let of = |resource: &str| amounts[resource].0.clone();
            let found = (of("cpu"), of("memory"), of("pods"));
            assert_eq!(found, ("2".to_owned(), "8Gi".to_owned(), "110".to_owned()), "{}", node.name_any());
        }
    }
    env.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_does_not_grow_for_a_pod_that_fits_its_template_and_none_of_its_nodes() {
    let env = TestEnv::begin("promise", &[]).await.unwrap();
    let mut pool = pool_of("small", 0, json!({"undersizedPercent": 100, "undersizedByPercent": 50}));
    pool.spec.replicas = None;
    env.create(&pool).await.unwrap();
    env.create(&objects::autoscaler("all", 3)).await.unwrap();
    env.create(&objects::deployment("web", "small", 1, "1500m")).await.unwrap();
    env.pods_run(1).await.unwrap();
    let discovered = |pool: &NodePool| {
        let known = pool.status.clone().unwrap_or_default().autoscaling.unwrap_or_default().discovered;
        known.map(|known| (known.allocatable["cpu"].0.clone(), known.until_time.is_some()))
    };
    let knows = async |expected: (&str, bool)| {
        eventually(PATIENCE, "what the nodes give pods is in the status", async || {
            let known = discovered(&env.pool("small").await?);
            let expected = Some((expected.0.to_owned(), expected.1));
            ensure!(known == expected, "{known:?}");
            Ok(Some(()))
        })
        .await
        .unwrap();
    };
    knows(("2", false)).await;
    let told = async |pod: &str| {
        eventually(PATIENCE, &format!("the event of {pod}"), async || {
            let columns = "custom-columns=:.involvedObject.name,:.reason,:.message,:.note";
            let events = env.kubectl(&["get", "events", "--no-headers", "--output", columns]).await?;
            let is_told = |line: &&str| line.starts_with(pod) && line.contains("InsufficientCpu (");
            Ok(events.lines().find(is_told).map(str::to_owned))
        })
        .await
        .unwrap_or_else(|error| panic!("{error:#}\n{}", env.operators.autoscaler.log_tail()));
    };
    // While there is a node.
    env.create(&objects::deployment("big", "small", 1, "3")).await.unwrap();
    told("big-").await;
    env.settles("small", 1).await.unwrap();
    // And when there is none.
    env.kubectl(&["delete", "deployment", "web", "big", "--cascade=foreground"]).await.unwrap();
    env.settles("small", 0).await.unwrap();
    knows(("2", true)).await;
    let generation = env.pool("small").await.unwrap().metadata.generation;
    env.create(&objects::deployment("huge", "small", 1, "3")).await.unwrap();
    told("huge-").await;
    assert_eq!(env.pool("small").await.unwrap().metadata.generation, generation, "replicas were not written");
    // The control: a pod that fits the nodes has one.
    env.kubectl(&["delete", "deployment", "huge", "--cascade=foreground"]).await.unwrap();
    env.create(&objects::deployment("web", "small", 1, "1500m")).await.unwrap();
    env.pods_run(1).await.unwrap();
    env.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_lies_costs_no_node_and_is_named() {
    let env = TestEnv::begin("lies", &[]).await.unwrap();
    env.create(&pool_of("racks", 2, json!({}))).await.unwrap();
    env.settles("racks", 2).await.unwrap();
    let before = uids(&env, "racks").await.unwrap();
    for (lie, text) in [
        ("EmptyList", "and does not list it"),
        ("DoubleName", "twice, so nothing is concluded from its list"),
        ("ForeignName", "\"another-pools-machine\", which is not a machine of this pool"),
    ] {
        // One more node is wanted, so that there is something to conclude.
        let lying = json!({"replicas": 3, "provider": {"simulated": {"lie": lie}}});
        env.patch_pool("racks", &lying).await.unwrap();
        env.says("racks", "ProvisioningHealthy", ("False", "ProvisioningFailed", text)).await.unwrap();
        assert_eq!(uids(&env, "racks").await.unwrap(), before, "{lie}");
        env.patch_pool("racks", &json!({"replicas": 2, "provider": {"simulated": {"lie": null}}}))
            .await
            .unwrap();
        env.says("racks", "ProvisioningHealthy", ("True", "Provisioned", "")).await.unwrap();
        env.settles("racks", 2).await.unwrap();
        assert_eq!(uids(&env, "racks").await.unwrap(), before, "{lie}");
    }
    env.end().await.unwrap();
}
