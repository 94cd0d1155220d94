//! The pods on each node that are a reason to keep it.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use crate::input::pod_info::PodInfo;
use crate::input::pods;
use crate::requirements::pod_class::PodClassId;

/// The pods that keep one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockingPods {
    /// Those that run on it, as indexes into the pass's pods.
    pub pods: Vec<usize>,
    /// How many wait for it: it is being cleared for them.
    pub awaited: usize,
}

impl BlockingPods {
    /// How many there are.
    pub const fn count(&self) -> usize {
        self.pods.len() + self.awaited
    }
}

/// What keeps each of `nodes` nodes. `placed` says of each pod which node it occupies.
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
