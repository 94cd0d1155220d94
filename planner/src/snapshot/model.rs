//! The snapshot's data, and what is asked about it without a pod to place.

use std::sync::Arc;

use super::bits::Bits;
use super::domain_counts::DomainCounts;
use super::index::FitIndex;
use super::journal::UndoEntry;
use super::node_class::{NodeClassId, NodeClasses};
use super::node_index::{NodeIndex, Place};
use super::rules::{PlacementRule, PlacementRules};
use super::supplies::Supplies;
use crate::index::{Indexed, PassNodeIndex, PoolIndex, index_type};
use crate::requirements::pod_class::{ConstraintSets, PodClassId, TopologyCountId};
use crate::resources::Amounts;
use crate::steps;

/// Index of a [`Bucket`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BucketId(usize);
index_type!(BucketId);

/// The nodes, pods and counts of a pass.
#[derive(Clone, Debug)]
pub(crate) struct ClusterSnapshot {
    pub(super) constraint_sets: ConstraintSets,
    pub(super) classes: Indexed<PodClassId, Arc<PlacementRule>>,
    pub(super) rules: PlacementRules,
    pub(super) node_classes: NodeClasses,
    pub(super) nodes: Indexed<NodeIndex, Node>,
    pub(super) buckets: Indexed<BucketId, Bucket>,
    /// The buckets in the order in which they are searched.
    pub(super) order: Vec<BucketId>,
    pub(super) counts: Indexed<TopologyCountId, DomainCounts>,
    /// The topology counts that a spread constraint uses.
    pub(super) spread: Vec<TopologyCountId>,
    pub(super) templates: Indexed<PoolIndex, Option<Template>>,
    pub(super) supplies: Supplies,
    pub(super) bits: Bits,
    pub(super) journal: Vec<UndoEntry>,
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) bucket: BucketId,
    pub(super) slot: usize,
    pub(super) class: NodeClassId,
    pub(super) free: Amounts,
    /// Topology counts over the host name and of ports, sorted, without zeros.
    pub(super) here: Vec<(TopologyCountId, u32)>,
    /// Sorted by class, without zeros.
    pub(super) pods: Vec<(PodClassId, usize)>,
    /// Topology counts that are raised by anything other than `pods`.
    pub(super) increments: Vec<TopologyCountId>,
    /// What it is closed to, as bits of [`Bits`].
    pub(super) closed: u64,
    /// Whether it has been cordoned in the snapshot, whatever its profile says.
    pub(super) cordoned: bool,
    /// Whether it has been retired.
    pub(super) gone: bool,
}

/// Nodes of one node class and one tier (existing, upcoming, planned) that are searched together.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    pub(super) node_class: NodeClassId,
    /// Any of its nodes.
    pub(super) sample: Place,
    pub(super) nodes: Vec<NodeIndex>,
    pub(super) index: FitIndex,
}

/// A new node of a pool.
#[derive(Clone, Debug)]
pub(super) struct Template {
    pub(super) bucket: BucketId,
    pub(super) node_class: NodeClassId,
    pub(super) free: Amounts,
    /// Topology counts, including those of ports, that it raises from the start.
    pub(super) increments: Vec<TopologyCountId>,
}

impl ClusterSnapshot {
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
    pub(crate) fn node_of(&self, node: PassNodeIndex) -> NodeIndex {
        let index = NodeIndex(node.0);
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
    pub(crate) fn free_on_new(&self, pool: PoolIndex) -> Option<&Amounts> {
        self.templates.get(pool)?.as_ref().map(|template| &template.free)
    }

    /// The number of domains that all spread constraints see together: increases when a node adds a domain.
    pub(crate) fn domains(&self) -> usize {
        steps::count(self.spread.len());
        self.spread.iter().map(|&topology_count| self.counts[topology_count].domains()).sum()
    }
}
