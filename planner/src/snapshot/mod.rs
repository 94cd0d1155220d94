//! The snapshot: the existing, upcoming and planned nodes, each with its free capacity, and the counts of pods that
//! constraints need. Pods are placed on it as the scheduler's filters would allow; all changes can be reverted.
//!
//! Other modules decide in which order pods are placed and which pool opens a node. See `docs/adr/0012`.

mod bits;
pub(crate) mod capacity;
mod change;
mod domain_counts;
mod filters;
pub(crate) mod index;
mod node_class;
mod place;
mod rules;
mod supplies;
mod topology_spread;

#[cfg(test)]
pub(crate) mod naive;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) use change::Fork;
pub(crate) use filters::{NodeOrTemplate, PlacementError};
pub(crate) use place::Scope;

use self::bits::Bits;
use self::change::UndoEntry;
use self::domain_counts::DomainCounts;
use self::node_class::{NodeClassId, NodeClasses};
use self::rules::{PlacementRule, PlacementRules};
use self::supplies::Supplies;
use crate::index::{Indexed, index_type};
use crate::requirements::node_profile::NodeProfile;
use crate::requirements::pod_class::{
    ConstraintSetId, ConstraintSets, HostPort, PodClassId, PodClasses, Supply, SupplyId, TopologyCountId,
    TopologyCounts,
};
use crate::resources::Amounts;
use crate::snapshot::index::FitIndex;
use crate::steps;

/// Index of a node in a [`ClusterSnapshot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeIndex(pub(crate) usize);
index_type!(NodeIndex);

/// Index of a [`Bucket`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct BucketId(usize);
index_type!(BucketId);

/// Identifies a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// An existing node, by its index in the pass.
    Node(usize),
    /// A node of that pool that was requested and does not exist yet.
    Upcoming(usize),
    /// A node of that pool that only this plan adds.
    Planned(usize),
}

/// The input for creating a snapshot.
#[derive(Clone, Debug)]
pub(crate) struct Setup<'a> {
    /// The constraint sets that classes and topology counts refer to.
    pub constraint_sets: &'a ConstraintSets,
    /// All classes of pods.
    pub classes: &'a PodClasses,
    /// All topology counts.
    pub topology_counts: &'a TopologyCounts,
    /// All supplies.
    pub supplies: &'a Indexed<SupplyId, Supply>,
    /// For each constraint set, whether pending pods have it: nodes that the fewest of these can use are filled first.
    pub pending: &'a Indexed<ConstraintSetId, bool>,
    /// The nodes: existing ones first, in the order of the pass.
    pub nodes: Vec<NodeSetup>,
    /// The template of a new node of each pool; `None` if it cannot be read.
    pub templates: Vec<Option<TemplateSetup>>,
}

/// An existing or upcoming node.
#[derive(Clone, Debug)]
pub(crate) struct NodeSetup {
    /// Identifies the node.
    pub place: Place,
    /// Name, labels and taints; nodes that do not exist yet share their pool's.
    pub profile: Arc<NodeProfile>,
    /// The free capacity before any pod of `pods`.
    pub free: Amounts,
    /// The pods on it.
    pub pods: Vec<(PodClassId, usize)>,
    /// Host ports that are used by other pods than those.
    pub ports: Vec<HostPort>,
    /// The topology counts that other pods than those raise, one entry for each time.
    pub increments: Vec<TopologyCountId>,
    /// Whether it takes pods. A closed node still counts, with its pods, in every topology count.
    pub open: bool,
}

/// A new node of a pool.
#[derive(Clone, Debug)]
pub(crate) struct TemplateSetup {
    /// Labels and taints.
    pub profile: Arc<NodeProfile>,
    /// The free capacity of an empty one.
    pub free: Amounts,
    /// Host ports that are used from the start.
    pub ports: Vec<HostPort>,
    /// Topology counts that are raised from the start, one entry for each time.
    pub increments: Vec<TopologyCountId>,
}

/// The nodes, pods and counts of a pass.
#[derive(Clone, Debug)]
pub(crate) struct ClusterSnapshot {
    constraint_sets: ConstraintSets,
    classes: Indexed<PodClassId, Arc<PlacementRule>>,
    rules: PlacementRules,
    node_classes: NodeClasses,
    nodes: Indexed<NodeIndex, Node>,
    buckets: Indexed<BucketId, Bucket>,
    /// The buckets in the order in which they are searched.
    order: Vec<BucketId>,
    counts: Indexed<TopologyCountId, DomainCounts>,
    /// The topology counts that a spread constraint uses.
    spread: Vec<TopologyCountId>,
    templates: Vec<Option<Template>>,
    supplies: Supplies,
    bits: Bits,
    journal: Vec<UndoEntry>,
}

