//! Pods of which all are alike: they read the same, look the same to every selector, and have volumes in the same places.

use std::collections::HashMap;

use super::subjects::{MatcherId, Matchers, NamespaceLabels, Subject};
use crate::demand::scheduling_input::PodEntry;
use crate::input::pod_info::{PodInfo, ShapeId};

/// Pods of which all are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PodGroup {
    /// Index of its reading.
    pub(super) requirements: usize,
    /// Index of what selectors see of it.
    pub(super) subject: usize,
    /// Index of where its volumes are.
    pub(super) places: usize,
    /// Whether it is being deleted.
    pub(super) leaving: bool,
}

/// The units of a pass.
#[derive(Debug, Default)]
pub(super) struct PodGroups {
    /// By first use.
    pub(super) all: Vec<PodGroup>,
    /// For each member, its unit.
    pub(super) unit_of: Vec<usize>,
    /// For each subject, what it matches, sorted.
    pub(super) matched: Vec<Vec<MatcherId>>,
}

impl PodGroups {
    /// `pod` is the pod that a member speaks of.
    pub(super) fn of<'p>(
        members: &[PodEntry],
        pod: impl Fn(&PodEntry) -> &'p PodInfo,
        matchers: &Matchers<'_>,
        namespaces: &NamespaceLabels<'_>,
    ) -> Self {
        let mut found = Self::default();
        let mut subjects: HashMap<Subject<'_>, usize> = HashMap::new();
        // Many pods have one shape, and all that a selector can see is in it.
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
