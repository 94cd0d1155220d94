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

/// What a world is made of.
#[derive(Clone, Debug)]
pub struct Setup<'a> {
    /// The constraints that kinds and tallies speak of.
    pub classes: &'a [Constraints],
    /// All kinds of pods.
    pub kinds: &'a [PodClass],
    /// All tallies.
    pub tallies: &'a [TopologyCount],
    /// For each class, whether pods of it wait for a place: nodes that the fewest of these can use are filled first.
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
    /// The tallies that other pods than those raise, each as often as it is raised.
    pub raises: Vec<TopologyCountId>,
    /// Whether it takes pods. One that does not still counts, with its pods, in every tally.
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

/// The world.
#[derive(Clone, Debug)]
pub struct ClusterSnapshot {
    classes: Vec<Constraints>,
    kinds: Vec<Arc<PlacementRule>>,
    rules: PlacementRules,
    families: NodeClasses,
    nodes: Vec<Node>,
    buckets: Vec<Bucket>,
    /// The buckets in the order in which they are looked through.
    order: Vec<usize>,
    counts: Vec<DomainCounts>,
    /// The tallies that some spread looks at.
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
    family: usize,
    free: Amounts,
    /// DomainCounts of tallies over the host name and of ports, sorted, without zeros.
    here: Vec<(TopologyCountId, u32)>,
    /// Sorted by kind, without zeros.
    pods: Vec<(PodClassId, usize)>,
    /// Tallies that are raised by what is none of `pods`.
    raises: Vec<TopologyCountId>,
    /// What it is closed to, as [`Bits`] numbers it.
    closed: u64,
    /// Whether it has left the world.
    gone: bool,
}

/// Nodes of one family and one sort that are looked through together.
#[derive(Clone, Debug)]
struct Bucket {
    family: usize,
    /// Any of its nodes.
    sample: Place,
    nodes: Vec<NodeIndex>,
    index: FitIndex,
}

/// What a new node of a pool is like.
#[derive(Clone, Debug)]
struct Template {
    bucket: usize,
    family: usize,
    free: Amounts,
    /// Tallies, of ports too, that it raises from the start.
    raises: Vec<TopologyCountId>,
}

impl ClusterSnapshot {
    /// The world of a pass before anything is placed.
    pub fn new(setup: Setup<'_>) -> Self {
        let Setup { classes, kinds, tallies, pending, nodes, templates } = setup;
        let taken = nodes.iter().flat_map(|node| &node.ports);
        let of_templates = templates.iter().flatten().flat_map(|template| &template.ports);
        let mut rules = PlacementRules::of(kinds, tallies, taken.chain(of_templates));
        let mut families = NodeClasses::new(classes, &rules);
        let mut family = |profile: &NodeProfile| families.of(profile, classes, tallies, &rules);
        let of_nodes: Vec<_> = nodes.iter().map(|node| family(&node.profile)).collect();
        let of_templates: Vec<_> =
            templates.iter().map(|template| template.as_ref().map(|t| family(&t.profile))).collect();
        let counts: Vec<_> = (0..rules.grounds.len())
            .map(|tally| {
                let ground = rules.grounds[tally];
                let domains = if let rules::CountedBy::Key(key) = ground { families.values(key) } else { 0 };
                DomainCounts::new(ground, domains, rules.spread[tally])
            })
            .collect();
        let mut world = Self {
            classes: classes.to_vec(),
            kinds: std::mem::take(&mut rules.kinds).into_iter().map(Arc::new).collect(),
            counts,
            spread: (0..rules.spread.len()).filter(|&tally| rules.spread[tally]).collect(),
            rules,
            families,
            nodes: Vec::with_capacity(nodes.len()),
            buckets: Vec::new(),
            order: Vec::new(),
            templates: Vec::new(),
            bits: Bits::default(),
            journal: Vec::new(),
        };
        let mut buckets = BTreeMap::new();
        for (node, family) in nodes.into_iter().zip(of_nodes) {
            world.settle(node, family, &mut buckets);
        }
        for (pool, (template, family)) in templates.into_iter().zip(of_templates).enumerate() {
            let template = template.zip(family).map(|(template, family)| Template {
                bucket: world.bucket(Place::Planned(pool), family, &mut buckets),
                family,
                raises: world.raised(&template.ports, template.raises),
                free: template.free,
            });
            world.templates.push(template);
        }
        world.rebuild_indexes();
        world.sort_buckets(pending);
        world
    }

