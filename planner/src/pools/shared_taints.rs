//! Taints that a pool's template does not name and that all its nodes have: kubelets register with them (`registerWithTaints`), or a
//! controller adds them. New nodes would have them, too, and are planned with them. Otherwise the pool would grow for the same pod
//! each time that one of its nodes is Ready.
//!
//! A taint that a user sets, say for maintenance, looks the same, and must not keep the pool from growing: new nodes would not have
//! it. So one node shows nothing: that growth is wrong at most once. And several show it until an hour after the provisioning timeout
//! of the youngest, as with [`StuckTaints`](crate::pools::stuck_taints::StuckTaints): older ones may have got it by hand. Then one more
//! is tried.
//!
//! What the youngest of several has while it is young, no user has set for maintenance. That is remembered, and for longer each time
//! that one more node shows it again: see [`beliefs`](crate::pools::beliefs). Nodes that show something else stay, two of them, while
//! a pod waits that they would make the pool grow for.

use std::cmp::Reverse;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use shared_crds::NodePool;
use shared_crds::v1alpha1::{BeliefKind, DiscoveredBelief};

use crate::index::PassNodeIndex;
use crate::input::nodes;
use crate::input::observed::PassNodes;
use crate::pools::beliefs::{BELIEVED_SECONDS, TaintLesson};
use crate::pools::discovered::Teachers;
use crate::pools::learnt_labels::SEVERAL;
use crate::requirements::node_profile::{NodeProfile, RepellingTaint, repelling};
use crate::steps;
use crate::time::later;

/// What the keys of taints begin with that come and go with the state of a node: those of Kubernetes, of cloud providers, of the
/// operators, and of Cluster Autoscaler, which marks nodes that it deletes or may delete.
const PASSING: [&str; 5] = [
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "tandem.dev/",
    "ToBeDeletedBy",
    "DeletionCandidateOf",
];

/// Taints beyond those of a pool's template that all nodes have that are up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SharedTaints {
    /// The taints.
    pub taints: Vec<RepellingTaint>,
    /// The nodes, the youngest first.
    pub shown_by: Vec<PassNodeIndex>,
    /// Until when two of them stay for a pod that does not tolerate the taints: while they are believed, or, where they are
    /// remembered, until the youngest is no longer young. A taint that goes while a node starts lets the pod in.
    pub kept_until: Timestamp,
    /// Whether new nodes are planned with the taints.
    pub is_believed: bool,
}

impl SharedTaints {
    /// What the `teachers` of `pool` show, and what is remembered of it. `profile` is a new node as the template says. Young ones
    /// count: a kubelet sets such taints when it registers its node.
    pub(crate) fn of(
        pool: &NodePool,
        profile: &NodeProfile,
        teachers: &Teachers,
        all_nodes: &PassNodes,
        beliefs: &mut Vec<DiscoveredBelief>,
        now: Timestamp,
    ) -> Option<Self> {
        let mut shown_by: Vec<PassNodeIndex> =
            teachers.settled.iter().chain(&teachers.young).copied().collect();
        shown_by.sort_by_key(|&node| (Reverse(nodes::created(&all_nodes[node])), node));
        let shown = had_by_all(pool, profile, &shown_by, all_nodes);
        let youngest = shown_by.first();
        let from = youngest.and_then(|&node| nodes::provisioned_until(&all_nodes[node], pool));
        let are_several = shown_by.len() >= SEVERAL;
        let is_enough = are_several && youngest.is_some_and(|node| teachers.young.contains(node));
        let lesson = TaintLesson { kind: BeliefKind::Taint, shown: &shown, from, is_enough, now };
        let lacks =
            |taint: &RepellingTaint, node: PassNodeIndex| !lasting(&all_nodes[node], pool).contains(taint);
        let believed = lesson.renew(beliefs, |taint| {
            profile.taints.contains(taint) || shown_by.iter().any(|&node| lacks(taint, node))
        });
        let mut taints: Vec<_> = believed.into_iter().map(|(taint, _)| taint).collect();
        let is_remembered = shown.iter().all(|taint| taints.contains(taint));
        let until = from.map_or(now, |from| later(from, BELIEVED_SECONDS));
        if are_several && until > now {
            let others: Vec<_> = shown.iter().filter(|taint| !taints.contains(taint)).cloned().collect();
            taints.extend(others);
        }
        let is_believed = !taints.is_empty();
        if !is_believed && from.is_some() {
            taints = shown;
        }
        let kept_until = from.filter(|_| is_remembered).unwrap_or(until);
        (!taints.is_empty()).then_some(Self { taints, shown_by, kept_until, is_believed })
    }

