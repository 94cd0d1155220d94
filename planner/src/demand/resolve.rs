//! Resolves requirements to pod classes: how the pods of a pass relate to each other.
//!
//! Works on pod groups: pods with equal requirements, equal for every selector, and with volumes in the same places.
//! The cost grows with the number of different pod groups and of the matchers that match each, not with the number of
//! pods.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::interner::{PlacesId, RequirementsId};
use super::numbered::Numbered;
use super::subjects::{MatcherId, Matchers, SubjectId};
use super::supplies::{LimitedSupply, PodVolumes};
use crate::demand::counts::{CountId, CountedPods, Merged, PodSelection, RequestedCounts};
use crate::demand::pod_groups::{PodGroup, PodGroupId};
use crate::demand::pod_requirements::{PodRequirements, PodTerm, SpreadRule};
use crate::index::Indexed;
use crate::requirements::constraints::{Constraints, NodeTerm, Tolerated};
use crate::requirements::pod_class::{
    BarredPools, ConstraintSetId, ConstraintSets, CountedNodes, PodAffinity, PodClass, PodClassId,
    PodClasses, Supply, SupplyId, TopologyCount, TopologyCounts, TopologySpread,
};
use crate::requirements::requests;
use crate::requirements::selectors::Selector;
use crate::resources::{ExactAmounts, ResourceNames};
use crate::steps;

/// The input that pod groups index into.
pub(super) struct Parts<'a> {
    pub(super) all_requirements: &'a Indexed<RequirementsId, Arc<PodRequirements>>,
    pub(super) matchers: &'a Matchers<'a>,
    /// For each subject, the matchers that match it, sorted.
    pub(super) matched: &'a Indexed<SubjectId, Vec<MatcherId>>,
    pub(super) places: &'a Indexed<PlacesId, PodVolumes>,
    pub(super) supplies: &'a Indexed<SupplyId, LimitedSupply>,
}

/// The pod classes of a pass.
pub(super) struct Resolved {
    pub(super) constraint_sets: ConstraintSets,
    pub(super) classes: PodClasses,
    pub(super) topology_counts: TopologyCounts,
    pub(super) supplies: Indexed<SupplyId, Supply>,
    /// For each pod group, its class.
    pub(super) class_of: Indexed<PodGroupId, PodClassId>,
}

/// The counts that a pod group needs, before equal counts are merged.
struct ResolvedConstraints {
    affinity: Option<(Vec<CountId>, bool)>,
    anti_affinity: Vec<CountId>,
    spreads: Vec<(CountId, u32, u32, bool)>,
}

/// Resolves pod groups to pod classes.
pub(super) fn resolve(
    pod_groups: &Indexed<PodGroupId, PodGroup>,
    parts: &Parts<'_>,
    names: &mut ResourceNames,
) -> Resolved {
    let (mut constraint_sets, constraint_set_of) = constraint_sets(pod_groups, parts);
    steps::count(pod_groups.len() + parts.all_requirements.len());
    let policies = Policies::of(&constraint_sets);
    let mut resolver = ConstraintResolver::of(pod_groups, parts);
    let constraints: Vec<_> = pod_groups
        .iter()
        .zip(&constraint_set_of)
        .map(|(pod_group, &constraint_set)| resolver.resolve(pod_group, &policies, constraint_set))
        .collect();
    let ConstraintResolver { counts, holds, .. } = resolver;
    let raisers: Indexed<PodGroupId, _> =
        pod_groups.iter().map(|pod_group| raiser(pod_group, parts, &holds)).collect();
    let merged = counts.merged(&raisers);

    let empty = ExactAmounts::new();
    let requests: Indexed<RequirementsId, _> = parts
        .all_requirements
        .iter()
        .map(|requirements| requests::rounded(requirements.request.as_ref().unwrap_or(&empty), names))
        .collect();
    let mut classes = Numbered::default();
    let mut class_of = Indexed::from(Vec::with_capacity(pod_groups.len()));
    for ((id, pod_group), constraints) in pod_groups.enumerated().zip(&constraints) {
        let requirements = &parts.all_requirements[pod_group.requirements];
        class_of.push(classes.number(PodClass {
            request: requests[pod_group.requirements].clone(),
            constraint_set: constraint_set_of[id],
            ports: requirements.ports.clone(),
            affinity: constraints.affinity.as_ref().map(|(counts, matches_itself)| PodAffinity {
                topology_counts: merged.topology_counts(counts),
                matches_itself: *matches_itself,
            }),
            anti_affinity: merged.topology_counts(&constraints.anti_affinity),
            spreads: spreads(&constraints.spreads, &merged),
            increments: merged.increments[id].clone(),
            preferred: requirements.preferred.clone(),
            needs: parts.places[pod_group.places].needs.clone(),
            barred: BarredPools::default(),
        }));
    }
    let supplies =
        parts.supplies.iter().map(|supply| resolved_supply(supply, &mut constraint_sets)).collect();
    let topology_counts = merged.topology_counts;
    Resolved { constraint_sets, classes: classes.all, topology_counts, supplies, class_of }
}

