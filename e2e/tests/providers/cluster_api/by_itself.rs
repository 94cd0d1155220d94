//! Machines that Cluster API ends by itself: it drains their nodes, and Tandem leaves it to that.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use shared_crds::names::{
    DRAIN_STARTED_ANNOTATION, DRAIN_WAITS_ANNOTATION, DRAINED_BY_PROVIDER_ANNOTATION, asks_for,
};
use testbed::audit::Event;
use testbed::cluster_api::{self, ClusterApi};
use testbed::objects;
use testbed::test_env::TestEnv;

use super::{begin, deployments, end, has, machines, names, pool_of, scaled_by, size, stays, wait_for};

/// The annotation of a Machine whose Node Cluster API drains only after another controller has taken it off.
const HOOK: &str = "pre-drain.delete.hook.machine.cluster.x-k8s.io/test";

/// Writes the same `annotation` to all of these Machines, as kubectl has it.
async fn annotate(env: &TestEnv, machines: &[String], annotation: &str) {
    let machines: Vec<&str> = machines.iter().map(String::as_str).collect();
    let args = [&["annotate", "machines.cluster.x-k8s.io"][..], &machines, &[annotation]].concat();
    env.kubectl(&args).await.unwrap();
}

/// Gives the `MachineDeployment` a new template, so that Cluster API replaces every machine, one after the other.
async fn roll_out(env: &TestEnv) {
    let template =
        Patch::Merge(json!({"spec": {"template": {"spec": {"infrastructureRef": {"name": "small-2"}}}}}));
    deployments(env).patch("workers", &PatchParams::default(), &template).await.unwrap();
}

/// Waits until Cluster API is deleting a Machine, and returns its name.
async fn deleting(env: &TestEnv, capi: &ClusterApi) -> String {
    wait_for(env, capi, "a Machine is being deleted", async || {
        let machines = cluster_api::machines(env.client.clone(), env.namespace());
        let all = machines.list(&ListParams::default()).await?.items;
        let is_going = |machine: &DynamicObject| machine.metadata.deletion_timestamp.is_some();
        Ok(all.into_iter().find(is_going).map(|machine| machine.name_any()))
    })
    .await
}

async fn node(env: &TestEnv, name: &str) -> Result<Node> {
    Ok(Api::<Node>::all(env.client.clone()).get(name).await?)
}

fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true)
}

/// Waits until the node says that its provider drains it, and is the one that the pool counts as leaving.
async fn is_left(env: &TestEnv, capi: &ClusterApi, name: &str) {
    // What becomes of a Machine is no event of the pool, and a change of the pool is.
    env.patch_pool("racks", &json!({"maxReplicas": 31})).await.unwrap();
    wait_for(env, capi, &format!("{name} is left to Cluster API"), async || {
        let node = node(env, name).await?;
        let noted = node.annotations().get(DRAIN_WAITS_ANNOTATION).context("no annotation")?;
        let nodes = env.pool("racks").await?.status.unwrap_or_default().nodes.unwrap_or_default();
        let is_so = noted.contains("its provider is deleting its machine")
            && asks_for(DRAINED_BY_PROVIDER_ANNOTATION, &node.metadata)
            && nodes.draining == 1;
        ensure!(is_so, "{noted}, {nodes:?}");
        Ok(Some(()))
    })
    .await;
}

/// Checks that the node is as Cluster API has it, which has `cordoned` it or not, with its pod, and that the pool wants two machines.
async fn check_untouched(env: &TestEnv, name: &str, cordoned: bool) -> Result<()> {
    let node = node(env, name).await?;
    let is_drained = node.annotations().contains_key(DRAIN_STARTED_ANNOTATION);
    let is_untouched =
        is_cordoned(&node) == cordoned && !is_drained && node.metadata.deletion_timestamp.is_none();
    ensure!(is_untouched, "{:?} {:?}", node.metadata, node.spec);
    let runs_there = |pod: &Pod| {
        let is_there = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(name);
        is_there && pod.metadata.deletion_timestamp.is_none()
    };
    let pods = env.api::<Pod>().list(&ListParams::default()).await?.items;
    ensure!(pods.iter().any(runs_there), "no pod runs on {name}");
    ensure!(size(env).await? == 2, "the number of machines was changed");
    Ok(())
}

