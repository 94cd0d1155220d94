//! The pods on each node that are a reason to keep it.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{api::core::v1::Node, jiff::Timestamp};

use super::{pod_info::PodInfo, pods};

/// The pods that keep one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keepers {
    /// Those that run on it, as indexes into the pass's pods.
    pub pods: Vec<usize>,
    /// How many wait for it: it is being cleared for them.
    pub awaited: usize,
}

impl Keepers {
    /// How many there are.
    pub const fn count(&self) -> usize {
        self.pods.len() + self.awaited
    }
}

/// What keeps each node, in the order of the nodes.
pub fn keepers(all_nodes: &[Arc<Node>], all_pods: &[Arc<PodInfo>], now: Timestamp) -> Vec<Keepers> {
    let by_name: BTreeMap<&str, usize> =
        all_nodes.iter().enumerate().filter_map(|(i, n)| Some((n.metadata.name.as_deref()?, i))).collect();
    let mut keepers = vec![Keepers::default(); all_nodes.len()];
    for (index, pod) in all_pods.iter().enumerate().filter(|(_, pod)| pods::keeps_node(pod, now)) {
        let Some(&node) = pods::occupied_node(pod).and_then(|name| by_name.get(name)) else { continue };
        if pod.node().is_some() {
            keepers[node].pods.push(index);
        } else {
            keepers[node].awaited += 1;
        }
    }
    keepers
}
