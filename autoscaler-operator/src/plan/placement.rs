//! Places groups of pending pods on the nodes that are there or on their way, first fit in the order of the nodes.

use std::collections::BTreeMap;

use super::{
    capacity::{Bin, Capacity, Place},
    constraints::Constraints,
    index::FitIndex,
    resources::Amounts,
};

/// Capacity with the indexes that make placing quick: one for each different set of families that a class of pods is
/// admitted by.
#[derive(Debug)]
pub struct Placement {
    bins: Vec<Bin>,
    /// Pods placed on each bin by this pass.
    planned: Vec<usize>,
    /// Bins that changed, in order; each index replays what it has not seen yet when it is used.
    changes: Vec<usize>,
    indexes: Vec<Admitted>,
    of_class: Vec<usize>,
}

/// The bins that one class of pods is admitted by.
#[derive(Debug)]
struct Admitted {
    bins: Vec<usize>,
    /// Slot of each bin of the pass, `usize::MAX` for those that are not in here.
    slots: Vec<usize>,
    index: FitIndex,
    seen: usize,
}

impl Placement {
    /// Prepares to place pods of these classes. Existing nodes come before upcoming ones, and among each those that admit
    /// the fewest classes, so that pods with a choice leave the others to pods without one.
    pub fn new(mut capacity: Capacity, classes: &[Constraints]) -> Self {
        let admitting: Vec<_> = classes.iter().map(|class| capacity.admitting(class)).collect();
        let sought: Vec<_> = (0..capacity.families.len())
            .map(|family| admitting.iter().filter(|a| a[family]).count())
            .collect();
        capacity.bins.sort_by_key(|bin| (matches!(bin.place, Place::Upcoming(_)), sought[bin.family]));
        let mut known: BTreeMap<Vec<bool>, usize> = BTreeMap::new();
        let mut indexes = Vec::new();
        let mut of_class = Vec::with_capacity(classes.len());
        for admitting in admitting {
            of_class.push(*known.entry(admitting).or_insert_with_key(|admitting| {
                indexes.push(Admitted::of(&capacity.bins, admitting));
                indexes.len() - 1
            }));
        }
        let planned = vec![0; capacity.bins.len()];
        Self { bins: capacity.bins, planned, changes: Vec::new(), indexes, of_class }
    }

    /// Places as many of `wanted` like pods as fit, and says how many went where (as indexes into the bins).
    pub fn place(&mut self, class: usize, request: &Amounts, wanted: usize) -> Vec<(usize, usize)> {
        let Some(admitted) = self.of_class.get(class).and_then(|&index| self.indexes.get_mut(index)) else {
            return Vec::new();
        };
        admitted.catch_up(&self.bins, &self.changes);
        let (mut placed, mut left, mut from) = (Vec::new(), wanted, 0);
        while left > 0 {
            let Some(slot) = admitted.index.first_from(from, request.basic()) else { break };
            from = slot + 1;
            let bin = admitted.bins[slot];
            let fitting = self.bins[bin].free.fits(request, left);
            if fitting > 0 {
                self.bins[bin].free.take(request, fitting);
                self.planned[bin] += fitting;
                self.changes.push(bin);
                placed.push((bin, fitting));
                left -= fitting;
            }
        }
        placed
    }

    /// The bins, with how many pods this pass planned onto each.
    pub fn planned(&self) -> impl Iterator<Item = (&Bin, usize)> {
        self.bins.iter().zip(self.planned.iter().copied())
    }

    /// One of the bins.
    pub fn bin(&self, bin: usize) -> &Bin {
        &self.bins[bin]
    }
}

impl Admitted {
    fn of(bins: &[Bin], admitting: &[bool]) -> Self {
        let mut slots = vec![usize::MAX; bins.len()];
        let admitted: Vec<_> = (0..bins.len()).filter(|&bin| admitting[bins[bin].family]).collect();
        for (slot, &bin) in admitted.iter().enumerate() {
            slots[bin] = slot;
        }
        let index = FitIndex::of(admitted.iter().map(|&bin| bins[bin].free.basic()));
        Self { bins: admitted, slots, index, seen: 0 }
    }

    /// Brings the index up to date; where more changed than there are slots, it is made anew.
    fn catch_up(&mut self, bins: &[Bin], changes: &[usize]) {
        let unseen = &changes[self.seen..];
        if unseen.len() > self.bins.len() {
            self.index = FitIndex::of(self.bins.iter().map(|&bin| bins[bin].free.basic()));
        } else {
            for &bin in unseen {
                if let Some(&slot) = self.slots.get(bin).filter(|&&slot| slot != usize::MAX) {
                    self.index.set(slot, bins[bin].free.basic());
                }
            }
        }
        self.seen = changes.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{
        profile::{Profile, RepellingTaint},
        resources::{Basic, Resource},
    };

    fn amounts(cpu: i64) -> Amounts {
        let mut amounts = Amounts::default();
        amounts.set(Resource::Basic(Basic::Cpu), cpu);
        amounts.set(Resource::Basic(Basic::Pods), 1);
        amounts
    }

    fn bin(node: usize, family: usize, cpu: i64) -> Bin {
        let mut free = amounts(cpu);
        free.set(Resource::Basic(Basic::Pods), 10);
        Bin { place: Place::Node(node), family, free }
    }

    #[test]
    fn pods_go_to_the_first_nodes_that_admit_them_and_every_class_sees_what_others_took() {
        let tainted = RepellingTaint { key: "k".into(), value: String::new(), effect: "NoSchedule".into() };
        let tolerant = Constraints {
            tolerations: vec![crate::plan::constraints::Tolerated {
                key: "k".into(),
                operator: "Exists".into(),
                value: String::new(),
                effect: String::new(),
            }],
            ..Constraints::default()
        };
        let capacity = Capacity {
            bins: vec![bin(0, 0, 1000), bin(1, 1, 3000), bin(2, 1, 500)],
            families: vec![Profile { taints: vec![tainted], ..Profile::default() }, Profile::default()],
        };
        let mut placement = Placement::new(capacity, &[Constraints::default(), tolerant]);
        let nodes = |placed: Vec<(usize, usize)>, placement: &Placement| -> Vec<(Place, usize)> {
            placed.into_iter().map(|(bin, pods)| (placement.bin(bin).place, pods)).collect()
        };
        let placed = placement.place(0, &amounts(1000), 2);
        assert_eq!(nodes(placed, &placement), [(Place::Node(1), 2)]);
        let placed = placement.place(1, &amounts(500), 9);
        assert_eq!(
            nodes(placed, &placement),
            [(Place::Node(0), 2), (Place::Node(1), 2), (Place::Node(2), 1)]
        );
        assert_eq!(placement.place(0, &amounts(1), 1), []);
    }
}