/// Checks that pods were evicted, and not by the operator of pools.
fn check_evictions(env: &TestEnv) {
    let events = env.events().unwrap();
    let evictions = events.iter().filter(|event| event.subresource == "eviction");
    let by: Vec<&str> = evictions.map(Event::writer).collect();
    assert!(!by.is_empty() && by.iter().all(|user| !user.contains("nodepool-operator")), "{by:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_is_deleted_with_a_hook_keeps_its_node_as_cluster_api_has_it_and_gets_one_successor() {
    let (env, capi) = begin("capi-hook").await;
    env.create(&pool_of("racks", Some(2))).await.unwrap();
    env.create(&objects::deployment("web", "racks", 2, "3")).await.unwrap();
    let before = names(&has(&env, &capi, 2).await);
    env.pods_run(2).await.unwrap();
    let mark = env.audit().unwrap().end().unwrap();

    // While the hook is there, Cluster API does nothing to the node.
    let (leaving, stayed) = (before[0].as_str(), &before[1]);
    annotate(&env, &before[..1], &format!("{HOOK}=waits")).await;
    env.kubectl(&["delete", "machines.cluster.x-k8s.io", leaving, "--wait=false"]).await.unwrap();
    is_left(&env, &capi, leaving).await;
    stays("the node is as it was", async || check_untouched(&env, leaving, false).await).await;

    // It cordons the node then, and a budget of the pods holds its drain.
    let budget = ["create", "poddisruptionbudget", "keep", "--selector=app=web", "--max-unavailable=0"];
    env.kubectl(&budget).await.unwrap();
    annotate(&env, &before[..1], &format!("{HOOK}-")).await;
    wait_for(&env, &capi, "Cluster API cordons the node", async || {
        Ok(is_cordoned(&node(&env, leaving).await?).then_some(()))
    })
    .await;
    env.patch_pool("racks", &json!({"maxReplicas": 32})).await.unwrap();
    stays("the node stays cordoned", async || check_untouched(&env, leaving, true).await).await;
    is_left(&env, &capi, leaving).await;

    env.kubectl(&["delete", "poddisruptionbudget/keep"]).await.unwrap();
    wait_for(&env, &capi, "the machine is gone", async || {
        let left = machines(&env).await?;
        ensure!(left.iter().all(|(name, _)| name != leaving), "{left:?}");
        Ok(Some(()))
    })
    .await;
    let after = names(&has(&env, &capi, 2).await);
    env.pods_run(2).await.unwrap();
    assert!(after.contains(stayed), "{stayed} was replaced: {after:?}");
    assert_eq!(scaled_by(&env, mark), [""; 0], "its successor comes without a request");
    check_evictions(&env);
    env.kubectl(&["delete", "deployment/web"]).await.unwrap();
    end(env, capi).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_that_waits_for_a_hook_is_not_gone_on_with_by_the_operator() {
    let (env, capi) = begin("capi-rollout-hook").await;
    env.create(&pool_of("racks", Some(2))).await.unwrap();
    env.create(&objects::deployment("web", "racks", 2, "3")).await.unwrap();
    let before = names(&has(&env, &capi, 2).await);
    env.pods_run(2).await.unwrap();
    let mark = env.audit().unwrap().end().unwrap();

    annotate(&env, &before, &format!("{HOOK}=waits")).await;
    roll_out(&env).await;
    let leaving = deleting(&env, &capi).await;
    assert!(before.contains(&leaving), "{leaving} is new");
    is_left(&env, &capi, &leaving).await;
    stays("the rollout waits for the hook", async || {
        check_untouched(&env, &leaving, false).await?;
        let machines = machines(&env).await?;
        // One more than are wanted is what the rollout of Cluster API may make.
        ensure!(machines.len() <= 3 && machines.iter().all(|(_, is_marked)| !is_marked), "{machines:?}");
        Ok(())
    })
    .await;

    annotate(&env, &before, &format!("{HOOK}-")).await;
    wait_for(&env, &capi, "the rollout is over", async || {
        let there = names(&env.nodes("racks").await?);
        ensure!(before.iter().all(|name| !there.contains(name)), "{there:?} with {before:?}");
        Ok(Some(()))
    })
    .await;
    has(&env, &capi, 2).await;
    env.pods_run(2).await.unwrap();
    assert_eq!(scaled_by(&env, mark), [""; 0], "Cluster API alone replaces them");
    check_evictions(&env);
    env.kubectl(&["delete", "deployment/web"]).await.unwrap();
    end(env, capi).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_machine_goes_while_the_machine_deployment_rolls_out() {
    let (env, capi) = begin("capi-rollout").await;
    env.create(&pool_of("racks", Some(3))).await.unwrap();
    let before = names(&has(&env, &capi, 3).await);
    roll_out(&env).await;
    // Meanwhile fewer nodes are wanted.
    env.patch_pool("racks", &json!({"replicas": 2})).await.unwrap();
    let said = AtomicBool::new(false);
    wait_for(&env, &capi, "the rollout is over", async || {
        let deployment = deployments(&env).get("workers").await?;
        let conditions = deployment.data.pointer("/status/conditions").and_then(Value::as_array).cloned();
        let rolling = conditions
            .unwrap_or_default()
            .iter()
            .any(|it| it["type"] == "RollingOut" && it["status"] == "True");
        let new = machines(&env).await?;
        let pool = env.pool("racks").await?.status.unwrap_or_default();
        let waits = pool.conditions.iter().any(|it| it.message.contains("is rolling out"));
        said.fetch_or(waits, Ordering::Relaxed);
        let names: Vec<_> =
            env.nodes("racks").await?.into_iter().filter_map(|node| node.metadata.name).collect();
        if !rolling && names.iter().all(|name| !before.contains(name)) {
            return Ok(Some(()));
        }
        ensure!(size(&env).await? == 3, "the number was lowered during the rollout");
        bail!("rolling {rolling}, says so {waits}, machines {new:?}")
    })
    .await;
    assert!(said.into_inner(), "the pool did not say what it waited for");
    has(&env, &capi, 2).await;
    end(env, capi).await;
}
