//! Pod classes in the form that placing needs: constraints over the host name and over host ports separate from those
//! over other keys, and ports as counts of pods that use them.

use std::collections::BTreeMap;

use crate::index::{Indexed, index_type};
use crate::requirements::constraints::HOSTNAME_LABEL;
use crate::requirements::pod_class::{
    BarredPools, ConstraintSetId, CountedNodes, HostPort, Need, PodClass, PodClasses, TopologyCount,
    TopologyCountId, TopologyCounts, TopologySpread,
};
use crate::resources::Amounts;

/// Index of a topology key in [`PlacementRules`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct TopologyKeyId(pub(super) usize);
index_type!(TopologyKeyId);

/// Index of a domain among those of its topology key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct DomainId(pub(super) usize);
index_type!(DomainId);

/// A [`PodClass`], prepared for placing.
#[derive(Clone, Debug)]
pub(super) struct PlacementRule {
    pub(super) request: Amounts,
    pub(super) constraint_set: ConstraintSetId,
    pub(super) affinity: Option<AffinityRule>,
    /// Topology counts that must be zero in the node's domain.
    pub(super) anti_affinity: Vec<TopologyCountId>,
    /// Topology counts that must be zero on the node itself.
    pub(super) anti_affinity_on_host: Vec<TopologyCountId>,
    pub(super) spreads: Vec<TopologySpread>,
    pub(super) spreads_here: Vec<TopologySpread>,
    pub(super) increments: Vec<TopologyCountId>,
    /// What it needs of the supplies.
    pub(super) needs: Vec<Need>,
    /// The pools that do not grow for such pods.
    pub(super) barred: BarredPools,
    /// Whether one such pod can exclude the next, so that they are placed one at a time.
    pub(super) alone: bool,
    /// Whether pods or nodes that are added later can make a place for such a pod.
    pub(super) waits: bool,
}

/// Required pod affinity.
#[derive(Clone, Debug)]
pub(super) struct AffinityRule {
    pub(super) topology_counts: Vec<TopologyCountId>,
    pub(super) topology_counts_on_host: Vec<TopologyCountId>,
    pub(super) matches_itself: bool,
}

/// The domains of a topology count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DomainKind {
    /// By node, of those that have a host name.
    Host,
    /// By node: pods whose host ports conflict with one port.
    Ports,
    /// By the value of a topology key.
    Key(TopologyKeyId),
}

/// Everything that is known before the first pod is placed.
#[derive(Clone, Debug)]
pub(super) struct PlacementRules {
    pub(super) classes: Vec<PlacementRule>,
    /// Topology keys except the host name's, sorted.
    pub(super) keys: Indexed<TopologyKeyId, String>,
    /// The domains of each topology count; those of ports follow those of the classes.
    pub(super) domain_kinds: Indexed<TopologyCountId, DomainKind>,
    /// The host ports in use, with one topology count each.
    pub(super) ports: BTreeMap<HostPort, TopologyCountId>,
    /// Whether a spread constraint uses the topology count.
    pub(super) spread: Indexed<TopologyCountId, bool>,
}

