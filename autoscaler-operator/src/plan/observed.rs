//! The planner's input: objects as the API server gave them, the time, and nothing else.

use std::sync::Arc;

use k8s_openapi::{
    api::core::v1::{Node, Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
    jiff::Timestamp,
};
use shared_crds::{NodePool, NodePoolAutoscaler};

/// What a pass plans from. The order of the objects plays no part.
#[derive(Clone, Debug)]
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
    pub pods: Vec<Arc<Pod>>,
    /// What to do about autoscalers in mode `Recommend`.
    pub recommendations: Recommendations,
}

/// What becomes of pools whose autoscaler is in mode `Recommend`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recommendations {
    /// They are planned as if the mode were `Auto`.
    Include,
    /// They are left as they are, so that no pod is planned onto a node that nobody will make.
    Exclude,
}

/// Namespace and name of an object; the namespace is empty for objects of the cluster. Orders everything here.
pub fn key(metadata: &ObjectMeta) -> (&str, &str) {
    (metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}
