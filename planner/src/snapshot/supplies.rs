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
    /// As in [`Supply::one_of`].
    one_of: Need,
    /// Which of them it is, and how many placed pods share it.
    shared: Option<(SupplyId, usize)>,
    used_up: Rejection,
}

/// What a pod takes for one of its needs.
#[derive(Clone, Copy, Debug)]
struct Unit {
    of: SupplyId,
    /// The supply whose pods share it.
    shared_by: Option<SupplyId>,
}

#[derive(Clone, Debug)]
struct Taken {
    node: NodeIndex,
    class: PodClassId,
    units: Vec<Unit>,
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
        for (id, supply) in supplies.enumerated().filter(|(_, supply)| supply.one_of.is_empty()) {
            let places = &constraint_sets[supply.constraint_set].volumes;
            for node_class in candidates(places, &profiles, &mut by_label) {
                if volumes::usable(places, profiles[node_class]).is_ok() {
                    usable[node_class].push(id);
                }
            }
        }
        let remainder = |supply: &Supply| Remainder {
            units: supply.units,
            one_of: supply.one_of.clone(),
            shared: None,
            used_up: supply.used_up.clone(),
        };
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
        let (units, _) = self.choose(needs, node_class);
        for unit in &units {
            self.take(unit);
        }
        self.taken.push(Taken { node, class, units });
    }

    /// Gives back what `count` pods of a class took on a node.
    pub(super) fn give_back(&mut self, node: NodeIndex, class: PodClassId, count: usize) {
        for _ in 0..count {
            let is_theirs = |taken: &Taken| {
                steps::count(1);
                taken.node == node && taken.class == class
            };
            let Some(at) = self.taken.iter().rposition(is_theirs) else { return };
            for unit in self.taken.remove(at).units {
                self.release(&unit);
            }
        }
    }

    fn take(&mut self, unit: &Unit) {
        if self.is_new(unit) {
            self.all[unit.of].units = self.all[unit.of].units.saturating_sub(1);
        }
        if let Some(by) = unit.shared_by {
            let pods = self.all[by].shared.map_or(0, |(_, pods)| pods);
            self.all[by].shared = Some((unit.of, pods.saturating_add(1)));
        }
    }

    /// The reverse of [`Self::take`].
    fn release(&mut self, unit: &Unit) {
        if let Some(by) = unit.shared_by {
            let pods = self.all[by].shared.map_or(0, |(_, pods)| pods.saturating_sub(1));
            self.all[by].shared = (pods > 0).then_some((unit.of, pods));
        }
        if self.is_new(unit) {
            self.all[unit.of].units = self.all[unit.of].units.saturating_add(1);
        }
    }

    /// Whether no placed pod shares the unit.
    fn is_new(&self, unit: &Unit) -> bool {
        unit.shared_by.is_none_or(|by| self.all[by].shared.is_none())
    }

    /// One unit for each need, and the reason for the first need without one.
    fn choose(&self, needs: &[Need], node_class: NodeClassId) -> (Vec<Unit>, Option<&Rejection>) {
        let mut chosen: Vec<Unit> = Vec::with_capacity(needs.len());
        for need in needs {
            match self.unit(need, node_class, &chosen) {
                Some(unit) => chosen.push(unit),
                None => return (chosen, need.first().map(|&supply| &self.all[supply].used_up)),
            }
        }
        (chosen, None)
    }

    /// A unit for a need of a pod for whose other needs these are `chosen`. Of a shared one that a pod has already, the others can
    /// only have the same.
    fn unit(&self, need: &[SupplyId], node_class: NodeClassId, chosen: &[Unit]) -> Option<Unit> {
        let shared_by = need.first().copied().filter(|&supply| !self.all[supply].one_of.is_empty());
        let of = match shared_by.map(|by| &self.all[by]) {
            None => self.left(need, node_class, chosen),
            Some(Remainder { shared: None, one_of, .. }) => self.left(one_of, node_class, chosen),
            Some(Remainder { shared: Some((of, _)), .. }) => {
                steps::count(1);
                Some(*of).filter(|of| self.usable[node_class].binary_search(of).is_ok())
            }
        };
        of.map(|of| Unit { of, shared_by })
    }

    /// The first of the supplies that has a unit left for nodes of this class.
    fn left(&self, supplies: &[SupplyId], node_class: NodeClassId, chosen: &[Unit]) -> Option<SupplyId> {
        let is_left = |supply: &&SupplyId| {
            steps::count(1);
            let gone = chosen.iter().filter(|unit| unit.of == **supply && self.is_new(unit)).count();
            supplies.binary_search(*supply).is_ok() && self.all[**supply].units > gone
        };
        self.usable[node_class].iter().find(is_left).copied()
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
            one_of: Need::new(),
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

    #[test]
    fn pods_that_share_a_unit_take_it_once_and_the_last_gives_it_back() {
        let used_up = || Rejection::ClaimInUse("c".to_owned());
        let one_of = |ids: &[usize]| -> Need { ids.iter().copied().map(SupplyId).collect() };
        let supply = |set: usize, units: usize, one_of: Need| Supply {
            constraint_set: ConstraintSetId(set),
            units,
            one_of,
            used_up: used_up(),
        };
        let profile = |zone: &str| NodeProfile {
            labels: [("zone".to_owned(), zone.to_owned())].into_iter().collect(),
            ..NodeProfile::default()
        };
        let profiles = [profile("a"), profile("b")];
        let sets = vec![set(vec![vec![zone("a")]]), set(vec![vec![zone("b")]]), set(vec![])].into();
        let all = vec![supply(0, 1, vec![]), supply(1, 1, vec![]), supply(2, 0, one_of(&[0, 1]))].into();
        let mut supplies = Supplies::of(&all, &sets, profiles.iter());
        let (alone, sharing): (Vec<Need>, Vec<Need>) = (vec![one_of(&[0, 1])], vec![one_of(&[2])]);
        let none = |supplies: &Supplies, needs: &[Need]| {
            [0, 1].map(|class| supplies.used_up(needs, NodeClassId(class)).is_some())
        };
        assert_eq!(none(&supplies, &sharing), [false, false]);
        supplies.draw(&sharing, NodeIndex(7), NodeClassId(0), PodClassId(3));
        supplies.draw(&sharing, NodeIndex(8), NodeClassId(0), PodClassId(3));
        assert_eq!(none(&supplies, &sharing), [false, true], "where the unit is");
        assert_eq!(none(&supplies, &alone), [true, false], "one is gone");
        supplies.give_back(NodeIndex(7), PodClassId(3), 1);
        assert_eq!(none(&supplies, &alone), [true, false], "the other pod has it");
        supplies.give_back(NodeIndex(8), PodClassId(3), 1);
        assert_eq!((none(&supplies, &alone), none(&supplies, &sharing)), ([false; 2], [false; 2]));
    }
}
