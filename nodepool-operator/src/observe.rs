//! Collects everything a decision about one pool is made from, but its pods: the pool, its nodes and its machines. Nothing is decided and nothing is written here.
//!
//! Nodes come from the cache, except where a stale cache could do harm. Then they are read live, from a quorum: on the
//! first visit of this process (another process, killed or no longer the leader, may have written just before), while
//! the cache is behind our own writes, and before the finalizer of a pool is removed.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Api;
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject};
use kube::runtime::reflector::ObjectRef;
use machine_providers::ListedMachine;
use machine_providers::provisioner::{ListFindings, Lists};
use node_lifecycle::observed_time::{ConditionTimes, MachineTimes, NodeTimes};
use node_lifecycle::ready::is_ready;
use node_lifecycle::slots::Slots;
use node_lifecycle::supply::NodeSource;
use node_lifecycle::{
    ClusterReadiness, Observed, ObservedPods, PoolKey, Supply, health, node_in_another_cluster,
};
use shared_crds::{NodePool, names};
use shared_runtime::freshness::Freshness;
use shared_runtime::list::{self, Listed};
use shared_runtime::reflect::Unreadable;

use crate::cache;
use crate::context::Context;
use crate::error::{Error, Read};
use crate::memory::protections::KnownProtections;

/// Timeout of a live read. The client has none of its own, and a connection that died silently would block the pool
/// forever.
const READ_LIMIT: Duration = Duration::from_secs(30);

/// What was observed.
pub(crate) struct Seen {
    /// The input of the plan.
    pub observed: Observed,
    /// Machines that failed since the last visit, and why the machines of a provider could not be listed: to be recorded.
    pub findings: ListFindings,
}

/// Observes the pool; `None` when the cache does not contain our last write of it yet.
pub(crate) async fn observe(ctx: &Context, key: &PoolKey) -> Result<Option<Seen>, Error> {
    let pool = ctx.pools.get(&ObjectRef::new(&key.name).within(&key.namespace));
    if pool.as_deref().is_some_and(|pool| ctx.write_tracker.check(pool) == Freshness::Stale) {
        return Ok(None);
    }
    if pool.is_none() && unreadable(ctx, key).is_some() {
        // It became unreadable since the pass began; that is not the same as gone.
        return Ok(None);
    }
    let now = ctx.clock.now();
    let (nodes, unreadable) = nodes(ctx, key, pool.as_deref()).await?;
    let of_cluster = OfCluster { key: key.clone(), pool, nodes, unreadable, now };
    Ok(Some(with_machines(ctx, of_cluster, Current::Recently).await))
}

/// The same with the pool's machines as they are now: what a pass changes is never decided from a list of a moment ago. The rest stays
/// as it was before the pods were read. A write then finds out whether the Nodes have changed since, and time that went on meanwhile
/// gives no pod up of which there is only a recent list.
pub(crate) async fn with_machines_of_now(ctx: &Context, seen: Seen) -> Seen {
    let Observed { key, pool, nodes, unreadable, now, recent, condition_times, times, .. } = seen.observed;
    let of_cluster = OfCluster { key, pool, nodes, unreadable, now };
    let Seen { observed, findings } = with_machines(ctx, of_cluster, Current::Now).await;
    Seen { observed: Observed { recent, condition_times, times, ..observed }, findings }
}

/// What is observed before the machines.
struct OfCluster {
    key: PoolKey,
    pool: Option<Arc<NodePool>>,
    nodes: Vec<Arc<Node>>,
    unreadable: BTreeSet<String>,
    now: Timestamp,
}

/// How current the machines have to be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Current {
    Now,
    Recently,
}

