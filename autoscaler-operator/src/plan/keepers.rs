//! The pods on each node that are a reason to keep it, and until when they are.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::core::v1::{Node, Pod},
    jiff::Timestamp,
};

use super::pods;

/// The pods that keep one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keepers {
    /// How many.
    pub pods: usize,
    /// The last moment at which one of them keeps the node; `None` when that is not known, because one of them is not
    /// being deleted.
    pub until: Option<Timestamp>,
}

impl Keepers {
    fn with(self, until: Option<Timestamp>) -> Self {
        let both = || self.until.zip(until).map(|(one, other)| one.max(other));
        Self { pods: self.pods + 1, until: if self.pods == 0 { until } else { both() } }
    }
}

/// What keeps each node, in the order of the nodes.
pub fn keepers(all_nodes: &[Arc<Node>], all_pods: &[Arc<Pod>], now: Timestamp) -> Vec<Keepers> {
    let by_name: BTreeMap<&str, usize> =
        all_nodes.iter().enumerate().filter_map(|(i, n)| Some((n.metadata.name.as_deref()?, i))).collect();
    let mut keepers = vec![Keepers::default(); all_nodes.len()];
    for pod in all_pods.iter().filter(|pod| pods::keeps_node(pod, now)) {
        let Some(&node) = pods::occupied_node(pod).and_then(|name| by_name.get(name)) else { continue };
        keepers[node] = keepers[node].with(pods::keeps_until(pod));
    }
    keepers
}
