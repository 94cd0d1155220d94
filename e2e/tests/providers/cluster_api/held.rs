//! Removals that have begun, and then meet what a person does to the objects of Cluster API.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;
use testbed::cluster_api::DELETE_MACHINE;
use testbed::objects;

use super::{
    begin, deployments, draining, end, has, machines, mentions, names, pool_of, size, stays, wait_for,
};

/// What it says about a mark of a person.
const MARKED: &str = "another writer has put the annotation cluster.x-k8s.io/delete-machine on Machine";

#[tokio::test(flavor = "multi_thread")]
async fn a_persons_mark_or_pause_holds_a_removal_that_has_begun_and_no_other_machine_goes() {
    let (env, capi) = begin("capi-held").await;
    env.create(&pool_of("racks", Some(3))).await.unwrap();
    env.create(&objects::deployment("web", "racks", 3, "3")).await.unwrap();
    let before = names(&has(&env, &capi, 3).await);
    env.pods_run(3).await.unwrap();
    let keep = async || {
        let budget = ["create", "poddisruptionbudget", "keep", "--selector=app=web", "--max-unavailable=0"];
        env.kubectl(&budget).await.unwrap();
    };
    let let_go = async || env.kubectl(&["delete", "poddisruptionbudget/keep"]).await.unwrap();

    // While a node is drained, a person marks the machine of another one as the next to go.
    keep().await;
    env.patch_pool("racks", &json!({"replicas": 2})).await.unwrap();
    let drained = draining(&env, &capi, &[]).await;
    let marked = before.iter().find(|name| **name != drained).unwrap().as_str();
    let annotate = async |annotation: &str| {
        env.kubectl(&["annotate", "machines.cluster.x-k8s.io", marked, annotation]).await.unwrap();
    };
    annotate(&format!("{DELETE_MACHINE}=yes")).await;
    let_go().await;
    let is_marked = async |name: &str| -> Result<bool> {
        let machines = machines(&env).await?;
        Ok(machines.iter().any(|(machine, is_marked)| machine == name && *is_marked))
    };
    // The drain goes on to its end, and what comes after it waits.
    wait_for(&env, &capi, "the pod of the drained node is evicted", async || {
        let pods = env.api::<Pod>().list(&ListParams::default()).await?.items;
        let is_there =
            |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()) == Some(&drained);
        Ok((!pods.iter().any(is_there)).then_some(()))
    })
    .await;
    mentions(&env, &capi, &format!("{MARKED} {marked}")).await;
    let all_stay = async |wanted: usize| -> Result<()> {
        let (size, machines) = (size(&env).await?, machines(&env).await?);
        ensure!((size, machines.len()) == (i64::try_from(wanted)?, wanted), "{size} of {machines:?}");
        Ok(())
    };
    stays("no machine goes in the place of the drained one", async || all_stay(3).await).await;
    annotate(&format!("{DELETE_MACHINE}-")).await;
    let left = names(&has(&env, &capi, 2).await);
    assert!(left.iter().all(|name| before.contains(name) && *name != drained), "{left:?} without {drained}");

    // The same with a pause.
    keep().await;
    env.patch_pool("racks", &json!({"replicas": 1})).await.unwrap();
    let drained = draining(&env, &capi, &[]).await;
    let pause = async |paused: bool| {
        let patch = Patch::Merge(json!({"spec": {"paused": paused}}));
        deployments(&env).patch("workers", &PatchParams::default(), &patch).await.unwrap();
    };
    pause(true).await;
    let_go().await;
    mentions(&env, &capi, "is paused").await;
    stays("no machine of a paused one is removed or marked", async || {
        all_stay(2).await?;
        ensure!(!is_marked(&drained).await?, "{drained} is marked");
        Api::<Node>::all(env.client.clone()).get(&drained).await?;
        Ok(())
    })
    .await;
    pause(false).await;
    let last = names(&has(&env, &capi, 1).await);
    assert!(left.contains(&last[0]) && last[0] != drained, "{last:?} without {drained}");
    env.kubectl(&["delete", "deployment/web"]).await.unwrap();
    end(env, capi).await;
}
