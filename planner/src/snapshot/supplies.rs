//! What is left of the supplies that pending pods compete for. A pod takes units when it is placed and gives them back
//! when it is taken away; only pods that need any are looked at.

use std::collections::BTreeMap;

use super::node_class::NodeClassId;
use super::node_index::NodeIndex;
use crate::index::Indexed;
use crate::reasons::Rejection;
use crate::requirements::constraints::{NodeRequirement, NodeTerm, RequirementOperator};
use crate::requirements::node_profile::NodeProfile;
use crate::requirements::pod_class::{ConstraintSets, Need, PodClassId, Supply, SupplyId};
use crate::requirements::predicates::volumes;
use crate::steps;

/// The supplies of a pass.
#[derive(Clone, Debug, Default)]
pub(super) struct Supplies {
    all: Indexed<SupplyId, Remainder>,
    /// For each node class, the supplies that can be used there, sorted. There are few: most volumes are on one node.
    usable: Indexed<NodeClassId, Vec<SupplyId>>,
    /// What placed pods have taken, the latest last.
    taken: Vec<Taken>,
}

#[derive(Clone, Debug)]
struct Remainder {
    units: usize,
    used_up: Rejection,
}

#[derive(Clone, Debug)]
struct Taken {
    node: NodeIndex,
    class: PodClassId,
    supplies: Vec<SupplyId>,
}

impl Supplies {
    /// All units of `supplies`, with the profiles of all node classes.
    pub(super) fn of<'n>(
        supplies: &Indexed<SupplyId, Supply>,
        constraint_sets: &ConstraintSets,
        profiles: impl Iterator<Item = &'n NodeProfile>,
    ) -> Self {
        if supplies.is_empty() {
            return Self::default();
        }
        let profiles: Indexed<NodeClassId, _> = profiles.collect();
        let mut usable: Indexed<NodeClassId, Vec<SupplyId>> = vec![Vec::new(); profiles.len()].into();
        let mut by_label = BTreeMap::new();
        for (id, supply) in supplies.enumerated() {
            let places = &constraint_sets[supply.constraint_set].volumes;
            for node_class in candidates(places, &profiles, &mut by_label) {
                if volumes::usable(places, profiles[node_class]).is_ok() {
                    usable[node_class].push(id);
                }
            }
        }
        let remainder = |supply: &Supply| Remainder { units: supply.units, used_up: supply.used_up.clone() };
        Self { all: supplies.iter().map(remainder).collect(), usable, taken: Vec::new() }
    }

    /// Why there is not enough left for one pod with these needs on nodes of this class; `None` if there is.
    pub(super) fn used_up(&self, needs: &[Need], node_class: NodeClassId) -> Option<&Rejection> {
        if needs.is_empty() { None } else { self.choose(needs, node_class).1 }
    }

    /// Takes the units for one pod of `class`, as far as there are any.
    pub(super) fn draw(
        &mut self,
        needs: &[Need],
        node: NodeIndex,
        node_class: NodeClassId,
        class: PodClassId,
    ) {
        let (supplies, _) = self.choose(needs, node_class);
        for &supply in &supplies {
            self.all[supply].units = self.all[supply].units.saturating_sub(1);
        }
        self.taken.push(Taken { node, class, supplies });
    }

    /// Gives back what `count` pods of a class took on a node.
    pub(super) fn give_back(&mut self, node: NodeIndex, class: PodClassId, count: usize) {
        for _ in 0..count {
            let is_theirs = |taken: &Taken| {
                steps::count(1);
                taken.node == node && taken.class == class
            };
            let Some(at) = self.taken.iter().rposition(is_theirs) else { return };
            for supply in self.taken.remove(at).supplies {
                self.all[supply].units = self.all[supply].units.saturating_add(1);
            }
        }
    }

    /// One unit for each need, and the reason for the first need without one.
    fn choose(&self, needs: &[Need], node_class: NodeClassId) -> (Vec<SupplyId>, Option<&Rejection>) {
        let mut chosen: Vec<SupplyId> = Vec::with_capacity(needs.len());
        for need in needs {
            let is_left = |supply: &&SupplyId| {
                steps::count(1);
                let gone = chosen.iter().filter(|chosen| **chosen == **supply).count();
                need.binary_search(*supply).is_ok() && self.all[**supply].units > gone
            };
            let found = self.usable[node_class].iter().find(is_left).copied();
            match found {
                Some(supply) => chosen.push(supply),
                None => return (chosen, need.first().map(|&supply| &self.all[supply].used_up)),
            }
        }
        (chosen, None)
    }
}

