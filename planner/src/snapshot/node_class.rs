//! Nodes that no constraint of the pass can tell apart, except for their name and free capacity.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::rules::{DomainId, DomainKind, PlacementRules, TopologyKeyId};
use crate::index::{Indexed, index_type};
use crate::requirements::constraints::{Constraints, HOSTNAME_LABEL};
use crate::requirements::node_profile::{NodeProfile, RepellingTaint};
use crate::requirements::pod_class::{
    ConstraintSetId, ConstraintSets, CountedNodes, TopologyCount, TopologyCountId, TopologyCounts,
};
use crate::requirements::predicates::{self, node_affinity, selector, taints};
use crate::steps;

/// Index of a [`NodeClass`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeClassId(pub(super) usize);
index_type!(NodeClassId);

#[derive(Clone, Debug)]
pub(super) struct NodeClass {
    /// The parts that constraints use.
    pub(super) profile: NodeProfile,
    /// Whether its nodes have a host name.
    pub(super) host: bool,
    /// Its domain of each topology key.
    pub(super) domains: Indexed<TopologyKeyId, Option<DomainId>>,
    /// Whether its nodes count for each topology count.
    counts: Indexed<TopologyCountId, bool>,
    /// Whether they do while they are cordoned; `None` if that is the same.
    counts_cordoned: Option<Indexed<TopologyCountId, bool>>,
}

/// The node classes that admit the pods of a constraint set.
#[derive(Clone, Debug)]
pub(super) struct Admitting(Arc<[bool]>);

impl Admitting {
    /// Whether the node class does.
    pub(super) fn contains(&self, node_class: NodeClassId) -> bool {
        self.0[node_class.0]
    }
}

/// All node classes.
#[derive(Clone, Debug)]
pub(super) struct NodeClasses {
    pub(super) list: Indexed<NodeClassId, NodeClass>,
    ids: BTreeMap<(NodeProfile, bool), NodeClassId>,
    /// Label keys that a constraint uses.
    keys: BTreeSet<String>,
    /// Whether a constraint uses the names of nodes.
    by_name: bool,
    /// The values of each topology key.
    values: Indexed<TopologyKeyId, BTreeMap<String, DomainId>>,
    /// Which node classes admit each constraint set; filled on first use.
    admits: Indexed<ConstraintSetId, Option<Admitting>>,
}

impl NodeClasses {
    pub(super) fn new(constraint_sets: &ConstraintSets, rules: &PlacementRules) -> Self {
        let mut keys = BTreeSet::new();
        for constraint_set in constraint_sets {
            constraint_set.label_keys(&mut keys);
        }
        keys.extend(rules.keys.iter().map(String::as_str));
        Self {
            list: Indexed::default(),
            ids: BTreeMap::new(),
            keys: keys.into_iter().map(str::to_owned).collect(),
            by_name: constraint_sets.iter().any(Constraints::names_nodes),
            values: vec![BTreeMap::new(); rules.keys.len()].into(),
            admits: vec![None; constraint_sets.len()].into(),
        }
    }

    /// The node class of a node. [`Self::admitting`] must not be called before the last node class is known.
    pub(super) fn of(
        &mut self,
        profile: &NodeProfile,
        constraint_sets: &ConstraintSets,
        topology_counts: &TopologyCounts,
        rules: &PlacementRules,
    ) -> NodeClassId {
        steps::count(1);
        let host = profile.labels.contains_key(HOSTNAME_LABEL);
        let labels = profile.labels.iter().filter(|(key, _)| self.keys.contains(*key));
        let reduced = NodeProfile {
            name: profile.name.clone().filter(|_| self.by_name),
            labels: labels.map(|(key, value)| (key.clone(), value.clone())).collect(),
            taints: profile.taints.clone(),
        };
        let known = (reduced, host);
        if let Some(&id) = self.ids.get(&known) {
            return id;
        }
        steps::count(topology_counts.len());
        let reduced = &known.0;
        let mut domains = Indexed::from(Vec::with_capacity(rules.keys.len()));
        for (key, values) in rules.keys.iter().zip(&mut self.values) {
            let next = DomainId(values.len());
            domains.push(reduced.labels.get(key).map(|value| *values.entry(value.clone()).or_insert(next)));
        }
        let mut node_class = NodeClass {
            profile: reduced.clone(),
            host,
            domains,
            counts: Indexed::default(),
            counts_cordoned: None,
        };
        let (counts, while_cordoned) = node_class.all_counts(topology_counts, constraint_sets, rules);
        node_class.counts_cordoned = (while_cordoned != counts).then(|| while_cordoned.into());
        node_class.counts = counts.into();
        let id = self.list.push(node_class);
        self.ids.insert(known, id);
        id
    }

