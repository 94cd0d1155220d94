//! The nodes there are, on their way, or planned, each with what is free, and the counts of pods that constraints ask
//! about. Pods are placed on it as the scheduler's filters would allow; everything can be taken back.
//!
//! What is placed in which order, and which pool opens a node, is decided elsewhere. See `docs/adr/0012`.

mod bits;
pub mod capacity;
mod change;
mod domain_counts;
pub mod index;
mod node_class;
mod place;
mod rules;
mod why;

#[cfg(test)]
pub(crate) mod naive;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use change::Fork;
pub use place::Scope;
pub use why::{NodeOrTemplate, PlacementError};

use self::bits::Bits;
use self::change::UndoEntry;
use self::domain_counts::DomainCounts;
use self::node_class::NodeClasses;
use self::rules::{PlacementRule, PlacementRules};
use crate::requirements::constraints::Constraints;
use crate::requirements::node_profile::NodeProfile;
use crate::requirements::pod_class::{HostPort, PodClass, PodClassId, TopologyCount, TopologyCountId};
use crate::resources::Amounts;
use crate::snapshot::index::FitIndex;

/// Index of a node in a [`ClusterSnapshot`].
pub type NodeIndex = usize;

/// Which node it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// An existing node, by its index in the pass.
    Node(usize),
    /// A node of that pool that was asked for and does not exist yet.
    Upcoming(usize),
    /// A node of that pool that nobody has asked for yet.
    Planned(usize),
}

/// What a snapshot is made of.
#[derive(Clone, Debug)]
pub struct Setup<'a> {
    /// The constraints that classes and topology counts speak of.
    pub constraint_sets: &'a [Constraints],
    /// All classes of pods.
    pub classes: &'a [PodClass],
    /// All topology counts.
    pub topology_counts: &'a [TopologyCount],
    /// For each constraint set, whether pods of it wait for a place: nodes that the fewest of these can use are filled first.
    pub pending: &'a [bool],
    /// The nodes: existing ones first, in the order of the pass.
    pub nodes: Vec<NodeSetup>,
    /// What a new node of each pool is like, where that can be said.
    pub templates: Vec<Option<TemplateSetup>>,
}

/// A node there is, or on its way.
#[derive(Clone, Debug)]
pub struct NodeSetup {
    /// Which one.
    pub place: Place,
    /// Name, labels and taints; nodes that do not exist yet share their pool's.
    pub profile: Arc<NodeProfile>,
    /// What is free on it before any pod of `pods`.
    pub free: Amounts,
    /// The pods on it.
    pub pods: Vec<(PodClassId, usize)>,
    /// Host ports that are taken by other pods than those.
    pub ports: Vec<HostPort>,
    /// The topology counts that other pods than those raise, each as often as it is raised.
    pub raises: Vec<TopologyCountId>,
    /// Whether it takes pods. One that does not still counts, with its pods, in every topology count.
    pub open: bool,
}

/// A node that a pool would make.
#[derive(Clone, Debug)]
pub struct TemplateSetup {
    /// Labels and taints.
    pub profile: Arc<NodeProfile>,
    /// What is free on an empty one.
    pub free: Amounts,
    /// Host ports that are taken from the start.
    pub ports: Vec<HostPort>,
    /// Tallies that are raised from the start, each as often as it is raised.
    pub raises: Vec<TopologyCountId>,
}

/// The snapshot.
#[derive(Clone, Debug)]
pub struct ClusterSnapshot {
    constraint_sets: Vec<Constraints>,
    classes: Vec<Arc<PlacementRule>>,
    rules: PlacementRules,
    node_classes: NodeClasses,
    nodes: Vec<Node>,
    buckets: Vec<Bucket>,
    /// The buckets in the order in which they are looked through.
    order: Vec<usize>,
    counts: Vec<DomainCounts>,
    /// The topology counts that some spread looks at.
    spread: Vec<TopologyCountId>,
    templates: Vec<Option<Template>>,
    bits: Bits,
    journal: Vec<UndoEntry>,
}

