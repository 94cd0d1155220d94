//! How many new nodes of one pool a list of pods needs: first fit, in the order of the groups, on empty nodes of the
//! pool's template.

use super::{
    demand::Group,
    expander::Offer,
    index::FitIndex,
    pools::Template,
    resources::{Amounts, Basic, Resource},
};

/// New nodes of one pool with pods on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packing {
    /// Nodes needed.
    pub nodes: usize,
    /// How many pods of which group go on them.
    pub placed: Vec<(usize, usize)>,
    /// Whether pods were left out only because there was no room for more nodes.
    pub cut: bool,
    /// What expanders compare.
    pub offer: Offer,
}

/// Packs what is `left` of each group that the pool `hosts` onto at most `room` new nodes. `None` when nothing can be
/// placed.
pub fn pack(
    template: &Template,
    groups: &[Group],
    left: &[usize],
    hosts: &[bool],
    room: usize,
) -> Option<Packing> {
    let mut open =
        OpenNodes { template: &template.allocatable, room, free: Vec::new(), index: FitIndex::default() };
    let (mut placed, mut cut) = (Vec::new(), false);
    let (mut requested_cpu, mut requested_memory) = (0, 0);
    for (at, group) in groups.iter().enumerate().filter(|&(at, group)| left[at] > 0 && hosts[group.class]) {
        let per_node = template.allocatable.fits(&group.request, left[at]);
        if per_node == 0 {
            continue;
        }
        let count = open.place(&group.request, per_node, left[at]);
        cut |= count < left[at];
        if count > 0 {
            placed.push((at, count));
            requested_cpu += total(&group.request, Basic::Cpu, count);
            requested_memory += total(&group.request, Basic::Memory, count);
        }
    }
    let nodes = open.free.len();
    let offer = Offer {
        cpu: total(&template.capacity, Basic::Cpu, nodes),
        memory: total(&template.capacity, Basic::Memory, nodes),
        requested_cpu,
        requested_memory,
    };
    (nodes > 0).then_some(Packing { nodes, placed, cut, offer })
}

fn total(amounts: &Amounts, basic: Basic, times: usize) -> i128 {
    i128::from(amounts.get(Resource::Basic(basic))) * i128::try_from(times).unwrap_or(i128::MAX)
}

/// The new nodes so far.
struct OpenNodes<'a> {
    template: &'a Amounts,
    room: usize,
    free: Vec<Amounts>,
    index: FitIndex,
}

impl OpenNodes<'_> {
    /// Places up to `wanted` like pods, opening nodes as needed, and says how many found a place. An empty node takes
    /// `per_node` of them.
    fn place(&mut self, request: &Amounts, per_node: usize, wanted: usize) -> usize {
        let (mut left, mut from) = (wanted, 0);
        while left > 0 {
            let Some(node) = self.index.first_from(from, request.basic()) else { break };
            from = node + 1;
            let fitting = self.free[node].fits(request, left);
            if fitting > 0 {
                self.free[node].take(request, fitting);
                self.index.set(node, self.free[node].basic());
                left -= fitting;
            }
        }
        while left > 0 && self.free.len() < self.room {
            let fitting = per_node.min(left);
            let mut free = self.template.clone();
            free.take(request, fitting);
            self.index.push(free.basic());
            self.free.push(free);
            left -= fitting;
        }
        wanted - left
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::plan::profile::Profile;

    fn amounts(cpu: i64, memory: i64, pods: i64) -> Amounts {
        let mut amounts = Amounts::default();
        amounts.set(Resource::Basic(Basic::Cpu), cpu);
        amounts.set(Resource::Basic(Basic::Memory), memory);
        amounts.set(Resource::Basic(Basic::Pods), pods);
        amounts
    }

    fn template(cpu: i64, memory: i64, pods: i64) -> Template {
        let allocatable = amounts(cpu, memory, pods);
        Template { profile: Profile::default(), capacity: allocatable.clone(), allocatable }
    }

    fn group(cpu: i64, memory: i64, pods: usize) -> Group {
        Group { class: 0, request: amounts(cpu, memory, 1), priority: 0, pods: (0..pods).collect() }
    }

    fn nodes(template: &Template, groups: &[Group], room: usize) -> (usize, usize, bool) {
        let left: Vec<_> = groups.iter().map(|g| g.pods.len()).collect();
        pack(template, groups, &left, &[true], room).map_or((0, 0, false), |packing| {
            (packing.nodes, packing.placed.iter().map(|p| p.1).sum(), packing.cut)
        })
    }

    #[test]
    fn known_packings() {
        for (what, template, groups, room, expected) in [
            (
                "ten pods of 350m and 1000 on nodes of 1000m and 2000",
                template(1000, 2000, 10),
                vec![group(350, 1000, 10)],
                100,
                (5, 10, false),
            ),
            ("the room ends first", template(1000, 2000, 10), vec![group(350, 1000, 10)], 3, (3, 6, true)),
            (
                "the number of pods ends first",
                template(1000, 2000, 2),
                vec![group(1, 1, 5)],
                100,
                (3, 5, false),
            ),
            ("too large for any node", template(1000, 2000, 10), vec![group(1001, 1, 5)], 100, (0, 0, false)),
            (
                "small pods fill the gaps of large ones",
                template(1000, 2000, 10),
                vec![group(600, 1, 3), group(200, 1, 6)],
                100,
                (3, 9, false),
            ),
            ("no room at all", template(1000, 2000, 10), vec![group(1, 1, 1)], 0, (0, 0, false)),
        ] {
            assert_eq!(nodes(&template, &groups, room), expected, "{what}");
        }
    }

    #[test]
    fn cluster_autoscalers_estimator_case_needs_exactly_2595_nodes() {
        let groups = [group(95, 190, 1000), group(50, 100, 50_000)];
        assert_eq!(nodes(&template(1000, 5000, 100), &groups, 3000), (2595, 51_000, false));
    }

    proptest! {
        #[test]
        fn what_is_placed_fits_and_a_node_is_never_opened_in_vain(
            sizes in prop::collection::vec((1_i64..1200, 0_i64..1200, 1_usize..20), 1..12),
            room in 0_usize..30,
        ) {
            let template = template(1000, 1000, 8);
            let groups: Vec<_> = sizes.iter().map(|&(cpu, memory, pods)| group(cpu, memory, pods)).collect();
            let left: Vec<_> = groups.iter().map(|g| g.pods.len()).collect();
            let Some(packing) = pack(&template, &groups, &left, &[true], room) else { return Ok(()) };
            prop_assert!(packing.nodes <= room);
            prop_assert!(packing.offer.requested_cpu <= packing.offer.cpu);
            prop_assert!(packing.offer.requested_memory <= packing.offer.memory);
            let placed: usize = packing.placed.iter().map(|p| p.1).sum();
            prop_assert!(placed >= packing.nodes && placed <= packing.nodes * 8);
            let fitting: usize = groups.iter().zip(&left).filter(|(g, _)| template.allocatable.fits(&g.request, 1) == 1).map(|(_, &n)| n).sum();
            prop_assert_eq!(packing.cut, placed < fitting);
        }
    }
}