    /// The taints that new nodes are planned with.
    pub(crate) fn learnt(&self) -> &[RepellingTaint] {
        if self.is_believed { &self.taints } else { &[] }
    }

    /// The nodes that have to stay so that several show the taints for as long as they are believed: the youngest, and one more
    /// unless one stays anyway. `goes` says which nodes could be removed.
    pub(crate) fn kept(&self, goes: impl Fn(PassNodeIndex) -> bool) -> &[PassNodeIndex] {
        let others = self.shown_by.iter().skip(1);
        let count = if others.copied().all(goes) { SEVERAL } else { 1 };
        self.shown_by.get(..count).unwrap_or(&self.shown_by)
    }

    /// The taints for a message.
    pub(crate) fn text(&self) -> String {
        let taints = self.taints.iter().map(|taint| format!("the taint {}:{}", taint.key, taint.effect));
        taints.collect::<Vec<_>>().join(" and ")
    }
}

/// The taints beyond those of the template that all the nodes `shown_by` have.
fn had_by_all(
    pool: &NodePool,
    profile: &NodeProfile,
    shown_by: &[PassNodeIndex],
    all_nodes: &PassNodes,
) -> Vec<RepellingTaint> {
    let Some((&youngest, others)) = shown_by.split_first() else { return Vec::new() };
    let mut taints = lasting(&all_nodes[youngest], pool);
    taints.retain(|taint| !profile.taints.contains(taint));
    if taints.is_empty() {
        return taints;
    }
    steps::count(others.len());
    for &other in others {
        let its = lasting(&all_nodes[other], pool);
        taints.retain(|taint| its.contains(taint));
    }
    taints
}

