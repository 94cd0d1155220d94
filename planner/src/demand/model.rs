//! All pods that matter for a pass, as the later steps read them.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use shared_crds::v1alpha1::DiscoveredPod;

use super::daemons::Daemons;
use crate::index::{Indexed, PassNodeIndex, PodIndex};
use crate::input::pod_info::Labels;
use crate::reasons::Rejection;
use crate::requirements::pod_class::{
    ConstraintSets, PodClassId, PodClasses, Supply, SupplyId, TopologyCountId, TopologyCounts,
};

/// For each pod of a pass that occupies a node, its class and that node.
pub(crate) type PlacedPods = Indexed<PodIndex, Option<(PodClassId, PassNodeIndex)>>;

/// Pending pods that are equal to the planner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PendingGroup {
    /// Index into [`Demand::classes`].
    pub class: PodClassId,
    /// Their priority.
    pub priority: i32,
    /// The pods, by namespace and name.
    pub pods: Vec<PodIndex>,
}

/// All pods that matter for a pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Demand {
    /// The different constraints on nodes.
    pub constraint_sets: ConstraintSets,
    /// The different pod classes.
    pub classes: PodClasses,
    /// The topology counts that the constraints need.
    pub topology_counts: TopologyCounts,
    /// What the pending pods compete for.
    pub supplies: Indexed<SupplyId, Supply>,
    /// The pending pods, in the order in which they are placed: by priority, then the larger share of a node first,
    /// which packs better; then by name, so that the order is deterministic.
    pub groups: Vec<PendingGroup>,
    /// The pods that occupy a node.
    pub placed: PlacedPods,
    /// The headroom: how many virtual pods of which class are placed after all pending pods.
    pub headroom: Vec<(PodClassId, usize)>,
    /// What the `DaemonSet`s run on new nodes.
    pub daemon_sets: Daemons,
    /// The topology counts that a pod of each `DaemonSet` raises, by its namespace and name.
    pub daemons: BTreeMap<(String, String), Vec<TopologyCountId>>,
    /// The topology counts that the agents raise which pools remember, by their namespace and labels.
    pub remembered: BTreeMap<(String, Labels), Vec<TopologyCountId>>,
    /// Pending pods whose requests or selectors cannot be read, with the problem.
    pub unreadable: Vec<(PodIndex, String)>,
    /// Pending pods that no node can help, because of one of their `PersistentVolumeClaim`s.
    pub waiting: Vec<(PodIndex, Rejection)>,
    /// Bound pods whose requests or selectors cannot be read. They count as requesting nothing, or without those selectors, and
    /// no other node is said to take them.
    pub misread: Vec<PodIndex>,
    /// When the first of the pending pods that pools do not grow for yet is old enough; `None` without any.
    pub delayed_until: Option<Timestamp>,
    /// Problems of pods, headroom and `DaemonSet`s, as messages for users.
    pub warnings: Vec<String>,
}

impl Demand {
    /// How many pods of which class wait for a place, in the order in which they are placed: pending pods, then headroom.
    pub(crate) fn pending(&self) -> impl Iterator<Item = (PodClassId, usize)> {
        let pods = self.groups.iter().map(|group| (group.class, group.pods.len()));
        pods.chain(self.headroom.iter().copied())
    }

    /// The topology counts that a remembered agent raises.
    pub(crate) fn raised_by(&self, remembered: &DiscoveredPod) -> Vec<TopologyCountId> {
        let subject = (remembered.namespace.clone(), remembered.labels.clone());
        self.remembered.get(&subject).cloned().unwrap_or_default()
    }
}
