//! Startup taints that the nodes of a pool keep because what should remove them does not work. New nodes would keep them, too: they
//! are planned with these taints. Otherwise the pool would grow for the same pod each time that a node's provisioning timeout ends.
//!
//! A node shows it for a while, and is not removed for an hour: if the taint goes after all, the node takes the pods. It is
//! remembered for longer where another node was tried: see [`beliefs`](crate::pools::beliefs).

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use shared_crds::NodePool;
use shared_crds::v1alpha1::{BeliefKind, DiscoveredBelief};

use crate::index::PassNodeIndex;
use crate::input::nodes;
use crate::input::observed::PassNodes;
use crate::pools::beliefs::{BELIEVED_SECONDS, TaintLesson};
use crate::pools::discovered::Teachers;
use crate::requirements::node_profile::{NodeProfile, RepellingTaint, repelling};
use crate::steps;
use crate::time::later;

/// Startup taints that all nodes of a pool's template keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StuckTaints {
    /// The taints.
    pub taints: Vec<RepellingTaint>,
    /// The youngest node that shows it, while it has to stay.
    pub shown_by: Option<PassNodeIndex>,
    /// Until when it has to.
    pub kept_until: Timestamp,
}

impl StuckTaints {
    /// What the `teachers` of `pool` show, and what is remembered of it. `profile` is a new node as the template says.
    ///
    /// A young node is up, so it has lost its taints. An older one shows what becomes of new ones for an hour after its
    /// provisioning timeout. A taint that it has after that may be one that it had lost, and got again when something on it failed:
    /// such a node shows nothing of new ones, except that a taint which it does not have can be lost.
    pub(crate) fn of(
        pool: &NodePool,
        profile: &NodeProfile,
        teachers: &Teachers,
        all_nodes: &PassNodes,
        beliefs: &mut Vec<DiscoveredBelief>,
        now: Timestamp,
    ) -> Option<Self> {
        let shown = kept_by_all(pool, profile, teachers, all_nodes);
        let of_settled = teachers.settled.iter();
        let ends =
            of_settled.filter_map(|&node| Some((nodes::provisioned_until(&all_nodes[node], pool)?, node)));
        let youngest = ends.max();
        let from = youngest.map(|(from, _)| from);
        let lesson =
            TaintLesson { kind: BeliefKind::StartupTaint, shown: &shown, from, is_enough: true, now };
        let is_lost = |taint: &RepellingTaint| {
            let lacks = |&node: &PassNodeIndex| !has(&startup_taints(&all_nodes[node], pool), taint);
            teachers.settled.iter().chain(&teachers.young).any(lacks)
        };
        let believed = lesson.renew(beliefs, |taint| profile.taints.contains(taint) || is_lost(taint));
        if believed.is_empty() {
            return None;
        }
        let kept_until = from.map_or(now, |from| later(from, BELIEVED_SECONDS));
        let shown_by = youngest.map(|(_, node)| node).filter(|_| kept_until > now);
        let taints = believed.into_iter().map(|(taint, _)| taint).collect();
        Some(Self { taints, shown_by, kept_until })
    }

    /// The taints for a message.
    pub(crate) fn text(&self) -> String {
        let taints =
            self.taints.iter().map(|taint| format!("the startup taint {}:{}", taint.key, taint.effect));
        taints.collect::<Vec<_>>().join(" and ")
    }
}

/// The startup taints that all settled nodes keep, if no younger node has lost its own.
fn kept_by_all(
    pool: &NodePool,
    profile: &NodeProfile,
    teachers: &Teachers,
    all_nodes: &PassNodes,
) -> Vec<RepellingTaint> {
    let Some((&first, others)) = teachers.settled.split_first() else { return Vec::new() };
    let mut taints = startup_taints(&all_nodes[first], pool);
    taints.retain(|taint| !profile.taints.contains(taint));
    if taints.is_empty() || !teachers.young.is_empty() {
        return Vec::new();
    }
    steps::count(teachers.settled.len());
    for &other in others {
        let its = startup_taints(&all_nodes[other], pool);
        taints.retain(|taint| has(&its, taint));
    }
    taints
}

/// Whether a taint is among `taints`, whatever its value.
fn has(taints: &[RepellingTaint], taint: &RepellingTaint) -> bool {
    taints.iter().any(|its| its.key == taint.key && its.effect == taint.effect)
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
            let profile = NodeProfile::of_template(&pool);
            let found = StuckTaints::of(&pool, &profile, &teachers, &nodes, &mut Vec::new(), now());
            let found = found
                .as_ref()
                .map(|found| (found.taints[0].key.as_str(), found.taints.len(), found.shown_by.unwrap().0));
            assert_eq!(found, expected.map(|(key, node)| (key, 1, node)), "{what}");
        }
    }

    /// The key of the taint that is stuck at noon, and whether the node that shows it has to stay.
    fn stuck(beliefs: &mut Vec<DiscoveredBelief>, texts: &[&str]) -> Option<(String, bool)> {
        let pool = pool(["dedicated", "both"], ["cni", "both"]);
        let (nodes, teachers) = nodes(&pool, texts);
        let profile = NodeProfile::of_template(&pool);
        let found = StuckTaints::of(&pool, &profile, &teachers, &nodes, beliefs, now())?;
        Some((found.taints[0].key.clone(), found.shown_by.is_some()))
    }

    #[test]
    fn a_startup_taint_outlives_the_node_that_shows_it_until_one_has_lost_it() {
        let mut beliefs = Vec::new();
        let cni = |stays| Some(("cni".to_owned(), stays));
        assert_eq!(stuck(&mut beliefs, &["11:40 cni"]), cni(true));
        assert_eq!(stuck(&mut beliefs, &[]), cni(false));
        assert_eq!(stuck(&mut beliefs, &["11:55 cni"]), cni(false), "one that is starting");
        assert_eq!(stuck(&mut beliefs, &["11:55"]), None, "it is up");
        assert_eq!(stuck(&mut beliefs, &[]), None);
    }

    #[test]
    fn a_node_that_shows_a_startup_taint_again_stays_for_an_hour_and_is_believed_for_two() {
        let mut beliefs = Vec::new();
        assert!(stuck(&mut beliefs, &["11:40 cni"]).is_some());
        beliefs[0].until_time = Some(serde_json::from_value("2026-01-01T10:00:00Z".into()).unwrap());
        let cni = |stays| Some(("cni".to_owned(), stays));
        assert_eq!(stuck(&mut beliefs, &["10:40 cni"]), cni(false), "up since 10:50, believed until 12:50");
        assert_eq!((beliefs.len(), beliefs[0].times), (1, 1));
        assert_eq!(stuck(&mut beliefs, &["11:40 cni"]), cni(true));
    }
}