#[derive(Clone, Debug)]
struct Node {
    place: Place,
    bucket: BucketId,
    slot: usize,
    class: NodeClassId,
    free: Amounts,
    /// Topology counts over the host name and of ports, sorted, without zeros.
    here: Vec<(TopologyCountId, u32)>,
    /// Sorted by class, without zeros.
    pods: Vec<(PodClassId, usize)>,
    /// Topology counts that are raised by anything other than `pods`.
    increments: Vec<TopologyCountId>,
    /// What it is closed to, as bits of [`Bits`].
    closed: u64,
    /// Whether it has been cordoned in the snapshot, whatever its profile says.
    cordoned: bool,
    /// Whether it has been retired.
    gone: bool,
}

/// Nodes of one node class and one tier (existing, upcoming, planned) that are searched together.
#[derive(Clone, Debug)]
struct Bucket {
    node_class: NodeClassId,
    /// Any of its nodes.
    sample: Place,
    nodes: Vec<NodeIndex>,
    index: FitIndex,
}

/// A new node of a pool.
#[derive(Clone, Debug)]
struct Template {
    bucket: BucketId,
    node_class: NodeClassId,
    free: Amounts,
    /// Topology counts, including those of ports, that it raises from the start.
    increments: Vec<TopologyCountId>,
}

impl ClusterSnapshot {
    /// The snapshot of a pass before anything is placed.
    pub(crate) fn new(setup: Setup<'_>) -> Self {
        let Setup { constraint_sets, classes, topology_counts, supplies, pending, nodes, templates } = setup;
        let taken = nodes.iter().flat_map(|node| &node.ports);
        let of_templates = templates.iter().flatten().flat_map(|template| &template.ports);
        let mut rules = PlacementRules::of(classes, topology_counts, taken.chain(of_templates));
        let mut node_classes = NodeClasses::new(constraint_sets, &rules);
        let mut node_class =
            |profile: &NodeProfile| node_classes.of(profile, constraint_sets, topology_counts, &rules);
        let of_nodes: Vec<_> = nodes.iter().map(|node| node_class(&node.profile)).collect();
        let of_templates: Vec<_> =
            templates.iter().map(|template| template.as_ref().map(|t| node_class(&t.profile))).collect();
        let counts: Indexed<TopologyCountId, _> = rules
            .domain_kinds
            .enumerated()
            .map(|(topology_count, &domain_kind)| {
                let domains =
                    if let rules::DomainKind::Key(key) = domain_kind { node_classes.values(key) } else { 0 };
                DomainCounts::new(domain_kind, domains, rules.spread[topology_count])
            })
            .collect();
        let profiles = node_classes.list.iter().map(|node_class| &node_class.profile);
        let supplies = Supplies::of(supplies, constraint_sets, profiles);
        steps::count(classes.len() + topology_counts.len());
        let mut snapshot = Self {
            supplies,
            constraint_sets: constraint_sets.clone(),
            classes: std::mem::take(&mut rules.classes).into_iter().map(Arc::new).collect(),
            counts,
            spread: rules.spread.indexes().filter(|&topology_count| rules.spread[topology_count]).collect(),
            rules,
            node_classes,
            nodes: Vec::with_capacity(nodes.len()).into(),
            buckets: Indexed::default(),
            order: Vec::new(),
            templates: Vec::new(),
            bits: Bits::default(),
            journal: Vec::new(),
        };
        let mut buckets = BTreeMap::new();
        for (node, node_class) in nodes.into_iter().zip(of_nodes) {
            snapshot.add_node(node, node_class, &mut buckets);
        }
        for (pool, (template, node_class)) in templates.into_iter().zip(of_templates).enumerate() {
            let template = template.zip(node_class).map(|(template, node_class)| Template {
                bucket: snapshot.bucket(Place::Planned(pool), node_class, &mut buckets),
                node_class,
                increments: snapshot.raised(&template.ports, template.increments),
                free: template.free,
            });
            snapshot.templates.push(template);
        }
        snapshot.rebuild_indexes();
        snapshot.sort_buckets(pending);
        snapshot
    }

    /// The number of nodes, including retired ones.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// The index that the next new node will have.
    pub(crate) fn next_node(&self) -> NodeIndex {
        self.nodes.next()
    }

    /// All nodes, including retired ones.
    pub(crate) fn node_indexes(&self) -> impl ExactSizeIterator<Item = NodeIndex> + use<> {
        self.nodes.indexes()
    }

    /// The nodes from `first` on, including retired ones.
    pub(crate) fn nodes_from(&self, first: NodeIndex) -> impl ExactSizeIterator<Item = NodeIndex> + use<> {
        self.nodes.indexes_from(first)
    }

    /// Identifies the node.
    pub(crate) fn place_of(&self, node: NodeIndex) -> Place {
        self.nodes[node].place
    }

