//! Startup taints that the nodes of a pool keep because what should remove them does not work. New nodes would keep them, too: they
//! are planned with these taints. Otherwise the pool would grow for the same pod each time that a node's provisioning timeout ends.
//!
//! Nothing of it is remembered. A node shows it for a while, and is not removed meanwhile; then another one is tried.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use shared_crds::NodePool;

use crate::index::PassNodeIndex;
use crate::input::nodes;
use crate::input::observed::PassNodes;
use crate::pools::discovered::{BELIEVED_SECONDS, Teachers};
use crate::requirements::node_profile::{NodeProfile, RepellingTaint, repelling};
use crate::steps;
use crate::time::later;

/// Startup taints that all nodes of a pool's template keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StuckTaints {
    /// The taints.
    pub taints: Vec<RepellingTaint>,
    /// The node that shows it for longest.
    pub shown_by: PassNodeIndex,
    /// Until when it does.
    pub until: Timestamp,
}

impl StuckTaints {
    /// What the `teachers` of `pool` show. `profile` is a new node as the template says.
    ///
    /// A young node is up, so it has lost its taints. An older one shows what becomes of new ones for an hour after its
    /// provisioning timeout. A taint that it has after that may be one that it had lost, and got again when something on it failed:
    /// such a node shows nothing of new ones, except that a taint which it does not have can be lost.
    pub(crate) fn of(
        pool: &NodePool,
        profile: &NodeProfile,
        teachers: &Teachers,
        all_nodes: &PassNodes,
        now: Timestamp,
    ) -> Option<Self> {
        let (&first, others) = teachers.settled.split_first()?;
        let mut taints = startup_taints(&all_nodes[first], pool);
        taints.retain(|taint| !profile.taints.contains(taint));
        if taints.is_empty() || !teachers.young.is_empty() {
            return None;
        }
        steps::count(teachers.settled.len());
        for &other in others {
            let its = startup_taints(&all_nodes[other], pool);
            taints.retain(|taint| its.iter().any(|its| its.key == taint.key && its.effect == taint.effect));
        }
        let shown = teachers.settled.iter().filter_map(|&node| {
            let until = later(nodes::provisioned_until(&all_nodes[node], pool)?, BELIEVED_SECONDS);
            (until > now).then_some((until, node))
        });
        let (until, shown_by) = shown.max()?;
        (!taints.is_empty()).then_some(Self { taints, shown_by, until })
    }

    /// The taints for a message.
    pub(crate) fn text(&self) -> String {
        let taints =
            self.taints.iter().map(|taint| format!("the startup taint {}:{}", taint.key, taint.effect));
        taints.collect::<Vec<_>>().join(" and ")
    }
}

fn startup_taints(node: &Node, pool: &NodePool) -> Vec<RepellingTaint> {
    nodes::startup_taints(node, pool).filter_map(repelling).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pools::tainted_nodes::{nodes, now, pool};

    #[test]
    fn a_startup_taint_is_stuck_if_all_nodes_keep_it_and_one_has_done_so_for_less_than_an_hour() {
        let pool = pool(["dedicated", "both"], ["cni", "both"]);
        for (what, texts, expected) in [
            ("no node", vec![], None),
            ("one keeps it", vec!["11:40 cni"], Some(("cni", 0))),
            ("a taint by its prefix", vec!["11:40 readiness.k8s.io/net"], Some(("readiness.k8s.io/net", 0))),
            ("beside a lasting one", vec!["11:40 dedicated cni"], Some(("cni", 0))),
            ("a lasting one", vec!["11:40 dedicated"], None),
            ("one that is declared as both", vec!["11:40 both"], None),
            ("it is starting", vec!["11:55 cni"], None),
            ("another one is starting", vec!["11:40 cni", "11:55 cni"], Some(("cni", 0))),
            ("a young one has lost it", vec!["11:40 cni", "11:55"], None),
            ("an older one has lost it", vec!["11:40 cni", "09:00"], None),
            ("two keep it", vec!["11:40 cni", "11:30 cni readiness.k8s.io/net"], Some(("cni", 0))),
            ("each has lost that of the other", vec!["11:40 cni", "11:40 readiness.k8s.io/net"], None),
            ("an hour is over", vec!["10:50 cni"], None),
            ("an hour is over for one", vec!["10:50 cni", "10:51 cni"], Some(("cni", 1))),
        ] {
            let (nodes, teachers) = nodes(&pool, &texts);
            let found = StuckTaints::of(&pool, &NodeProfile::of_template(&pool), &teachers, &nodes, now());
            let found = found
                .as_ref()
                .map(|found| (found.taints[0].key.as_str(), found.taints.len(), found.shown_by.0));
            assert_eq!(found, expected.map(|(key, node)| (key, 1, node)), "{what}");
        }
    }
}
