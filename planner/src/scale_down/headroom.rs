//! Which nodes stay for the headroom. It is placed first fit, like pods, and what keeps a node for it is only that place. A pending
//! pod is bound soon, and its place is free again; headroom is never bound, so an idle node that happens to come first would stay
//! for good, although there is room beside the pods of other nodes. So before nodes are removed, the headroom on existing nodes
//! moves to those that stay anyway, and then to those that would go last.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;

use super::candidates;
use super::input::ScaleDownInput;
use super::timing;
use super::utilization::Utilization;
use crate::demand::Demand;
use crate::index::{Indexed, PassNodeIndex};
use crate::pools::{Pool, Pools};
use crate::requirements::pod_class::PodClassId;
use crate::scale_up::placement::{PendingId, Placement};
use crate::snapshot::{ClusterSnapshot, NodeIndex, Place, Scope};
use crate::steps;

/// Headroom of one class.
struct OnNodes {
    class: PodClassId,
    /// How much of it is on which existing nodes.
    places: Vec<(PassNodeIndex, usize)>,
}

impl OnNodes {
    fn count(&self) -> usize {
        self.places.iter().map(|place| place.1).sum()
    }
}

/// A node that may be a place for headroom; the first is preferred.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Target {
    preference: Preference,
    /// Since when it is unneeded; now if it has not been.
    since: Reverse<Timestamp>,
    is_empty: bool,
    used: Reverse<Utilization>,
    node: PassNodeIndex,
}

/// Which nodes are preferred for headroom, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Preference {
    /// It stays for another reason: its own, or its pool is as small as it may be.
    Stays,
    /// Nothing but the headroom keeps it.
    MayGo,
    /// It may never be up.
    Starts,
}

/// How many pending pods, and how much headroom, each node stays for. `input.planned` holds the pending pods alone. The headroom is
/// moved in the snapshot, unless fewer nodes have no room for it; then it stays where it is.
///
/// The next plan places it first fit again. It must not find too little room then, or the pool would grow, shrink, and so on. So the
/// new places are those that first fit finds when the other nodes have gone.
pub(super) fn settle(
    input: &ScaleDownInput<'_>,
    pools: &Pools,
    demand: &Demand,
    placement: &Placement,
    snapshot: &mut ClusterSnapshot,
) -> Indexed<PassNodeIndex, usize> {
    let mut planned = input.planned.clone();
    let headroom = on_nodes(demand, placement, snapshot);
    if headroom.is_empty() {
        return planned;
    }
    let targets = targets(input, pools);
    let fork = snapshot.fork();
    evict(&headroom, snapshot);
    let needed = needed(&headroom, &targets, snapshot);
    snapshot.revert(fork);
    evict(&headroom, snapshot);
    let settled = needed.and_then(|needed| first_fit(&headroom, &targets, &needed, snapshot));
    snapshot.revert(fork);
    if let Some(settled) = &settled {
        evict(&headroom, snapshot);
        for OnNodes { class, places } in settled {
            for &(node, count) in places {
                snapshot.place_on(snapshot.node_of(node), *class, count);
            }
        }
    }
    for OnNodes { places, .. } in settled.as_ref().unwrap_or(&headroom) {
        for &(node, count) in places {
            planned[node] += count;
        }
    }
    planned
}

fn evict(headroom: &[OnNodes], snapshot: &mut ClusterSnapshot) {
    for OnNodes { class, places } in headroom {
        steps::count(places.len());
        for &(node, count) in places {
            snapshot.evict(snapshot.node_of(node), *class, count);
        }
    }
}

/// The headroom on existing nodes: that on others is no reason to keep a node.
fn on_nodes(demand: &Demand, placement: &Placement, snapshot: &ClusterSnapshot) -> Vec<OnNodes> {
    let first = demand.groups.len();
    let mut headroom = Vec::new();
    for (at, &(class, _)) in demand.headroom.iter().enumerate() {
        let Some(planned) = placement.placed.get(PendingId(first + at)) else { continue };
        let places = existing(planned, snapshot);
        if !places.is_empty() {
            headroom.push(OnNodes { class, places });
        }
    }
    headroom
}

/// The nodes of pools with headroom, in the order in which they are preferred for it: first those that stay, then those that became
/// unneeded last, and of these the fullest.
fn targets(input: &ScaleDownInput<'_>, pools: &Pools) -> Vec<Target> {
    let mut targets = Vec::new();
    for pool in pools.iter().filter(|pool| pool.assignment.has_headroom()) {
        steps::count(pool.staying.len());
        let history = timing::history(pool);
        targets.extend(pool.staying.iter().map(|&node| Target {
            preference: preference(input, node, pool),
            since: Reverse(timing::since(input, &history, node)),
            is_empty: input.workload_pods[node].pods.is_empty(),
            used: Reverse(candidates::utilization(input, node)),
            node,
        }));
    }
    targets.sort_unstable();
    targets
}

fn preference(input: &ScaleDownInput<'_>, node: PassNodeIndex, pool: &Pool) -> Preference {
    if pool.starting_until(node).is_some_and(|until| until > input.now) {
        Preference::Starts
    } else if pool.bounds.base.min(pool.staying.len()) <= pool.bounds.min
        || candidates::stays(input, node, pool)
    {
        Preference::Stays
    } else {
        Preference::MayGo
    }
}

/// The targets that stay, if the headroom is placed on the targets in their order; `None` if some of it is left.
fn needed(
    headroom: &[OnNodes],
    targets: &[Target],
    snapshot: &mut ClusterSnapshot,
) -> Option<BTreeSet<PassNodeIndex>> {
    let stay = targets.iter().filter(|target| target.preference == Preference::Stays);
    let mut needed: BTreeSet<PassNodeIndex> = stay.map(|target| target.node).collect();
    for of_class in headroom {
        let mut left = of_class.count();
        for target in targets {
            if left == 0 {
                break;
            }
            let placed = snapshot.place_on(snapshot.node_of(target.node), of_class.class, left);
            left -= placed;
            if placed > 0 {
                needed.insert(target.node);
            }
        }
        if left > 0 {
            return None;
        }
    }
    Some(needed)
}

/// Places the headroom first fit while only the `needed` ones of the targets take it; `None` if some of it is left.
fn first_fit(
    headroom: &[OnNodes],
    targets: &[Target],
    needed: &BTreeSet<PassNodeIndex>,
    snapshot: &mut ClusterSnapshot,
) -> Option<Vec<OnNodes>> {
    for target in targets.iter().filter(|target| !needed.contains(&target.node)) {
        snapshot.close(snapshot.node_of(target.node));
    }
    let mut settled = Vec::new();
    for of_class in headroom {
        let found = snapshot.place(of_class.class, of_class.count(), Scope::Existing);
        let places = existing(&found, snapshot);
        let new = OnNodes { class: of_class.class, places };
        if new.count() < of_class.count() {
            return None;
        }
        settled.push(new);
    }
    Some(settled)
}

/// Those of the places that are on existing nodes.
fn existing(placed: &[(NodeIndex, usize)], snapshot: &ClusterSnapshot) -> Vec<(PassNodeIndex, usize)> {
    steps::count(placed.len());
    let on_node = |&(node, count): &(NodeIndex, usize)| match snapshot.place_of(node) {
        Place::Node(node) => Some((node, count)),
        Place::Upcoming(_) | Place::Planned(_) => None,
    };
    placed.iter().filter_map(on_node).collect()
}
