//! Why a node, or a new node of a pool, takes no pod of a class: the first of the scheduler's filters that rejects it.

use super::bits::CLOSED;
use super::change::count_of;
use super::model::{ClusterSnapshot, Template};
use super::node_class::NodeClassId;
use super::node_index::NodeIndex;
use super::rules::{DomainKind, PlacementRule};
use crate::index::PoolIndex;
use crate::reasons::Rejection;
use crate::requirements::pod_class::{PodClassId, TopologyCountId};
use crate::requirements::predicates;
use crate::resources::Resource;
use crate::steps;

/// The node to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeOrTemplate {
    /// A node of the snapshot.
    Node(NodeIndex),
    /// A new node of that pool, if it were opened now.
    Template(PoolIndex),
}

/// Why a pod cannot be placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PlacementError {
    /// The node takes no pod at all, or the pool has no template.
    Closed,
    /// Taints, labels, ports, or other pods.
    Rejected(Rejection),
    /// The free amount of this resource is insufficient.
    Short(Resource),
}

impl ClusterSnapshot {
    /// Why `target` takes no pod of this class; `None` if it does. Bounds of pools are ignored.
    pub(crate) fn why_not(&self, class: PodClassId, target: NodeOrTemplate) -> Option<PlacementError> {
        steps::count(1);
        let rule = &self.classes[class];
        let (node_class, free) = match target {
            NodeOrTemplate::Node(node) => {
                let node = &self.nodes[node];
                if node.closed & CLOSED != 0 {
                    return Some(PlacementError::Closed);
                }
                (node.class, &node.free)
            }
            NodeOrTemplate::Template(pool) => match self.templates.get(pool) {
                Some(Some(template)) => (template.node_class, &template.free),
                _ => return Some(PlacementError::Closed),
            },
        };
        let profile = &self.node_classes.list[node_class].profile;
        if let Err(rejection) = predicates::admits(&self.constraint_sets[rule.constraint_set], profile) {
            return Some(PlacementError::Rejected(rejection));
        }
        let taken = self.taken_port(rule, target).map(PlacementError::Rejected);
        taken
            .or_else(|| free.shortage(&rule.request).map(PlacementError::Short))
            .or_else(|| self.too_uneven(rule, node_class, target).map(PlacementError::Rejected))
            .or_else(|| self.too_near_or_far(rule, node_class, target).map(PlacementError::Rejected))
            .or_else(|| self.supplies.used_up(&rule.needs, node_class).cloned().map(PlacementError::Rejected))
    }

    /// Whether an empty new node of the pool would take a pod of this class if there were no other pods; `false` if the
    /// pool does not grow for such pods.
    pub(crate) fn could_take(&mut self, class: PodClassId, pool: PoolIndex) -> bool {
        steps::count(1);
        let rule = std::sync::Arc::clone(&self.classes[class]);
        let Some(Some(template)) = self.templates.get(pool) else { return false };
        let node_class = template.node_class;
        !rule.barred.contains(pool)
            && template.free.fits(&rule.request, 1) == 1
            && self.node_classes.admitting(rule.constraint_set, &self.constraint_sets).contains(node_class)
    }

    /// Whether a new node of the pool would take a pod of this class.
    pub(crate) fn would_take(&mut self, class: PodClassId, pool: PoolIndex) -> bool {
        if !self.could_take(class, pool) {
            return false;
        }
        let rule = &self.classes[class];
        let Some(Some(template)) = self.templates.get(pool) else { return false };
        if template
            .increments
            .iter()
            .any(|&topology_count| self.counts[topology_count].domain_kind != DomainKind::Ports)
        {
            // Daemons on the new node may also raise the minimum of a spread: only the opened node can tell.
            let fork = self.fork();
            let takes =
                self.open(pool).is_some_and(|node| self.why_not(class, NodeOrTemplate::Node(node)).is_none());
            self.revert(fork);
            return takes;
        }
        let (node_class, target) = (template.node_class, NodeOrTemplate::Template(pool));
        self.taken_port(rule, target).is_none()
            && self.too_uneven(rule, node_class, target).is_none()
            && self.too_near_or_far(rule, node_class, target).is_none()
            && self.supplies.used_up(&rule.needs, node_class).is_none()
    }

    /// A topology count over single nodes, on the target.
    fn here(&self, topology_count: TopologyCountId, target: NodeOrTemplate) -> u32 {
        match target {
            NodeOrTemplate::Node(node) => count_of(&self.nodes[node], topology_count),
            NodeOrTemplate::Template(_) => self.brought(topology_count, target),
        }
    }

    /// What a new node adds to a topology count by itself, because daemons run on it.
    fn brought(&self, topology_count: TopologyCountId, target: NodeOrTemplate) -> u32 {
        let NodeOrTemplate::Template(pool) = target else { return 0 };
        let increments = |t: &Template| {
            let counts = self.node_classes.list[t.node_class].counts(topology_count);
            if counts { t.increments.iter().filter(|&&raised| raised == topology_count).count() } else { 0 }
        };
        let count = self.templates[pool].as_ref().map_or(0, increments);
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// A topology count in the domain of the target.
    pub(super) fn around(
        &self,
        topology_count: TopologyCountId,
        node_class: NodeClassId,
        target: NodeOrTemplate,
    ) -> u32 {
        let counts = &self.counts[topology_count];
        match self.node_classes.list[node_class].domain(counts.domain_kind) {
            Some(domain) => counts.pods[domain].saturating_add(self.brought(topology_count, target)),
            None => self.here(topology_count, target),
        }
    }

    fn taken_port(&self, rule: &PlacementRule, target: NodeOrTemplate) -> Option<Rejection> {
        let mut ports = rule
            .anti_affinity_on_host
            .iter()
            .filter(|&&topology_count| self.here(topology_count, target) > 0);
        let named = |&topology_count: &TopologyCountId| {
            self.rules.ports.iter().find(|(_, id)| **id == topology_count)
        };
        let (port, _) = ports.find_map(named)?;
        Some(Rejection::HostPortConflict(format!("{}/{}", port.port, port.protocol)))
    }

    fn too_near_or_far(
        &self,
        rule: &PlacementRule,
        node_class: NodeClassId,
        target: NodeOrTemplate,
    ) -> Option<Rejection> {
        let of = &self.node_classes.list[node_class];
        let count = |topology_count: TopologyCountId| self.around(topology_count, node_class, target);
        if let Some(affinity) = &rule.affinity {
            let topology_counts = || affinity.topology_counts.iter().chain(&affinity.topology_counts_on_host);
            if let Some(&topology_count) =
                topology_counts().find(|&&topology_count| !of.has(self.counts[topology_count].domain_kind))
            {
                return Some(Rejection::TopologyKeyMissing(self.rules.key(topology_count).to_owned()));
            }
            if !self.begins(affinity) && topology_counts().any(|&topology_count| count(topology_count) == 0) {
                return Some(Rejection::PodAffinityMismatch);
            }
        }
        let anti_affinity = rule.anti_affinity.iter().chain(&rule.anti_affinity_on_host);
        anti_affinity
            .copied()
            .any(|topology_count| count(topology_count) > 0)
            .then_some(Rejection::PodAntiAffinityConflict)
    }
}
