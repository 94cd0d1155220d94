//! Creates the large cluster: pools, whose nodes the `NodePool` operator creates, and pods on them.

use anyhow::{Context as _, Result, bail, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::apps::v1::{DaemonSet, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ServiceAccount,
};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use shared_crds::{NodePool, NodePoolAutoscaler};
use testbed::wait::eventually;
use toolbox::messages::inform;

use super::deal::{Deal, SPREAD};
use super::objects::{NAMESPACE, Owner, TEAMS, ZONES, autoscaler, daemon_set, pool, pool_name};
use crate::filling::{CONCURRENCY, LOOK, PATIENCE, TELL, count, create, grows_to, namespaced, none_waits};

/// Nodes of a pool that are made at a time. An API server on two cores that 5,000 nodes register with at once answers no request for
/// more than ten seconds, and the operators lose their leases.
const STEP: usize = 100;

/// A node, and where it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    node: String,
    zone: String,
}

/// Makes the namespaces. Pods are refused until the controller manager has made their service accounts.
pub(crate) async fn namespaces(client: &Client) -> Result<()> {
    for name in TEAMS.into_iter().chain([NAMESPACE]) {
        let object = json!({"metadata": {"name": name, "labels": {"team": name}}});
        create::<Namespace>(&Api::all(client.clone()), object).await?;
        let accounts = namespaced::<ServiceAccount>(client, name);
        let what = format!("the default service account of {name}");
        eventually(PATIENCE, &what, || async { Ok(accounts.get_opt("default").await?) }).await?;
    }
    Ok(())
}

/// Makes the pools, and waits for the nodes, while the operators are `alive`. Each pool may grow by as many nodes as there will be
/// samples.
pub(crate) async fn nodes(
    client: &Client,
    deal: &Deal,
    samples: usize,
    alive: impl Fn() -> Result<()>,
) -> Result<()> {
    let pools = namespaced::<NodePool>(client, NAMESPACE);
    let count = ZONES.len();
    let shares = ZONES.into_iter().enumerate();
    let shares: Vec<_> =
        shares.map(|(at, zone)| (zone, deal.nodes / count + usize::from(at < deal.nodes % count))).collect();
    for (zone, share) in &shares {
        create(&pools, pool(zone, 0, share + samples)).await?;
    }
    let largest = shares.iter().map(|(_, share)| *share).max().unwrap_or_default();
    for most in (0..largest).step_by(STEP).map(|made| made + STEP) {
        let mut wanted = 0;
        for (zone, share) in &shares {
            let replicas = most.min(*share);
            wanted += replicas;
            let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
            pools.patch(&pool_name(zone), &PatchParams::default(), &patch).await?;
        }
        grows_to(wanted, &alive, async || {
            let listed = pools.list(&ListParams::default()).await?.items;
            let ready: i32 =
                listed.iter().filter_map(|pool| pool.status.as_ref().and_then(|s| s.ready_replicas)).sum();
            Ok(usize::try_from(ready)?)
        })
        .await?;
    }
    Ok(())
}

/// Makes the pods, and waits until all of them run.
pub(crate) async fn pods(client: &Client, deal: &Deal) -> Result<()> {
    let listed = Api::<Node>::all(client.clone()).list(&ListParams::default()).await?.items;
    let place = |node: &Node| Place {
        node: node.name_any(),
        zone: node.labels().get("topology.kubernetes.io/zone").cloned().unwrap_or_default(),
    };
    let mut places: Vec<Place> = listed.iter().map(place).collect();
    // Neighbouring nodes are in all zones, as the pods of one owner would be.
    places.sort_by_key(|place| {
        let number = place.node.rsplit('-').next().and_then(|number| number.parse::<usize>().ok());
        (number, place.node.clone())
    });
    for number in 0..deal.daemons {
        create(&namespaced::<DaemonSet>(client, NAMESPACE), daemon_set(number)).await?;
    }
    let mut made = 0;
    for slot in 0..deal.slots() {
        for (chunk, places) in places.chunks(SPREAD).enumerate() {
            let number = slot * places_per(deal) + chunk;
            let owner = Owner::new(deal, slot, number, places.len());
            let uid = owner_object(client, &owner).await?;
            let (owner, uid) = (&owner, uid.as_str());
            stream::iter(places.iter().enumerate())
                .map(Ok)
                .try_for_each_concurrent(CONCURRENCY, |(ordinal, place)| async move {
                    pod(client, owner, uid, ordinal, place).await
                })
                .await?;
            made += places.len();
            if made / TELL != (made - places.len()) / TELL {
                inform(&format!("  {made} pods made"));
            }
        }
    }
    all_run(client, deal).await?;
    claims_are_bound(client).await
}

