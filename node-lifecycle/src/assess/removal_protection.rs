//! Whether a node or its pods ask to be left alone, so that the node is not removed.

use std::collections::{BTreeMap, BTreeSet};

use shared_crds::{NodePool, protection};

use crate::assess::drain_limits::DrainLimits;
use crate::assess::membership::Member;
use crate::input::pods::blocks_removal;
use crate::{Observed, ObservedPods, PodName};

/// What is known about whether something protects a node from its removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RemovalProtection {
    /// Nothing on it asks to be left alone.
    Unprotected,
    /// It asks to be left alone, and why, as the end of a sentence about it.
    Protected(String),
    /// Its pods were to be listed and could not be.
    Unread,
    /// Its pods have not been listed yet.
    NotListed,
}

impl RemovalProtection {
    /// What the node's annotations, its pods and what was found a moment ago say. `asked` are the nodes whose pods were
    /// to be listed. One that is past its hard age is asked for nothing.
    pub(crate) fn of(
        member: &Member,
        observed: &Observed,
        asked: &BTreeSet<String>,
        pods: &ObservedPods,
    ) -> Self {
        if member.outdated.is_past_hard_age() {
            return Self::Unprotected;
        }
        if let Some(annotation) = protection::of_node(&member.node.metadata) {
            return Self::Protected(format!("has the annotation {annotation}"));
        }
        if let Some(pods) = pods.of(member.name()) {
            let asks = pods.iter().filter(|pod| blocks_removal(pod)).filter_map(|pod| {
                let asked = protection::of_pod(pod, observed.now)?;
                Some((PodName::of(pod), asked.why))
            });
            let first = asks.min().map(|(pod, why)| format!("has pod {pod}, which {why}"));
            return first.map_or(Self::Unprotected, Self::Protected);
        }
        match observed.protected.get(member.name()) {
            Some(why) => Self::Protected(why.clone()),
            None if asked.contains(member.name()) && !pods.deferred.contains(member.name()) => Self::Unread,
            None => Self::NotListed,
        }
    }

    /// Why the node may not be removed now, as the end of a sentence about it; `None` when it may.
    pub(crate) fn why_not(&self) -> Option<String> {
        match self {
            Self::Unprotected => None,
            Self::Protected(why) => Some(why.clone()),
            Self::Unread => Some("has pods that cannot be listed".to_owned()),
            Self::NotListed => Some("has pods that are listed after those of other nodes".to_owned()),
        }
    }
}

/// On which of the nodes nothing asks to be left alone, by name: by their `pods` where those were listed, and otherwise by what was
/// found a moment ago.
pub(crate) fn unprotected<'a>(
    observed: &Observed,
    nodes: impl IntoIterator<Item = &'a Member>,
    pods: &ObservedPods,
) -> BTreeSet<String> {
    let is_so = |member: &&Member| match pods.of(member.name()) {
        Some(_) => {
            let found = RemovalProtection::of(member, observed, &BTreeSet::new(), pods);
            found == RemovalProtection::Unprotected
        }
        None => observed.unprotected.contains(member.name()),
    };
    nodes.into_iter().filter(is_so).map(|member| member.name().to_owned()).collect()
}

/// Which of the nodes stay because they are known to ask to be left alone, by name, and why: by their annotations, by their `pods`
/// where those were listed, and by what was found a moment ago. None where such nodes are the last to go.
pub(crate) fn protected<'a>(
    observed: &Observed,
    pool: &NodePool,
    nodes: impl IntoIterator<Item = &'a Member>,
    pods: &ObservedPods,
) -> BTreeMap<String, String> {
    if !DrainLimits::of(pool).holds_protected {
        return BTreeMap::new();
    }
    let why = |member: &Member| match RemovalProtection::of(member, observed, &BTreeSet::new(), pods) {
        RemovalProtection::Protected(why) => Some((member.name().to_owned(), why)),
        RemovalProtection::Unprotected | RemovalProtection::Unread | RemovalProtection::NotListed => None,
    };
    nodes.into_iter().filter_map(why).collect()
}
