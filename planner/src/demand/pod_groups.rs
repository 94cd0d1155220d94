//! Groups of equal pods: equal requirements, equal for every selector, and volumes in the same places.

use std::collections::HashMap;

use super::subjects::{MatcherId, Matchers, NamespaceLabels, Subject};
use crate::demand::scheduling_input::PodEntry;
use crate::input::pod_info::{PodInfo, ShapeId};

/// Pods that are all equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PodGroup {
    /// Index of their requirements.
    pub(super) requirements: usize,
    /// Index of their subject: the labels that selectors see.
    pub(super) subject: usize,
    /// Index of the places of their volumes.
    pub(super) places: usize,
    /// Whether they are being deleted.
    pub(super) leaving: bool,
}

/// The pod groups of a pass.
#[derive(Debug, Default)]
pub(super) struct PodGroups {
    /// In order of first use.
    pub(super) all: Vec<PodGroup>,
    /// For each entry, its pod group.
    pub(super) unit_of: Vec<usize>,
    /// For each subject, the matchers that match it, sorted.
    pub(super) matched: Vec<Vec<MatcherId>>,
}

impl PodGroups {
    /// `pod` returns the pod of an entry.
    pub(super) fn of<'p>(
        members: &[PodEntry],
        pod: impl Fn(&PodEntry) -> &'p PodInfo,
        matchers: &Matchers<'_>,
        namespaces: &NamespaceLabels<'_>,
    ) -> Self {
        let mut found = Self::default();
        let mut subjects: HashMap<Subject<'_>, usize> = HashMap::new();
        // Many pods share one shape, and it holds everything that a selector can see.
        let mut of_shape: HashMap<ShapeId, usize> = HashMap::new();
        let mut ids: HashMap<PodGroup, usize> = HashMap::new();
        for member in members {
            let pod = pod(member);
            let subject = *of_shape.entry(pod.shape().id()).or_insert_with(|| {
                let subject = matchers.subject(pod.shape());
                if let Some(&known) = subjects.get(&subject) {
                    return known;
                }
                found.matched.push(matchers.matched(&subject, namespaces));
                subjects.insert(subject, found.matched.len() - 1);
                found.matched.len() - 1
            });
            let leaving = pod.deleted().is_some();
            let pod_group =
                PodGroup { requirements: member.requirements, subject, places: member.places, leaving };
            let next = found.all.len();
            let id = *ids.entry(pod_group).or_insert(next);
            if id == next {
                found.all.push(pod_group);
            }
            found.unit_of.push(id);
        }
        found
    }
}
