//! What a large drain costs the `NodePool` operator, when budgets let next to nothing go: memory, and lists of pods.

use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::memory::{self, Field};
use testbed::objects;
use testbed::test_env::{PATIENCE, TestEnv};
use testbed::wait::eventually;
use testbed::waiting;

use super::scale;

const NODES: usize = 60;
const PODS_PER_NODE: usize = 30;
/// How much the drain may add to what the operator had before, in MiB: a debug build, and what it has in hand of 60 nodes.
const MOST_GROWTH: f64 = 60.0;

/// A pod with as much in it as a large one has. Its managed fields come with it.
fn fat_pod(name: &str, node: &str) -> Value {
    let env: Vec<Value> = (0..60)
        .map(|index| json!({"name": format!("SETTING_NUMBER_{index:02}"), "value": "a value of ordinary size, as they are"}))
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "fat"}},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "app", "image": "example.invalid/app", "env": env}],
        },
    })
}

async fn fill(env: &TestEnv, pool: &str) {
    let nodes: Vec<String> = env.nodes(pool).await.unwrap().iter().map(ResourceExt::name_any).collect();
    let names = nodes.iter().flat_map(|node| (0..PODS_PER_NODE).map(move |index| (node, index)));
    let pods = env.api::<Pod>();
    let create = |(node, index): (&String, usize)| {
        let (name, pods) = (format!("{node}-{index}"), pods.clone());
        let pod = fat_pod(&name, node);
        async move { pods.patch(&name, &PatchParams::apply("filler"), &Patch::Apply(pod)).await.map(drop) }
    };
    stream::iter(names.map(create).collect::<Vec<_>>())
        .buffer_unordered(16)
        .try_collect::<Vec<()>>()
        .await
        .unwrap();
}

/// How many lists of one node's pods the operator made since the control plane began. The parsed events leave lists out, which
/// name no object.
fn pod_lists(env: &TestEnv) -> usize {
    let log = std::fs::read_to_string(env.cluster.audit_log().unwrap().path()).unwrap();
    let parts = ["\"verb\":\"list\"", "/api/v1/pods?", "spec.nodeName", "nodepool-operator"];
    log.lines().filter(|line| parts.iter().all(|part| line.contains(part))).count()
}

/// Waits until the pool has no nodes, for as long as they or their pods become fewer: how many pods a second are evicted is the
/// machine's matter, and all nodes have some left until nearly all are.
async fn is_emptied(env: &TestEnv, pool: &str) {
    let count = async || {
        let pods = env.api::<Pod>().list_metadata(&ListParams::default().labels("app=fat")).await?;
        anyhow::Ok(env.nodes(pool).await?.len() + pods.items.len())
    };
    let mut before = count().await.unwrap();
    while before > 0 {
        before = eventually(PATIENCE, &format!("fewer than {before} nodes and pods"), async || {
            let left = count().await?;
            Ok((left < before).then_some(left))
        })
        .await
        .unwrap();
        waiting::gets_on();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_drain_that_a_budget_holds_up_takes_little_memory_and_few_lists() {
    let env = TestEnv::begin("large-drain", &[]).await.unwrap();
    let mut pool = objects::pool("large", 0, 100);
    pool.spec.replicas = Some(i32::try_from(NODES).unwrap());
    env.create(&pool).await.unwrap();
    env.settles("large", i32::try_from(NODES).unwrap()).await.unwrap();
    fill(&env, "large").await;
    waiting::gets_on();
    let budget: PodDisruptionBudget = serde_json::from_value(json!({
        "metadata": {"name": "fat"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "fat"}}},
    }))
    .unwrap();
    env.create(&budget).await.unwrap();
    let resident = |field| memory::of(&env.operators.node_pool.pid().to_string(), field).unwrap();
    let before = resident(Field::Resident);
    let lists_before = pod_lists(&env);
    let scaled = Instant::now();

    scale(&env, "npool/large", 0).await;
    env.says("large", "Reconciling", ("True", "DrainBlocked", "wait for their turn to be drained"))
        .await
        .unwrap();
    let watched = Duration::from_secs(60);
    tokio::time::sleep(watched).await;
    let (peak, now) = (resident(Field::Peak), resident(Field::Resident));
    let lists = pod_lists(&env) - lists_before;
    let took = scaled.elapsed().as_secs();
    println!("before {before:.0} MiB, peak {peak:.0} MiB, now {now:.0} MiB, {lists} lists in {took} s");
    assert!(peak - before < MOST_GROWTH, "{before} MiB before, {peak} MiB at most");
    assert!(lists > 0, "they are in the audit log");
    // The bursts of drains and of everything else, and nine a second.
    let most = 18 + 50 + 9 * (took + 1);
    assert!(u64::try_from(lists).unwrap() < most, "{lists} lists in {took} s, and not {most}");

    waiting::gets_on();
    let began = Instant::now();
    env.kubectl(&["delete", "pdb", "fat"]).await.unwrap();
    is_emptied(&env, "large").await;
    println!("drained in {:.0} s", began.elapsed().as_secs_f64());
    let left = env.api::<Pod>().list(&ListParams::default().labels("app=fat")).await.unwrap().items.len();
    assert_eq!(left, 0);
    env.end().await.unwrap();
}
