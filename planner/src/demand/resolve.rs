//! From readings to kinds: what the pods of a pass mean to each other.
//!
//! Works on units: pods that read the same, look the same to every selector, and have volumes in the same places. Costs
//! grow with the number of different units and of what each matches, not with that of pods.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::subjects::{MatcherId, Matchers};
use super::volumes::VolumeTerms;
use crate::demand::counts::{CountId, CountedPods, Merged, RequestedCounts, Who};
use crate::demand::pod_groups::PodGroup;
use crate::demand::pod_requirements::{PodRequirements, PodTerm, SpreadRule};
use crate::requirements::constraints::{Constraints, NodeTerm, Tolerated};
use crate::requirements::pod_class::{
    CountedNodes, PodAffinity, PodClass, PodClassId, TopologyCount, TopologySpread,
};
use crate::requirements::requests;
use crate::requirements::selectors::Selector;
use crate::resources::{ExactAmounts, ResourceNames};

/// What units are made of.
pub(super) struct Parts<'a> {
    pub(super) readings: &'a [Arc<PodRequirements>],
    pub(super) matchers: &'a Matchers<'a>,
    /// For each subject, what it matches, sorted.
    pub(super) matched: &'a [Vec<MatcherId>],
    pub(super) places: &'a [Vec<VolumeTerms>],
}

/// The kinds of a pass.
pub(super) struct Resolved {
    pub(super) classes: Vec<Constraints>,
    pub(super) kinds: Vec<PodClass>,
    pub(super) tallies: Vec<TopologyCount>,
    /// For each unit, its kind.
    pub(super) kind_of: Vec<PodClassId>,
}

/// What a unit asks about, before it is known which counts are the same.
struct Asked {
    near: Option<(Vec<CountId>, bool)>,
    apart: Vec<CountId>,
    spreads: Vec<(CountId, u32, u32, bool)>,
}

/// Makes kinds of units.
pub(super) fn resolve(units: &[PodGroup], parts: &Parts<'_>, names: &mut ResourceNames) -> Resolved {
    let (classes, class_of) = classes(units, parts);
    let policies = Policies::of(&classes);
    let mut asking = Asking::of(units, parts);
    let asked: Vec<_> =
        units.iter().zip(&class_of).map(|(unit, &class)| asking.ask(unit, &policies, class)).collect();
    let Asking { counts, holds, .. } = asking;
    let raisers: Vec<_> = units.iter().map(|unit| raiser(unit, parts, &holds)).collect();
    let merged = counts.merged(&raisers);

    let empty = ExactAmounts::new();
    let requests: Vec<_> = parts
        .readings
        .iter()
        .map(|reading| requests::rounded(reading.request.as_ref().unwrap_or(&empty), names))
        .collect();
    let mut kinds = Interned::default();
    let mut kind_of = Vec::with_capacity(units.len());
    for (index, (unit, asked)) in units.iter().zip(&asked).enumerate() {
        let reading = &parts.readings[unit.reading];
        kind_of.push(kinds.id(
            PodClass {
                request: requests[unit.reading].clone(),
                class: class_of[index],
                ports: reading.ports.clone(),
                near:
                    asked.near.as_ref().map(|(counts, itself)| PodAffinity {
                        tallies: merged.tallies(counts),
                        itself: *itself,
                    }),
                apart: merged.tallies(&asked.apart),
                spreads: spreads(&asked.spreads, &merged),
                raises: merged.raises[index].clone(),
                preferred: reading.preferred.clone(),
            },
        ));
    }
    Resolved { classes, kinds: kinds.all, tallies: merged.tallies, kind_of }
}

fn spreads(asked: &[(CountId, u32, u32, bool)], merged: &Merged) -> Vec<TopologySpread> {
    let spread = |&(count, max_skew, min_domains, itself)| TopologySpread {
        tally: merged.tally(count),
        max_skew,
        min_domains,
        itself,
    };
    let mut spreads: Vec<_> = asked.iter().map(spread).collect();
    spreads.sort_unstable();
    spreads.dedup();
    spreads
}

fn raiser<'a>(
    unit: &PodGroup,
    parts: &'a Parts<'_>,
    holds: &'a [Vec<(MatcherId, &'a str)>],
) -> CountedPods<'a> {
    CountedPods { matched: &parts.matched[unit.subject], holds: &holds[unit.reading], leaving: unit.leaving }
}

/// The classes of units, by first use, and the class of each.
fn classes(units: &[PodGroup], parts: &Parts<'_>) -> (Vec<Constraints>, Vec<usize>) {
    let mut known: HashMap<(usize, usize), usize> = HashMap::new();
    let mut classes = Interned::default();
    let mut class_of = Vec::with_capacity(units.len());
    for unit in units {
        class_of.push(*known.entry((unit.reading, unit.places)).or_insert_with(|| {
            let mut class = parts.readings[unit.reading].constraints.clone();
            class.volumes.clone_from(&parts.places[unit.places]);
            classes.id(class)
        }));
    }
    (classes.all, class_of)
}

/// Selector and affinity of a class.
type Labels<'a> = (&'a [(String, String)], Option<&'a [NodeTerm]>);

/// For the policies of spread constraints: one class stands for all with the same selector and affinity, and one for all
/// with the same tolerations.
struct Policies {
    /// `None` where every node will do.
    by_labels: Vec<Option<usize>>,
    by_taints: Vec<usize>,
}

