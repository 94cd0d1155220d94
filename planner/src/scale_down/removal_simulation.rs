//! The removal simulation: the pods of a node are placed again in the snapshot of a pass, by all of the scheduler's
//! rules, while the node is still there and after it has gone.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::model::MovingPods;
use super::remaining_nodes::RemainingNodes;
use crate::demand::PlacedPods;
use crate::index::{Indexed, PassNodeIndex, PodIndex};
use crate::requirements::pod_class::{PodClass, PodClassId, PodClasses, TopologyCountId};
use crate::snapshot::{ClusterSnapshot, Fork, NodeIndex, Scope};
use crate::steps;

/// The snapshots, and which pods moved where. Planned nodes take none: a decision that adds a node for the pods of a
/// removed node would oscillate.
///
/// A drain only cordons its node. Until the last pod has gone, kube-scheduler goes on counting the node's domain in
/// spread constraints, and in affinities the pods that stay there until the end, such as those of `DaemonSet`s. Evicted
/// pods have to find their places in that cluster: if they do not, they are pending, and the pool grows for them. When
/// the node has gone, there are fewer domains (`minDomains`) and fewer pods to be near to: the same pods have to find
/// places there too, because they are created again sooner or later. So a node can be removed if its pods have places
/// in both clusters.
///
/// In the first cluster all nodes that are removed are cordoned and empty of their moving pods, in the second all have
/// gone. What is between the two is no stricter: a spread constraint is strictest while all the emptied domains still
/// count, or, by `minDomains`, when none of them does.
#[derive(Debug)]
pub(crate) struct RemovalSimulation<'a> {
    /// The cluster during the drains, unless no pod that moves could tell it from the other; then the cluster after them.
    stages: Vec<Stage<'a>>,
    classes: &'a PodClasses,
    /// The class of each bound pod of the pass, and the index of its node.
    placed: &'a PlacedPods,
    /// A pod of each class that has moved, for messages.
    named: BTreeMap<PodClassId, PodIndex>,
}

/// The cluster at one stage of the removals.
#[derive(Debug)]
struct Stage<'a> {
    snapshot: &'a mut ClusterSnapshot,
    /// Whether removed nodes have gone; otherwise they are cordoned.
    gone: bool,
    /// How many pods of which class moved to each node. They move again when that node is removed.
    arrived: BTreeMap<NodeIndex, PodCounts>,
}

/// How many pods of which class.
type PodCounts = BTreeMap<PodClassId, usize>;

/// The new places of pods.
type Moves = Vec<(PodClassId, NodeIndex, usize)>;

/// Whether pods that move could find other places while the removed nodes are drained than after that. Two kinds of pods could:
/// those that spread, because a drained node still counts in its domain; and those with an affinity or anti-affinity that counts
/// something which stays on a drained node until that has gone. `classes` are all classes of pods; `placed` holds the class and
/// the node of each pod of the pass.
pub(crate) fn sees_drained_nodes(
    moving: &MovingPods,
    snapshot: &ClusterSnapshot,
    classes: &PodClasses,
    placed: &PlacedPods,
) -> bool {
    steps::count(moving.pods.len() + moving.nodes.len());
    let pods: Vec<(PodClassId, PassNodeIndex)> = moving.pods.iter().filter_map(|&pod| placed[pod]).collect();
    let waiting: BTreeSet<PodClassId> =
        pods.iter().map(|&(class, _)| class).filter(|&class| snapshot.waits(class)).collect();
    if waiting.iter().any(|&class| snapshot.spreads(class)) {
        return true;
    }
    let mut looked_at: BTreeSet<TopologyCountId> = BTreeSet::new();
    for &class in &waiting {
        let PodClass { affinity, anti_affinity, .. } = &classes[class];
        let near = affinity.iter().flat_map(|affinity| &affinity.topology_counts);
        looked_at.extend(near.chain(anti_affinity));
    }
    if looked_at.is_empty() {
        return false;
    }
    let raises = |raised: &[TopologyCountId]| raised.iter().any(|raised| looked_at.contains(raised));
    let counts: Indexed<PodClassId, bool> = classes.iter().map(|class| raises(&class.increments)).collect();
    let mut going: BTreeMap<(PassNodeIndex, PodClassId), usize> = BTreeMap::new();
    for &(class, node) in pods.iter().filter(|&&(class, _)| counts[class]) {
        *going.entry((node, class)).or_default() += 1;
    }
    moving.nodes.iter().any(|&node| {
        let index = snapshot.node_of(node);
        let stays = |&(class, count): &(PodClassId, usize)| {
            counts[class] && count > going.get(&(node, class)).copied().unwrap_or(0)
        };
        raises(snapshot.raised_besides(index)) || snapshot.pods_on(index).iter().any(stays)
    })
}

impl<'a> Stage<'a> {
    const fn new(snapshot: &'a mut ClusterSnapshot, gone: bool) -> Self {
        Self { snapshot, gone, arrived: BTreeMap::new() }
    }

