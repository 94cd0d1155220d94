//! What a snapshot is created from.

use std::sync::Arc;

use super::node_index::Place;
use crate::index::{Indexed, PoolIndex};
use crate::requirements::node_profile::NodeProfile;
use crate::requirements::pod_class::{
    ConstraintSetId, ConstraintSets, HostPort, PodClassId, PodClasses, Supply, SupplyId, TopologyCountId,
    TopologyCounts,
};
use crate::resources::Amounts;

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
    pub templates: Indexed<PoolIndex, Option<TemplateSetup>>,
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
