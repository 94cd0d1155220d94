//! Pools whose machines are those of a `MachineDeployment`: the real controllers of Cluster API, beside both operators.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

mod by_itself;
mod crashes;
mod health_check;
mod held;
mod token;
mod two_control_planes;

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use shared_crds::NodePool;
use shared_crds::names::{MACHINE_LABEL, PROVIDER_LABEL};
use shared_crds::v1alpha1::{ClusterApiProvider, MachineDeploymentReference, OnContested, ProviderSpec};
use testbed::cluster::Cluster;
use testbed::cluster_api::{self, ClusterApi, DELETE_MACHINE, WITH_CLUSTER_API};
use testbed::objects;
use testbed::test_env::{TestEnv, is_ready};
use testbed::wait::{PATIENCE, eventually};

/// Both operators, Cluster API, and a `MachineDeployment` `workers` without machines.
async fn begin(prefix: &str) -> (TestEnv, ClusterApi) {
    begin_with(prefix, |_| "providers.clusterApi.enabled=true".to_owned()).await
}

/// The same with one value of the chart.
async fn begin_with(prefix: &str, value: impl Fn(&Cluster) -> String) -> (TestEnv, ClusterApi) {
    let env = TestEnv::begin_with(&WITH_CLUSTER_API, prefix, async |cluster| {
        cluster_api::install(cluster).await?;
        Ok(vec![value(cluster)])
    });
    let env = env.await.unwrap();
    let capi = cluster_api::start(env.cluster).await.unwrap();
    cluster_api::create(env.cluster, env.namespace(), "workers").await.unwrap_or_else(|error| {
        panic!("{error:#}\n{}\n{}", capi.core.log_tail(), capi.infrastructure.log_tail())
    });
    (env, capi)
}

pub(super) async fn end(env: TestEnv, capi: ClusterApi) {
    // Its controllers have to take their finalizers off before the namespace can go.
    for kind in ["nodepools.tandem.dev", "machinedeployments", "clusters.cluster.x-k8s.io"] {
        if let Err(error) = env.kubectl(&["delete", kind, "--all", "--timeout=180s"]).await {
            let left = format!("{kind},machines.cluster.x-k8s.io");
            let left = env.kubectl(&["get", &left, "--output", "yaml"]).await;
            let left = left.unwrap_or_else(|error| format!("{error:#}"));
            let logs =
                [env.operators.node_pool.log_tail(), capi.core.log_tail(), capi.infrastructure.log_tail()];
            panic!("{error:#}\n{}\n{left}", logs.join("\n"));
        }
    }
    env.end().await.unwrap();
    capi.stop(PATIENCE).await.unwrap();
}

/// A pool that sizes the `MachineDeployment` `workers`.
pub(super) fn pool_of(name: &str, replicas: Option<i32>) -> NodePool {
    let mut pool = objects::pool(name, 0, 30);
    let machine_deployment_ref = MachineDeploymentReference { name: "workers".into() };
    pool.spec.provider = ProviderSpec {
        cluster_api: Some(ClusterApiProvider { machine_deployment_ref }),
        ..ProviderSpec::default()
    };
    pool.spec.replicas = replicas;
    pool
}

async fn wait_for<T>(
    env: &TestEnv,
    capi: &ClusterApi,
    what: &str,
    probe: impl AsyncFn() -> Result<Option<T>>,
) -> T {
    let found = eventually(PATIENCE, what, async || {
        env.operators.keep_alive().await?;
        capi.check_alive()?;
        probe().await
    });
    found.await.unwrap_or_else(|error| {
        panic!("{error:#}\n{}\n{}", env.operators.node_pool.log_tail(), capi.core.log_tail())
    })
}

fn deployments(env: &TestEnv) -> Api<DynamicObject> {
    cluster_api::deployments(env.client.clone(), env.namespace())
}

/// The number that the `MachineDeployment` keeps.
async fn size(env: &TestEnv) -> Result<i64> {
    size_at(&env.client, env.namespace()).await
}