/// Owners of one slot's pods.
const fn places_per(deal: &Deal) -> usize {
    deal.nodes.div_ceil(SPREAD)
}

/// Makes the owner, and returns its uid: a pod without an existing owner is garbage-collected.
pub(crate) async fn owner_object(client: &Client, owner: &Owner) -> Result<String> {
    let object = owner.object();
    let uid = if owner.stateful {
        create(&namespaced::<StatefulSet>(client, owner.namespace), object).await?.uid()
    } else {
        create(&namespaced::<ReplicaSet>(client, owner.namespace), object).await?.uid()
    };
    uid.context("an owner without a uid")
}

async fn pod(client: &Client, owner: &Owner, uid: &str, ordinal: usize, place: &Place) -> Result<()> {
    if owner.stateful {
        let (claim, volume) = owner.claim(ordinal, &place.zone);
        create::<PersistentVolume>(&Api::all(client.clone()), volume).await?;
        create(&namespaced::<PersistentVolumeClaim>(client, owner.namespace), claim).await?;
    }
    let object = owner.pod(uid, ordinal, Some(&place.node));
    let pods = namespaced::<Pod>(client, owner.namespace);
    let made = create(&pods, object).await?.name_any();
    let running = Patch::Strategic(owner.running());
    pods.patch_status(&made, &PatchParams::default(), &running).await.context("a pod does not run")?;
    Ok(())
}

async fn all_run(client: &Client, deal: &Deal) -> Result<()> {
    let api = Api::<Pod>::all(client.clone());
    eventually(PATIENCE, "all pods are there", || async {
        tokio::time::sleep(LOOK).await;
        let (there, wanted) = (count(&api).await?, deal.pods());
        if there == wanted { Ok(Some(())) } else { bail!("{there} of {wanted} pods are there") }
    })
    .await?;
    none_waits(client, LOOK).await
}

async fn claims_are_bound(client: &Client) -> Result<()> {
    let api = Api::<PersistentVolumeClaim>::all(client.clone());
    eventually(PATIENCE, "all claims are bound", || async {
        tokio::time::sleep(LOOK).await;
        let claims = api.list(&ListParams::default()).await?.items;
        let bound = |claim: &&PersistentVolumeClaim| {
            claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound"))
        };
        let done = claims.iter().filter(bound).count();
        if done == claims.len() { Ok(Some(())) } else { bail!("{done} of {} are", claims.len()) }
    })
    .await
}

/// Makes the autoscaler, and waits until it plans the pools.
pub(crate) async fn plan(client: &Client) -> Result<()> {
    let autoscalers = namespaced::<NodePoolAutoscaler>(client, NAMESPACE);
    let name = create(&autoscalers, autoscaler()).await?.name_any();
    eventually(PATIENCE, "the autoscaler plans the pools", || async {
        let status = autoscalers.get(&name).await?.status.unwrap_or_default();
        let selected = status.selected_pools.unwrap_or_default();
        if usize::try_from(selected)? == ZONES.len() { Ok(Some(())) } else { bail!("{selected} pools") }
    })
    .await
}

/// Checks that the cluster is as large as the row will say: what the API server has is what the caches watch.
pub(crate) async fn check(client: &Client, deal: &Deal) -> Result<()> {
    let nodes = count(&Api::<Node>::all(client.clone())).await?;
    let pods = count(&Api::<Pod>::all(client.clone())).await?;
    ensure!(
        (nodes, pods) == (deal.nodes, deal.pods()),
        "the cluster has {nodes} nodes and {pods} pods, not {} and {}: the row would not say what was measured",
        deal.nodes,
        deal.pods()
    );
    Ok(())
}
