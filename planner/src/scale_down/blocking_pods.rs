//! The pods on each node that are a reason to keep it.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use crate::input::pod_info::PodInfo;
use crate::input::pods;
use crate::requirements::pod_class::PodClassId;

/// The blocking pods of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockingPods {
    /// Those that run on it, as indexes into the pass's pods.
    pub pods: Vec<usize>,
    /// How many pods it is being cleared for (nominated to it).
    pub awaited: usize,
}

impl BlockingPods {
    /// The number of blocking pods.
    pub const fn count(&self) -> usize {
        self.pods.len() + self.awaited
    }
}

/// The blocking pods of each of `nodes` nodes. `placed` holds for each pod the node it occupies.
pub fn blocking_pods(
    nodes: usize,
    all_pods: &[Arc<PodInfo>],
    placed: &[Option<(PodClassId, usize)>],
    now: Timestamp,
) -> Vec<BlockingPods> {
    let mut blocking_pods = vec![BlockingPods::default(); nodes];
    for (index, (pod, placed)) in all_pods.iter().zip(placed).enumerate() {
        let Some((_, node)) = *placed else { continue };
        if !pods::keeps_node(pod, now) {
            continue;
        }
        if pod.node().is_some() {
            blocking_pods[node].pods.push(index);
        } else {
            blocking_pods[node].awaited += 1;
        }
    }
    blocking_pods
}
