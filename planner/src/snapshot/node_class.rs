//! Nodes that no constraint of the pass can tell apart, but for their name and what is free on them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::rules::{CountedBy, PlacementRules};
use crate::requirements::constraints::{Constraints, HOSTNAME_LABEL};
use crate::requirements::node_profile::NodeProfile;
use crate::requirements::pod_class::{CountedNodes, TopologyCount, TopologyCountId};
use crate::requirements::predicates;
use crate::requirements::predicates::{node_affinity, selector, taints};

/// One family.
#[derive(Clone, Debug)]
pub(super) struct NodeClass {
    /// What constraints look at.
    pub(super) profile: NodeProfile,
    /// Whether its nodes have a host name.
    pub(super) host: bool,
    /// Its domain of each topology key.
    pub(super) domains: Vec<Option<usize>>,
    /// Whether its nodes count for each tally.
    counts: Vec<bool>,
}

/// All families.
#[derive(Clone, Debug)]
pub(super) struct NodeClasses {
    pub(super) list: Vec<NodeClass>,
    ids: BTreeMap<(NodeProfile, bool), usize>,
    /// Label keys that some constraint looks at.
    keys: BTreeSet<String>,
    /// Whether some constraint looks at the names of nodes.
    by_name: bool,
    /// The values of each topology key.
    values: Vec<BTreeMap<String, usize>>,
    /// Which families admit each class, as far as somebody has asked.
    admits: Vec<Option<Arc<[bool]>>>,
}

impl NodeClasses {
    pub(super) fn new(classes: &[Constraints], rules: &PlacementRules) -> Self {
        let mut keys = BTreeSet::new();
        for class in classes {
            class.label_keys(&mut keys);
        }
        keys.extend(rules.keys.iter().map(String::as_str));
        Self {
            list: Vec::new(),
            ids: BTreeMap::new(),
            keys: keys.into_iter().map(str::to_owned).collect(),
            by_name: classes.iter().any(Constraints::names_nodes),
            values: vec![BTreeMap::new(); rules.keys.len()],
            admits: vec![None; classes.len()],
        }
    }

    /// The family of a node. Classes must not have been asked about before the last family is known.
    pub(super) fn of(
        &mut self,
        profile: &NodeProfile,
        classes: &[Constraints],
        tallies: &[TopologyCount],
        rules: &PlacementRules,
    ) -> usize {
        let host = profile.labels.contains_key(HOSTNAME_LABEL);
        let labels = profile.labels.iter().filter(|(key, _)| self.keys.contains(*key));
        let reduced = NodeProfile {
            name: profile.name.clone().filter(|_| self.by_name),
            labels: labels.map(|(key, value)| (key.clone(), value.clone())).collect(),
            taints: profile.taints.clone(),
        };
        if let Some(&id) = self.ids.get(&(reduced.clone(), host)) {
            return id;
        }
        let mut domains = Vec::with_capacity(rules.keys.len());
        for (key, values) in rules.keys.iter().zip(&mut self.values) {
            let next = values.len();
            domains.push(reduced.labels.get(key).map(|value| *values.entry(value.clone()).or_insert(next)));
        }
        let mut family = NodeClass { profile: reduced.clone(), host, domains, counts: Vec::new() };
        let of_kinds = tallies.iter().zip(&rules.grounds);
        family.counts =
            of_kinds.map(|(tally, &ground)| family.eligible(tally, ground, classes, rules)).collect();
        family.counts.resize(rules.grounds.len(), true);
        let id = self.list.len();
        self.list.push(family);
        self.ids.insert((reduced, host), id);
        id
    }

    /// Which families admit pods of a class.
    pub(super) fn admitting(&mut self, class: usize, classes: &[Constraints]) -> Arc<[bool]> {
        let list = &self.list;
        let row = self.admits[class].get_or_insert_with(|| {
            list.iter().map(|family| predicates::admits(&classes[class], &family.profile).is_ok()).collect()
        });
        Arc::clone(row)
    }

    /// How many values a topology key has.
    pub(super) fn values(&self, key: usize) -> usize {
        self.values[key].len()
    }
}

impl NodeClass {
    /// Whether nodes of the family count for a tally.
    pub(super) fn counts(&self, tally: TopologyCountId) -> bool {
        self.counts[tally]
    }

    /// The domain of a tally over a key other than the host name's.
    pub(super) fn domain(&self, ground: CountedBy) -> Option<usize> {
        match ground {
            CountedBy::Key(key) => self.domains[key],
            CountedBy::Host | CountedBy::Ports => None,
        }
    }

    /// Whether the family has the key of a tally.
    pub(super) fn has(&self, ground: CountedBy) -> bool {
        match ground {
            CountedBy::Key(key) => self.domains[key].is_some(),
            CountedBy::Host => self.host,
            CountedBy::Ports => true,
        }
    }

    fn eligible(
        &self,
        tally: &TopologyCount,
        ground: CountedBy,
        classes: &[Constraints],
        rules: &PlacementRules,
    ) -> bool {
        let has_key = |key: &String| match rules.keys.binary_search(key) {
            Ok(key) => self.domains[key].is_some(),
            Err(_) => self.host,
        };
        self.has(ground)
            && match &tally.nodes {
                CountedNodes::All => true,
                CountedNodes::Eligible { keys, labels_of, taints_of } => {
                    keys.iter().all(has_key)
                        && labels_of.is_none_or(|class| self.has_labels(&classes[class]))
                        && taints_of.is_none_or(|class| {
                            taints::tolerated(&classes[class].tolerations, &self.profile.taints).is_ok()
                        })
                }
            }
    }

    fn has_labels(&self, class: &Constraints) -> bool {
        selector::matches(&class.selector, &self.profile.labels).is_ok()
            && node_affinity::matches(class.affinity.as_deref(), &self.profile).is_ok()
    }
}