    /// How many nodes there are, those that have gone included.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Which node it is.
    pub fn place_of(&self, node: NodeIndex) -> Place {
        self.nodes[node].place
    }

    /// The world's node for an existing one of the pass.
    pub fn node_of(&self, node: usize) -> NodeIndex {
        debug_assert_eq!(self.nodes[node].place, Place::Node(node), "existing nodes come first");
        node
    }

    /// What is free on a node; below zero where it is overcommitted.
    pub fn free(&self, node: NodeIndex) -> &Amounts {
        &self.nodes[node].free
    }

    /// The pods on a node, by kind.
    pub fn pods_on(&self, node: NodeIndex) -> &[(PodClassId, usize)] {
        &self.nodes[node].pods
    }

    /// Whether the node has left the world.
    pub fn is_gone(&self, node: NodeIndex) -> bool {
        self.nodes[node].gone
    }

    /// Whether pods or nodes that come later can make a place for pods of this kind.
    pub fn waits(&self, kind: PodClassId) -> bool {
        self.kinds[kind].waits
    }

    /// Whether pods of this kind have to do with other pods only in that they need room.
    pub fn is_plain(&self, kind: PodClassId) -> bool {
        let rule = &self.kinds[kind];
        !rule.waits && rule.apart_here.is_empty() && rule.raises.is_empty()
    }

    /// Whether pods of this kind spread over domains of which there can be more.
    pub fn spreads(&self, kind: PodClassId) -> bool {
        !self.kinds[kind].spreads.is_empty() || !self.kinds[kind].spreads_here.is_empty()
    }

    /// What is free on an empty new node of a pool.
    pub fn free_on_new(&self, pool: usize) -> Option<&Amounts> {
        self.templates.get(pool)?.as_ref().map(|template| &template.free)
    }

    /// How many domains all spreads see together: grows when a node brings a new one.
    pub fn domains(&self) -> usize {
        self.spread.iter().map(|&tally| self.counts[tally].domains()).sum()
    }

    fn settle(&mut self, node: NodeSetup, family: usize, buckets: &mut BTreeMap<BucketKey, usize>) {
        let NodeSetup { place, profile: _, free, pods, ports, raises, open } = node;
        let bucket = self.bucket(place, family, buckets);
        let raises = self.raised(&ports, raises);
        let ix = self.insert(place, bucket, family, free, raises);
        for (kind, count) in pods {
            self.lay(ix, kind, count);
        }
        if !open {
            self.nodes[ix].closed |= bits::CLOSED;
        }
    }

    fn raised(&self, ports: &[HostPort], besides: Vec<TopologyCountId>) -> Vec<TopologyCountId> {
        let mut tallies = self.rules.raised_by(ports);
        tallies.extend(besides);
        tallies
    }

    fn bucket(&mut self, place: Place, family: usize, known: &mut BTreeMap<BucketKey, usize>) -> usize {
        let key = match place {
            Place::Node(_) => (0, 0, family),
            Place::Upcoming(pool) => (1, pool, family),
            Place::Planned(pool) => (2, pool, family),
        };
        *known.entry(key).or_insert_with(|| {
            self.buckets.push(Bucket {
                family,
                sample: place,
                nodes: Vec::new(),
                index: FitIndex::default(),
            });
            self.buckets.len() - 1
        })
    }

    /// Existing nodes come before upcoming ones and those before planned ones, and among each those that admit the fewest
    /// classes that wait, so that pods with a choice leave the others to pods without one.
    fn sort_buckets(&mut self, pending: &[bool]) {
        let mut sought = vec![0_usize; self.families.list.len()];
        for class in (0..self.classes.len()).filter(|&class| pending.get(class) == Some(&true)) {
            let admitting = self.families.admitting(class, &self.classes);
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
        self.order.sort_by_key(|&b| (tier(buckets[b].sample), sought[buckets[b].family], b));
    }
}

/// Sort of node, pool where it does not exist yet, family.
type BucketKey = (u8, usize, usize);