/// Adds the machines, and what depends on them.
async fn with_machines(ctx: &Context, of_cluster: OfCluster, current: Current) -> Seen {
    let OfCluster { key, pool, nodes, unreadable, now } = of_cluster;
    let machines_of_nodes: BTreeSet<&str> =
        nodes.iter().filter_map(|node| names::machine_of(&node.metadata)).collect();
    let has_node = |machine: &ListedMachine| {
        machines_of_nodes.contains(&*machine.name)
            || unreadable.contains(&machine.name)
            || !with_provider_id(ctx, &machine.provider_id.as_deref().into_iter().collect()).is_empty()
    };
    let competing = pool.as_deref().and_then(|pool| competing(ctx, pool));
    let lists = match current {
        Current::Now => Lists::Now,
        Current::Recently => Lists::Recent(&machines_of_nodes),
    };
    let asked = ctx.provisioner.supply(&key, pool.as_deref(), competing.as_ref(), has_node, lists, now);
    let (mut supply, findings) = asked.await;
    let listed = supply.machines.iter().filter_map(|machine| machine.provider_id.as_deref());
    let awaited = listed.chain(supply.deleted_ids.iter().map(String::as_str));
    let (of_pools, registered): (Vec<_>, Vec<_>) = with_provider_id(ctx, &awaited.collect())
        .into_iter()
        .partition(|node| PoolKey::of_node(node).is_some());
    drop_machines_of_others(&mut supply, &of_pools, &key);
    let lookalikes = lookalikes(ctx, &supply, &machines_of_nodes);
    let names = nodes.iter().filter_map(|node| node.metadata.name.as_deref());
    let by_node = ctx.drains.recent_lists(names);
    let of_cache = ctx.unreadable.of::<Node>();
    let may_be_hidden = may_hide(&supply, unreadable.iter().chain(of_cache.iter().map(|node| &node.name)));
    let KnownProtections { protected, stale, unprotected, failed_lists } = ctx.protections.known(&key);
    let is_orphaned = ctx.orphans.look(&key, pool.as_deref());
    let just_ended = ctx.gone_pools.just_ended(&key, pool.as_deref());
    let mut observed = Observed {
        cluster: ctx.cluster.clone(),
        key,
        pool,
        is_orphaned,
        just_ended,
        nodes,
        unreadable,
        registered,
        lookalikes,
        may_be_hidden,
        recent: ObservedPods::default(),
        protected,
        stale,
        failed_lists,
        unprotected,
        cluster_readiness: ClusterReadiness::default(),
        condition_times: ConditionTimes::default(),
        supply,
        now,
        times: NodeTimes::default(),
        machine_times: MachineTimes::default(),
        template_time: SignedDuration::ZERO,
    };
    if let Some(pool) = observed.pool.as_deref() {
        observed.condition_times =
            ctx.tracker.record_conditions(&observed.key, &observed.nodes, &health::watched(pool));
        let is_at_rest =
            observed.condition_times.0.is_empty() && observed.nodes.iter().all(|it| is_ready(it));
        if !is_at_rest {
            observed.cluster_readiness = cluster_readiness(ctx);
        }
    }
    let is_missed = |node: &Node| observed.lists_others_only(node);
    observed.times = ctx.tracker.record_nodes(&observed.key, &observed.nodes, is_missed);
    // After the nodes: the times of pods are kept with those of the pool's nodes.
    let times = ctx.tracker.record_pods(&observed.key, &by_node);
    observed.recent = ObservedPods { by_node, times, ..ObservedPods::default() };
    // A list that fails says nothing about the machines that it listed before.
    if !observed.supply.is_unknown {
        measure_machines(ctx, &mut observed);
    }
    Seen { observed, findings }
}

/// Notes for how long each machine has had no Node, and while there are such, for how long the template has been as it is.
fn measure_machines(ctx: &Context, observed: &mut Observed) {
    let hash = || observed.pool.as_deref().and_then(|pool| pool.spec.template_hash());
    (observed.machine_times, observed.template_time) =
        ctx.tracker.record_machines(&observed.key, observed.in_flight(), hash);
}

