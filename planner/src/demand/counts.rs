//! The counts that constraints need: which pods are counted, over which topology key and nodes, and which pods raise
//! them.
//!
//! Two counts over one key that the same pods raise are merged into one [`TopologyCount`]. So the pods that match an
//! anti-affinity term and those that have it are counted once if they are the same pods.

use std::collections::HashMap;

use super::pod_groups::PodGroupId;
use super::subjects::MatcherId;
use crate::index::{Indexed, index_type};
use crate::requirements::pod_class::{TopologyCount, TopologyCountId, TopologyCounts};
use crate::steps;

/// Index of a [`Count`] in [`RequestedCounts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct CountId(usize);
index_type!(CountId);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum PodSelection {
    /// Pods that match all of these, sorted.
    All(Vec<MatcherId>),
    /// Pods that match and are not being deleted.
    Staying(MatcherId),
    /// Pods that have an anti-affinity term with this matcher and the topology count's key.
    Holders(MatcherId),
    /// No pods; the constraint only needs the existing domains.
    NoPods,
}

/// A requested count, before equal counts are merged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Count {
    selection: PodSelection,
    topology_count: TopologyCount,
}

/// Pods that are equal for every count.
#[derive(Debug)]
pub(super) struct CountedPods<'a> {
    /// The matchers that match them, sorted.
    pub(super) matched: &'a [MatcherId],
    /// Their anti-affinity terms: matcher and topology key.
    pub(super) holds: &'a [(MatcherId, &'a str)],
    /// Whether they are being deleted.
    pub(super) leaving: bool,
}

/// All counts of a pass.
#[derive(Debug, Default)]
pub(super) struct RequestedCounts {
    ids: HashMap<Count, CountId>,
    all: Indexed<CountId, Count>,
    /// The counts by the first matcher they need.
    by_matcher: HashMap<MatcherId, Vec<CountId>>,
}

impl RequestedCounts {
    pub(super) fn id(&mut self, selection: PodSelection, topology_count: TopologyCount) -> CountId {
        let next = self.all.next();
        let count = Count { selection, topology_count };
        if let Some(&id) = self.ids.get(&count) {
            return id;
        }
        let first = match &count.selection {
            PodSelection::All(matchers) => matchers.first().copied(),
            PodSelection::Staying(matcher) | PodSelection::Holders(matcher) => Some(*matcher),
            PodSelection::NoPods => None,
        };
        if let Some(first) = first {
            self.by_matcher.entry(first).or_default().push(next);
        }
        self.all.push(count.clone());
        self.ids.insert(count, next);
        next
    }

    /// The counts that `raiser` raises, sorted.
    fn raised(&self, raiser: &CountedPods<'_>) -> Vec<CountId> {
        let CountedPods { matched, holds, leaving } = raiser;
        let of =
            |matcher: &MatcherId| steps::counted(self.by_matcher.get(matcher).into_iter().flatten().copied());
        let by_match = matched.iter().flat_map(of).filter(|&id| match &self.all[id].selection {
            PodSelection::All(matchers) => matchers.iter().all(|m| matched.binary_search(m).is_ok()),
            PodSelection::Staying(_) => !leaving,
            PodSelection::Holders(_) | PodSelection::NoPods => false,
        });
        let by_term = holds.iter().flat_map(|(matcher, key)| {
            of(matcher).filter(move |&id| {
                let Count { selection, topology_count } = &self.all[id];
                matches!(selection, PodSelection::Holders(_)) && topology_count.key == *key
            })
        });
        sorted(by_match.chain(by_term))
    }

    /// Merges equal counts into one topology count each.
    pub(super) fn merged(self, pods: &Indexed<PodGroupId, CountedPods<'_>>) -> Merged {
        steps::count(pods.len() + self.all.len());
        let by_pod: Indexed<PodGroupId, _> = pods.iter().map(|pod| self.raised(pod)).collect();
        let mut incremented_by: Indexed<CountId, Vec<PodGroupId>> = vec![Vec::new(); self.all.len()].into();
        for (pod, counts) in by_pod.enumerated() {
            steps::count(counts.len());
            for &count in counts {
                incremented_by[count].push(pod);
            }
        }
        let mut known: HashMap<(TopologyCount, Vec<PodGroupId>), TopologyCountId> = HashMap::new();
        let mut topology_counts = TopologyCounts::default();
        let mut topology_count_of = Indexed::from(Vec::with_capacity(self.all.len()));
        for (count, by) in self.all.into_iter().zip(incremented_by) {
            let next = topology_counts.next();
            let id = *known.entry((count.topology_count.clone(), by)).or_insert(next);
            if id == next {
                topology_counts.push(count.topology_count);
            }
            topology_count_of.push(id);
        }
        let increments =
            by_pod.iter().map(|counts| sorted(counts.iter().map(|&c| topology_count_of[c]))).collect();
        Merged { topology_counts, topology_count_of, increments }
    }
}

/// The requested counts as topology counts.
#[derive(Debug)]
pub(super) struct Merged {
    pub(super) topology_counts: TopologyCounts,
    /// For each count, its topology count.
    topology_count_of: Indexed<CountId, TopologyCountId>,
    /// For each pod group, the topology counts it raises, sorted.
    pub(super) increments: Indexed<PodGroupId, Vec<TopologyCountId>>,
}

impl Merged {
    /// The topology count of a count.
    pub(super) fn topology_count(&self, count: CountId) -> TopologyCountId {
        self.topology_count_of[count]
    }

    /// The topology counts of these counts, sorted, without duplicates.
    pub(super) fn topology_counts(&self, counts: &[CountId]) -> Vec<TopologyCountId> {
        sorted(counts.iter().map(|&count| self.topology_count(count)))
    }
}

fn sorted<I: Ord>(ids: impl Iterator<Item = I>) -> Vec<I> {
    let mut ids: Vec<_> = ids.collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}
