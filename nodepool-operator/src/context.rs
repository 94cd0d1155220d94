//! Everything a reconcile needs from outside, in one place: caches, the write door, the provider, the clock.
//!
//! It also remembers which pools this process has visited. It decides nothing.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::runtime::reflector::Store;
use shared_crds::NodePool;
use shared_runtime::bootstrap::Operator;
use shared_runtime::clock::Clock;
use shared_runtime::events::Recorder;
use shared_runtime::freshness::Floors;
use shared_runtime::metrics::MetricsError;
use shared_runtime::reflect::UnreadableObjects;
use shared_runtime::write::Door;

use crate::drains::Drains;
use crate::metrics::NodePoolMetrics;
use crate::plan::PoolKey;
use crate::provider::procurement::Procurement;
use crate::provider::simulated::Simulated;
use crate::tracker::Tracker;

/// What a reconcile needs from outside.
pub struct Context {
    /// For reads; writes go through `door`.
    pub client: Client,
    /// The only way to write.
    pub door: Door,
    /// Tells when a cache is behind our own writes.
    pub floors: Floors,
    /// Publishes events.
    pub recorder: Recorder,
    /// Tells the time.
    pub clock: Clock,
    /// Counts.
    pub metrics: NodePoolMetrics,
    /// Cache of every pool.
    pub pools: Store<NodePool>,
    /// Cache of every node with a pool's label.
    pub nodes: Store<Node>,
    /// What the caches leave out because it cannot be read.
    pub unreadable: UnreadableObjects,
    /// Makes machines.
    pub procurement: Procurement,
    /// What was seen on draining nodes lately.
    pub drains: Drains,
    /// Since when nodes and pods are as they are.
    pub tracker: Tracker,
    visited: Mutex<HashSet<PoolKey>>,
}

impl Context {
    /// Puts it together.
    pub fn new(
        operator: &Operator,
        pools: Store<NodePool>,
        nodes: Store<Node>,
    ) -> Result<Self, MetricsError> {
        Ok(Self {
            client: operator.client.clone(),
            door: operator.door.clone(),
            floors: operator.floors.clone(),
            recorder: operator.recorder.clone(),
            clock: operator.clock.clone(),
            metrics: NodePoolMetrics::new(&operator.metrics)?,
            pools,
            nodes,
            unreadable: operator.unreadable.clone(),
            procurement: Procurement::new(Box::new(Simulated::default())),
            drains: Drains::new(operator.clock.clone()),
            tracker: Tracker::new(operator.clock.clone()),
            visited: Mutex::default(),
        })
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
        let door =
            Door::new(client.clone(), owner, strategy, &clock, shared_runtime::write::unobserved()).unwrap();
        Self {
            floors: door.floors().clone(),
            recorder: Recorder::new(client.clone(), NODEPOOL_OPERATOR, "test", fence, metrics.clone()).0,
            metrics: NodePoolMetrics::new(&metrics).unwrap(),
            pools: store().0,
            nodes: store().0,
            unreadable: UnreadableObjects::default(),
            procurement: Procurement::new(Box::new(Simulated::default())),
            drains: Drains::new(clock.clone()),
            tracker: Tracker::new(clock.clone()),
            visited: Mutex::default(),
            client,
            door,
            clock,
        }
    }

    /// Whether this process has looked at the pool's nodes with a live read.
    pub fn has_visited(&self, key: &PoolKey) -> bool {
        self.visited.lock().unwrap_or_else(PoisonError::into_inner).contains(key)
    }

    /// This process has now.
    pub fn visited(&self, key: &PoolKey) {
        self.visited.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone());
    }

    /// The cluster turned out to be other than the pool's cache says, so the next visit reads it live.
    pub fn doubt(&self, key: &PoolKey) {
        self.visited.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    /// Nothing is left of the pool, so nothing needs to be remembered.
    pub async fn forget(&self, key: &PoolKey) {
        self.doubt(key);
        self.tracker.forget(key);
        self.procurement.drop_pool(key).await;
    }
}