fn resolved_supply(supply: &LimitedSupply, constraint_sets: &mut ConstraintSets) -> Supply {
    let LimitedSupply { places, units, one_of, used_up } = supply;
    let constraints = Constraints { volumes: places.iter().cloned().collect(), ..Constraints::default() };
    Supply {
        constraint_set: constraint_sets.push(constraints),
        units: *units,
        one_of: one_of.clone(),
        used_up: used_up.clone(),
    }
}

fn spreads(constraints: &[(CountId, u32, u32, bool)], merged: &Merged) -> Vec<TopologySpread> {
    let spread = |&(count, max_skew, min_domains, matches_itself)| TopologySpread {
        topology_count: merged.topology_count(count),
        max_skew,
        min_domains,
        matches_itself,
    };
    let mut spreads: Vec<_> = constraints.iter().map(spread).collect();
    spreads.sort_unstable();
    spreads.dedup();
    spreads
}

fn raiser<'a>(
    pod_group: &PodGroup,
    parts: &'a Parts<'_>,
    holds: &'a Indexed<RequirementsId, Vec<(MatcherId, &'a str)>>,
) -> CountedPods<'a> {
    CountedPods {
        matched: &parts.matched[pod_group.subject],
        holds: &holds[pod_group.requirements],
        leaving: pod_group.leaving,
    }
}

/// The constraint sets of pod groups, in order of first use, and the constraint set of each group.
fn constraint_sets(
    pod_groups: &Indexed<PodGroupId, PodGroup>,
    parts: &Parts<'_>,
) -> (ConstraintSets, Indexed<PodGroupId, ConstraintSetId>) {
    let mut known: HashMap<(RequirementsId, PlacesId), ConstraintSetId> = HashMap::new();
    let mut constraint_sets = Numbered::default();
    let mut constraint_set_of = Indexed::from(Vec::with_capacity(pod_groups.len()));
    for pod_group in pod_groups {
        constraint_set_of.push(*known.entry((pod_group.requirements, pod_group.places)).or_insert_with(
            || {
                let mut constraint_set = parts.all_requirements[pod_group.requirements].constraints.clone();
                constraint_set.volumes.clone_from(&parts.places[pod_group.places].places);
                constraint_sets.number(constraint_set)
            },
        ));
    }
    (constraint_sets.all, constraint_set_of)
}

/// Node selector and affinity of a constraint set.
type Labels<'a> = (&'a [(String, String)], Option<&'a [NodeTerm]>);

/// For the policies of spread constraints: one constraint set represents all with the same selector and affinity, and
/// one represents all with the same tolerations.
struct Policies {
    /// `None` if every node matches.
    by_labels: Indexed<ConstraintSetId, Option<ConstraintSetId>>,
    by_taints: Indexed<ConstraintSetId, ConstraintSetId>,
}

impl Policies {
    fn of(constraint_sets: &ConstraintSets) -> Self {
        let mut labels: HashMap<Labels<'_>, ConstraintSetId> = HashMap::new();
        let mut taints: HashMap<&[Tolerated], ConstraintSetId> = HashMap::new();
        let mut policies = Self { by_labels: Indexed::default(), by_taints: Indexed::default() };
        for (id, constraint_set) in constraint_sets.enumerated() {
            let Constraints { selector, affinity, tolerations, volumes: _ } = constraint_set;
            let first = *labels.entry((selector, affinity.as_deref())).or_insert(id);
            let asks = !selector.is_empty() || affinity.is_some();
            policies.by_labels.push(asks.then_some(first));
            policies.by_taints.push(*taints.entry(tolerations).or_insert(id));
        }
        policies
    }
}

/// Collects the counts that pod groups need.
struct ConstraintResolver<'a> {
    parts: &'a Parts<'a>,
    counts: RequestedCounts,
    /// Whether a matcher matches some pod of the pass; a matcher that matches no pod keeps no pod away.
    answered: Indexed<MatcherId, bool>,
    /// For each of the requirements, the anti-affinity terms, sorted.
    holds: Indexed<RequirementsId, Vec<(MatcherId, &'a str)>>,
    /// For each matcher, the topology keys of the anti-affinity terms that use it, sorted.
    kept_away: Indexed<MatcherId, BTreeSet<&'a str>>,
}