/// A node.
#[derive(Clone, Debug)]
struct Node {
    place: Place,
    bucket: usize,
    slot: usize,
    node_class: usize,
    free: Amounts,
    /// DomainCounts of topology counts over the host name and of ports, sorted, without zeros.
    here: Vec<(TopologyCountId, u32)>,
    /// Sorted by class, without zeros.
    pods: Vec<(PodClassId, usize)>,
    /// Tallies that are raised by what is none of `pods`.
    raises: Vec<TopologyCountId>,
    /// What it is closed to, as [`Bits`] numbers it.
    closed: u64,
    /// Whether it has left the snapshot.
    gone: bool,
}

/// Nodes of one node class and one sort that are looked through together.
#[derive(Clone, Debug)]
struct Bucket {
    node_class: usize,
    /// Any of its nodes.
    sample: Place,
    nodes: Vec<NodeIndex>,
    index: FitIndex,
}

/// What a new node of a pool is like.
#[derive(Clone, Debug)]
struct Template {
    bucket: usize,
    node_class: usize,
    free: Amounts,
    /// Tallies, of ports too, that it raises from the start.
    raises: Vec<TopologyCountId>,
}

impl ClusterSnapshot {
    /// The snapshot of a pass before anything is placed.
    pub fn new(setup: Setup<'_>) -> Self {
        let Setup { constraint_sets, classes, topology_counts, pending, nodes, templates } = setup;
        let taken = nodes.iter().flat_map(|node| &node.ports);
        let of_templates = templates.iter().flatten().flat_map(|template| &template.ports);
        let mut rules = PlacementRules::of(classes, topology_counts, taken.chain(of_templates));
        let mut node_classes = NodeClasses::new(constraint_sets, &rules);
        let mut node_class =
            |profile: &NodeProfile| node_classes.of(profile, constraint_sets, topology_counts, &rules);
        let of_nodes: Vec<_> = nodes.iter().map(|node| node_class(&node.profile)).collect();
        let of_templates: Vec<_> =
            templates.iter().map(|template| template.as_ref().map(|t| node_class(&t.profile))).collect();
        let counts: Vec<_> = (0..rules.grounds.len())
            .map(|topology_count| {
                let ground = rules.grounds[topology_count];
                let domains =
                    if let rules::CountedBy::Key(key) = ground { node_classes.values(key) } else { 0 };
                DomainCounts::new(ground, domains, rules.spread[topology_count])
            })
            .collect();
        let mut snapshot = Self {
            constraint_sets: constraint_sets.to_vec(),
            classes: std::mem::take(&mut rules.classes).into_iter().map(Arc::new).collect(),
            counts,
            spread: (0..rules.spread.len()).filter(|&topology_count| rules.spread[topology_count]).collect(),
            rules,
            node_classes,
            nodes: Vec::with_capacity(nodes.len()),
            buckets: Vec::new(),
            order: Vec::new(),
            templates: Vec::new(),
            bits: Bits::default(),
            journal: Vec::new(),
        };
        let mut buckets = BTreeMap::new();
        for (node, node_class) in nodes.into_iter().zip(of_nodes) {
            snapshot.settle(node, node_class, &mut buckets);
        }
        for (pool, (template, node_class)) in templates.into_iter().zip(of_templates).enumerate() {
            let template = template.zip(node_class).map(|(template, node_class)| Template {
                bucket: snapshot.bucket(Place::Planned(pool), node_class, &mut buckets),
                node_class,
                raises: snapshot.raised(&template.ports, template.raises),
                free: template.free,
            });
            snapshot.templates.push(template);
        }
        snapshot.rebuild_indexes();
        snapshot.sort_buckets(pending);
        snapshot
    }

    /// How many nodes there are, those that have gone included.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Which node it is.
    pub fn place_of(&self, node: NodeIndex) -> Place {
        self.nodes[node].place
    }

