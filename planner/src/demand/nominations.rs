//! Nominations (`status.nominatedNodeName`), as pods have them, and what decides whether one is believed: see
//! `snapshot::nominations`.

use std::collections::HashMap;
use std::sync::Arc;

use super::pod_requirements::{affinity_terms, anti_affinity_terms, must_spread};
use super::storage::Storage;
use crate::input::claim_info::ClaimInfo;
use crate::input::observed::PassInput;
use crate::input::pod_info::PodInfo;
use crate::input::pods;

/// The nominations that are believed.
#[derive(Debug, Default)]
pub struct Nominations<'a> {
    /// The name of the node, by namespace and name of the pod.
    nodes: HashMap<(&'a str, &'a str), &'a str>,
}

impl<'a> Nominations<'a> {
    /// The nominations of these pods, as they are written.
    pub(crate) fn as_written(nominated: impl Iterator<Item = &'a Arc<PodInfo>>) -> Self {
        let written = |pod: &'a Arc<PodInfo>| Some((pod.key(), pods::nominated_node(pod)?));
        Self { nodes: nominated.filter_map(written).collect() }
    }

    /// The node that a pod is nominated to, if that is believed.
    pub fn node_of(&self, pod: &PodInfo) -> Option<&'a str> {
        if self.nodes.is_empty() { None } else { self.nodes.get(&pod.key()).copied() }
    }
}

/// Whether other pods decide where this one may run: by its required pod affinity or anti-affinity, or by a spread with
/// `DoNotSchedule`.
pub(crate) fn depends_on_others(pod: &PodInfo) -> bool {
    let Some(spec) = pod.spec() else { return false };
    let affinity = spec.affinity.as_ref();
    !affinity_terms(affinity).is_empty()
        || !anti_affinity_terms(affinity).is_empty()
        || must_spread(spec).next().is_some()
}

/// Whether its required anti-affinity may keep other pods away.
pub(crate) fn keeps_others_away(pod: &PodInfo) -> bool {
    pod.spec().is_some_and(|spec| !anti_affinity_terms(spec.affinity.as_ref()).is_empty())
}

/// The claims that only one pod may use.
pub(crate) struct ExclusiveClaims<'a>(Storage<'a>);

impl<'a> ExclusiveClaims<'a> {
    /// Those of the pass.
    pub(crate) fn of(pass: PassInput<'a>) -> Self {
        Self(Storage::of(pass))
    }

    /// Those that a pod uses, by namespace and name.
    pub(crate) fn used_by(&self, pod: &PodInfo) -> Vec<(&'a str, &'a str)> {
        self.0.exclusive(pod).map(ClaimInfo::key).collect()
    }
}
