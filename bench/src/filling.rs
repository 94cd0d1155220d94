//! What the benches share that fill a large cluster: how it is started, and how its objects are made and counted.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use testbed::cluster::ClusterOptions;
use testbed::wait::eventually;
use tokio::time::Instant;
use toolbox::messages::inform;

/// Leases are renewed a tenth as often as by kubelets, and may be as late: on one busy machine a thousand renewals
/// every 10 s are late, nodes count as lost, and both operators react to that.
const LEASE: &str = "--node-lease-duration-seconds=400";
const GRACE: &str = "--node-monitor-grace-period=500s";
/// Controllers that would create or remove the bench's objects, or wait for missing drivers.
const WITHOUT: &str = "--controllers=*,-replicaset-controller,-statefulset-controller,\
                       -persistentvolume-attach-detach-controller";

/// Requests under way at the same time.
pub(crate) const CONCURRENCY: usize = 32;
/// How long each step may take on a machine that is busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(900);
/// Between two looks at a large cluster, which cost it something.
pub(crate) const LOOK: Duration = Duration::from_secs(1);
/// Number of pods between two lines of progress.
pub(crate) const TELL: usize = 5000;
/// Number of nodes between two lines of progress.
const TELL_NODES: usize = 500;
/// Maximum number of pods that wait for kwok. kwok handles waiting pods twice when it handles a node again, so with
/// more it would lag for minutes after the last pod runs.
pub(crate) const AHEAD: usize = 500;
/// Between two looks at whether it has caught up.
pub(crate) const CATCH_UP: Duration = Duration::from_millis(200);

/// A control plane for a large cluster on one machine.
pub(crate) fn options() -> ClusterOptions {
    ClusterOptions {
        controller_manager_flags: vec![WITHOUT.to_owned(), GRACE.to_owned()],
        kwok_flags: vec![LEASE.to_owned()],
        ..ClusterOptions::private()
    }
}

/// Makes an object as it is written down.
pub(crate) async fn create<K>(api: &Api<K>, object: Value) -> Result<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize,
{
    let object: K = serde_json::from_value(object).context("an object of this bench cannot be read")?;
    let made = api.create(&PostParams::default(), &object).await;
    made.with_context(|| format!("cannot create one of the {}", K::plural(&())))
}

/// The objects of a kind in a namespace.
pub(crate) fn namespaced<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(
    client: &Client,
    namespace: &str,
) -> Api<K> {
    Api::namespaced(client.clone(), namespace)
}

/// Waits until `count`, of nodes that are made one after the other, is `wanted`: as long as it grows, and [`PATIENCE`] longer,
/// and only while the operators are `alive`. A count that fails on a busy machine is taken again.
pub(crate) async fn grows_to(
    wanted: usize,
    alive: impl Fn() -> Result<()>,
    mut count: impl AsyncFnMut() -> Result<usize>,
) -> Result<()> {
    let (mut most, mut at) = (0, Instant::now());
    loop {
        tokio::time::sleep(LOOK).await;
        alive()?;
        let now = match count().await {
            Ok(now) => now,
            Err(error) if at.elapsed() < PATIENCE => {
                inform(&format!("  the nodes cannot be counted: {error:#}"));
                continue;
            }
            Err(error) => return Err(error),
        };
        if now == wanted {
            return Ok(());
        }
        if now / TELL_NODES > most / TELL_NODES {
            inform(&format!("  {now} nodes are ready"));
        }
        if now > most {
            (most, at) = (now, Instant::now());
        }
        ensure!(at.elapsed() < PATIENCE, "{now} of {wanted} nodes are ready, and no more for {PATIENCE:?}");
    }
}

/// Waits until every pod runs that is there.
pub(crate) async fn none_waits(client: &Client, look: Duration) -> Result<()> {
    let api = Api::<Pod>::all(client.clone());
    let pending = ListParams::default().fields("status.phase=Pending").limit(1);
    eventually(PATIENCE, "all pods run", || async {
        tokio::time::sleep(look).await;
        match api.list_metadata(&pending).await?.items.first() {
            None => Ok(Some(())),
            Some(pod) => bail!("{} does not run yet", pod.name_any()),
        }
    })
    .await
}

/// The number of objects, from a list of one.
pub(crate) async fn count<K>(api: &Api<K>) -> Result<usize>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let page = api.list_metadata(&ListParams::default().limit(1)).await?;
    let rest = page.metadata.remaining_item_count.unwrap_or_default();
    Ok(page.items.len() + usize::try_from(rest)?)
}