/// The same in another cluster.
async fn size_at(management: &Client, namespace: &str) -> Result<i64> {
    let deployment = cluster_api::deployments(management.clone(), namespace).get("workers").await?;
    Ok(deployment.data.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or_default())
}

/// The machines' names, and whether each is marked to go first.
async fn machines(env: &TestEnv) -> Result<Vec<(String, bool)>> {
    machines_at(&env.client, env.namespace()).await
}

/// The same in another cluster.
async fn machines_at(management: &Client, namespace: &str) -> Result<Vec<(String, bool)>> {
    let all = cluster_api::machines(management.clone(), namespace).list(&ListParams::default()).await?.items;
    let read = |machine: DynamicObject| {
        let is_marked = machine.metadata.annotations.is_some_and(|all| all.contains_key(DELETE_MACHINE));
        (machine.metadata.name.unwrap_or_default(), is_marked)
    };
    Ok(all.into_iter().map(read).collect())
}

/// Waits until the pool has this many Ready nodes, and there are as many machines, none marked, and none promised.
async fn has(env: &TestEnv, capi: &ClusterApi, wanted: usize) -> Vec<Node> {
    has_at(env, capi, &env.client, wanted).await
}

/// The same with the machines in another cluster.
async fn has_at(env: &TestEnv, capi: &ClusterApi, management: &Client, wanted: usize) -> Vec<Node> {
    wait_for(env, capi, &format!("the pool has {wanted} nodes"), async || {
        let nodes = env.nodes("racks").await?;
        let machines = machines_at(management, env.namespace()).await?;
        let size = size_at(management, env.namespace()).await?;
        let ready = nodes.iter().filter(|node| is_ready(node)).count();
        let status = env.pool("racks").await?.status.unwrap_or_default();
        let number = i64::try_from(wanted)?;
        let is_there = (nodes.len(), ready, machines.len(), size) == (wanted, wanted, wanted, number)
            && status.ready_replicas.map(i64::from) == Some(number)
            && machines.iter().all(|(_, is_marked)| !is_marked);
        ensure!(
            is_there,
            "{} nodes, {ready} ready, {size} wanted, machines {machines:?}, {}",
            nodes.len(),
            serde_json::to_string(&status)?
        );
        Ok(Some(nodes))
    })
    .await
}

/// Waits until any condition of the pool `racks` has a message with `text`.
async fn mentions(env: &TestEnv, capi: &ClusterApi, text: &str) {
    wait_for(env, capi, &format!("the pool says …{text}…"), async || {
        let all = env.pool("racks").await?.status.unwrap_or_default().conditions;
        ensure!(all.iter().any(|it| it.message.contains(text)), "{}", serde_json::to_string(&all)?);
        Ok(Some(()))
    })
    .await;
}

/// Waits until a node other than `besides` is cordoned, and returns its name.
async fn draining(env: &TestEnv, capi: &ClusterApi, besides: &[&str]) -> String {
    wait_for(env, capi, "a node is drained", async || {
        let is_cordoned = |node: &Node| node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
        let cordoned = env.nodes("racks").await?.into_iter().filter(is_cordoned);
        Ok(cordoned.filter_map(|node| node.metadata.name).find(|name| !besides.contains(&&**name)))
    })
    .await
}

