//! Everything a pass needs from outside, in one place: caches, the writer, the clock. It decides nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::reflector::Store;
use planner::Planner;
use planner::input::{ClaimInfo, PodInfo, VolumeInfo};
use shared_crds::{NodePool, NodePoolAutoscaler};
use shared_runtime::bootstrap::Operator;
use shared_runtime::clock::Clock;
use shared_runtime::crds::ServedFields;
use shared_runtime::error::{Categorised as _, chain};
use shared_runtime::events::Recorder;
use shared_runtime::freshness::WriteTracker;
use shared_runtime::metrics::MetricsError;
use shared_runtime::write::Writer;
use tracing::warn;

use crate::cache::Cached;
use crate::error::Error;
use crate::memory::event_deduplicator::EventDeduplicator;
use crate::memory::owed_nodes::OwedNodes;
use crate::memory::pending_status::PendingStatus;
use crate::memory::write_backoff::{Refusal, Write, WriteBackoff};
use crate::metrics::AutoscalerMetrics;

/// The key of the controller loop: there is only one, because every pass is about the whole cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cluster;

/// The caches that the watches keep up to date.
pub(crate) struct Caches {
    /// Every `NodePool` in the watched namespaces.
    pub pools: Store<NodePool>,
    /// Every `NodePoolAutoscaler` in the watched namespaces.
    pub autoscalers: Store<NodePoolAutoscaler>,
    /// Every node.
    pub nodes: Store<Node>,
    /// Every pod that is not finished.
    pub pods: Store<Cached<PodInfo>>,
    /// Every `DaemonSet`.
    pub daemon_sets: Store<DaemonSet>,
    /// Every `PodDisruptionBudget`.
    pub budgets: Store<PodDisruptionBudget>,
    /// Every `PersistentVolume`.
    pub volumes: Store<Cached<VolumeInfo>>,
    /// Every `PersistentVolumeClaim`.
    pub claims: Store<Cached<ClaimInfo>>,
    /// Every `StorageClass`.
    pub storage_classes: Store<StorageClass>,
    /// Every `Namespace`.
    pub namespaces: Store<Namespace>,
}

/// The dependencies of a pass.
pub(crate) struct Context {
    /// The only way to write to the API server.
    pub writer: Writer,
    /// Detects a cache that is behind our own writes.
    pub write_tracker: WriteTracker,
    /// Publishes Kubernetes events.
    pub recorder: Recorder,
    /// What the installed definitions lack.
    pub served: ServedFields,
    /// Wall clock and monotonic clock.
    pub clock: Clock,
    /// The operator's Prometheus metrics.
    pub metrics: AutoscalerMetrics,
    /// The caches.
    pub caches: Caches,
    /// The planner, which remembers the objects it has read.
    pub planner: Arc<Mutex<Planner>>,
    /// The events that were already published on pods and autoscalers.
    pub published_events: EventDeduplicator,
    /// Decisions that were written and are in no status yet.
    pub pending_status: PendingStatus,
    /// For how long pools have lacked nodes.
    pub owed_nodes: OwedNodes,
    /// Refused writes that wait for their next attempt.
    backoff: Mutex<WriteBackoff>,
}

impl Context {
    /// Creates the context from the operator's shared runtime and the caches.
    pub(crate) fn new(operator: &Operator, caches: Caches) -> Result<Self, MetricsError> {
        Ok(Self {
            writer: operator.writer.clone(),
            write_tracker: operator.write_tracker.clone(),
            recorder: operator.recorder.clone(),
            served: operator.served.clone(),
            clock: operator.clock.clone(),
            metrics: AutoscalerMetrics::new(&operator.metrics)?,
            caches,
            planner: Arc::default(),
            published_events: EventDeduplicator::default(),
            pending_status: PendingStatus::default(),
            owed_nodes: OwedNodes::default(),
            backoff: Mutex::default(),
        })
    }

    /// Records that `write` of `object` failed, so that it is not retried at once.
    pub(crate) fn refused(&self, object: &ObjectMeta, write: Write, refusal: Refusal, error: &Error) {
        let wait = self.backoff().refused(object, write, refusal, self.clock.monotonic(), rand::random());
        warn!(category = error.category(), error = %chain(error), again_in = ?wait, "write failed");
    }

    /// The refused writes that wait for their next attempt.
    pub(crate) fn backoff(&self) -> MutexGuard<'_, WriteBackoff> {
        self.backoff.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
