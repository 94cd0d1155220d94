//! A pool that a `HorizontalPodAutoscaler` of kube-controller-manager scales, with an external metric. KEDA creates
//! such an object, too.

#![expect(clippy::unwrap_used, reason = "a test says so by panicking")]

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::api::{Patch, PatchParams};
use shared_crds::NodePool;
use testbed::cluster::ClusterOptions;
use testbed::external_metrics::{self, MetricsServer};
use testbed::objects;
use testbed::places::Places;
use testbed::test_env::{PATIENCE, TestEnv};
use testbed::wait::eventually;

/// One control plane, because the replacement for a metrics adapter stays registered with it: while it is not running,
/// no namespace can be deleted there. Its `HorizontalPodAutoscaler` syncs every second.
static PLACES: Places = Places::new(1, || {
    let quick = vec![external_metrics::QUICK.to_owned()];
    ClusterOptions { controller_manager_flags: quick, ..ClusterOptions::private() }
});

/// Waits until a pool's count is `wanted`; the error contains the status of the `HorizontalPodAutoscaler`.
async fn counts(env: &TestEnv, pool: &str, wanted: i32) {
    // It discovers a new kind within half a minute.
    eventually(2 * PATIENCE, &format!("spec.replicas of {pool} is {wanted}"), async || {
        let replicas = env.pool(pool).await?.spec.replicas;
        if replicas == Some(wanted) {
            return Ok(Some(()));
        }
        let said = env.api::<HorizontalPodAutoscaler>().get_opt(pool).await?;
        bail!("{replicas:?}; {:?}", said.and_then(|said| said.status?.conditions))
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_horizontal_pod_autoscaler_scales_a_pool_that_was_made_without_a_count() {
    let env = TestEnv::begin_at(&PLACES, "hpa", &[]).await.unwrap();
    let metrics = MetricsServer::start(env.cluster).await.unwrap();
    env.create(&objects::pool("workers", 1, 10)).await.unwrap();
    // No autoscaler scales it yet, and any client can read its number of nodes.
    eventually(PATIENCE, "the scale of the pool can be read", async || {
        let scale = env.api::<NodePool>().get_scale("workers").await?;
        Ok(scale.spec.and_then(|spec| spec.replicas).filter(|replicas| *replicas == 1))
    })
    .await
    .unwrap();

    metrics.set(4);
    env.create(&external_metrics::autoscaler("workers").unwrap()).await.unwrap();
    counts(&env, "workers", 4).await;
    env.settles("workers", 4).await.unwrap();
    metrics.set(1);
    counts(&env, "workers", 1).await;
    env.settles("workers", 1).await.unwrap();
    env.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_count_that_is_taken_out_of_a_manifest_takes_no_node_with_it() {
    let env = TestEnv::begin("dropped", &[]).await.unwrap();
    let mut pool = objects::pool("workers", 1, 10);
    pool.spec.replicas = Some(3);
    let by_git = PatchParams::apply("git");
    let pools = env.api::<NodePool>();
    pools.patch("workers", &by_git, &Patch::Apply(&pool)).await.unwrap();
    env.settles("workers", 3).await.unwrap();
    pool.spec.replicas = None;
    let dropped = pools.patch("workers", &by_git, &Patch::Apply(&pool)).await.unwrap();
    assert_eq!(dropped.spec.replicas, None, "a field manager still owns the field");
    counts(&env, "workers", 3).await;
    env.settles("workers", 3).await.unwrap();
    let events = env.events().unwrap();
    let drained = events.iter().filter(|event| {
        let node = event.object.as_ref().is_some_and(|object| object.resource == "nodes");
        node && event.request.as_ref().is_some_and(|body| body.to_string().contains("unschedulable"))
    });
    assert_eq!(drained.map(|event| (event.writer(), &event.request)).collect::<Vec<_>>(), []);
    env.end().await.unwrap();
}

/// The condition `ReplicasContested` of a pool: status and message.
async fn contested(env: &TestEnv, pool: &str) -> Result<(String, String)> {
    let conditions = env.pool(pool).await?.status.unwrap_or_default().conditions;
    let found = conditions.into_iter().find(|condition| condition.type_ == "ReplicasContested");
    let found = found.context("the pool has no condition ReplicasContested yet")?;
    Ok((found.status, found.message))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_horizontal_pod_autoscaler_beside_an_autoscaler_is_named_and_the_filled_count_is_not() {
    let env = TestEnv::begin_at(&PLACES, "beside", &[]).await.unwrap();
    let metrics = MetricsServer::start(env.cluster).await.unwrap();
    env.create(&objects::autoscaler("all", 1)).await.unwrap();
    env.create(&objects::pool("shared", 1, 10)).await.unwrap();
    env.settles("shared", 1).await.unwrap();
    counts(&env, "shared", 1).await;
    eventually(PATIENCE, "the first count is not contested", async || {
        let (status, message) = contested(&env, "shared").await?;
        if status == "False" { Ok(Some(())) } else { bail!("{status}: {message}") }
    })
    .await
    .unwrap();

    metrics.set(3);
    env.create(&external_metrics::autoscaler("shared").unwrap()).await.unwrap();
    eventually(2 * PATIENCE, "the Autoscaler reports another writer of replicas", async || {
        let (status, message) = contested(&env, "shared").await?;
        let named = message.contains("kube-controller-manager set spec.replicas to 3");
        if status == "True" && named { Ok(Some(())) } else { bail!("{status}: {message}") }
    })
    .await
    .unwrap();
    env.end().await.unwrap();
}
