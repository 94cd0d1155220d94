//! The planner's input: objects as the API server gave them, the time, and nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use shared_crds::v1alpha1::AutoscalingStatus;
use shared_crds::{NodePool, NodePoolAutoscaler};

use super::claim_info::ClaimInfo;
use super::pod_info::PodInfo;
use super::volume_info::VolumeInfo;

/// What a pass plans from. The order of the objects plays no part.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// The time that every age and delay of this pass is measured at.
    pub now: Timestamp,
    /// Every pool, also those nobody plans: their nodes are capacity.
    pub pools: Vec<Arc<NodePool>>,
    /// Every autoscaler.
    pub autoscalers: Vec<Arc<NodePoolAutoscaler>>,
    /// Every node of the cluster, also those outside pools.
    pub nodes: Vec<Arc<Node>>,
    /// Every pod that is not finished; finished ones do no harm.
    pub pods: Vec<Arc<PodInfo>>,
    /// Every `DaemonSet`: their pods take their part of each new node.
    pub daemon_sets: Vec<Arc<DaemonSet>>,
    /// Every budget: they say how many of a workload's pods may be evicted.
    pub budgets: Vec<Arc<PodDisruptionBudget>>,
    /// Every persistent volume: they say where pods that use them can run.
    pub volumes: Vec<Arc<VolumeInfo>>,
    /// Every claim: they say which volumes pods use.
    pub claims: Vec<Arc<ClaimInfo>>,
    /// Every storage class: they say where volumes can be made.
    pub storage_classes: Vec<Arc<StorageClass>>,
    /// Every namespace, for selectors over their labels.
    pub namespaces: Vec<Arc<Namespace>>,
    /// What the status of some pools, by UID, does not say yet about writes of this operator.
    pub unreported: BTreeMap<String, AutoscalingStatus>,
    /// Pools, by UID, that cannot be made larger for now, and why: the API server refuses the write.
    pub closed_pools: BTreeMap<String, String>,
    /// How what the objects say is taken.
    pub terms: PlanOptions,
    /// What the expander `Random` draws with.
    pub seed: u64,
}

/// How what the objects say is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanOptions {
    /// What to do about autoscalers in mode `Recommend`.
    pub recommendations: Recommendations,
    /// Whether the bounds of schedules may go beyond those of the pools.
    pub scheduled: ScheduledBounds,
}

/// What becomes of pools whose autoscaler is in mode `Recommend`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recommendations {
    /// They are planned as if the mode were `Auto`.
    #[default]
    Include,
    /// They are left as they are, so that no pod is planned onto a node that nobody will make.
    Exclude,
}

/// What becomes of a schedule that asks for bounds beyond those of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScheduledBounds {
    /// It replaces them.
    #[default]
    Replace,
    /// It goes as far as they do: the API server refuses replicas beyond them, whoever writes.
    WithinPool,
}

impl Observed {
    /// What is remembered of a pool: what its status says, or what it does not say yet.
    pub fn remembered<'a>(&'a self, pool: &'a NodePool) -> Option<&'a AutoscalingStatus> {
        let unreported = pool.metadata.uid.as_ref().and_then(|uid| self.unreported.get(uid));
        unreported.or_else(|| pool.status.as_ref()?.autoscaling.as_ref())
    }
}

/// Namespace and name of an object; the namespace is empty for objects of the cluster. Orders everything here.
pub fn key(metadata: &ObjectMeta) -> (&str, &str) {
    (metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}