    /// Which node classes admit pods of a constraint set.
    pub(super) fn admitting(
        &mut self,
        constraint_set: ConstraintSetId,
        constraint_sets: &ConstraintSets,
    ) -> Admitting {
        let list = &self.list;
        let row = self.admits[constraint_set].get_or_insert_with(|| {
            steps::count(list.len());
            let admits = |node_class: &NodeClass| {
                predicates::admits(&constraint_sets[constraint_set], &node_class.profile).is_ok()
            };
            Admitting(list.iter().map(admits).collect())
        });
        row.clone()
    }

    /// The number of values of a topology key.
    pub(super) fn values(&self, key: TopologyKeyId) -> usize {
        self.values[key].len()
    }
}

impl NodeClass {
    /// Whether nodes of the node class count for a topology count.
    pub(super) fn counts(&self, topology_count: TopologyCountId) -> bool {
        self.counts[topology_count]
    }

    /// Whether a node of the node class that is, or is not, `cordoned` in the snapshot counts for a topology count.
    pub(super) fn counts_while(&self, cordoned: bool, topology_count: TopologyCountId) -> bool {
        let differs = self.counts_cordoned.as_ref().filter(|_| cordoned);
        differs.map_or_else(|| self.counts(topology_count), |counts| counts[topology_count])
    }

    /// Whether some topology count no longer counts its nodes once they are cordoned.
    pub(super) const fn leaves_when_cordoned(&self) -> bool {
        self.counts_cordoned.is_some()
    }

    /// The domain of a topology count over a key other than the host name's.
    pub(super) fn domain(&self, domain_kind: DomainKind) -> Option<DomainId> {
        match domain_kind {
            DomainKind::Key(key) => self.domains[key],
            DomainKind::Host | DomainKind::Ports => None,
        }
    }

    /// Whether the node class has the key of a topology count.
    pub(super) fn has(&self, domain_kind: DomainKind) -> bool {
        match domain_kind {
            DomainKind::Key(key) => self.domains[key].is_some(),
            DomainKind::Host => self.host,
            DomainKind::Ports => true,
        }
    }

    /// Whether its nodes count for each topology count, and whether they do while they are cordoned; ports count everywhere.
    fn all_counts(
        &self,
        topology_counts: &TopologyCounts,
        constraint_sets: &ConstraintSets,
        rules: &PlacementRules,
    ) -> (Vec<bool>, Vec<bool>) {
        let of_drain = RepellingTaint::of_drain();
        let of_classes = topology_counts.iter().zip(&rules.domain_kinds);
        let (mut counts, mut while_cordoned): (Vec<_>, Vec<_>) = of_classes
            .map(|(topology_count, &domain_kind)| {
                self.eligible(&of_drain, topology_count, domain_kind, constraint_sets, rules)
            })
            .unzip();
        counts.resize(rules.domain_kinds.len(), true);
        while_cordoned.resize(rules.domain_kinds.len(), true);
        (counts, while_cordoned)
    }

    /// Whether its nodes count for the topology count, and whether they do with the taints of a drain.
    fn eligible(
        &self,
        of_drain: &[RepellingTaint],
        topology_count: &TopologyCount,
        domain_kind: DomainKind,
        constraint_sets: &ConstraintSets,
        rules: &PlacementRules,
    ) -> (bool, bool) {
        let has_key = |key: &String| match rules.keys.binary_search(key) {
            Ok(key) => self.domains[TopologyKeyId(key)].is_some(),
            Err(_) => self.host,
        };
        let has = self.has(domain_kind);
        let CountedNodes::Eligible { keys, labels_of, taints_of } = &topology_count.nodes else {
            return (has, has);
        };
        let counts = has
            && keys.iter().all(has_key)
            && labels_of.is_none_or(|constraint_set| self.has_labels(&constraint_sets[constraint_set]));
        let tolerates = |its_taints: &[RepellingTaint]| {
            taints_of.is_none_or(|constraint_set| {
                taints::tolerated(&constraint_sets[constraint_set].tolerations, its_taints).is_ok()
            })
        };
        let counts = counts && tolerates(&self.profile.taints);
        (counts, counts && tolerates(of_drain))
    }

    fn has_labels(&self, constraint_set: &Constraints) -> bool {
        selector::matches(&constraint_set.selector, &self.profile.labels).is_ok()
            && node_affinity::matches(constraint_set.affinity.as_deref(), &self.profile).is_ok()
    }
}