/// Looks for some seconds, in which the operator decides several times, whether something stays as it is.
async fn stays(what: &str, is_so: impl AsyncFn() -> Result<()>) {
    for _ in 0..10 {
        is_so().await.unwrap_or_else(|error| panic!("{what}: {error:#}"));
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Waits until a condition of the pool is as in [`TestEnv::said`].
async fn says(env: &TestEnv, capi: &ClusterApi, pool: &str, condition: &str, expected: (&str, &str, &str)) {
    let what = format!("the pool {pool} says {expected:?}");
    wait_for(env, capi, &what, async || env.said(pool, condition, expected).await).await;
}

/// Waits until the pool's condition `ProvisioningHealthy` is `False` and its message contains `text`.
async fn unhealthy(env: &TestEnv, capi: &ClusterApi, pool: &str, text: &str) {
    says(env, capi, pool, "ProvisioningHealthy", ("False", "", text)).await;
}

/// The users that have set the number of machines since `mark`, a place in the audit log.
fn scaled_by(env: &TestEnv, mark: u64) -> Vec<String> {
    let events = env.audit().unwrap().follow_from(mark).read_new().unwrap();
    let scaled = |event: &testbed::audit::Event| {
        event.subresource == "scale"
            && event.succeeded()
            && event.is_write()
            && event.object.as_ref().is_some_and(|it| it.resource == "machinedeployments")
    };
    events.into_iter().filter(scaled).map(|event| event.user).collect()
}

fn names(nodes: &[Node]) -> Vec<String> {
    nodes.iter().filter_map(|node| node.metadata.name.clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_deployment_follows_the_pods_and_loses_exactly_the_drained_machines() {
    let (mut env, capi) = begin("capi").await;
    // How large a machine is says the MachineDeployment, as for Cluster Autoscaler.
    let mut pool = pool_of("racks", None);
    let capacity = std::mem::take(&mut pool.spec.template.spec.capacity);
    let of = |what: &str| format!("capacity.cluster-autoscaler.kubernetes.io/{what}={}", capacity[what].0);
    let workers = "machinedeployments.cluster.x-k8s.io/workers";
    env.kubectl(&["annotate", workers, &of("cpu"), &of("memory")]).await.unwrap();
    env.create(&pool).await.unwrap();
    env.create(&objects::autoscaler("all", 1)).await.unwrap();
    env.create(&objects::deployment("web", "racks", 4, "3")).await.unwrap();
    let nodes = has(&env, &capi, 4).await;
    env.pods_run(4).await.unwrap();
    for node in &nodes {
        let labels = node.metadata.labels.as_ref().unwrap();
        assert_eq!(labels[PROVIDER_LABEL], "clusterApi.workers");
        assert!(machines(&env).await.unwrap().iter().any(|(name, _)| *name == labels[MACHINE_LABEL]));
    }

    // The operator is killed while machines leave. The pods that stay say which nodes may go.
    env.kubectl(&["scale", "deployment/web", "--replicas=2"]).await.unwrap();
    wait_for(&env, &capi, "the number is lowered", async || {
        let pool = env.pool("racks").await?;
        ensure!(size(&env).await? < 4, "{}", serde_json::to_string(&(pool.spec.replicas, pool.status))?);
        Ok(Some(()))
    })
    .await;
    env.operators.node_pool.kill_9().await.unwrap();
    env.operators.node_pool.start_again().await.unwrap();
    let left = has(&env, &capi, 2).await;
    env.pods_run(2).await.unwrap();
    assert!(names(&left).iter().all(|name| names(&nodes).contains(name)), "a node was replaced");

    env.kubectl(&["delete", "deployment/web"]).await.unwrap();
    has(&env, &capi, 0).await;
    end(env, capi).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_machines_come_and_go_and_the_number_only_falls_by_what_was_drained() {
    let (env, capi) = begin("capi-twenty").await;
    let mark = env.audit().unwrap().end().unwrap();
    env.create(&pool_of("racks", Some(20))).await.unwrap();
    has(&env, &capi, 20).await;
    env.kubectl(&["scale", "nodepools.tandem.dev/racks", "--replicas=3"]).await.unwrap();
    has(&env, &capi, 3).await;
    let by = scaled_by(&env, mark);
    assert!(by.len() >= 2 && by.iter().all(|user| user.contains("nodepool-operator")), "{by:?}");
    end(env, capi).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_deployment_that_is_missing_paused_or_of_another_pool_is_said() {
    let (env, capi) = begin("capi-wrong").await;
    let mut missing = pool_of("racks", Some(1));
    missing.spec.provider.cluster_api.as_mut().unwrap().machine_deployment_ref.name = "nowhere".into();
    env.create(&missing).await.unwrap();
    let says = async |pool: &str, text: &str| unhealthy(&env, &capi, pool, text).await;
    says("racks", "there is no MachineDeployment").await;
    // No machines can be there, so nothing keeps the pool.
    env.kubectl(&["delete", "nodepools.tandem.dev/racks", "--timeout=180s"]).await.unwrap();

    env.create(&pool_of("racks", Some(1))).await.unwrap();
    has(&env, &capi, 1).await;
    let pause = |paused: bool| Patch::Merge(json!({"spec": {"paused": paused}}));
    let deployments = deployments(&env);
    deployments.patch("workers", &PatchParams::default(), &pause(true)).await.unwrap();
    env.patch_pool("racks", &json!({"replicas": 2})).await.unwrap();
    says("racks", "is paused").await;
    assert_eq!(size(&env).await.unwrap(), 1, "nothing is asked of a paused one");
    deployments.patch("workers", &PatchParams::default(), &pause(false)).await.unwrap();
    has(&env, &capi, 2).await;

    // A second pool of the same machines, and the first one's with it, would each remove what the other wants.
    let before = names(&env.nodes("racks").await.unwrap());
    env.create(&pool_of("second", Some(0))).await.unwrap();
    says("second", "is used by the pool").await;
    env.patch_pool("second", &json!({"replicas": 1})).await.unwrap();
    env.patch_pool("racks", &json!({"replicas": 3})).await.unwrap();
    let after = names(&has(&env, &capi, 3).await);
    assert!(before.iter().all(|name| after.contains(name)), "{before:?} {after:?}");
    env.kubectl(&["delete", "nodepools.tandem.dev/second", "--timeout=180s"]).await.unwrap();
    assert_eq!(names(&has(&env, &capi, 3).await), after);
    end(env, capi).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_writer_of_the_machine_deployment_is_named_and_answered_as_on_contested_says() {
    let (env, capi) = begin("capi-contested").await;
    env.create(&pool_of("racks", Some(2))).await.unwrap();
    has(&env, &capi, 2).await;
    let says = async |status: &str, reason: &str, text: &str| {
        says(&env, &capi, "racks", "MachinesContested", (status, reason, text)).await;
    };
    says("False", "NotContested", "keeps 2 machines").await;
    let scale = async |replicas: i32| {
        let to = format!("--replicas={replicas}");
        env.kubectl(&["scale", "machinedeployments.cluster.x-k8s.io/workers", &to]).await.unwrap();
    };

    // Their number is kept, up and down, with nodes that are drained. It is noticed by itself, within a minute.
    scale(4).await;
    says("True", "Yielded", "kubectl has set the provider to 4 machines").await;
    has(&env, &capi, 4).await;
    // From here on, a change of the pool makes the operator look at once.
    let looks = async |bound: i32| env.patch_pool("racks", &json!({"maxReplicas": bound})).await.unwrap();
    scale(1).await;
    looks(31).await;
    says("True", "Yielded", "kubectl has set the provider to 1 machine:").await;
    has(&env, &capi, 1).await;
    assert_eq!(
        env.pool("racks").await.unwrap().spec.replicas,
        Some(2),
        "the pool's own number is nobody's to change"
    );
    // What a person sets at the pool counts from then on.
    env.kubectl(&["scale", "nodepools.tandem.dev/racks", "--replicas=3"]).await.unwrap();
    has(&env, &capi, 3).await;
    says("False", "NotContested", "keeps 3 machines").await;

    // An autoscaler that reclaims: pods need one node.
    let mut reclaims = objects::autoscaler("all", 1);
    reclaims.spec.on_contested = OnContested::Reclaim;
    env.create(&objects::deployment("web", "racks", 1, "3")).await.unwrap();
    env.create(&reclaims).await.unwrap();
    has(&env, &capi, 1).await;
    scale(3).await;
    looks(32).await;
    says("True", "Reclaimed", "kubectl has set the provider to 3 machines").await;
    has(&env, &capi, 1).await;
    let events = env.kubectl(&["get", "events", "--output=jsonpath={.items[*].reason}"]).await.unwrap();
    assert!(events.contains("MachinesContested"), "{events}");
    end(env, capi).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_objects_of_cluster_api_may_be_where_a_kubeconfig_says() {
    let path = |cluster: &Cluster| cluster.root().join("management.kubeconfig");
    // Without `enabled`: the operator's own account has no rights to these objects.
    let value = |cluster: &Cluster| format!("providers.clusterApi.kubeconfig={}", path(cluster).display());
    let (env, capi) = begin_with("capi-elsewhere", value).await;
    let kubeconfig = path(env.cluster);
    env.create(&pool_of("racks", Some(1))).await.unwrap();
    unhealthy(&env, &capi, "racks", "cannot read the kubeconfig").await;
    assert_eq!(size(&env).await.unwrap(), 0);
    // It comes while the operator runs, as a mounted Secret does.
    let management = std::fs::read(env.cluster.kubeconfig_path()).unwrap();
    std::fs::write(&kubeconfig, &management).unwrap();
    let before = names(&has(&env, &capi, 1).await);
    std::fs::write(&kubeconfig, "apiVersion: v1\nkind: Config\n").unwrap();
    env.patch_pool("racks", &json!({"replicas": 2})).await.unwrap();
    unhealthy(&env, &capi, "racks", "cannot use the kubeconfig").await;
    assert_eq!(names(&env.nodes("racks").await.unwrap()), before, "nothing is concluded from that");
    std::fs::write(&kubeconfig, &management).unwrap();
    has(&env, &capi, 2).await;
    // For the end: the pool is deleted with its machines.
    env.kubectl(&["delete", "nodepools.tandem.dev", "--all", "--timeout=180s"]).await.unwrap();
    std::fs::remove_file(&kubeconfig).unwrap();
    end(env, capi).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_is_broken_or_deleted_by_hand_is_replaced() {
    let (env, capi) = begin("capi-broken").await;
    capi.break_next(1);
    let mut pool = pool_of("racks", Some(2));
    pool.spec.provisioning_timeout_seconds = 3600;
    env.create(&pool).await.unwrap();
    // However long the good machine takes, it is there before the time of the broken one is over.
    wait_for(&env, &capi, "the machine that is not broken registers", async || {
        let registered = env.nodes("racks").await?.len();
        ensure!(registered == 1, "{registered} nodes");
        Ok(Some(()))
    })
    .await;
    env.patch_pool("racks", &json!({"provisioningTimeoutSeconds": 20})).await.unwrap();
    unhealthy(&env, &capi, "racks", "1 of the machines did not register a Node").await;
    let before = names(&has(&env, &capi, 2).await);
    // From here on no machine is given up.
    env.patch_pool("racks", &json!({"provisioningTimeoutSeconds": 3600})).await.unwrap();

    // A person deletes a machine. Cluster API makes another one; nothing is asked for, and no other node goes.
    let machine = machines(&env).await.unwrap().remove(0).0;
    let deleted = ["delete", "machines.cluster.x-k8s.io", &machine, "--wait=false"];
    env.kubectl(&deleted).await.unwrap();
    wait_for(&env, &capi, "the machine is gone", async || {
        let is_there = machines(&env).await?.iter().any(|(name, _)| *name == machine);
        ensure!(size(&env).await? == 2, "the number was changed");
        Ok((!is_there).then_some(()))
    })
    .await;
    let after = names(&has(&env, &capi, 2).await);
    assert_eq!(after.iter().filter(|name| before.contains(name)).count(), 1, "{before:?} {after:?}");
    end(env, capi).await;
}
