//! A pool of every provider is scaled by others: a `HorizontalPodAutoscaler`, and `kubectl scale`.

#![expect(clippy::panic, reason = "a test says so by panicking")]

use anyhow::{Result, ensure};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::api::DeleteParams;
use testbed::cluster::ClusterOptions;
use testbed::external_metrics::{self, MetricsServer};
use testbed::karpenter::{self, NODE_CLASS};
use testbed::machines::{Machines, PROGRAM};
use testbed::places::Places;
use testbed::test_env::{TestEnv, is_ready};
use testbed::wait::{PATIENCE, eventually};
use testbed::{cluster_api, objects};

/// The pools, by their providers.
const POOLS: [&str; 4] = ["simulated", "exec", "karpenter", "cluster-api"];

/// A control plane of its own: the replacement for a metrics adapter stays registered with it.
static PLACES: Places = Places::one_beside(|| ClusterOptions {
    controller_manager_flags: vec![external_metrics::QUICK.to_owned()],
    ..ClusterOptions::private()
});

/// Waits until each pool has this many nodes, all Ready, and `managedFields` names these writers of its replicas.
async fn have(
    env: &TestEnv,
    programs: &[&testbed::operators::OperatorProcess],
    wanted: usize,
    writers: &[&str],
) {
    for name in POOLS {
        let what = format!("the pool {name} has {wanted} nodes, and replicas {writers:?}");
        let there = eventually(PATIENCE, &what, async || {
            env.operators.keep_alive().await?;
            programs.iter().try_for_each(|program| program.check_alive())?;
            let (pool, nodes) = (env.pool(name).await?, env.nodes(name).await?);
            let ready = nodes.iter().filter(|node| is_ready(node)).count();
            let named: Vec<_> = pool.replicas_writers().filter_map(|entry| entry.manager.clone()).collect();
            let number = Some(i32::try_from(wanted)?);
            let status = pool.status.unwrap_or_default();
            ensure!(
                (pool.spec.replicas, status.ready_replicas, nodes.len(), ready)
                    == (number, number, wanted, wanted),
                "{:?} wanted, {ready} of {} ready, {}",
                pool.spec.replicas,
                nodes.len(),
                serde_json::to_string(&status)?
            );
            ensure!(named == writers, "spec.replicas is {named:?}'s");
            Ok(Some(()))
        });
        there.await.unwrap_or_else(|error| panic!("{error:#}\n{}", env.operators.node_pool.log_tail()));
    }
}

/// Waits until Kubernetes knows that the autoscalers which were deleted are gone, and scales by none of them any more: it does
/// once it reports about one that was made after that.
async fn are_forgotten(env: &TestEnv) -> Result<()> {
    let (name, autoscalers) = ("of-no-pool", env.api::<HorizontalPodAutoscaler>());
    env.create(&external_metrics::autoscaler(name)?).await?;
    eventually(PATIENCE, "an autoscaler that was made last is looked at", async || {
        let status = autoscalers.get(name).await?.status.unwrap_or_default();
        Ok(status.conditions.is_some_and(|all| !all.is_empty()).then_some(()))
    })
    .await?;
    autoscalers.delete(name, &DeleteParams::default()).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_horizontal_pod_autoscaler_and_kubectl_scale_drive_a_pool_of_every_provider() {
    let mut machines = Machines::new().unwrap();
    let env = TestEnv::begin_with(&PLACES, "hpa", async |cluster| {
        karpenter::install(cluster).await?;
        cluster_api::install(cluster).await?;
        let rights = ["karpenter", "clusterApi"].map(|provider| format!("providers.{provider}.enabled=true"));
        Ok([machines.values(), rights.to_vec()].concat())
    });
    let env = env.await.unwrap();
    machines.start_kubelets(env.cluster).await.unwrap();
    let karpenter = karpenter::start(env.cluster).await.unwrap();
    let capi = cluster_api::start(env.cluster).await.unwrap();
    cluster_api::create(env.cluster, env.namespace(), "workers").await.unwrap();
    let metrics = MetricsServer::start(env.cluster).await.unwrap();
    metrics.set(2);

    let one = Some(1);
    let mut simulated = objects::pool("simulated", 0, 10);
    simulated.spec.replicas = one;
    let pools = [
        simulated,
        super::exec::pool_of(PROGRAM, "exec", 1),
        super::karpenter::pool_of("karpenter", NODE_CLASS.2, 1),
        super::cluster_api::pool_of("cluster-api", one),
    ];
    for pool in &pools {
        env.create(pool).await.unwrap();
        let name = pool.metadata.name.as_deref().unwrap();
        env.create(&external_metrics::autoscaler(name).unwrap()).await.unwrap();
    }
    let programs = [&karpenter, &capi.core, &capi.infrastructure];
    have(&env, &programs, 2, &["kube-controller-manager"]).await;
    metrics.set(1);
    have(&env, &programs, 1, &["kube-controller-manager"]).await;

    let autoscalers = env.api::<HorizontalPodAutoscaler>();
    for name in POOLS {
        autoscalers.delete(name, &DeleteParams::default()).await.unwrap();
    }
    are_forgotten(&env).await.unwrap();
    let scale = async |replicas: usize| -> Result<()> {
        for name in POOLS {
            let (pool, replicas) = (format!("nodepools.tandem.dev/{name}"), format!("--replicas={replicas}"));
            env.kubectl(&["scale", &pool, &replicas]).await?;
        }
        Ok(())
    };
    scale(2).await.unwrap();
    have(&env, &programs, 2, &["kubectl"]).await;
    scale(0).await.unwrap();
    // A zero through /scale leaves no writer behind: `cargo lab scale-corners`.
    have(&env, &programs, 0, &[]).await;

    super::cluster_api::end(env, capi).await;
    karpenter.stop(PATIENCE).await.unwrap();
}