impl<'a> ConstraintResolver<'a> {
    fn of(pod_groups: &[PodGroup], parts: &'a Parts<'a>) -> Self {
        let mut answered = parts.matchers.each(false);
        for pod_group in pod_groups {
            let matched = &parts.matched[pod_group.subject];
            steps::count(matched.len());
            for &matcher in matched {
                answered[matcher] = true;
            }
        }
        let holds: Indexed<RequirementsId, _> = parts
            .all_requirements
            .iter()
            .map(|requirements| terms(&requirements.anti_affinity, parts))
            .collect();
        let mut kept_away = parts.matchers.each(BTreeSet::new());
        for &(matcher, key) in pod_groups.iter().flat_map(|pod_group| &holds[pod_group.requirements]) {
            kept_away[matcher].insert(key);
        }
        Self { parts, counts: RequestedCounts::default(), answered, holds, kept_away }
    }

    fn resolve(
        &mut self,
        pod_group: &PodGroup,
        policies: &Policies,
        constraint_set: ConstraintSetId,
    ) -> ResolvedConstraints {
        let requirements = &self.parts.all_requirements[pod_group.requirements];
        let matched = &self.parts.matched[pod_group.subject];
        ResolvedConstraints {
            affinity: self.affinity(requirements, matched),
            anti_affinity: self.anti_affinity(pod_group, matched),
            spreads: self.spreads(requirements, matched, policies, constraint_set),
        }
    }

    fn affinity(
        &mut self,
        requirements: &'a PodRequirements,
        matched: &[MatcherId],
    ) -> Option<(Vec<CountId>, bool)> {
        let terms = terms(&requirements.affinity, self.parts);
        let mut matchers: Vec<_> = terms.iter().map(|term| term.0).collect();
        matchers.dedup();
        let keys: BTreeSet<_> = terms.iter().map(|term| term.1).collect();
        if keys.is_empty() {
            return None;
        }
        let matches_itself = matchers.iter().all(|matcher| matched.binary_search(matcher).is_ok());
        let count = |key| self.counts.id(PodSelection::All(matchers.clone()), everywhere(key));
        Some((keys.into_iter().map(count).collect(), matches_itself))
    }

    /// Counts of the pods that the group's anti-affinity excludes, and of those whose anti-affinity excludes the group.
    fn anti_affinity(&mut self, pod_group: &PodGroup, matched: &[MatcherId]) -> Vec<CountId> {
        let own = self.holds[pod_group.requirements].iter().filter(|term| self.answered[term.0]);
        let mut counts: Vec<_> = own
            .map(|&(matcher, key)| self.counts.id(PodSelection::All(vec![matcher]), everywhere(key)))
            .collect();
        for &matcher in matched {
            for key in &self.kept_away[matcher] {
                steps::count(1);
                counts.push(self.counts.id(PodSelection::Holders(matcher), everywhere(key)));
            }
        }
        counts
    }

    fn spreads(
        &mut self,
        requirements: &PodRequirements,
        matched: &[MatcherId],
        policies: &Policies,
        constraint_set: ConstraintSetId,
    ) -> Vec<(CountId, u32, u32, bool)> {
        let keys: BTreeSet<_> = requirements.spreads.iter().map(|spread| &spread.key).collect();
        let keys: Vec<_> = keys.into_iter().cloned().collect();
        let spread = |rule: &SpreadRule| {
            let constraints = self.parts.matchers.id(&rule.pods)?;
            let nodes = CountedNodes::Eligible {
                keys: keys.clone(),
                labels_of: policies.by_labels[constraint_set].filter(|_| rule.by_affinity),
                taints_of: rule.by_taints.then_some(policies.by_taints[constraint_set]),
            };
            // The scheduler counts no pod for a selector without rules, although the pod itself matches it:
            // countPodsMatchSelector in its podtopologyspread plugin.
            let all_pods = rule.pods.selector.as_ref().is_some_and(Selector::is_empty);
            let who = if all_pods { PodSelection::NoPods } else { PodSelection::Staying(constraints) };
            let count = self.counts.id(who, TopologyCount { key: rule.key.clone(), nodes });
            let matches_itself = matched.binary_search(&constraints).is_ok();
            Some((count, rule.max_skew, rule.min_domains, matches_itself))
        };
        requirements.spreads.iter().filter_map(spread).collect()
    }
}

fn terms<'a>(terms: &'a [PodTerm], parts: &Parts<'_>) -> Vec<(MatcherId, &'a str)> {
    let known = terms.iter().filter_map(|term| Some((parts.matchers.id(&term.pods)?, term.key.as_str())));
    let mut terms: Vec<_> = known.collect();
    terms.sort_unstable();
    terms.dedup();
    terms
}

fn everywhere(key: &str) -> TopologyCount {
    TopologyCount { key: key.to_owned(), nodes: CountedNodes::All }
}
