//! What one set of balanced pools can take of the pods that are left: first-fit bin packing, in their order, onto nodes
//! that are opened as they are needed.

use super::balance::{NextPool, PlannedSizes, preference, weight};
use super::expander::ExpansionOption;
use super::placement::{PendingId, PendingPods, Placement};
use crate::index::{Indexed, PoolIndex};
use crate::pools::Template;
use crate::requirements::pod_class::PodClasses;
use crate::resources::{Amounts, Basic, Resource};
use crate::snapshot::{ClusterSnapshot, NodeIndex, Scope};
use crate::steps;

/// The result of packing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packing {
    /// The pools of the nodes that were opened, in that order.
    pub opened: Vec<PoolIndex>,
    /// Where pods were placed, and how many of each entry are left.
    pub placement: Placement,
    /// Whether pods were left out only because pools were full.
    pub cut: bool,
    /// The expansion option that expanders compare.
    pub option: ExpansionOption,
}

/// Packs the pods that are still in `left` onto the snapshot, with new nodes of the pools in `set`. Placed pods and
/// opened nodes stay in the snapshot and in `sizes`; `None` if no node was opened and no pod placed.
pub(crate) fn pack(
    snapshot: &mut ClusterSnapshot,
    classes: &PodClasses,
    pending: &Indexed<PendingId, PendingPods>,
    left: &Indexed<PendingId, usize>,
    set: &[PoolIndex],
    sizes: &mut PlannedSizes<'_>,
) -> Option<Packing> {
    let placement = Placement { placed: vec![Vec::new(); pending.len()].into(), left: left.clone() };
    let first = snapshot.next_node();
    let full = vec![false; pending.len()].into();
    let mut packer = Packer { snapshot, classes, set, sizes, first, placement, opened: Vec::new(), full };
    packer.run(pending);
    let Packer { sizes, placement, opened, full, .. } = packer;
    let cut = placement.left.iter().zip(full).any(|(&left, full)| left > 0 && full);
    let moved = placement.left != *left;
    let option = option(sizes, classes, pending, &placement, &opened, first);
    moved.then_some(Packing { opened, placement, cut, option })
}

struct Packer<'w, 's, 'p> {
    snapshot: &'w mut ClusterSnapshot,
    classes: &'s PodClasses,
    set: &'s [PoolIndex],
    sizes: &'s mut PlannedSizes<'p>,
    /// The index of the first new node.
    first: NodeIndex,
    placement: Placement,
    opened: Vec<PoolIndex>,
    /// For each entry of pending pods, whether full pools would have taken more of its pods when they were last tried.
    full: Indexed<PendingId, bool>,
}

impl Packer<'_, '_, '_> {
    /// Pods that depend on the placement of other pods are tried again until no more pods are placed.
    fn run(&mut self, pending: &Indexed<PendingId, PendingPods>) {
        let mut again = false;
        loop {
            let mut moved = false;
            steps::count(pending.len());
            for (at, pods) in pending.enumerated() {
                let waits = self.snapshot.waits(pods.class);
                if self.placement.left[at] > 0 && (!again || waits) {
                    moved |= self.place_entry(at, *pods, waits);
                }
            }
            let waiting = |(at, pods): (PendingId, &PendingPods)| {
                self.placement.left[at] > 0 && self.snapshot.waits(pods.class)
            };
            if !moved || !pending.enumerated().any(waiting) {
                return;
            }
            again = true;
        }
    }

    fn place_entry(&mut self, at: PendingId, pods: PendingPods, waits: bool) -> bool {
        // Pods that only need free capacity have been tried on all older nodes.
        let scope = if waits { Scope::Anywhere } else { Scope::From(self.first) };
        let placed = self.snapshot.place(pods.class, self.placement.left[at], scope);
        let mut moved = self.placement.note(at, placed);
        while self.placement.left[at] > 0 {
            let next = self.sizes.next(self.snapshot, self.set, pods.class, &self.classes[pods.class]);
            let NextPool::Pool(pool) = next else {
                self.full[at] = next == NextPool::Full;
                break;
            };
            let fork = self.snapshot.fork();
            let Some(node) = self.snapshot.open(pool) else { break };
            let count = self.snapshot.place_on(node, pods.class, self.placement.left[at]);
            if count == 0 {
                self.snapshot.revert(fork);
                break;
            }
            self.opened.push(pool);
            self.sizes.opened(pool);
            moved |= self.placement.note(at, vec![(node, count)]);
            if waits && self.placement.left[at] > 0 {
                let placed = self.snapshot.place(pods.class, self.placement.left[at], Scope::Anywhere);
                self.placement.note(at, placed);
            }
        }
        moved
    }
}

fn option(
    sizes: &PlannedSizes<'_>,
    classes: &PodClasses,
    pending: &[PendingPods],
    placement: &Placement,
    opened: &[PoolIndex],
    first: NodeIndex,
) -> ExpansionOption {
    let mut option = ExpansionOption { nodes: opened.len(), ..ExpansionOption::default() };
    // Whether each new node has GPUs that no pod on it requests.
    let mut idle = Vec::with_capacity(opened.len());
    for &pool in opened {
        let pool = &sizes.pools[pool];
        idle.push(pool.template.as_ref().is_ok_and(|template| !template.gpus.is_empty()));
        option.weight = option.weight.max(weight(pool));
        if let Ok(template) = &pool.template {
            option.cpu += total(&template.capacity, Basic::Cpu, 1);
            option.memory += total(&template.capacity, Basic::Memory, 1);
            option.gpus += gpus(&template.allocatable, template, 1);
        }
    }
    steps::count(opened.len() + pending.len());
    for (pods, placed) in pending.iter().zip(&placement.placed) {
        steps::count(placed.len());
        let class = &classes[pods.class];
        for &(node, count) in placed {
            option.pods += count;
            let new = node.0.checked_sub(first.0).and_then(|at| Some((at, *opened.get(at)?)));
            let Some((at, pool)) = new else { continue };
            option.requested_cpu += total(&class.request, Basic::Cpu, count);
            option.requested_memory += total(&class.request, Basic::Memory, count);
            let Ok(template) = &sizes.pools[pool].template else { continue };
            let asked = gpus(&class.request, template, count);
            option.requested_gpus += asked;
            idle[at] &= asked == 0;
            if !class.preferred.is_empty() {
                let count = i64::try_from(count).unwrap_or(i64::MAX);
                option.preferred =
                    option.preferred.saturating_add(preference(class, template).saturating_mul(count));
            }
        }
    }
    option.idles_gpus = idle.contains(&true);
    option
}

/// How many GPUs there are in `times` × `amounts`, of the kinds that nodes of the template have.
fn gpus(amounts: &Amounts, template: &Template, times: usize) -> i128 {
    let one: i128 = template.gpus.iter().map(|&gpu| i128::from(amounts.get(gpu))).sum();
    one * i128::try_from(times).unwrap_or(i128::MAX)
}

fn total(amounts: &Amounts, basic: Basic, times: usize) -> i128 {
    i128::from(amounts.get(Resource::Basic(basic))) * i128::try_from(times).unwrap_or(i128::MAX)
}
