//! Clusters that the planner is measured on: the peers' benchmark mixes, made again, and passes of a large cluster.
//!
//! Objects only: this crate uses neither the planner nor a clock, so that `cargo bench` of the planner and
//! `cargo xtask bench planner` measure the same. Every mix is the same each time it is made. The objects carry what the
//! operator's caches keep of them, not less: with bare pods the planner would seem quicker and smaller than it is.

mod cluster_autoscaler;
mod karpenter;
mod objects;
mod random;
mod replan;

use std::sync::Arc;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use shared_crds::{NodePool, NodePoolAutoscaler};

pub use cluster_autoscaler::{estimator, estimator_nodes, run_once_down, run_once_up};
pub use karpenter::karpenter;
pub use objects::{AFFINITY_LABEL, ANTI_AFFINITY_LABEL, NAMESPACE, SPREAD_LABEL, ZONE_KEY};
pub use replan::{ExpectedPlacement, Replan};

/// Converts a pod to its stored form: pods are created one by one, so that not all of them are in memory as a whole.
pub type Keep<'a, P> = &'a mut dyn FnMut(Pod) -> P;

/// The input of a pass.
#[derive(Clone, Debug, Default)]
pub struct Mix<P> {
    /// The time of the pass.
    pub now: Timestamp,
    /// The pools.
    pub pools: Vec<Arc<NodePool>>,
    /// One autoscaler for all of them.
    pub autoscalers: Vec<Arc<NodePoolAutoscaler>>,
    /// What runs on every node.
    pub daemon_sets: Vec<Arc<DaemonSet>>,
    /// The nodes that exist.
    pub nodes: Vec<Arc<Node>>,
    /// The pods, pending and running.
    pub pods: Vec<Arc<P>>,
}

#[cfg(test)]
mod tests;
