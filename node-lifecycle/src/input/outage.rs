//! Whether so many nodes of all pools are not Ready at once that the cause is something else than nodes: the control plane, the
//! network between it and the nodes, or what all nodes run.

use std::borrow::Borrow;

use k8s_openapi::api::core::v1::Node;
use shared_crds::names;

use crate::input::ready::{is_ready, is_silent};

/// Above this share of nodes that are not Ready, none is replaced for it. Kubernetes' own `--unhealthy-zone-threshold`, above
/// which it evicts no pods.
const OUTAGE_PERCENT: usize = 55;

/// How many nodes of all pools are not Ready, of those that have been. Counted only where a node of the pool at hand is
/// unhealthy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterReadiness {
    /// Nodes whose condition `Ready` is not `True`, whether their kubelets are silent or say so themselves.
    pub not_ready: usize,
    /// All nodes.
    pub all: usize,
}

impl ClusterReadiness {
    /// Counts `nodes`. Those that have not been Ready yet are left out: a pool that grows is no outage.
    pub fn of<N: Borrow<Node>>(nodes: impl IntoIterator<Item = N>) -> Self {
        let nodes = nodes.into_iter().filter(|node| has_been_ready(node.borrow()));
        nodes.fold(Self::default(), |Self { not_ready, all }, node| Self {
            not_ready: not_ready + usize::from(!is_ready(node.borrow())),
            all: all + 1,
        })
    }

    /// Whether too many nodes are not Ready.
    pub(crate) const fn is_outage(self) -> bool {
        self.not_ready > 1 && self.not_ready.saturating_mul(100) > self.all.saturating_mul(OUTAGE_PERCENT)
    }
}

/// A silent node without the annotation may have been, before an operator looked.
fn has_been_ready(node: &Node) -> bool {
    let annotations = node.metadata.annotations.as_ref();
    annotations.is_some_and(|all| all.contains_key(names::READY_TIME_ANNOTATION))
        || is_ready(node)
        || is_silent(node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{node, set_ready, starting};

    #[test]
    fn nodes_that_are_not_ready_are_an_outage_whatever_their_kubelets_say() {
        let with = |status: &str, count: usize| {
            ClusterReadiness::of((0..20).map(|index| {
                let mut node = node(index);
                if index < count {
                    set_ready(&mut node, status);
                }
                node
            }))
        };
        for status in ["Unknown", "False"] {
            assert_eq!(with(status, 12), ClusterReadiness { not_ready: 12, all: 20 }, "{status}");
            assert!(with(status, 12).is_outage() && !with(status, 11).is_outage(), "{status}");
        }
        let mixed = ClusterReadiness {
            not_ready: with("False", 6).not_ready + with("Unknown", 6).not_ready,
            all: 20,
        };
        assert!(mixed.is_outage());
        assert!(
            !ClusterReadiness { not_ready: 1, all: 1 }.is_outage(),
            "one node says nothing about the others"
        );
    }

    #[test]
    fn nodes_that_have_not_been_ready_yet_are_no_outage() {
        let growing = (0..20).map(|index| if index < 2 { node(index) } else { starting(index) });
        assert_eq!(ClusterReadiness::of(growing), ClusterReadiness { not_ready: 0, all: 2 });
    }
}
