//! Kinds as placing needs them: constraints over the host name and over host ports apart from those over other keys, and
//! ports as counts of pods that hold them.

use std::collections::BTreeMap;

use crate::requirements::constraints::HOSTNAME_LABEL;
use crate::requirements::pod_class::{
    CountedNodes, HostPort, PodClass, TopologyCount, TopologyCountId, TopologySpread,
};
use crate::resources::Amounts;

/// A [`PodClass`], read for placing.
#[derive(Clone, Debug)]
pub(super) struct PlacementRule {
    pub(super) request: Amounts,
    pub(super) class: usize,
    pub(super) near: Option<AffinityRule>,
    /// Tallies that must be zero in the node's domain.
    pub(super) apart: Vec<TopologyCountId>,
    /// Tallies that must be zero on the node itself.
    pub(super) apart_here: Vec<TopologyCountId>,
    pub(super) spreads: Vec<TopologySpread>,
    pub(super) spreads_here: Vec<TopologySpread>,
    pub(super) raises: Vec<TopologyCountId>,
    /// Whether one such pod can stand in the way of the next, so that they are placed one at a time.
    pub(super) alone: bool,
    /// Whether pods or nodes that come later can make a place for such a pod.
    pub(super) waits: bool,
}

/// Required affinity.
#[derive(Clone, Debug)]
pub(super) struct AffinityRule {
    pub(super) tallies: Vec<TopologyCountId>,
    pub(super) tallies_here: Vec<TopologyCountId>,
    pub(super) itself: bool,
}

/// What a tally is counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CountedBy {
    /// By node, of those that have a host name.
    Host,
    /// By node: pods whose host ports stand in the way of one port.
    Ports,
    /// By the value of a topology key.
    Key(usize),
}

/// Everything that is known before the first pod is placed.
#[derive(Clone, Debug)]
pub(super) struct PlacementRules {
    pub(super) kinds: Vec<PlacementRule>,
    /// Topology keys but the host name's, as [`CountedBy::Key`] numbers them.
    pub(super) keys: Vec<String>,
    /// What each tally is counted by; the ports' are behind those of the kinds.
    pub(super) grounds: Vec<CountedBy>,
    /// The host ports that occur, one tally each.
    pub(super) ports: BTreeMap<HostPort, TopologyCountId>,
    /// Whether some spread looks at the tally.
    pub(super) spread: Vec<bool>,
}

impl PlacementRules {
    /// Reads `kinds`. `taken` are ports that pods outside of them take on nodes.
    pub(super) fn of<'a>(
        kinds: &'a [PodClass],
        tallies: &[TopologyCount],
        taken: impl Iterator<Item = &'a HostPort>,
    ) -> Self {
        let keys = topology_keys(tallies);
        let ground =
            |tally: &TopologyCount| keys.binary_search(&tally.key).map_or(CountedBy::Host, CountedBy::Key);
        let mut grounds: Vec<_> = tallies.iter().map(ground).collect();
        let mut ports: BTreeMap<HostPort, TopologyCountId> =
            kinds.iter().flat_map(|kind| &kind.ports).chain(taken).map(|port| (port.clone(), 0)).collect();
        for tally in ports.values_mut() {
            *tally = grounds.len();
            grounds.push(CountedBy::Ports);
        }
        let mut rules = Self { kinds: Vec::new(), keys, spread: vec![false; grounds.len()], grounds, ports };
        for kind in kinds {
            kind.spreads.iter().for_each(|spread| rules.spread[spread.tally] = true);
            rules.kinds.push(rules.rule(kind));
        }
        rules
    }

    /// The tallies that a pod with these ports raises.
    pub(super) fn raised_by(&self, ports: &[HostPort]) -> Vec<TopologyCountId> {
        let conflicting = |(other, &tally): (&HostPort, &TopologyCountId)| {
            ports.iter().any(|port| conflict(port, other)).then_some(tally)
        };
        if ports.is_empty() { Vec::new() } else { self.ports.iter().filter_map(conflicting).collect() }
    }

    /// The topology key of a tally, for people.
    pub(super) fn key(&self, tally: TopologyCountId) -> &str {
        match self.grounds[tally] {
            CountedBy::Key(key) => &self.keys[key],
            CountedBy::Host | CountedBy::Ports => HOSTNAME_LABEL,
        }
    }

    fn rule(&self, kind: &PodClass) -> PlacementRule {
        let PodClass { request, class, ports, near, apart, spreads, raises, preferred: _ } = kind;
        let here = |tally: TopologyCountId| !matches!(self.grounds[tally], CountedBy::Key(_));
        let split = |tallies: &[TopologyCountId]| {
            tallies.iter().partition::<Vec<TopologyCountId>, _>(|&&tally| !here(tally))
        };
        let (apart, mut apart_here) = split(apart);
        apart_here.extend(ports.iter().map(|port| self.ports[port]));
        let (spreads_here, spreads): (Vec<_>, Vec<_>) =
            spreads.iter().cloned().partition(|spread| here(spread.tally));
        let near = near.as_ref().map(|near| {
            let (tallies, tallies_here) = split(&near.tallies);
            AffinityRule { tallies, tallies_here, itself: near.itself }
        });
        let mut raises = raises.clone();
        raises.extend(self.raised_by(ports));
        raises.sort_unstable();
        raises.dedup();
        let spread = spreads.iter().chain(&spreads_here).map(|spread| &spread.tally);
        let alone = spread.chain(&apart).chain(&apart_here).any(|tally| raises.binary_search(tally).is_ok());
        let waits = near.is_some() || !apart.is_empty() || !spreads.is_empty() || !spreads_here.is_empty();
        PlacementRule {
            request: request.clone(),
            class: *class,
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

/// The keys of the tallies, and those that nodes must have to count, sorted; without the host name's.
fn topology_keys(tallies: &[TopologyCount]) -> Vec<String> {
    let mut keys = Vec::new();
    for tally in tallies {
        keys.push(tally.key.clone());
        if let CountedNodes::Eligible { keys: needed, .. } = &tally.nodes {
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
