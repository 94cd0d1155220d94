//! Which nodes are removed when there are too many: first those the Autoscaler named, for its current count or, from
//! this very spec, for the next; then by an order that costs the least.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use shared_crds::{NodePool, protection};

use super::membership::{Member, NodeReadiness};
use super::pods::blocks_removal;
use super::rollout::OutdatedNode;
use super::{Observed, ObservedPods, PodName, Pods};

/// The nodes that the Autoscaler named, while the pool's count was written by it: in its order, and only nodes with the
/// same UID. A slot's name may have been given to a new node since.
pub(crate) fn named<'a>(pool: &NodePool, staying: &[&'a Member]) -> Vec<&'a Member> {
    let Some(plan) = pool.scale_down_first() else {
        return Vec::new();
    };
    let by_name: BTreeMap<&str, &Member> = staying.iter().map(|member| (member.name(), *member)).collect();
    let named = plan.nodes.iter().filter_map(|name| by_name.get(name.as_str()).copied());
    named.filter(|member| plan.means(&member.node)).collect()
}

/// What is known about whether a node may be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Consent {
    /// Nothing on it asks to be left alone.
    Free,
    /// It asks to be left alone, and why, as the end of a sentence about it.
    Protected(String),
    /// Its pods were to be listed and could not be.
    Unread,
    /// Its pods have not been listed yet.
    NotAsked,
}

impl Consent {
    /// What the node's annotations, its pods and what was found a moment ago say. `asked` are the nodes whose pods were
    /// to be listed.
    pub(crate) fn of(
        member: &Member,
        observed: &Observed,
        asked: &BTreeSet<String>,
        pods: &ObservedPods,
    ) -> Self {
        if let Some(annotation) = protection::of_node(&member.node.metadata) {
            return Self::Protected(format!("has the annotation {annotation}"));
        }
        if let Some(pods) = pods.of(member.name()) {
            let asks = pods.iter().filter(|pod| blocks_removal(pod)).filter_map(|pod| {
                let asked = protection::of_pod(pod, observed.now)?;
                Some((PodName::of(pod), asked.why))
            });
            let first = asks.min().map(|(pod, why)| format!("has pod {pod}, which {why}"));
            return first.map_or(Self::Free, Self::Protected);
        }
        match observed.protected.get(member.name()) {
            Some(why) => Self::Protected(why.clone()),
            None if asked.contains(member.name()) && !pods.deferred.contains(member.name()) => Self::Unread,
            None => Self::NotAsked,
        }
    }

    /// Why the node may not be removed now, as the end of a sentence about it; `None` when it may.
    pub(crate) fn why_not(&self) -> Option<String> {
        match self {
            Self::Free => None,
            Self::Protected(why) => Some(why.clone()),
            Self::Unread => Some("has pods that cannot be listed".to_owned()),
            Self::NotAsked => Some("has pods that are listed after those of other nodes".to_owned()),
        }
    }
}

/// `candidates` in the order of removal: not Ready before Ready, then `outdated` ones, then cordoned ones, then empty before busy (where the
/// pods are known), then newest first, then the highest slot: among nodes of the same second, that is the one that was
/// asked for last, or by nobody.
pub(crate) fn in_order<'a>(
    mut candidates: Vec<&'a Member>,
    pods: &BTreeMap<String, Pods>,
    outdated: &BTreeMap<String, OutdatedNode>,
) -> Vec<&'a Member> {
    candidates.sort_by_key(|member| {
        let busy = pods.get(member.name()).is_none_or(|pods| pods.iter().any(|pod| blocks_removal(pod)));
        // The names of a pool's slots differ in their number only, so that the longer one is the higher one.
        let slot = (member.name().len(), member.name());
        let current = !outdated.contains_key(member.name());
        (
            member.readiness == NodeReadiness::Ready,
            current,
            !member.cordoned,
            busy,
            Reverse(member.created),
            Reverse(slot),
        )
    });
    candidates
}
