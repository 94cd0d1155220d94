//! Pods that have no place while leaving nodes are still there, and will have one when these are gone.
//!
//! A node that is being drained is cordoned, and kube-scheduler still counts it: its emptied domain is the minimum of a
//! spread constraint, and a pod that stays on it keeps others out of its zone by their anti-affinity. Pods that are
//! evicted meanwhile are pending. Two answers were possible. To grow the pool for them is wrong: the new node would be
//! unneeded a minute later, when the pods are where they fit without it. To plan as if the node were gone is wrong too:
//! other pods would get places that kube-scheduler refuses them. So the domains stay as they are, and only those pods
//! wait: they hold the places that they will have, no pool grows for them, and the nodes that have these places are
//! kept. The plan says that they fit there.
//!
//! That ends with the departure, or when it takes too long (`nodes::awaited_until`): then the pool grows once, and
//! keeps the node, because scale-down simulates the drain too (`scale_down::removal_simulation`).

use super::placement::{PendingId, PendingPods, Placement};
use crate::index::{Indexed, PassNodeIndex};
use crate::snapshot::{ClusterSnapshot, Scope};
use crate::steps;

/// Holds places on existing and upcoming nodes for pods that are left and have places once the nodes of `leaving` are
/// gone; returns for how many. Pods that need nothing but room are not tried again: leaving nodes take none.
pub(super) fn hold_places(
    snapshot: &mut ClusterSnapshot,
    placement: &mut Placement,
    pending: &Indexed<PendingId, PendingPods>,
    leaving: &[PassNodeIndex],
) -> usize {
    steps::count(pending.len());
    let waits: Vec<_> = pending.iter().map(|pods| snapshot.waits(pods.class)).collect();
    let barred = |(&left, waits): (&usize, &bool)| if *waits { left } else { 0 };
    let mut later = Placement::of(pending);
    later.left = placement.left.iter().zip(&waits).map(barred).collect();
    if leaving.is_empty() || later.left.iter().all(|&left| left == 0) {
        return 0;
    }
    let fork = snapshot.fork();
    for &node in leaving {
        snapshot.retire(snapshot.node_of(node));
    }
    let mut moved = true;
    while moved {
        moved = false;
        steps::count(pending.len());
        for (at, pods) in pending.enumerated() {
            if later.left[at] > 0 {
                let placed = snapshot.place(pods.class, later.left[at], Scope::Existing);
                moved |= later.note(at, placed);
            }
        }
    }
    snapshot.revert(fork);
    let mut held = 0;
    for (at, placed) in later.placed.indexes().zip(later.placed) {
        for &(node, count) in &placed {
            snapshot.hold(node, pending[at].class, count);
            held += count;
        }
        placement.note(at, placed);
    }
    held
}
