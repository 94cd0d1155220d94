//! The world of a pass, as scale-down asks it: the pods of a node are placed anew, with all that the scheduler looks at.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::RemainingNodes;
use crate::requirements::pod_class::{PodClass, PodClassId};
use crate::snapshot::{ClusterSnapshot, NodeIndex, Scope};

/// The world, and which pods moved where. Planned nodes take none: a decision that adds a node for pods of one that goes
/// would go round in circles.
#[derive(Debug)]
pub struct RemovalSimulation<'a> {
    world: &'a mut ClusterSnapshot,
    kinds: &'a [PodClass],
    /// The kind of each pod of the pass that has a node, and that node.
    placed: &'a [Option<(PodClassId, usize)>],
    /// How many pods of which kind moved to each node. They move on with it.
    arrived: BTreeMap<NodeIndex, BTreeMap<PodClassId, usize>>,
    /// A pod of each kind that has moved, for messages.
    named: BTreeMap<PodClassId, usize>,
}

/// Where pods went.
type Moves = Vec<(PodClassId, NodeIndex, usize)>;

impl<'a> RemovalSimulation<'a> {
    /// Nothing has left yet.
    pub const fn new(
        world: &'a mut ClusterSnapshot,
        kinds: &'a [PodClass],
        placed: &'a [Option<(PodClassId, usize)>],
    ) -> Self {
        Self { world, kinds, placed, arrived: BTreeMap::new(), named: BTreeMap::new() }
    }

    /// Takes the node away, and places what was on it as far as that goes. Gives back where pods went, and the kinds of
    /// which some are left.
    fn scatter(&mut self, node: NodeIndex, pods: &[usize]) -> (Moves, BTreeSet<PodClassId>) {
        let mut wanted = self.arrived.get(&node).cloned().unwrap_or_default();
        for &pod in pods {
            if let Some((kind, _)) = self.placed[pod] {
                *wanted.entry(kind).or_default() += 1;
                self.named.entry(kind).or_insert(pod);
            }
        }
        self.world.retire(node);
        let mut kinds: Vec<PodClassId> = wanted.keys().copied().collect();
        kinds.sort_by_key(|&kind| (Reverse(self.kinds[kind].request.clone()), kind));
        let mut moves = Moves::new();
        // What one kind needs near it, or spread around it, may be placed after it: as long as any gets a place, all that
        // are left are asked about once more.
        loop {
            let before = moves.len();
            for &kind in &kinds {
                let Some(left) = wanted.get_mut(&kind).filter(|left| **left > 0) else { continue };
                for (place, count) in self.world.place(kind, *left, Scope::Standing) {
                    *left -= count;
                    moves.push((kind, place, count));
                }
            }
            if moves.len() == before {
                break;
            }
        }
        (moves, wanted.into_iter().filter(|&(_, left)| left > 0).map(|(kind, _)| kind).collect())
    }

    /// Moves all, or says which pod has no place.
    fn try_to_leave(&mut self, node: NodeIndex, pods: &[usize]) -> Result<Moves, usize> {
        if let Some(&unknown) = pods.iter().find(|&&pod| self.placed[pod].is_none()) {
            return Err(unknown);
        }
        let (moves, left) = self.scatter(node, pods);
        let Some(kind) = left.first() else { return Ok(moves) };
        let own =
            pods.iter().copied().find(|&pod| self.placed[pod].is_some_and(|(of_pod, _)| of_pod == *kind));
        // What arrived from elsewhere was of a kind that has been named.
        Err(own.or_else(|| self.named.get(kind).copied()).unwrap_or_default())
    }

    fn keep(&mut self, node: NodeIndex, moves: Moves) {
        self.arrived.remove(&node);
        for (kind, place, count) in moves {
            *self.arrived.entry(place).or_default().entry(kind).or_default() += count;
        }
    }
}

impl RemainingNodes for RemovalSimulation<'_> {
    fn leave(&mut self, node: usize, pods: &[usize]) -> Result<(), usize> {
        let node = self.world.node_of(node);
        let mark = self.world.mark();
        match self.try_to_leave(node, pods) {
            Ok(moves) => {
                self.keep(node, moves);
                Ok(())
            }
            Err(pod) => {
                self.world.undo_to(mark);
                Err(pod)
            }
        }
    }

    fn could_leave(&mut self, node: usize, pods: &[usize]) -> Result<(), usize> {
        let node = self.world.node_of(node);
        let mark = self.world.mark();
        let left = self.try_to_leave(node, pods);
        self.world.undo_to(mark);
        left.map(|_| ())
    }

    fn abandon(&mut self, node: usize, pods: &[usize]) {
        let node = self.world.node_of(node);
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
        let tallies = [TopologyCount { key: HOSTNAME_LABEL.to_owned(), nodes: CountedNodes::All }];
        let kinds = [
            PodClass { request: amounts(1000, 1), apart: vec![0], raises: vec![0], ..PodClass::default() },
            PodClass { request: amounts(2000, 1), ..PodClass::default() },
        ];
        let classes = [Constraints::default()];
        let node = |at: usize, pods: Vec<(PodClassId, usize)>| {
            let mut profile = NodeProfile::default();
            profile.labels.insert(HOSTNAME_LABEL.to_owned(), format!("n{at}"));
            NodeSetup {
                place: Place::Node(at),
                profile: profile.into(),
                free: amounts(4000, 10),
                pods,
                ports: vec![],
                raises: vec![],
                open: true,
            }
        };
        // Pods: 0 kind 0 on n0, 1 kind 0 on n1, 2 kind 1 on n2, 3 kind 1 on n0.
        let setup = Setup {
            classes: &classes,
            kinds: &kinds,
            tallies: &tallies,
            pending: &[false],
            nodes: vec![node(0, vec![(0, 1), (1, 1)]), node(1, vec![(0, 1)]), node(2, vec![(1, 1)])],
            templates: vec![],
        };
        let mut world = ClusterSnapshot::new(setup);
        let placed = [Some((0, 0)), Some((0, 1)), Some((1, 2)), Some((1, 0)), None];
        let mut d = RemovalSimulation::new(&mut world, &kinds, &placed);
        assert_eq!(d.could_leave(0, &[0, 3]), Ok(()));
        assert_eq!(d.leave(0, &[0, 3]), Ok(()));
        assert_eq!(d.could_leave(1, &[1]), Err(1), "the other of its kind is on n2 now");
        assert_eq!(d.could_leave(1, &[]), Err(3), "what arrived there moves on, and cannot");
        assert_eq!(d.could_leave(2, &[2, 4]), Err(4), "a pod of no kind has no place");
    }
}
