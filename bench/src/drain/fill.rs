//! Makes the pool, whose nodes the `NodePool` operator makes, and pods on the nodes, which kwok runs.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures::{TryStreamExt as _, stream};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use shared_crds::NodePool;
use testbed::wait::eventually;
use toolbox::messages::inform;

use super::objects::{self, Kind, NAME, NAMESPACE};
use crate::filling::{
    AHEAD, CATCH_UP, CONCURRENCY, LOOK, PATIENCE, TELL, count, create, grows_to, namespaced, none_waits,
};

/// How many pods are looked at for their size.
const SAMPLE: u32 = 50;

/// Makes the pool, and waits for the nodes, while the operator is `alive`.
pub(crate) async fn nodes(client: &Client, nodes: usize, alive: impl Fn() -> Result<()>) -> Result<()> {
    inform(&format!("making {nodes} nodes"));
    let pools = namespaced::<NodePool>(client, NAMESPACE);
    create(&pools, objects::pool(nodes)).await?;
    grows_to(nodes, alive, async || {
        let status = pools.get(NAME).await?.status.unwrap_or_default();
        Ok(usize::try_from(status.ready_replicas.unwrap_or_default())?)
    })
    .await
}

/// Makes so many pods on each node, and waits until all of them run.
pub(crate) async fn pods(client: &Client, kind: Kind, per_node: usize) -> Result<()> {
    let listed = Api::<Node>::all(client.clone()).list_metadata(&ListParams::default()).await?.items;
    let names: Vec<String> = listed.iter().map(kube::ResourceExt::name_any).collect();
    let all: Vec<(&str, usize)> =
        names.iter().flat_map(|node| (0..per_node).map(move |number| (node.as_str(), number))).collect();
    inform(&format!("making {} pods", all.len()));
    let owner = create(&namespaced::<ReplicaSet>(client, NAMESPACE), objects::owner(all.len())).await?;
    let uid = owner.uid().context("an owner without a UID")?;
    let (api, uid) = (&namespaced::<Pod>(client, NAMESPACE), uid.as_str());
    for (chunk, some) in all.chunks(AHEAD).enumerate() {
        stream::iter(some.iter().map(Ok))
            .try_for_each_concurrent(CONCURRENCY, |(node, number)| async move {
                create(api, objects::pod(kind, uid, node, *number)).await.map(drop)
            })
            .await?;
        none_waits(client, CATCH_UP).await?;
        let made = chunk * AHEAD + some.len();
        if made.is_multiple_of(TELL) {
            inform(&format!("  {made} pods made"));
        }
    }
    let there = count(&Api::<Pod>::all(client.clone())).await?;
    ensure!(there == all.len(), "{there} pods are there and {} were made", all.len());
    Ok(())
}

/// Makes the budget, and waits until it lets one pod go.
pub(crate) async fn budget(client: &Client) -> Result<()> {
    let budgets = namespaced::<PodDisruptionBudget>(client, NAMESPACE);
    create(&budgets, objects::budget()).await?;
    eventually(PATIENCE, "the budget lets one pod go", || async {
        tokio::time::sleep(LOOK).await;
        let status = budgets.get(NAME).await?.status.unwrap_or_default();
        let allowed = status.disruptions_allowed.unwrap_or_default();
        if allowed == 1 { Ok(Some(())) } else { bail!("it lets {allowed} go") }
    })
    .await
}

/// Asks for so many nodes.
pub(crate) async fn scale(client: &Client, nodes: usize) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": {"replicas": nodes}}));
    namespaced::<NodePool>(client, NAMESPACE).patch(NAME, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// The size of a pod as the API server sends it, in KiB.
pub(crate) async fn pod_kib(client: &Client) -> Result<f64> {
    let some = ListParams::default().limit(SAMPLE);
    let pods = namespaced::<Pod>(client, NAMESPACE).list(&some).await?.items;
    let size = serde_json::to_vec(&pods)?.len();
    #[expect(clippy::cast_precision_loss, reason = "some hundred KiB")]
    Ok(size as f64 / 1024.0 / pods.len().max(1) as f64)
}

/// The numbers of nodes and pods.
pub(crate) async fn left(client: &Client) -> Result<(usize, usize)> {
    Ok((count(&Api::<Node>::all(client.clone())).await?, count(&namespaced::<Pod>(client, NAMESPACE)).await?))
}

/// Waits until there is no node.
pub(crate) async fn all_are_gone(client: &Client, patience: Duration) -> Result<()> {
    eventually(patience, "all nodes are gone", || async {
        tokio::time::sleep(LOOK).await;
        match left(client).await? {
            (0, _) => Ok(Some(())),
            (nodes, pods) => bail!("{nodes} nodes and {pods} pods are left"),
        }
    })
    .await
}