    /// The snapshot's index of an existing node of the pass.
    pub(crate) fn node_of(&self, node: usize) -> NodeIndex {
        let index = NodeIndex(node);
        debug_assert_eq!(self.nodes[index].place, Place::Node(node), "existing nodes come first");
        index
    }

    /// The pods on a node, by class.
    pub(crate) fn pods_on(&self, node: NodeIndex) -> &[(PodClassId, usize)] {
        &self.nodes[node].pods
    }

    /// Whether the node has been retired.
    #[cfg(test)]
    pub(crate) fn is_gone(&self, node: NodeIndex) -> bool {
        self.nodes[node].gone
    }

    /// The topology counts that a node raises apart from the pods on it.
    pub(crate) fn raised_besides(&self, node: NodeIndex) -> &[TopologyCountId] {
        &self.nodes[node].increments
    }

    /// Whether pods or nodes that are added later can make a place for pods of this class: it has an affinity, or an
    /// anti-affinity over more than single nodes, or it spreads. The places of other classes do not depend on nodes that
    /// take no pods.
    pub(crate) fn waits(&self, class: PodClassId) -> bool {
        self.classes[class].waits
    }

    /// Whether pods of this class affect other pods only by the capacity they use.
    pub(crate) fn is_plain(&self, class: PodClassId) -> bool {
        let rule = &self.classes[class];
        !rule.waits
            && rule.anti_affinity_on_host.is_empty()
            && rule.increments.is_empty()
            && rule.needs.is_empty()
    }

    /// Whether pods of this class have spread constraints, for which new nodes can add domains.
    pub(crate) fn spreads(&self, class: PodClassId) -> bool {
        !self.classes[class].spreads.is_empty() || !self.classes[class].spreads_here.is_empty()
    }

    /// The free capacity of an empty new node of a pool; `None` if the pool has no template.
    pub(crate) fn free_on_new(&self, pool: usize) -> Option<&Amounts> {
        self.templates.get(pool)?.as_ref().map(|template| &template.free)
    }

    /// The number of domains that all spread constraints see together: increases when a node adds a domain.
    pub(crate) fn domains(&self) -> usize {
        steps::count(self.spread.len());
        self.spread.iter().map(|&topology_count| self.counts[topology_count].domains()).sum()
    }

    fn add_node(
        &mut self,
        node: NodeSetup,
        node_class: NodeClassId,
        buckets: &mut BTreeMap<BucketKey, BucketId>,
    ) {
        let NodeSetup { place, profile: _, free, pods, ports, increments, open } = node;
        let bucket = self.bucket(place, node_class, buckets);
        let increments = self.raised(&ports, increments);
        let ix = self.insert(place, bucket, node_class, free, increments);
        for (class, count) in pods {
            self.lay(ix, class, count);
        }
        if !open {
            self.nodes[ix].closed |= bits::CLOSED;
        }
    }

    fn raised(&self, ports: &[HostPort], besides: Vec<TopologyCountId>) -> Vec<TopologyCountId> {
        let mut topology_counts = self.rules.incremented_by(ports);
        topology_counts.extend(besides);
        topology_counts
    }

    fn bucket(
        &mut self,
        place: Place,
        node_class: NodeClassId,
        known: &mut BTreeMap<BucketKey, BucketId>,
    ) -> BucketId {
        let key = match place {
            Place::Node(_) => (0, 0, node_class),
            Place::Upcoming(pool) => (1, pool, node_class),
            Place::Planned(pool) => (2, pool, node_class),
        };
        *known.entry(key).or_insert_with(|| {
            self.buckets.push(Bucket {
                node_class,
                sample: place,
                nodes: Vec::new(),
                index: FitIndex::default(),
            })
        })
    }

    /// Existing nodes come before upcoming ones and those before planned ones. Within each tier those come first that
    /// admit the fewest constraint sets of pending pods, so that pods with a choice leave the other nodes to pods
    /// without one.
    fn sort_buckets(&mut self, pending: &Indexed<ConstraintSetId, bool>) {
        let mut sought: Indexed<NodeClassId, usize> = vec![0; self.node_classes.list.len()].into();
        for constraint_set in self.constraint_sets.indexes() {
            if pending.get(constraint_set) != Some(&true) {
                continue;
            }
            let admitting = self.node_classes.admitting(constraint_set, &self.constraint_sets);
            steps::count(sought.len());
            for node_class in sought.indexes() {
                sought[node_class] += usize::from(admitting.contains(node_class));
            }
        }
        let buckets = &self.buckets;
        let tier = |place: Place| match place {
            Place::Node(_) => 0,
            Place::Upcoming(_) => 1,
            Place::Planned(_) => 2,
        };
        self.order = buckets.indexes().collect();
        self.order.sort_by_key(|&b| (tier(buckets[b].sample), sought[buckets[b].node_class], b));
    }
}

/// Tier of the node, pool if it does not exist yet, node class.
type BucketKey = (u8, usize, NodeClassId);