    /// The snapshot's node for an existing one of the pass.
    pub fn node_of(&self, node: usize) -> NodeIndex {
        debug_assert_eq!(self.nodes[node].place, Place::Node(node), "existing nodes come first");
        node
    }

    /// What is free on a node; below zero where it is overcommitted.
    pub fn free(&self, node: NodeIndex) -> &Amounts {
        &self.nodes[node].free
    }

    /// The pods on a node, by class.
    pub fn pods_on(&self, node: NodeIndex) -> &[(PodClassId, usize)] {
        &self.nodes[node].pods
    }

    /// Whether the node has left the snapshot.
    pub fn is_gone(&self, node: NodeIndex) -> bool {
        self.nodes[node].gone
    }

    /// Whether pods or nodes that come later can make a place for pods of this class.
    pub fn waits(&self, class: PodClassId) -> bool {
        self.classes[class].waits
    }

    /// Whether pods of this class have to do with other pods only in that they need room.
    pub fn is_plain(&self, class: PodClassId) -> bool {
        let rule = &self.classes[class];
        !rule.waits && rule.apart_here.is_empty() && rule.raises.is_empty()
    }

    /// Whether pods of this class spread over domains of which there can be more.
    pub fn spreads(&self, class: PodClassId) -> bool {
        !self.classes[class].spreads.is_empty() || !self.classes[class].spreads_here.is_empty()
    }

    /// What is free on an empty new node of a pool.
    pub fn free_on_new(&self, pool: usize) -> Option<&Amounts> {
        self.templates.get(pool)?.as_ref().map(|template| &template.free)
    }

    /// How many domains all spreads see together: grows when a node brings a new one.
    pub fn domains(&self) -> usize {
        self.spread.iter().map(|&topology_count| self.counts[topology_count].domains()).sum()
    }

    fn settle(&mut self, node: NodeSetup, node_class: usize, buckets: &mut BTreeMap<BucketKey, usize>) {
        let NodeSetup { place, profile: _, free, pods, ports, raises, open } = node;
        let bucket = self.bucket(place, node_class, buckets);
        let raises = self.raised(&ports, raises);
        let ix = self.insert(place, bucket, node_class, free, raises);
        for (class, count) in pods {
            self.lay(ix, class, count);
        }
        if !open {
            self.nodes[ix].closed |= bits::CLOSED;
        }
    }

    fn raised(&self, ports: &[HostPort], besides: Vec<TopologyCountId>) -> Vec<TopologyCountId> {
        let mut topology_counts = self.rules.raised_by(ports);
        topology_counts.extend(besides);
        topology_counts
    }

    fn bucket(&mut self, place: Place, node_class: usize, known: &mut BTreeMap<BucketKey, usize>) -> usize {
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
            });
            self.buckets.len() - 1
        })
    }

    /// Existing nodes come before upcoming ones and those before planned ones, and among each those that admit the fewest
    /// constraint sets that wait, so that pods with a choice leave the others to pods without one.
    fn sort_buckets(&mut self, pending: &[bool]) {
        let mut sought = vec![0_usize; self.node_classes.list.len()];
        for constraint_set in (0..self.constraint_sets.len())
            .filter(|&constraint_set| pending.get(constraint_set) == Some(&true))
        {
            let admitting = self.node_classes.admitting(constraint_set, &self.constraint_sets);
            sought
                .iter_mut()
                .zip(admitting.iter())
                .for_each(|(sought, &admits)| *sought += usize::from(admits));
        }
        let buckets = &self.buckets;
        let tier = |place: Place| match place {
            Place::Node(_) => 0,
            Place::Upcoming(_) => 1,
            Place::Planned(_) => 2,
        };
        self.order = (0..buckets.len()).collect();
        self.order.sort_by_key(|&b| (tier(buckets[b].sample), sought[buckets[b].node_class], b));
    }
}

/// Sort of node, pool where it does not exist yet, node class.
type BucketKey = (u8, usize, usize);
