//! The counts that constraints ask about: what counts, over which topology key and nodes, and which pods raise them.
//!
//! Two counts over one key that the same pods raise are one [`TopologyCount`]. So the pods that match an anti-affinity term and those
//! that have it are counted once where they are the same pods.

use std::collections::HashMap;

use super::subjects::MatcherId;
use crate::requirements::pod_class::{TopologyCount, TopologyCountId};

/// Index of a [`Count`] in [`RequestedCounts`].
pub(super) type CountId = usize;

/// Which pods are counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Who {
    /// Those that match all of these, sorted.
    All(Vec<MatcherId>),
    /// Those that match and are not being deleted.
    Staying(MatcherId),
    /// Those that have an anti-affinity term of this matcher and of the topology count's key.
    Holders(MatcherId),
    /// None; what is asked about is only which domains there are.
    Nobody,
}

/// What is counted, before it is known which counts are the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Count {
    who: Who,
    topology_count: TopologyCount,
}

/// The pods of which all are alike to every count.
#[derive(Debug)]
pub(super) struct CountedPods<'a> {
    /// What it matches, sorted.
    pub(super) matched: &'a [MatcherId],
    /// Its anti-affinity terms: matcher and topology key.
    pub(super) holds: &'a [(MatcherId, &'a str)],
    /// Whether it is being deleted.
    pub(super) leaving: bool,
}

/// All counts of a pass.
#[derive(Debug, Default)]
pub(super) struct RequestedCounts {
    ids: HashMap<Count, CountId>,
    all: Vec<Count>,
    /// RequestedCounts by the first matcher they ask about.
    by_matcher: HashMap<MatcherId, Vec<CountId>>,
}

impl RequestedCounts {
    /// The id of a count.
    pub(super) fn id(&mut self, who: Who, topology_count: TopologyCount) -> CountId {
        let next = self.all.len();
        let count = Count { who, topology_count };
        if let Some(&id) = self.ids.get(&count) {
            return id;
        }
        let first = match &count.who {
            Who::All(matchers) => matchers.first().copied(),
            Who::Staying(matcher) | Who::Holders(matcher) => Some(*matcher),
            Who::Nobody => None,
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
        let of = |matcher: &MatcherId| self.by_matcher.get(matcher).into_iter().flatten().copied();
        let by_match = matched.iter().flat_map(of).filter(|&id| match &self.all[id].who {
            Who::All(matchers) => matchers.iter().all(|m| matched.binary_search(m).is_ok()),
            Who::Staying(_) => !leaving,
            Who::Holders(_) | Who::Nobody => false,
        });
        let by_term = holds.iter().flat_map(|(matcher, key)| {
            of(matcher).filter(move |&id| {
                let Count { who, topology_count } = &self.all[id];
                matches!(who, Who::Holders(_)) && topology_count.key == *key
            })
        });
        sorted(by_match.chain(by_term))
    }

    /// Makes one topology count of counts that are the same.
    pub(super) fn merged(self, pods: &[CountedPods<'_>]) -> Merged {
        let by_pod: Vec<_> = pods.iter().map(|pod| self.raised(pod)).collect();
        let mut raised_by: Vec<Vec<usize>> = vec![Vec::new(); self.all.len()];
        for (pod, counts) in by_pod.iter().enumerate() {
            for &count in counts {
                raised_by[count].push(pod);
            }
        }
        let mut known: HashMap<(TopologyCount, Vec<usize>), TopologyCountId> = HashMap::new();
        let mut topology_counts = Vec::new();
        let mut topology_count_of = Vec::with_capacity(self.all.len());
        for (count, by) in self.all.into_iter().zip(raised_by) {
            let next = topology_counts.len();
            let id = *known.entry((count.topology_count.clone(), by)).or_insert(next);
            if id == next {
                topology_counts.push(count.topology_count);
            }
            topology_count_of.push(id);
        }
        let raises =
            by_pod.iter().map(|counts| sorted(counts.iter().map(|&c| topology_count_of[c]))).collect();
        Merged { topology_counts, topology_count_of, raises }
    }
}

/// RequestedCounts as topology counts.
#[derive(Debug)]
pub(super) struct Merged {
    pub(super) topology_counts: Vec<TopologyCount>,
    /// For each count, its topology count.
    topology_count_of: Vec<TopologyCountId>,
    /// For each raiser, the topology counts it raises, sorted.
    pub(super) raises: Vec<Vec<TopologyCountId>>,
}

impl Merged {
    /// The topology count of a count.
    pub(super) fn topology_count(&self, count: CountId) -> TopologyCountId {
        self.topology_count_of[count]
    }

    /// The topology counts of counts, sorted, none twice.
    pub(super) fn topology_counts(&self, counts: &[CountId]) -> Vec<TopologyCountId> {
        sorted(counts.iter().map(|&count| self.topology_count(count)))
    }
}

fn sorted(ids: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut ids: Vec<_> = ids.collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}
