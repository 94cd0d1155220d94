//! Groups of interned pods that are the same for the selectors of a pass, and have equal requirements.
//!
//! This equality is not the interner's: it depends on the labels that some selector of the pass looks at. Classes are
//! coarser still ([`super::resolve`]): they depend on the topology counts of the pass.

use super::interner::{InternedPod, InternedPodId, PlacesId, RequirementsId};
use super::numbered::Numbered;
use super::subjects::{MatcherId, Matchers, NamespaceLabels, SubjectId};
use crate::index::{Indexed, index_type};
use crate::steps;

/// Index of a [`PodGroup`] in [`PodGroups`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PodGroupId(usize);
index_type!(PodGroupId);

/// Pods that no constraint of the pass tells apart by what they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PodGroup {
    /// Their requirements.
    pub(super) requirements: RequirementsId,
    /// Their subject: the labels that selectors see.
    pub(super) subject: SubjectId,
    /// The places of their volumes.
    pub(super) places: PlacesId,
    /// Whether they are being deleted.
    pub(super) leaving: bool,
}

/// The pod groups of a pass.
#[derive(Debug, Default)]
pub(super) struct PodGroups {
    /// In order of first use.
    pub(super) all: Indexed<PodGroupId, PodGroup>,
    /// For each interned pod, its pod group.
    pub(super) group_of: Indexed<InternedPodId, PodGroupId>,
    /// For each subject, the matchers that match it, sorted.
    pub(super) matched: Indexed<SubjectId, Vec<MatcherId>>,
}

impl PodGroups {
    pub(super) fn of(
        pods: &Indexed<InternedPodId, InternedPod<'_>>,
        matchers: &Matchers<'_>,
        namespaces: &NamespaceLabels<'_>,
    ) -> Self {
        let mut subjects: Numbered<SubjectId, _> = Numbered::default();
        let mut matched: Indexed<SubjectId, _> = Indexed::default();
        let mut groups = Numbered::default();
        let mut group_of = Indexed::from(Vec::with_capacity(pods.len()));
        steps::count(pods.len());
        for &InternedPod { shape, requirements, places, leaving } in pods {
            let subject = subjects.number(matchers.subject(shape));
            if subject == matched.next() {
                matched.push(matchers.matched(&subjects.all[subject], namespaces));
            }
            group_of.push(groups.number(PodGroup { requirements, subject, places, leaving }));
        }
        Self { all: groups.all, group_of, matched }
    }
}