    /// Removes the node, and places as many of its pods as possible. Returns their new places, and the classes with
    /// pods that are left. What is on the node and does not move stays on it for as long as it is there.
    fn scatter(
        &mut self,
        node: PassNodeIndex,
        pods: &PodCounts,
        all_classes: &PodClasses,
    ) -> (Moves, BTreeSet<PodClassId>) {
        let node = self.snapshot.node_of(node);
        let mut wanted = self.arrived.get(&node).cloned().unwrap_or_default();
        for (&class, &count) in pods {
            *wanted.entry(class).or_default() += count;
        }
        if self.gone {
            self.snapshot.retire(node);
        } else {
            for (&class, &count) in &wanted {
                self.snapshot.evict(node, class, count);
            }
            self.snapshot.cordon(node);
        }
        let mut classes: Vec<PodClassId> = wanted.keys().copied().collect();
        classes.sort_by_key(|&class| (Reverse(all_classes[class].request.clone()), class));
        let mut moves = Moves::new();
        // Pods that one class needs in its domain, or spreads with, may be placed after it: while any pod gets a place,
        // all that are left are tried once more.
        loop {
            let before = moves.len();
            steps::count(classes.len());
            for &class in &classes {
                let Some(left) = wanted.get_mut(&class).filter(|left| **left > 0) else { continue };
                for (place, count) in self.snapshot.place(class, *left, Scope::Existing) {
                    *left -= count;
                    moves.push((class, place, count));
                }
            }
            if moves.len() == before {
                break;
            }
        }
        (moves, wanted.into_iter().filter(|&(_, left)| left > 0).map(|(class, _)| class).collect())
    }

    fn keep(&mut self, node: PassNodeIndex, moves: Moves) {
        let node = self.snapshot.node_of(node);
        self.arrived.remove(&node);
        for (class, place, count) in moves {
            *self.arrived.entry(place).or_default().entry(class).or_default() += count;
        }
    }
}

impl<'a> RemovalSimulation<'a> {
    /// A simulation in which no node has been removed yet. `during` is a copy of `after` in which removed nodes will be
    /// cordoned only; `None` if no pod that moves can tell the difference ([`sees_drained_nodes`]).
    pub(crate) fn new(
        after: &'a mut ClusterSnapshot,
        during: Option<&'a mut ClusterSnapshot>,
        classes: &'a PodClasses,
        placed: &'a PlacedPods,
    ) -> Self {
        let during = during.map(|snapshot| Stage::new(snapshot, false));
        let stages = during.into_iter().chain([Stage::new(after, true)]).collect();
        Self { stages, classes, placed, named: BTreeMap::new() }
    }

    /// How many of the pods are of which class. Pods of no class are left out.
    fn count(&mut self, pods: &[PodIndex]) -> PodCounts {
        steps::count(pods.len());
        let mut counts = PodCounts::new();
        for &pod in pods {
            if let Some((class, _)) = self.placed[pod] {
                *counts.entry(class).or_default() += 1;
                self.named.entry(class).or_insert(pod);
            }
        }
        counts
    }

    fn forks(&self) -> Vec<Fork> {
        self.stages.iter().map(|stage| stage.snapshot.fork()).collect()
    }

    fn revert(&mut self, forks: Vec<Fork>) {
        for (stage, fork) in self.stages.iter_mut().zip(forks) {
            stage.snapshot.revert(fork);
        }
    }

    /// Moves all pods, and returns their new places at each stage, or a pod without a place. Some pods may have moved
    /// even then.
    fn try_to_leave(&mut self, node: PassNodeIndex, pods: &[PodIndex]) -> Result<Vec<Moves>, PodIndex> {
        if let Some(&unknown) = pods.iter().find(|&&pod| self.placed[pod].is_none()) {
            return Err(unknown);
        }
        let counts = self.count(pods);
        let mut all_moves = Vec::with_capacity(self.stages.len());
        for stage in &mut self.stages {
            let (moves, left) = stage.scatter(node, &counts, self.classes);
            if let Some(&class) = left.first() {
                return Err(self.pod_of(class, pods));
            }
            all_moves.push(moves);
        }
        Ok(all_moves)
    }

    /// One of `pods` that has the class, or else a pod that moved here from another node: its class has a named pod.
    fn pod_of(&self, class: PodClassId, pods: &[PodIndex]) -> PodIndex {
        let is_of_class = |pod: &PodIndex| self.placed[*pod].is_some_and(|(of_pod, _)| of_pod == class);
        let own = pods.iter().copied().find(is_of_class);
        own.or_else(|| self.named.get(&class).copied()).unwrap_or(PodIndex(0))
    }
}

impl RemainingNodes for RemovalSimulation<'_> {
    fn leave(&mut self, node: PassNodeIndex, pods: &[PodIndex]) -> Result<(), PodIndex> {
        let forks = self.forks();
        match self.try_to_leave(node, pods) {
            Ok(all_moves) => {
                for (stage, moves) in self.stages.iter_mut().zip(all_moves) {
                    stage.keep(node, moves);
                }
                Ok(())
            }
            Err(pod) => {
                self.revert(forks);
                Err(pod)
            }
        }
    }

    fn could_leave(&mut self, node: PassNodeIndex, pods: &[PodIndex]) -> Result<(), PodIndex> {
        let forks = self.forks();
        let left = self.try_to_leave(node, pods);
        self.revert(forks);
        left.map(|_| ())
    }

    fn abandon(&mut self, node: PassNodeIndex, pods: &[PodIndex]) {
        let counts = self.count(pods);
        for stage in &mut self.stages {
            let (moves, _) = stage.scatter(node, &counts, self.classes);
            stage.keep(node, moves);
        }
    }
}

#[cfg(test)]
#[path = "removal_simulation_tests.rs"]
mod tests;
