//! Pod classes in the form that placing needs: constraints over the host name and over host ports separate from those
//! over other keys, and ports as counts of pods that use them.

use std::collections::BTreeMap;

use crate::requirements::constraints::HOSTNAME_LABEL;
use crate::requirements::pod_class::{
    CountedNodes, HostPort, PodClass, TopologyCount, TopologyCountId, TopologySpread,
};
use crate::resources::Amounts;

/// A [`PodClass`], prepared for placing.
#[derive(Clone, Debug)]
pub(super) struct PlacementRule {
    pub(super) request: Amounts,
    pub(super) constraint_set: usize,
    pub(super) near: Option<AffinityRule>,
    /// Topology counts that must be zero in the node's domain.
    pub(super) apart: Vec<TopologyCountId>,
    /// Topology counts that must be zero on the node itself.
    pub(super) apart_here: Vec<TopologyCountId>,
    pub(super) spreads: Vec<TopologySpread>,
    pub(super) spreads_here: Vec<TopologySpread>,
    pub(super) raises: Vec<TopologyCountId>,
    /// Whether one such pod can exclude the next, so that they are placed one at a time.
    pub(super) alone: bool,
    /// Whether pods or nodes that are added later can make a place for such a pod.
    pub(super) waits: bool,
}

/// Required pod affinity.
#[derive(Clone, Debug)]
pub(super) struct AffinityRule {
    pub(super) topology_counts: Vec<TopologyCountId>,
    pub(super) topology_counts_here: Vec<TopologyCountId>,
    pub(super) itself: bool,
}

/// The domains of a topology count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CountedBy {
    /// By node, of those that have a host name.
    Host,
    /// By node: pods whose host ports conflict with one port.
    Ports,
    /// By the value of a topology key.
    Key(usize),
}

/// Everything that is known before the first pod is placed.
#[derive(Clone, Debug)]
pub(super) struct PlacementRules {
    pub(super) classes: Vec<PlacementRule>,
    /// Topology keys except the host name's, as [`CountedBy::Key`] numbers them.
    pub(super) keys: Vec<String>,
    /// The domains of each topology count; those of ports follow those of the classes.
    pub(super) grounds: Vec<CountedBy>,
    /// The host ports in use, with one topology count each.
    pub(super) ports: BTreeMap<HostPort, TopologyCountId>,
    /// Whether a spread constraint uses the topology count.
    pub(super) spread: Vec<bool>,
}

impl PlacementRules {
    /// Prepares `classes`. `taken` are ports that other pods use on nodes.
    pub(super) fn of<'a>(
        classes: &'a [PodClass],
        topology_counts: &[TopologyCount],
        taken: impl Iterator<Item = &'a HostPort>,
    ) -> Self {
        let keys = topology_keys(topology_counts);
        let ground = |topology_count: &TopologyCount| {
            keys.binary_search(&topology_count.key).map_or(CountedBy::Host, CountedBy::Key)
        };
        let mut grounds: Vec<_> = topology_counts.iter().map(ground).collect();
        let mut ports: BTreeMap<HostPort, TopologyCountId> = classes
            .iter()
            .flat_map(|class| &class.ports)
            .chain(taken)
            .map(|port| (port.clone(), 0))
            .collect();
        for topology_count in ports.values_mut() {
            *topology_count = grounds.len();
            grounds.push(CountedBy::Ports);
        }
        let mut rules =
            Self { classes: Vec::new(), keys, spread: vec![false; grounds.len()], grounds, ports };
        for class in classes {
            class.spreads.iter().for_each(|spread| rules.spread[spread.topology_count] = true);
            rules.classes.push(rules.rule(class));
        }
        rules
    }

    /// The topology counts that a pod with these ports raises.
    pub(super) fn raised_by(&self, ports: &[HostPort]) -> Vec<TopologyCountId> {
        let conflicting = |(other, &topology_count): (&HostPort, &TopologyCountId)| {
            ports.iter().any(|port| conflict(port, other)).then_some(topology_count)
        };
        if ports.is_empty() { Vec::new() } else { self.ports.iter().filter_map(conflicting).collect() }
    }

    /// The topology key of a topology count, for messages.
    pub(super) fn key(&self, topology_count: TopologyCountId) -> &str {
        match self.grounds[topology_count] {
            CountedBy::Key(key) => &self.keys[key],
            CountedBy::Host | CountedBy::Ports => HOSTNAME_LABEL,
        }
    }

    fn rule(&self, class: &PodClass) -> PlacementRule {
        let PodClass { request, constraint_set, ports, near, apart, spreads, raises, preferred: _ } = class;
        let here =
            |topology_count: TopologyCountId| !matches!(self.grounds[topology_count], CountedBy::Key(_));
        let split = |topology_counts: &[TopologyCountId]| {
            topology_counts
                .iter()
                .partition::<Vec<TopologyCountId>, _>(|&&topology_count| !here(topology_count))
        };
        let (apart, mut apart_here) = split(apart);
        apart_here.extend(ports.iter().map(|port| self.ports[port]));
        let (spreads_here, spreads): (Vec<_>, Vec<_>) =
            spreads.iter().cloned().partition(|spread| here(spread.topology_count));
        let near = near.as_ref().map(|near| {
            let (topology_counts, topology_counts_here) = split(&near.topology_counts);
            AffinityRule { topology_counts, topology_counts_here, itself: near.itself }
        });
        let mut raises = raises.clone();
        raises.extend(self.raised_by(ports));
        raises.sort_unstable();
        raises.dedup();
        let spread = spreads.iter().chain(&spreads_here).map(|spread| &spread.topology_count);
        let alone = spread
            .chain(&apart)
            .chain(&apart_here)
            .any(|topology_count| raises.binary_search(topology_count).is_ok());
        let waits = near.is_some() || !apart.is_empty() || !spreads.is_empty() || !spreads_here.is_empty();
        PlacementRule {
            request: request.clone(),
            constraint_set: *constraint_set,
            near,
            apart,
            apart_here,
            spreads,
            spreads_here,
            raises,
            alone,
            waits,
        }
    }
}

/// The keys of the topology counts, and those that nodes must have to count, sorted; without the host name's.
fn topology_keys(topology_counts: &[TopologyCount]) -> Vec<String> {
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
    keys
}

/// Whether two pods with these ports cannot share a node.
fn conflict(a: &HostPort, b: &HostPort) -> bool {
    const ALL: &str = "0.0.0.0";
    let HostPort { port, protocol, address } = a;
    *port == b.port
        && *protocol == b.protocol
        && (*address == b.address || address == ALL || b.address == ALL)
}