/// The pool's nodes, and the names of those that cannot be read.
async fn nodes(
    ctx: &Context,
    key: &PoolKey,
    pool: Option<&NodePool>,
) -> Result<(Vec<Arc<Node>>, BTreeSet<String>), Error> {
    let stored = || ctx.nodes.state_filter(|node| belongs(node, key));
    let (cached, unreadable) = in_cache(stored, || unreadable_slots(ctx, key));
    let is_last = pool.is_some_and(|pool| pool.metadata.deletion_timestamp.is_some()) && cached.is_empty();
    if ctx.has_visited(key) && !is_last && !is_behind(ctx, key, &cached) {
        return Ok((cached, unreadable));
    }
    let of_pool = ListParams::default().labels(&names::node_selector(&key.namespace, &key.name));
    let api: Api<Node> = Api::all(ctx.client.clone());
    let live = listed(Read::Nodes, READ_LIMIT, list::list_kept(&api, &of_pool, kept)).await?;
    ctx.visited(key);
    let unreadable = live.unreadable.into_iter().map(|node| node.name).collect();
    Ok((live.items.into_iter().map(Arc::new).collect(), unreadable))
}

/// What a live list keeps of a node: what the cache keeps. The managed fields alone take several times as much.
fn kept(node: &mut Node) {
    node.metadata.managed_fields = None;
    cache::transform(node);
}

/// How many nodes of all pools are not Ready.
fn cluster_readiness(ctx: &Context) -> ClusterReadiness {
    let nodes = ctx.nodes.state_filter(|node| PoolKey::of_node(node).is_some());
    ClusterReadiness::of(nodes.iter().map(|node| &**node))
}

/// The nodes that have one of these provider IDs.
fn with_provider_id(ctx: &Context, provider_ids: &BTreeSet<&str>) -> Vec<Arc<Node>> {
    if provider_ids.is_empty() {
        return Vec::new();
    }
    ctx.nodes.state_filter(|node| {
        let id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
        id.is_some_and(|id| provider_ids.contains(id))
    })
}

/// The Nodes of no pool that could be those of machines without a Node, by name or address.
fn lookalikes(ctx: &Context, supply: &Supply, with_node: &BTreeSet<&str>) -> Vec<Arc<Node>> {
    let awaited = supply.machines.iter().filter(|machine| !with_node.contains(&*machine.name));
    let known_as: BTreeSet<&str> = awaited.flat_map(node_in_another_cluster::names_of).collect();
    if known_as.is_empty() || supply.source != Ok(NodeSource::Kubelet) {
        return Vec::new();
    }
    ctx.nodes.state_filter(|node| {
        node_in_another_cluster::is_known_as(node, &known_as) && PoolKey::of_node(node).is_none()
    })
}

/// Whether one of these Nodes, which cannot be read, may be that of a machine that seems to have none. Where kubelets register the Nodes,
/// or where that is not known, a Node need not have the name of its machine; one that has the name of a listed machine is of that one.
fn may_hide<'a>(supply: &Supply, mut unreadable: impl Iterator<Item = &'a String>) -> bool {
    let is_listed = |name: &String| supply.machines.iter().any(|machine| machine.name == *name);
    let has_machines_name = matches!(supply.source, Ok(NodeSource::Operator { .. }));
    !has_machines_name && unreadable.any(|name| !is_listed(name))
}

/// A machine whose Node is in another pool is none of this one's, whatever its provider lists.
fn drop_machines_of_others(supply: &mut Supply, of_pools: &[Arc<Node>], key: &PoolKey) {
    let of_others: BTreeSet<&str> = of_pools
        .iter()
        .filter(|node| PoolKey::of_node(node).as_ref() != Some(key))
        .filter_map(|node| node.spec.as_ref()?.provider_id.as_deref())
        .collect();
    supply.machines.retain(|machine| machine.provider_id.as_deref().is_none_or(|id| !of_others.contains(id)));
}

