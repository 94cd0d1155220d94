//! The removal simulation: the pods of a node are placed again in the snapshot of a pass, by all of the scheduler's
//! rules.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::RemainingNodes;
use crate::requirements::pod_class::{PodClass, PodClassId};
use crate::snapshot::{ClusterSnapshot, NodeIndex, Scope};

/// The snapshot, and which pods moved where. Planned nodes take none: a decision that adds a node for the pods of a
/// removed node would oscillate.
#[derive(Debug)]
pub struct RemovalSimulation<'a> {
    snapshot: &'a mut ClusterSnapshot,
    classes: &'a [PodClass],
    /// The class of each bound pod of the pass, and the index of its node.
    placed: &'a [Option<(PodClassId, usize)>],
    /// How many pods of which class moved to each node. They move again when that node is removed.
    arrived: BTreeMap<NodeIndex, BTreeMap<PodClassId, usize>>,
    /// A pod of each class that has moved, for messages.
    named: BTreeMap<PodClassId, usize>,
}

/// The new places of pods.
type Moves = Vec<(PodClassId, NodeIndex, usize)>;

impl<'a> RemovalSimulation<'a> {
    /// A simulation in which no node has been removed yet.
    pub const fn new(
        snapshot: &'a mut ClusterSnapshot,
        classes: &'a [PodClass],
        placed: &'a [Option<(PodClassId, usize)>],
    ) -> Self {
        Self { snapshot, classes, placed, arrived: BTreeMap::new(), named: BTreeMap::new() }
    }

    /// Removes the node, and places as many of its pods as possible. Returns their new places, and the classes with
    /// pods that are left.
    fn scatter(&mut self, node: NodeIndex, pods: &[usize]) -> (Moves, BTreeSet<PodClassId>) {
        let mut wanted = self.arrived.get(&node).cloned().unwrap_or_default();
        for &pod in pods {
            if let Some((class, _)) = self.placed[pod] {
                *wanted.entry(class).or_default() += 1;
                self.named.entry(class).or_insert(pod);
            }
        }
        self.snapshot.retire(node);
        let mut classes: Vec<PodClassId> = wanted.keys().copied().collect();
        classes.sort_by_key(|&class| (Reverse(self.classes[class].request.clone()), class));
        let mut moves = Moves::new();
        // Pods that one class needs in its domain, or spreads with, may be placed after it: while any pod gets a place,
        // all that are left are tried once more.
        loop {
            let before = moves.len();
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

    /// Moves all pods, or returns a pod without a place.
    fn try_to_leave(&mut self, node: NodeIndex, pods: &[usize]) -> Result<Moves, usize> {
        if let Some(&unknown) = pods.iter().find(|&&pod| self.placed[pod].is_none()) {
            return Err(unknown);
        }
        let (moves, left) = self.scatter(node, pods);
        let Some(class) = left.first() else { return Ok(moves) };
        let own =
            pods.iter().copied().find(|&pod| self.placed[pod].is_some_and(|(of_pod, _)| of_pod == *class));
        // A pod that moved here from another node has a class with a named pod.
        Err(own.or_else(|| self.named.get(class).copied()).unwrap_or_default())
    }

    fn keep(&mut self, node: NodeIndex, moves: Moves) {
        self.arrived.remove(&node);
        for (class, place, count) in moves {
            *self.arrived.entry(place).or_default().entry(class).or_default() += count;
        }
    }
}

impl RemainingNodes for RemovalSimulation<'_> {
    fn leave(&mut self, node: usize, pods: &[usize]) -> Result<(), usize> {
        let node = self.snapshot.node_of(node);
        let fork = self.snapshot.fork();
        match self.try_to_leave(node, pods) {
            Ok(moves) => {
                self.keep(node, moves);
                Ok(())
            }
            Err(pod) => {
                self.snapshot.revert(fork);
                Err(pod)
            }
        }
    }

    fn could_leave(&mut self, node: usize, pods: &[usize]) -> Result<(), usize> {
        let node = self.snapshot.node_of(node);
        let fork = self.snapshot.fork();
        let left = self.try_to_leave(node, pods);
        self.snapshot.revert(fork);
        left.map(|_| ())
    }

    fn abandon(&mut self, node: usize, pods: &[usize]) {
        let node = self.snapshot.node_of(node);
        let (moves, _) = self.scatter(node, pods);
        self.keep(node, moves);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requirements::constraints::{Constraints, HOSTNAME_LABEL};
    use crate::requirements::node_profile::NodeProfile;
    use crate::requirements::pod_class::{CountedNodes, TopologyCount};
    use crate::resources::{Amounts, Basic, Resource};
    use crate::snapshot::{NodeSetup, Place, Setup};

    fn amounts(cpu: i64, pods: i64) -> Amounts {
        let mut a = Amounts::default();
        a.set(Resource::Basic(Basic::Cpu), cpu);
        a.set(Resource::Basic(Basic::Pods), pods);
        a
    }

    #[test]
    fn departures_respect_constraints_and_arrivals() {
        let topology_counts = [TopologyCount { key: HOSTNAME_LABEL.to_owned(), nodes: CountedNodes::All }];
        let classes = [
            PodClass {
                request: amounts(1000, 1),
                anti_affinity: vec![0],
                increments: vec![0],
                ..PodClass::default()
            },
            PodClass { request: amounts(2000, 1), ..PodClass::default() },
        ];
        let constraint_sets = [Constraints::default()];
        let node = |at: usize, pods: Vec<(PodClassId, usize)>| {
            let mut profile = NodeProfile::default();
            profile.labels.insert(HOSTNAME_LABEL.to_owned(), format!("n{at}"));
            NodeSetup {
                place: Place::Node(at),
                profile: profile.into(),
                free: amounts(4000, 10),
                pods,
                ports: vec![],
                increments: vec![],
                open: true,
            }
        };
        // Pods: 0 class 0 on n0, 1 class 0 on n1, 2 class 1 on n2, 3 class 1 on n0.
        let setup = Setup {
            constraint_sets: &constraint_sets,
            classes: &classes,
            topology_counts: &topology_counts,
            pending: &[false],
            nodes: vec![node(0, vec![(0, 1), (1, 1)]), node(1, vec![(0, 1)]), node(2, vec![(1, 1)])],
            templates: vec![],
        };
        let mut snapshot = ClusterSnapshot::new(setup);
        let placed = [Some((0, 0)), Some((0, 1)), Some((1, 2)), Some((1, 0)), None];
        let mut d = RemovalSimulation::new(&mut snapshot, &classes, &placed);
        assert_eq!(d.could_leave(0, &[0, 3]), Ok(()));
        assert_eq!(d.leave(0, &[0, 3]), Ok(()));
        assert_eq!(d.could_leave(1, &[1]), Err(1), "the other of its class is on n2 now");
        assert_eq!(d.could_leave(1, &[]), Err(3), "what arrived there moves on, and cannot");
        assert_eq!(d.could_leave(2, &[2, 4]), Err(4), "a pod of no class has no place");
    }
}