/// The taints of a node that keep pods away and are not of a passing state.
fn lasting(node: &Node, pool: &NodePool) -> Vec<RepellingTaint> {
    let passes = |taint: &RepellingTaint| PASSING.iter().any(|prefix| taint.key.starts_with(prefix));
    nodes::other_taints(node, pool).filter_map(repelling).filter(|taint| !passes(taint)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pools::tainted_nodes::{nodes, now, pool};

    fn shared(texts: &[&str]) -> Option<SharedTaints> {
        remembered(&mut Vec::new(), texts)
    }

    fn remembered(beliefs: &mut Vec<DiscoveredBelief>, texts: &[&str]) -> Option<SharedTaints> {
        let pool = pool(["declared", "also-declared"], ["cni", "csi"]);
        let (nodes, teachers) = nodes(&pool, texts);
        SharedTaints::of(&pool, &NodeProfile::of_template(&pool), &teachers, &nodes, beliefs, now())
    }

    #[test]
    fn a_taint_is_learnt_if_all_of_several_nodes_have_it_and_the_youngest_is_not_old() {
        for (what, nodes, expected) in [
            ("no node", vec![], vec![]),
            ("one", vec!["11:40 dedicated"], vec![]),
            ("two", vec!["11:40 dedicated", "11:30 dedicated"], vec!["dedicated"]),
            ("young ones", vec!["11:58 dedicated", "11:59 dedicated"], vec!["dedicated"]),
            ("old ones, and a young one", vec!["08:00 k", "09:00 k", "11:59 k"], vec!["k"]),
            ("an hour is over", vec!["10:50 dedicated", "10:30 dedicated"], vec![]),
            ("an hour is over for one", vec!["10:30 dedicated", "10:51 dedicated"], vec!["dedicated"]),
            ("one of several lacks it", vec!["11:40 k", "11:30 k", "11:20"], vec![]),
            ("the youngest lacks it", vec!["11:40 k", "11:30 k", "11:59"], vec![]),
            ("one is not up", vec!["11:40 k", "11:59 down"], vec![]),
            ("they share one", vec!["11:40 k a", "11:30 b k"], vec!["k"]),
            ("the template's", vec!["11:40 declared", "11:30 declared"], vec![]),
            ("beside the template's", vec!["11:40 declared k", "11:30 declared k"], vec!["k"]),
            ("a startup taint", vec!["11:40 cni", "11:30 cni"], vec![]),
            (
                "of a state",
                vec!["11:40 node.kubernetes.io/memory-pressure", "11:30 node.kubernetes.io/memory-pressure"],
                vec![],
            ),
            ("of a drain", vec!["11:40 tandem.dev/draining", "11:30 tandem.dev/draining"], vec![]),
            (
                "of a deletion",
                vec!["11:40 ToBeDeletedByClusterAutoscaler", "11:30 ToBeDeletedByClusterAutoscaler"],
                vec![],
            ),
        ] {
            let found = shared(&nodes);
            let learnt = found.as_ref().map(SharedTaints::learnt).unwrap_or_default();
            assert_eq!(learnt.iter().map(|taint| &taint.key).collect::<Vec<_>>(), expected, "{what}");
        }
    }

    #[test]
    fn the_youngest_node_is_kept_and_another_one_if_none_stays() {
        let one = shared(&["11:40 k"]).unwrap();
        assert_eq!(one.kept(|_| true), [PassNodeIndex(0)]);
        let three = shared(&["11:30 k", "11:40 k", "11:20 k"]).unwrap();
        assert_eq!(three.kept(|_| true), [PassNodeIndex(1), PassNodeIndex(0)]);
        assert_eq!(three.kept(|node| node != PassNodeIndex(2)), [PassNodeIndex(1)]);
    }

    #[test]
    fn what_the_youngest_of_several_has_while_it_is_young_outlives_the_nodes() {
        for (texts, expected) in [
            (vec!["11:58 k", "11:30 k"], 1),
            (vec!["11:40 k", "11:30 k"], 0),
            (vec!["11:58 k"], 0),
            (vec!["11:58 k", "11:30"], 0),
        ] {
            let mut beliefs = Vec::new();
            remembered(&mut beliefs, &texts);
            let after = remembered(&mut beliefs, &[]);
            assert_eq!(after.map_or(0, |after| after.learnt().len()), expected, "{texts:?}");
            assert!(remembered(&mut beliefs, &["11:40"]).is_none(), "a node is up without it");
            assert!(beliefs.is_empty());
        }
    }

    #[test]
    fn one_node_shows_again_what_was_remembered_and_need_not_stay_when_it_is_no_longer_young() {
        let mut beliefs = Vec::new();
        let young = remembered(&mut beliefs, &["11:58 k", "11:57 k"]).unwrap();
        assert!(young.is_believed && young.kept_until > now());
        let settled = remembered(&mut beliefs, &["11:40 k", "11:30 k"]).unwrap();
        assert!(settled.is_believed && settled.kept_until <= now());
        beliefs[0].until_time = Some(serde_json::from_value("2026-01-01T10:00:00Z".into()).unwrap());
        let again = remembered(&mut beliefs, &["10:40 k"]).unwrap();
        assert!(again.is_believed, "two hours from 10:50 on");
        assert_eq!((beliefs.len(), beliefs[0].times), (1, 1));
    }
}
