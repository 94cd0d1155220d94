//! Everything a pass needs from outside, in one place: caches, the write door, the clock. It decides nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::reflector::Store;
use planner::Planner;
use planner::input::claim_info::ClaimInfo;
use planner::input::pod_info::PodInfo;
use planner::input::volume_info::VolumeInfo;
use shared_crds::{NodePool, NodePoolAutoscaler};
use shared_runtime::bootstrap::Operator;
use shared_runtime::clock::Clock;
use shared_runtime::error::{Categorised as _, chain};
use shared_runtime::events::Recorder;
use shared_runtime::freshness::Floors;
use shared_runtime::metrics::MetricsError;
use shared_runtime::write::Door;
use tracing::warn;

use crate::error::Error;
use crate::metrics::AutoscalerMetrics;
use crate::status::{Told, Unreported};
use crate::watched::Cached;
use crate::write_backoff::{Refusal, Write, WriteBackoff};

/// The key that the controller loop is given: there is one, because every pass is about the whole cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cluster;

/// What the watches keep up to date.
pub struct Caches {
    /// Every pool that is looked at.
    pub pools: Store<NodePool>,
    /// Every autoscaler that is looked at.
    pub autoscalers: Store<NodePoolAutoscaler>,
    /// Every node.
    pub nodes: Store<Node>,
    /// Every pod that is not finished.
    pub pods: Store<Cached<PodInfo>>,
    /// Every `DaemonSet`.
    pub daemon_sets: Store<DaemonSet>,
    /// Every budget.
    pub budgets: Store<PodDisruptionBudget>,
    /// Every persistent volume.
    pub volumes: Store<Cached<VolumeInfo>>,
    /// Every claim.
    pub claims: Store<Cached<ClaimInfo>>,
    /// Every storage class.
    pub storage_classes: Store<StorageClass>,
    /// Every namespace.
    pub namespaces: Store<Namespace>,
}

/// What a pass needs from outside.
pub struct Context {
    /// The only way to write.
    pub door: Door,
    /// Tells when a cache is behind our own writes.
    pub floors: Floors,
    /// Publishes events.
    pub recorder: Recorder,
    /// Tells the time.
    pub clock: Clock,
    /// Counts.
    pub metrics: AutoscalerMetrics,
    /// What the watches keep.
    pub caches: Caches,
    /// Plans, and remembers what it has read.
    pub planner: Arc<Mutex<Planner>>,
    /// What pods have been told in events.
    pub told: Told,
    /// What was done and is in no status yet.
    pub unreported: Unreported,
    /// Writes that were refused and wait for their next try.
    backoff: Mutex<WriteBackoff>,
}

impl Context {
    /// Puts it together.
    pub fn new(operator: &Operator, caches: Caches) -> Result<Self, MetricsError> {
        Ok(Self {
            door: operator.door.clone(),
            floors: operator.floors.clone(),
            recorder: operator.recorder.clone(),
            clock: operator.clock.clone(),
            metrics: AutoscalerMetrics::new(&operator.metrics)?,
            caches,
            planner: Arc::default(),
            told: Told::default(),
            unreported: Unreported::default(),
            backoff: Mutex::default(),
        })
    }

    /// `write` of `object` failed, and is not tried again at once.
    pub fn refused(&self, object: &ObjectMeta, write: Write, refusal: Refusal, error: &Error) {
        let wait = self.backoff().refused(object, write, refusal, self.clock.monotonic(), rand::random());
        warn!(category = error.category(), error = %chain(error), again_in = ?wait, "write failed");
    }

    /// The writes that were refused and wait for their next try.
    pub fn backoff(&self) -> MutexGuard<'_, WriteBackoff> {
        self.backoff.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
