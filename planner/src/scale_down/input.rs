//! The input of the scale-down of a pass, and what its steps read from it.

use k8s_openapi::jiff::Timestamp;
use shared_crds::QualifiedName;

use super::budgets::Budgets;
use super::reserve::Reserve;
use super::usage::Usage;
use super::workload_pods::WorkloadPods;
use crate::index::{Indexed, PassNodeIndex, PodIndex, PoolIndex};
use crate::input::observed::{PassNodes, PassPods};
use crate::input::pods;
use crate::steps;

/// The input of the scale-down of a pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScaleDownInput<'a> {
    /// The time.
    pub now: Timestamp,
    /// All nodes, by name.
    pub nodes: &'a PassNodes,
    /// All pods, by namespace and name.
    pub pods: &'a PassPods,
    /// The pods on each node that are a reason to keep it.
    pub workload_pods: &'a Indexed<PassNodeIndex, WorkloadPods>,
    /// All `PodDisruptionBudget`s.
    pub budgets: &'a Budgets,
    /// The usage of each node, or why it cannot be read.
    pub usage: &'a Indexed<PassNodeIndex, Usage>,
    /// How many pending pods this pass planned onto each node.
    pub planned: &'a Indexed<PassNodeIndex, usize>,
    /// Whether each pool scales up in this pass.
    pub growing: &'a Indexed<PoolIndex, bool>,
    /// Whether pods without a place do not tolerate the taints that the nodes of each pool have shown to share.
    pub repelled: &'a Indexed<PoolIndex, bool>,
    /// The nodes that each pool keeps for pending pods.
    pub reserves: &'a Indexed<PoolIndex, Reserve>,
}

/// The pods of a node that need a place when it is removed.
pub(super) fn moving(input: &ScaleDownInput<'_>, node: PassNodeIndex) -> Vec<PodIndex> {
    let workload_pods = steps::counted(input.workload_pods[node].pods.iter().copied());
    workload_pods.filter(|&pod| pods::needs_place(&input.pods[pod])).collect()
}

/// `namespace/name` of a pod.
pub(super) fn pod_name(input: &ScaleDownInput<'_>, pod: PodIndex) -> String {
    QualifiedName::from(input.pods[pod].key()).to_string()
}
