//! Everything a reconcile needs from outside, in one place: caches, the writer, the provider, the clock.
//!
//! It also remembers which pools this process has visited. It decides nothing.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::runtime::reflector::Store;
use machine_providers::provisioner::Provisioner;
use node_lifecycle::{ClusterId, PoolKey};
use shared_crds::NodePool;
use shared_runtime::bootstrap::Operator;
use shared_runtime::clock::Clock;
use shared_runtime::crds::ServedFields;
use shared_runtime::events::Recorder;
use shared_runtime::freshness::WriteTracker;
use shared_runtime::reflect::UnreadableObjects;
use shared_runtime::write::Writer;
use tokio::sync::Semaphore;

use crate::memory::drains::Drains;
use crate::memory::gone_pools::GonePools;
use crate::memory::list_budget::{ListBudget, PARALLEL_LISTS};
use crate::memory::orphans::Orphans;
use crate::memory::places::Places;
use crate::memory::protections::Protections;
use crate::memory::tracker::Tracker;
use crate::memory::unread_pools::UnreadPools;
use crate::metrics::NodePoolMetrics;

/// The dependencies of a reconcile.
pub(crate) struct Context {
    /// The cluster that this one is to others.
    pub cluster: ClusterId,
    /// Client for reads. Writes go through `writer`.
    pub client: Client,
    /// The only way to write to the API server.
    pub writer: Writer,
    /// Detects a cache that is behind our own writes.
    pub write_tracker: WriteTracker,
    /// Publishes Kubernetes events.
    pub recorder: Recorder,
    /// Wall clock and monotonic clock.
    pub clock: Clock,
    /// The operator's Prometheus metrics.
    pub metrics: NodePoolMetrics,
    /// Cache of all `NodePool`s.
    pub pools: Store<NodePool>,
    /// Cache of all nodes; of those in no pool it holds little.
    pub nodes: Store<Node>,
    /// What the installed definition lacks.
    pub served: ServedFields,
    /// Objects that the caches leave out because they cannot be read.
    pub unreadable: UnreadableObjects,
    /// The providers, with a record of their failures.
    pub provisioner: Arc<Provisioner>,
    /// Recently listed pods and recent eviction results of draining nodes.
    pub drains: Drains,
    /// Which nodes are being drained now.
    pub places: Places,
    /// How many lists of pods may be made now.
    pub list_budget: ListBudget,
    /// A permit for each list of pods that is being read.
    pub pod_lists: Semaphore,
    /// Nodes that were found protected a moment ago, or not to be.
    pub protections: Protections,
    /// For how long this process has observed nodes and pods in their current state.
    pub tracker: Tracker,
    /// Pools of whose nodes pods could not be listed a moment ago.
    pub unread_pools: UnreadPools,
    /// Pools that are gone and have left their nodes behind.
    pub orphans: Arc<Orphans>,
    /// Pools that are gone although nodes carry their names.
    pub gone_pools: GonePools,
    visited: Mutex<HashSet<PoolKey>>,
}

impl Context {
    /// Creates the context from the operator's shared runtime and the caches.
    pub(crate) fn new(
        operator: &Operator,
        cluster: ClusterId,
        pools: Store<NodePool>,
        nodes: Store<Node>,
        provisioner: Arc<Provisioner>,
        metrics: NodePoolMetrics,
        max_parallel_drains: usize,
    ) -> Self {
        Self {
            cluster,
            client: operator.client.clone(),
            writer: operator.writer.clone(),
            write_tracker: operator.write_tracker.clone(),
            recorder: operator.recorder.clone(),
            clock: operator.clock.clone(),
            metrics,
            pools,
            nodes,
            served: operator.served.clone(),
            unreadable: operator.unreadable.clone(),
            provisioner,
            drains: Drains::new(operator.clock.clone()),
            places: Places::new(operator.clock.clone(), max_parallel_drains),
            list_budget: ListBudget::new(operator.clock.clone()),
            pod_lists: Semaphore::new(PARALLEL_LISTS),
            protections: Protections::new(operator.clock.clone()),
            tracker: Tracker::new(operator.clock.clone()),
            unread_pools: UnreadPools::default(),
            orphans: Arc::default(),
            gone_pools: GonePools::new(operator.clock.clone()),
            visited: Mutex::default(),
        }
    }

    /// A context with empty caches. Needs a tokio runtime.
    #[cfg(test)]
    pub(crate) fn for_test(client: Client, clock: Clock) -> Self {
        use kube::runtime::reflector::store;
        use shared_crds::names::NODEPOOL_OPERATOR;
        use shared_crds::ownership::Owner;
        use shared_runtime::fence::Fence;
        use shared_runtime::metrics::Metrics;
        use shared_runtime::write::WriteStrategy;

        let fence = Fence::unguarded(clock.clone());
        let metrics = Metrics::new(NODEPOOL_OPERATOR, "0").unwrap();
        let (owner, strategy) = (Owner::NodepoolOperator, WriteStrategy::Guarded);
        let writer =
            Writer::new(client.clone(), owner, strategy, &clock, shared_runtime::write::unobserved())
                .unwrap();
        Self {
            write_tracker: writer.write_tracker().clone(),
            recorder: Recorder::new(client.clone(), NODEPOOL_OPERATOR, "test", fence, metrics.clone()).0,
            metrics: NodePoolMetrics::new(&metrics).unwrap(),
            pools: store().0,
            nodes: store().0,
            served: ServedFields::default(),
            unreadable: UnreadableObjects::default(),
            cluster: node_lifecycle::testing::cluster(),
            provisioner: Arc::new(Provisioner::new(
                &node_lifecycle::testing::cluster(),
                client.clone(),
                writer.clone(),
                machine_providers::cluster_api::management::Management::Own(client.clone(), writer.clone()),
                Vec::new(),
            )),
            drains: Drains::new(clock.clone()),
            places: Places::new(clock.clone(), 50),
            list_budget: ListBudget::new(clock.clone()),
            pod_lists: Semaphore::new(PARALLEL_LISTS),
            protections: Protections::new(clock.clone()),
            tracker: Tracker::new(clock.clone()),
            unread_pools: UnreadPools::default(),
            orphans: Arc::default(),
            gone_pools: GonePools::new(clock.clone()),
            visited: Mutex::default(),
            client,
            writer,
            clock,
        }
    }

    /// Whether this process has already read the pool's nodes live.
    pub(crate) fn has_visited(&self, key: &PoolKey) -> bool {
        self.visited.lock().unwrap_or_else(PoisonError::into_inner).contains(key)
    }

    /// Records that this process has read the pool's nodes live.
    pub(crate) fn visited(&self, key: &PoolKey) {
        self.visited.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone());
    }

    /// Records that the cluster differs from the pool's cache, so the next visit does a live read.
    pub(crate) fn invalidate(&self, key: &PoolKey) {
        self.visited.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    /// Drops everything remembered about the pool: the pool and its nodes are gone.
    pub(crate) fn forget(&self, key: &PoolKey) {
        self.invalidate(key);
        self.tracker.forget(key);
        self.places.forget(key);
        self.protections.forget(key);
        self.unread_pools.forget(key);
        self.gone_pools.forget(key);
        self.provisioner.forget(key);
    }
}
