//! Where pending pods are placed, and how far each pool scales up for those that find no place: over all pools in one
//! pass. The set of balanced pools with the best expansion option takes what it can; what is left goes to the next.

mod awaited_nodes;
pub(crate) mod balance;
pub(crate) mod expander;
pub(crate) mod packing;
pub(crate) mod placement;
mod similarity;

use shared_crds::v1alpha1::Expander;

use crate::index::{Indexed, PassNodeIndex, PoolIndex};
use crate::input::selection::AutoscalerAssignment;
use crate::pools::{Pool, Pools};
use crate::requirements::pod_class::PodClasses;
use crate::scale_up::balance::{BalancedSetId, NextPool, PlannedSizes};
use crate::scale_up::packing::{Packing, pack};
use crate::scale_up::placement::{PendingId, PendingPods, Placement};
use crate::snapshot::{ClusterSnapshot, Fork, Place};
use crate::steps;

/// How often pods are placed again because nodes have added domains for spread constraints.
const MOST_ROUNDS: usize = 4;
/// How many pools, at most, are tried without their bound to find out whether it cut them.
const MOST_TRIALS: usize = 16;

/// The scale-up of the pools, and the pods it is for.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScaleUp {
    /// Number of new nodes, by pool.
    pub added: Indexed<PoolIndex, usize>,
    /// Whether a bound cut the number of nodes that pending pods need, by pool.
    pub limited: Indexed<PoolIndex, bool>,
    /// The placement of each entry of pending pods.
    pub placement: Placement,
    /// How many of the placed pods have to wait until leaving nodes are gone.
    pub held: usize,
}

impl ScaleUp {
    /// How many pending pods, including headroom, are planned onto each of `nodes` existing nodes. `counts` says whether
    /// those of an entry count on a node.
    pub(crate) fn planned_on(
        &self,
        snapshot: &ClusterSnapshot,
        nodes: usize,
        counts: impl Fn(PendingId, PassNodeIndex) -> bool,
    ) -> Indexed<PassNodeIndex, usize> {
        let mut planned: Indexed<PassNodeIndex, usize> = vec![0; nodes].into();
        for (entry, placed) in self.placement.placed.enumerated() {
            steps::count(1 + placed.len());
            for &(node, pods) in placed {
                if let Place::Node(node) = snapshot.place_of(node)
                    && counts(entry, node)
                {
                    planned[node] += pods;
                }
            }
        }
        planned
    }

    /// Whether pending pods need each pool to be larger: it scales up now, or is not allowed to yet.
    pub(crate) fn grows(&self, pools: &Pools) -> Indexed<PoolIndex, bool> {
        let awaited = |index: PoolIndex| self.limited[index] && pools[index].ceiling.is_some();
        self.added.enumerated().map(|(index, &added)| added > 0 || awaited(index)).collect()
    }
}

/// The input of the scale-up of a pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScaleUpInput<'a> {
    /// The pools.
    pub pools: &'a Pools,
    /// All classes of pods.
    pub classes: &'a PodClasses,
    /// The pending pods, in the order in which they are considered.
    pub pending: &'a Indexed<PendingId, PendingPods>,
    /// The existing nodes that will be gone soon, as indexes into the pass's nodes: no pool grows for pods that have
    /// places then.
    pub leaving: &'a [PassNodeIndex],
    /// The random seed for `Random`.
    pub seed: u64,
}

/// Places the pending pods on `snapshot`, where they stay, together with the new nodes that some of them need.
pub(crate) fn scale_up(pass: &ScaleUpInput<'_>, snapshot: &mut ClusterSnapshot) -> ScaleUp {
    let search = Search { pass: *pass, sets: balance::sets(pass.pools) };
    let base = snapshot.fork();
    let bounded: Indexed<PoolIndex, usize> = pass.pools.iter().map(Pool::room).collect();
    let Found { added, placement, held } = search.run(snapshot, base, &bounded);
    let mut scale_up = ScaleUp { limited: vec![false; pass.pools.len()].into(), added, placement, held };
    let mut trials = Vec::new();
    for &pool in search.sets.iter().flatten().filter(|&&pool| scale_up.added[pool] >= bounded[pool]) {
        if search.leaves_out(snapshot, &scale_up.placement, pool) {
            scale_up.limited[pool] = true;
        } else if search.passes_on(snapshot, &scale_up.placement, pool) && trials.len() < MOST_TRIALS {
            trials.push(pool);
        }
    }
    if trials.is_empty() {
        return scale_up;
    }
    for pool in trials {
        let mut room = bounded.clone();
        room[pool] = usize::MAX;
        scale_up.limited[pool] = search.run(snapshot, base, &room).added[pool] > scale_up.added[pool];
    }
    scale_up.placement = search.run(snapshot, base, &bounded).placement;
    scale_up
}

