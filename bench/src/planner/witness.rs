//! A naive scheduler, to see whether the pods of Karpenter's mix have a place on the nodes that a plan adds.
//!
//! It shares no code with the planner: all nodes are there, pods come one by one, every constraint is looked up on
//! every node. It is greedy, so it tries a few orders, and takes the plan's word for the zone of pods that want to be
//! near their like. What it places can be placed; what it does not place might be placed by a cleverer one.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use planner::input::PodInfo;
use planner::{Observed, ScalingPlan, SchedulingResult};
use planner_mixes::{AFFINITY_LABEL, ANTI_AFFINITY_LABEL, SPREAD_LABEL, ZONE_KEY};

use super::offers::{self, Offer};

/// What a pod wants.
struct Wish<'a> {
    cpu: i64,
    memory: i64,
    /// The value of its own label that spread constraints count by.
    label: Option<&'a str>,
    /// The value whose pods it spreads over, and whether by zone or by host.
    spread: Option<(&'a str, bool)>,
    alone: bool,
    /// The pool that the plan names for it.
    pool: &'a str,
    /// The zone it must be in, because its like are there.
    near: Option<&'a str>,
}

struct Node<'a> {
    pool: &'a str,
    zone: &'a str,
    cpu: i64,
    memory: i64,
    pods: i64,
    labels: BTreeMap<&'a str, usize>,
    alone: bool,
}

/// How many of the pods find a place in the best of the orders.
pub(crate) fn placed(observed: &Observed, plan: &ScalingPlan) -> usize {
    let pools = offers::pools(plan);
    let placements: BTreeMap<&str, &str> = plan
        .pods
        .iter()
        .filter_map(|outcome| match &outcome.result {
            SchedulingResult::TriggersScaleUp { pool } => Some((outcome.name.as_str(), pool.as_str())),
            _ => None,
        })
        .collect();
    let mut wishes: Vec<Wish<'_>> = observed
        .pods
        .iter()
        .filter_map(|pod| {
            let pool = *placements.get(offers::name(pod))?;
            Some(wish(pod, pool, pools.get(pool)?.zone))
        })
        .collect();
    let mut best = 0;
    for by_kind in [true, false] {
        let kind = |wish: &Wish<'_>| match wish {
            Wish { alone: true, .. } => 0,
            Wish { near: Some(_), .. } => 1,
            Wish { spread: Some((_, by_zone)), .. } => 2 + u8::from(*by_zone),
            _ => 4,
        };
        wishes.sort_by_key(|wish| (if by_kind { kind(wish) } else { 0 }, Reverse((wish.cpu, wish.memory))));
        for (as_planned, packed) in [(true, true), (false, true), (true, false), (false, false)] {
            best = best.max(place_all(&wishes, &pools, &Manner { as_planned, packed }));
            if best == wishes.len() {
                return best;
            }
        }
    }
    best
}

fn wish<'a>(pod: &'a PodInfo, pool: &'a str, zone: &'a str) -> Wish<'a> {
    let requests = offers::requests(pod);
    let spreads = pod.spec().and_then(|s| s.topology_spread_constraints.as_deref());
    let spread = spreads.and_then(|s| s.first()).and_then(|constraint| {
        let labels = constraint.label_selector.as_ref()?.match_labels.as_ref()?;
        Some((labels.get(SPREAD_LABEL)?.as_str(), constraint.topology_key == ZONE_KEY))
    });
    Wish {
        cpu: offers::amount(requests, "cpu").milli(),
        memory: offers::amount(requests, "memory").units(),
        label: offers::label(pod, SPREAD_LABEL),
        spread,
        alone: offers::label(pod, ANTI_AFFINITY_LABEL).is_some(),
        pool,
        near: offers::label(pod, AFFINITY_LABEL).map(|_| zone),
    }
}

/// How a node is chosen for a pod.
struct Manner {
    /// Only nodes of the pool that the plan names for the pod.
    as_planned: bool,
    /// The fullest node that takes it; else the emptiest, as kube-scheduler's default scoring has it.
    packed: bool,
}

/// Places the pods in their order.
fn place_all(wishes: &[Wish<'_>], pools: &BTreeMap<String, Offer<'_>>, manner: &Manner) -> usize {
    let mut nodes: Vec<Node<'_>> = pools
        .iter()
        .flat_map(|(pool, offer)| {
            let Offer { zone, nodes, cpu, memory, pods } = *offer;
            (0..nodes).map(move |_| Node {
                pool,
                zone,
                cpu,
                memory,
                pods,
                labels: BTreeMap::new(),
                alone: false,
            })
        })
        .collect();
    wishes.iter().filter(|wish| place(wish, &mut nodes, manner)).count()
}

/// Puts the pod on a node that takes it.
fn place<'a>(wish: &Wish<'a>, nodes: &mut [Node<'a>], manner: &Manner) -> bool {
    let spread =
        wish.spread.map(|(value, by_zone)| Spread::of(nodes, value, by_zone, wish.label == Some(value)));
    let chosen = nodes
        .iter()
        .enumerate()
        .filter(|(_, node)| {
            node.cpu >= wish.cpu
                && node.memory >= wish.memory
                && node.pods >= 1
                && !(wish.alone && node.alone)
                && wish.near.is_none_or(|zone| zone == node.zone)
                && (!manner.as_planned || node.pool == wish.pool)
                && spread.as_ref().is_none_or(|spread| spread.allows(node))
        })
        .min_by_key(
            |(_, node)| if manner.packed { (node.cpu, node.memory) } else { (-node.cpu, -node.memory) },
        )
        .map(|(at, _)| at);
    let Some(at) = chosen else { return false };
    let node = &mut nodes[at];
    node.cpu -= wish.cpu;
    node.memory -= wish.memory;
    node.pods -= 1;
    node.alone |= wish.alone;
    if let Some(label) = wish.label {
        *node.labels.entry(label).or_default() += 1;
    }
    true
}

/// A spread constraint with a skew of one at most, before a pod is placed.
struct Spread<'a> {
    value: &'a str,
    /// Pods that are counted in each zone; none when it is hosts that count.
    zones: Option<BTreeMap<&'a str, usize>>,
    least: usize,
    itself: usize,
}

impl<'a> Spread<'a> {
    fn of(nodes: &[Node<'a>], value: &'a str, by_zone: bool, itself: bool) -> Self {
        let zones = by_zone.then(|| {
            let mut zones = BTreeMap::new();
            for node in nodes {
                *zones.entry(node.zone).or_default() += count(node, value);
            }
            zones
        });
        let least = match &zones {
            Some(zones) => zones.values().copied().min(),
            None => nodes.iter().map(|node| count(node, value)).min(),
        };
        Self { value, zones, least: least.unwrap_or(0), itself: usize::from(itself) }
    }

    fn allows(&self, node: &Node<'_>) -> bool {
        let here = match &self.zones {
            Some(zones) => zones.get(node.zone).copied().unwrap_or(0),
            None => count(node, self.value),
        };
        here + self.itself <= self.least + 1
    }
}

fn count(node: &Node<'_>, value: &str) -> usize {
    node.labels.get(value).copied().unwrap_or(0)
}
