//! The planner's input: objects as the API server returned them, the time, and nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use shared_crds::v1alpha1::AutoscalingStatus;
use shared_crds::{NodePool, NodePoolAutoscaler};

use super::claim_info::ClaimInfo;
use super::pod_info::PodInfo;
use super::volume_info::VolumeInfo;
use crate::index::{Indexed, PassNodeIndex, PodIndex};

/// The input of a pass. The order of the objects does not matter.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// The time against which every age and delay of this pass is measured.
    pub now: Timestamp,
    /// Every pool, including those that no autoscaler plans: their nodes are capacity.
    pub pools: Vec<Arc<NodePool>>,
    /// Every autoscaler.
    pub autoscalers: Vec<Arc<NodePoolAutoscaler>>,
    /// Every node of the cluster, including those outside pools.
    pub nodes: Vec<Arc<Node>>,
    /// Every pod that is not finished; finished ones do no harm.
    pub pods: Vec<Arc<PodInfo>>,
    /// Every `DaemonSet`: their pods use resources of each new node.
    pub daemon_sets: Vec<Arc<DaemonSet>>,
    /// Every `PodDisruptionBudget`: how many of a workload's pods may be evicted.
    pub budgets: Vec<Arc<PodDisruptionBudget>>,
    /// Every persistent volume: where pods that use it can run.
    pub volumes: Vec<Arc<VolumeInfo>>,
    /// Every `PersistentVolumeClaim`: which volumes pods use.
    pub claims: Vec<Arc<ClaimInfo>>,
    /// Every storage class: where volumes can be provisioned.
    pub storage_classes: Vec<Arc<StorageClass>>,
    /// Every namespace, for selectors over namespace labels.
    pub namespaces: Vec<Arc<Namespace>>,
    /// Writes of this operator that the status of some pools, by UID, does not show yet.
    pub unreported: BTreeMap<String, AutoscalingStatus>,
    /// Pools, by UID, that cannot be scaled up for now, and why: the API server rejects the write.
    pub closed_pools: BTreeMap<String, String>,
    /// For how long this process has seen a pool, by UID, lack nodes without a new one coming.
    pub owed_for: BTreeMap<String, SignedDuration>,
    /// How the objects are interpreted.
    pub options: PlanOptions,
    /// The random seed for the expander `Random`.
    pub seed: u64,
}

/// The nodes of a pass, by name.
pub(crate) type PassNodes = Indexed<PassNodeIndex, Arc<Node>>;

/// The pods of a pass, by namespace and name.
pub(crate) type PassPods = Indexed<PodIndex, Arc<PodInfo>>;

/// What every step of a pass reads. Nodes and pods are sorted by name; a pass refers to them by their index here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PassInput<'a> {
    /// The observed cluster.
    pub observed: &'a Observed,
    /// Its nodes.
    pub nodes: &'a PassNodes,
    /// Its pods.
    pub pods: &'a PassPods,
}

/// How the objects are interpreted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanOptions {
    /// Whether to plan autoscalers in mode `Recommend`.
    pub recommendations: Recommendations,
    /// Whether the bounds of schedules may go beyond those of the pools.
    pub scheduled: ScheduleClamp,
}

/// How pools are planned whose autoscaler is in mode `Recommend`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recommendations {
    /// They are planned as if the mode were `Auto`.
    #[default]
    Include,
    /// They are left as they are, so that no pod is planned onto a node that the plan does not create.
    Exclude,
}

/// What happens if a schedule sets bounds beyond those of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScheduleClamp {
    /// The schedule's bounds replace the pool's.
    #[default]
    Replace,
    /// They are cut to the pool's bounds: the API server rejects replicas beyond those, from every writer.
    WithinPool,
}

impl Observed {
    /// What is remembered of a pool: its status, or the newer state that the status does not show yet.
    pub fn remembered<'a>(&'a self, pool: &'a NodePool) -> Option<&'a AutoscalingStatus> {
        let unreported = pool.metadata.uid.as_ref().and_then(|uid| self.unreported.get(uid));
        unreported.or_else(|| pool.status.as_ref()?.autoscaling.as_ref())
    }
}

/// Namespace and name of an object; the namespace is empty for cluster-scoped objects. Everything here is sorted by it.
pub fn key(metadata: &ObjectMeta) -> (&str, &str) {
    (metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}