struct Search<'a> {
    pass: ScaleUpInput<'a>,
    /// Pools that are balanced.
    sets: Indexed<BalancedSetId, Vec<PoolIndex>>,
}

/// The result of a search.
struct Found {
    added: Indexed<PoolIndex, usize>,
    placement: Placement,
    held: usize,
}

/// The expansion option of a set of pools for the pods that are left.
#[derive(Clone, Debug)]
enum Expansion {
    /// It has to be computed, or computed again.
    Unknown,
    /// The set can take none of the pods.
    Nothing,
    /// The set can take these pods.
    Packing(Box<Packing>),
}

impl Search<'_> {
    /// Places all pods, with at most `room` new nodes for each pool. New nodes add domains, and with those domains
    /// earlier placements may violate a spread constraint: then everything is placed again, with those nodes present
    /// from the start.
    fn run(&self, snapshot: &mut ClusterSnapshot, base: Fork, room: &Indexed<PoolIndex, usize>) -> Found {
        let ScaleUpInput { pools, pending, leaving, .. } = self.pass;
        let mut opened = Vec::new();
        let mut round = 0;
        loop {
            snapshot.revert(base);
            let first = snapshot.next_node();
            let mut sizes = PlannedSizes { pools, added: vec![0; pools.len()].into(), room: room.clone() };
            for &pool in &opened {
                if snapshot.open(pool).is_some() {
                    sizes.opened(pool);
                }
            }
            let domains = snapshot.domains();
            let mut placement = Placement::of(pending);
            placement.fill(snapshot, pending);
            let mut held = awaited_nodes::hold_places(snapshot, &mut placement, pending, leaving);
            self.grow(snapshot, &mut placement, &mut sizes, &mut opened);
            round += 1;
            let spreads = || pending.iter().any(|pods| pods.count > 0 && snapshot.spreads(pods.class));
            if round < MOST_ROUNDS && snapshot.domains() > domains && spreads() {
                continue;
            }
            let new_nodes = snapshot.nodes_from(first);
            steps::count(new_nodes.len());
            let mut retired = false;
            for node in new_nodes {
                if let (Place::Planned(pool), true) =
                    (snapshot.place_of(node), snapshot.pods_on(node).is_empty())
                {
                    snapshot.retire(node);
                    sizes.closed(pool);
                    retired = true;
                }
            }
            if retired {
                // Their domains are gone with them, and so may be what excluded some pods.
                placement.fill(snapshot, pending);
                held += awaited_nodes::hold_places(snapshot, &mut placement, pending, leaving);
                self.grow(snapshot, &mut placement, &mut sizes, &mut opened);
            }
            return Found { added: sizes.added, placement, held };
        }
    }

    /// Opens nodes until no set can take any of the pods that are left.
    fn grow(
        &self,
        snapshot: &mut ClusterSnapshot,
        placement: &mut Placement,
        sizes: &mut PlannedSizes<'_>,
        opened: &mut Vec<PoolIndex>,
    ) {
        let ScaleUpInput { classes, pending, .. } = self.pass;
        let mut expansions: Indexed<BalancedSetId, Expansion> =
            vec![Expansion::Unknown; self.sets.len()].into();
        for round in 0.. {
            let able: Vec<_> =
                self.sets.indexes().filter(|&set| self.is_able(snapshot, placement, sizes, set)).collect();
            let winner = match able.as_slice() {
                [] => return,
                [only] => *only,
                several => match self.best(snapshot, placement, sizes, &mut expansions, several, round) {
                    Some(set) => set,
                    None => return,
                },
            };
            let Some(packing) = pack(snapshot, classes, pending, &placement.left, &self.sets[winner], sizes)
            else {
                return;
            };
            self.outdate(snapshot, &mut expansions, placement, &packing);
            expansions[winner] = Expansion::Unknown;
            opened.extend(&packing.opened);
            let all_placed = packing.placement.placed;
            for (pods, placed) in all_placed.indexes().zip(all_placed) {
                placement.note(pods, placed);
            }
        }
    }

    /// Whether the set can open a node for some of the pods that are left.
    fn is_able(
        &self,
        snapshot: &mut ClusterSnapshot,
        placement: &Placement,
        sizes: &PlannedSizes<'_>,
        set: BalancedSetId,
    ) -> bool {
        let ScaleUpInput { classes, pending, .. } = self.pass;
        let set = &self.sets[set];
        set.iter().any(|&pool| sizes.room[pool] > 0)
            && steps::counted(pending.iter().zip(&placement.left)).any(|(pods, &left)| {
                left > 0
                    && matches!(
                        sizes.next(snapshot, set, pods.class, &classes[pods.class]),
                        NextPool::Pool(_)
                    )
            })
    }

    /// The set with the best expansion option: of each autoscaler's by its expander, then among those by the least
    /// waste.
    fn best(
        &self,
        snapshot: &mut ClusterSnapshot,
        placement: &Placement,
        sizes: &mut PlannedSizes<'_>,
        expansions: &mut Indexed<BalancedSetId, Expansion>,
        able: &[BalancedSetId],
        round: u64,
    ) -> Option<BalancedSetId> {
        let ScaleUpInput { pools, classes, pending, leaving: _, seed } = self.pass;
        let mut best: Vec<(Expander, (&str, &str), BalancedSetId)> = Vec::new();
        for &set in able {
            if matches!(expansions[set], Expansion::Unknown) {
                let (fork, before) = (snapshot.fork(), (sizes.added.clone(), sizes.room.clone()));
                let packing = pack(snapshot, classes, pending, &placement.left, &self.sets[set], sizes);
                snapshot.revert(fork);
                (sizes.added, sizes.room) = before;
                expansions[set] =
                    packing.map_or(Expansion::Nothing, |packing| Expansion::Packing(Box::new(packing)));
            }
        }
        let option_of = |set: BalancedSetId| match &expansions[set] {
            Expansion::Packing(packing) => Some(&packing.option),
            Expansion::Unknown | Expansion::Nothing => None,
        };
        let drawn = |set: BalancedSetId| expander::draw(seed, round, &pools[self.sets[set][0]].id());
        for &set in able {
            let (Some(new), AutoscalerAssignment::Planned(by)) =
                (option_of(set), &pools[self.sets[set][0]].assignment)
            else {
                continue;
            };
            let owner = crate::input::observed::key(&by.metadata);
            match best.iter_mut().find(|known| known.1 == owner) {
                Some((expander, _, known)) => {
                    let old = option_of(*known).unwrap_or(new);
                    let order = expander::compare(*expander, (new, drawn(set)), (old, drawn(*known)));
                    if order.is_lt() {
                        *known = set;
                    }
                }
                None => best.push((by.spec.expander, owner, set)),
            }
        }
        best.into_iter()
            .filter_map(|(_, _, set)| Some((option_of(set)?, set)))
            .min_by(|(a, _), (b, _)| expander::compare(Expander::LeastWaste, (a, 0), (b, 0)))
            .map(|(_, set)| set)
    }

    /// Drops the expansion options that may have changed now that `packing` is in the snapshot.
    fn outdate(
        &self,
        snapshot: &ClusterSnapshot,
        expansions: &mut [Expansion],
        before: &Placement,
        packing: &Packing,
    ) {
        steps::count(self.pass.pending.len() * (1 + expansions.len()));
        let left = |at: &PendingId| before.left[*at] > 0;
        let calm =
            self.pass.pending.indexes().filter(left).all(|at| snapshot.is_plain(self.pass.pending[at].class));
        let took: Vec<_> = packing.placement.placed.iter().map(|placed| !placed.is_empty()).collect();
        for expansion in expansions {
            let stays = match expansion {
                Expansion::Packing(theirs) => {
                    let shared = theirs.placement.placed.iter().zip(&took);
                    // Pods that an option had to leave out are not in it, and may have found a place now.
                    calm && !theirs.cut
                        && !shared.into_iter().any(|(theirs, &took)| took && !theirs.is_empty())
                }
                Expansion::Nothing => calm,
                Expansion::Unknown => false,
            };
            if !stays {
                *expansion = Expansion::Unknown;
            }
        }
    }

    /// Whether pods are left that a new node of the pool would take.
    fn leaves_out(&self, snapshot: &mut ClusterSnapshot, placement: &Placement, pool: PoolIndex) -> bool {
        let pending = self.pass.pending.iter().zip(&placement.left);
        pending.into_iter().any(|(pods, &left)| left > 0 && snapshot.would_take(pods.class, pool))
    }

    /// Whether new nodes of other pools take pods that a node of this pool could take.
    fn passes_on(&self, snapshot: &mut ClusterSnapshot, placement: &Placement, pool: PoolIndex) -> bool {
        self.pass.pending.iter().zip(&placement.placed).any(|(pods, placed)| {
            let elsewhere = |place: Place| matches!(place, Place::Planned(other) if other != pool);
            steps::counted(placed.iter()).any(|p| elsewhere(snapshot.place_of(p.0)))
                && snapshot.could_take(pods.class, pool)
        })
    }
}