impl Policies {
    fn of(classes: &[Constraints]) -> Self {
        let mut labels: HashMap<Labels<'_>, usize> = HashMap::new();
        let mut taints: HashMap<&[Tolerated], usize> = HashMap::new();
        let mut policies = Self { by_labels: Vec::new(), by_taints: Vec::new() };
        for (id, class) in classes.iter().enumerate() {
            let Constraints { selector, affinity, tolerations, volumes: _ } = class;
            let first = *labels.entry((selector, affinity.as_deref())).or_insert(id);
            let asks = !selector.is_empty() || affinity.is_some();
            policies.by_labels.push(asks.then_some(first));
            policies.by_taints.push(*taints.entry(tolerations).or_insert(id));
        }
        policies
    }
}

/// Collects what units ask about.
struct Asking<'a> {
    parts: &'a Parts<'a>,
    counts: RequestedCounts,
    /// Matchers that some pod of the pass is an answer to; what nobody matches keeps nobody away.
    answered: Vec<bool>,
    /// For each reading, its anti-affinity terms, sorted.
    holds: Vec<Vec<(MatcherId, &'a str)>>,
    /// Topology keys of the anti-affinity terms over a matcher, sorted.
    kept_away: Vec<BTreeSet<&'a str>>,
}

impl<'a> Asking<'a> {
    fn of(units: &[PodGroup], parts: &'a Parts<'a>) -> Self {
        let mut answered = vec![false; parts.matchers.len()];
        for unit in units {
            parts.matched[unit.subject].iter().for_each(|&matcher| answered[matcher] = true);
        }
        let holds: Vec<_> = parts.readings.iter().map(|reading| terms(&reading.apart, parts)).collect();
        let mut kept_away = vec![BTreeSet::new(); parts.matchers.len()];
        for &(matcher, key) in units.iter().flat_map(|unit| &holds[unit.reading]) {
            kept_away[matcher].insert(key);
        }
        Self { parts, counts: RequestedCounts::default(), answered, holds, kept_away }
    }

    fn ask(&mut self, unit: &PodGroup, policies: &Policies, class: usize) -> Asked {
        let reading = &self.parts.readings[unit.reading];
        let matched = &self.parts.matched[unit.subject];
        Asked {
            near: self.near(reading, matched),
            apart: self.apart(unit, matched),
            spreads: self.spreads(reading, matched, policies, class),
        }
    }

    fn near(&mut self, reading: &'a PodRequirements, matched: &[MatcherId]) -> Option<(Vec<CountId>, bool)> {
        let terms = terms(&reading.near, self.parts);
        let mut matchers: Vec<_> = terms.iter().map(|term| term.0).collect();
        matchers.dedup();
        let keys: BTreeSet<_> = terms.iter().map(|term| term.1).collect();
        if keys.is_empty() {
            return None;
        }
        let itself = matchers.iter().all(|matcher| matched.binary_search(matcher).is_ok());
        let count = |key| self.counts.id(Who::All(matchers.clone()), everywhere(key));
        Some((keys.into_iter().map(count).collect(), itself))
    }

    /// Those that the unit keeps away from, and those that keep away from it.
    fn apart(&mut self, unit: &PodGroup, matched: &[MatcherId]) -> Vec<CountId> {
        let own = self.holds[unit.reading].iter().filter(|term| self.answered[term.0]);
        let mut counts: Vec<_> =
            own.map(|&(matcher, key)| self.counts.id(Who::All(vec![matcher]), everywhere(key))).collect();
        for &matcher in matched {
            for key in &self.kept_away[matcher] {
                counts.push(self.counts.id(Who::Holders(matcher), everywhere(key)));
            }
        }
        counts
    }

    fn spreads(
        &mut self,
        reading: &PodRequirements,
        matched: &[MatcherId],
        policies: &Policies,
        class: usize,
    ) -> Vec<(CountId, u32, u32, bool)> {
        let keys: BTreeSet<_> = reading.spreads.iter().map(|spread| &spread.key).collect();
        let keys: Vec<_> = keys.into_iter().cloned().collect();
        let spread = |rule: &SpreadRule| {
            let asked = self.parts.matchers.id(&rule.pods)?;
            let nodes = CountedNodes::Eligible {
                keys: keys.clone(),
                labels_of: policies.by_labels[class].filter(|_| rule.by_affinity),
                taints_of: rule.by_taints.then_some(policies.by_taints[class]),
            };
            // The scheduler counts no pod for a selector without rules, although the pod that asks matches it:
            // countPodsMatchSelector in its podtopologyspread plugin.
            let everybody = rule.pods.selector.as_ref().is_some_and(Selector::is_empty);
            let who = if everybody { Who::Nobody } else { Who::Staying(asked) };
            let count = self.counts.id(who, TopologyCount { key: rule.key.clone(), nodes });
            let itself = matched.binary_search(&asked).is_ok();
            Some((count, rule.max_skew, rule.min_domains, itself))
        };
        reading.spreads.iter().filter_map(spread).collect()
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

/// Things by first use, each once.
struct Interned<T> {
    ids: HashMap<T, usize>,
    all: Vec<T>,
}

impl<T> Default for Interned<T> {
    fn default() -> Self {
        Self { ids: HashMap::new(), all: Vec::new() }
    }
}

impl<T: Clone + Eq + std::hash::Hash> Interned<T> {
    fn id(&mut self, thing: T) -> usize {
        let next = self.all.len();
        let id = *self.ids.entry(thing.clone()).or_insert(next);
        if id == next {
            self.all.push(thing);
        }
        id
    }
}