impl PlacementRules {
    /// Prepares `classes`. `taken` are ports that other pods use on nodes.
    pub(super) fn of<'a>(
        classes: &'a PodClasses,
        topology_counts: &TopologyCounts,
        taken: impl Iterator<Item = &'a HostPort>,
    ) -> Self {
        let keys = topology_keys(topology_counts);
        let domain_kind = |topology_count: &TopologyCount| {
            keys.binary_search(&topology_count.key)
                .map_or(DomainKind::Host, |key| DomainKind::Key(TopologyKeyId(key)))
        };
        let mut domain_kinds: Indexed<TopologyCountId, _> = topology_counts.iter().map(domain_kind).collect();
        let mut ports: BTreeMap<HostPort, TopologyCountId> = classes
            .iter()
            .flat_map(|class| &class.ports)
            .chain(taken)
            .map(|port| (port.clone(), TopologyCountId(0)))
            .collect();
        for topology_count in ports.values_mut() {
            *topology_count = domain_kinds.push(DomainKind::Ports);
        }
        let mut rules = Self {
            classes: Vec::new(),
            keys,
            spread: vec![false; domain_kinds.len()].into(),
            domain_kinds,
            ports,
        };
        for class in classes {
            class.spreads.iter().for_each(|spread| rules.spread[spread.topology_count] = true);
            rules.classes.push(rules.rule(class));
        }
        rules
    }

    /// The topology counts that a pod with these ports raises.
    pub(super) fn incremented_by(&self, ports: &[HostPort]) -> Vec<TopologyCountId> {
        let conflicting = |(other, &topology_count): (&HostPort, &TopologyCountId)| {
            ports.iter().any(|port| conflict(port, other)).then_some(topology_count)
        };
        if ports.is_empty() { Vec::new() } else { self.ports.iter().filter_map(conflicting).collect() }
    }

    /// The topology key of a topology count, for messages.
    pub(super) fn key(&self, topology_count: TopologyCountId) -> &str {
        match self.domain_kinds[topology_count] {
            DomainKind::Key(key) => &self.keys[key],
            DomainKind::Host | DomainKind::Ports => HOSTNAME_LABEL,
        }
    }

    fn rule(&self, class: &PodClass) -> PlacementRule {
        let PodClass {
            request,
            constraint_set,
            ports,
            affinity,
            anti_affinity,
            spreads,
            increments,
            preferred: _,
            needs,
            barred,
        } = class;
        let here = |topology_count: TopologyCountId| {
            !matches!(self.domain_kinds[topology_count], DomainKind::Key(_))
        };
        let split = |topology_counts: &[TopologyCountId]| {
            topology_counts
                .iter()
                .partition::<Vec<TopologyCountId>, _>(|&&topology_count| !here(topology_count))
        };
        let (anti_affinity, mut anti_affinity_on_host) = split(anti_affinity);
        anti_affinity_on_host.extend(ports.iter().map(|port| self.ports[port]));
        let (spreads_here, spreads): (Vec<_>, Vec<_>) =
            spreads.iter().cloned().partition(|spread| here(spread.topology_count));
        let affinity = affinity.as_ref().map(|affinity| {
            let (topology_counts, topology_counts_on_host) = split(&affinity.topology_counts);
            AffinityRule { topology_counts, topology_counts_on_host, matches_itself: affinity.matches_itself }
        });
        let mut increments = increments.clone();
        increments.extend(self.incremented_by(ports));
        increments.sort_unstable();
        increments.dedup();
        let spread = spreads.iter().chain(&spreads_here).map(|spread| &spread.topology_count);
        let alone = spread
            .chain(&anti_affinity)
            .chain(&anti_affinity_on_host)
            .any(|topology_count| increments.binary_search(topology_count).is_ok())
            || !needs.is_empty();
        let waits = affinity.is_some()
            || !anti_affinity.is_empty()
            || !spreads.is_empty()
            || !spreads_here.is_empty();
        PlacementRule {
            request: request.clone(),
            constraint_set: *constraint_set,
            affinity,
            anti_affinity,
            anti_affinity_on_host,
            spreads,
            spreads_here,
            increments,
            needs: needs.clone(),
            barred: barred.clone(),
            alone,
            waits,
        }
    }
}

/// The keys of the topology counts, and those that nodes must have to count, sorted; without the host name's.
fn topology_keys(topology_counts: &[TopologyCount]) -> Indexed<TopologyKeyId, String> {
    let mut keys = Vec::new();
    for topology_count in topology_counts {
        keys.push(topology_count.key.clone());
        if let CountedNodes::Eligible { keys: needed, .. } = &topology_count.nodes {
            keys.extend(needed.iter().cloned());
        }
    }
    keys.retain(|key| key != HOSTNAME_LABEL);
    keys.sort_unstable();
    keys.dedup();
    keys.into()
}

/// Whether two pods with these ports cannot share a node.
pub(super) fn conflict(a: &HostPort, b: &HostPort) -> bool {
    const ALL: &str = "0.0.0.0";
    let HostPort { port, protocol, address } = a;
    *port == b.port
        && *protocol == b.protocol
        && (*address == b.address || address == ALL || b.address == ALL)
}