/// Node classes by label key and value.
type ByLabel<'s> = BTreeMap<&'s str, BTreeMap<&'s str, Vec<NodeClassId>>>;

/// The node classes, sorted, that could be in one of the `places`: by the labels of which they ask for certain values,
/// so that thousands of volumes are not compared with thousands of nodes.
fn candidates<'s>(
    places: &'s [Vec<NodeTerm>],
    profiles: &Indexed<NodeClassId, &'s NodeProfile>,
    by_label: &mut ByLabel<'s>,
) -> Vec<NodeClassId> {
    let is_certain = |rule: &&NodeRequirement| rule.operator == RequirementOperator::In;
    let rules = |terms: &'s Vec<NodeTerm>| -> Option<Vec<&'s NodeRequirement>> {
        terms.iter().map(|term| term.labels.iter().find(is_certain)).collect()
    };
    let Some(rules) = places.first().and_then(rules) else { return profiles.indexes().collect() };
    let mut found: Vec<NodeClassId> = Vec::new();
    for rule in rules {
        let values = by_label.entry(&rule.key).or_insert_with(|| {
            let mut values: BTreeMap<&'s str, Vec<NodeClassId>> = BTreeMap::new();
            for (node_class, profile) in profiles.enumerated() {
                if let Some(value) = profile.labels.get(&rule.key) {
                    values.entry(value).or_default().push(node_class);
                }
            }
            values
        });
        for value in &rule.values {
            found.extend(values.get(value.as_str()).into_iter().flatten());
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requirements::constraints::Constraints;
    use crate::requirements::pod_class::ConstraintSetId;

    fn zone(value: &str) -> NodeTerm {
        let rule = NodeRequirement {
            key: "zone".to_owned(),
            operator: RequirementOperator::In,
            values: vec![value.to_owned()],
        };
        NodeTerm { labels: vec![rule], fields: vec![] }
    }

    fn set(volumes: Vec<Vec<NodeTerm>>) -> Constraints {
        Constraints { volumes, ..Constraints::default() }
    }

    #[test]
    fn units_are_taken_where_they_can_be_used_and_given_back() {
        let profile = |zone: &str| NodeProfile {
            labels: [("zone".to_owned(), zone.to_owned())].into_iter().collect(),
            ..NodeProfile::default()
        };
        let profiles = [profile("a"), profile("b"), profile("c")];
        let sets =
            vec![set(vec![vec![zone("a")]]), set(vec![vec![zone("a"), zone("b")]]), set(vec![])].into();
        let supply = |constraint_set: usize, units: usize| Supply {
            constraint_set: ConstraintSetId(constraint_set),
            units,
            used_up: Rejection::ClaimInUse(constraint_set.to_string()),
        };
        let all = vec![supply(0, 1), supply(1, 2), supply(2, 1)].into();
        let ids = |ids: &[usize]| -> Need { ids.iter().copied().map(SupplyId).collect() };
        let mut supplies = Supplies::of(&all, &sets, profiles.iter());
        assert_eq!(*supplies.usable, [ids(&[0, 1, 2]), ids(&[1, 2]), ids(&[2])]);

        let volume: Vec<Need> = vec![ids(&[0, 1])];
        let both: Vec<Need> = vec![ids(&[0, 1]), ids(&[0, 1])];
        let none = |supplies: &Supplies, needs: &[Need], class: usize| {
            supplies.used_up(needs, NodeClassId(class)).is_some()
        };
        assert_eq!([0, 1, 2].map(|class| none(&supplies, &volume, class)), [false, false, true]);
        supplies.draw(&both, NodeIndex(7), NodeClassId(0), PodClassId(3));
        assert_eq!([0, 1].map(|class| none(&supplies, &volume, class)), [false, false]);
        assert_eq!([0, 1].map(|class| none(&supplies, &both, class)), [true, true]);
        supplies.draw(&volume, NodeIndex(8), NodeClassId(1), PodClassId(3));
        assert_eq!([0, 1].map(|class| none(&supplies, &volume, class)), [true, true]);
        assert!(!none(&supplies, &[ids(&[2])], 2), "another supply");
        supplies.give_back(NodeIndex(7), PodClassId(3), 1);
        assert_eq!([0, 1].map(|class| none(&supplies, &both, class)), [false, true]);
    }
}