/// The pool that uses the pool's machines already: of two pools on one set of machines, the older one.
fn competing(ctx: &Context, pool: &NodePool) -> Option<PoolKey> {
    let reference = pool.spec.provider.reference().filter(|it| ctx.provisioner.is_for_one_pool(it))?;
    let age = |pool: &NodePool| (pool.metadata.creation_timestamp.clone(), pool.metadata.name.clone());
    let competes = |other: &NodePool| {
        other.metadata.namespace == pool.metadata.namespace
            && other.spec.provider.reference().as_ref() == Some(&reference)
            && age(other) < age(pool)
    };
    ctx.pools.find(competes).map(|other| PoolKey::of_pool(&other))
}

/// The nodes in the store, and the names of those that are not in it because they cannot be read. The two are read one
/// after the other: a node that moves from one to the other meanwhile is found if the latter is read before and after
/// the former.
fn in_cache(
    stored: impl FnOnce() -> Vec<Arc<Node>>,
    unreadable: impl Fn() -> BTreeSet<String>,
) -> (Vec<Arc<Node>>, BTreeSet<String>) {
    let before = unreadable();
    let stored = stored();
    let mut unreadable: BTreeSet<String> = before.into_iter().chain(unreadable()).collect();
    for name in stored.iter().filter_map(|node| node.metadata.name.as_ref()) {
        unreadable.remove(name);
    }
    (stored, unreadable)
}

/// The nodes in the pool's slots that the cache cannot read. Their labels are not known either, but a slot's name
/// belongs to the pool.
fn unreadable_slots(ctx: &Context, key: &PoolKey) -> BTreeSet<String> {
    let slots = Slots::of(&ctx.cluster, key);
    let unreadable = ctx.unreadable.of::<Node>();
    unreadable.iter().map(|node| node.name.clone()).filter(|name| slots.may_have(name)).collect()
}

/// Whether the cache lacks one of our own writes of the pool's nodes.
fn is_behind(ctx: &Context, key: &PoolKey, cached: &[Arc<Node>]) -> bool {
    let slots = Slots::of(&ctx.cluster, key);
    let is_ours = |name: &str| {
        slots.may_have(name) || cached.iter().any(|node| node.metadata.name.as_deref() == Some(name))
    };
    ctx.write_tracker.pending::<Node>().iter().any(|pending| is_ours(&pending.name))
}

fn belongs(node: &Node, key: &PoolKey) -> bool {
    node.metadata.labels.as_ref().and_then(names::pool_of_member) == Some((&key.namespace, &key.name))
}

/// The pool, if it cannot be read. The store is read first: an object that becomes readable again is in the store
/// before it leaves the list of unreadable objects.
pub(crate) fn unreadable(ctx: &Context, key: &PoolKey) -> Option<Arc<Unreadable>> {
    let pool = ObjectRef::<NodePool>::new(&key.name).within(&key.namespace);
    let is_readable = ctx.pools.get(&pool).is_some();
    ctx.unreadable.get::<NodePool>(Some(&key.namespace), &key.name).filter(|_| !is_readable)
}

/// A pool that cannot be read, as stored on the API server; `None` when it is gone.
pub(crate) async fn raw_pool(ctx: &Context, pool: &Unreadable) -> Result<Option<DynamicObject>, Error> {
    let namespace = pool.namespace.as_deref().unwrap_or_default();
    let pools = ApiResource::erase::<NodePool>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(ctx.client.clone(), namespace, &pools);
    let what = Read::Pool;
    tokio::time::timeout(READ_LIMIT, api.get_opt(&pool.name))
        .await
        .map_err(|_| Error::ReadTimeout { what, limit: READ_LIMIT })?
        .map_err(|source| Error::Read { what, source })
}

/// The result of `list`, which may take as long as `limit`.
pub(crate) async fn listed<K>(
    what: Read,
    limit: Duration,
    list: impl Future<Output = kube::Result<Listed<K>>>,
) -> Result<Listed<K>, Error> {
    if limit.is_zero() {
        return Err(Error::ReadTimeout { what, limit });
    }
    tokio::time::timeout(limit, list)
        .await
        .map_err(|_| Error::ReadTimeout { what, limit })?
        .map_err(|source| Error::Read { what, source })
}

#[cfg(test)]
#[path = "observe_tests.rs"]
mod tests;
