//! The pods of a pass as the planner sees them: [`PodClass`]es, the [`TopologyCount`]s their constraints need, and the
//! pending pods in groups.
//!
//! Two steps. Equal pods get one id, and their requirements are read on their own, once while pods do not change
//! ([`PodInterner`]). Then the requirements of the pass are resolved together, since the selector of one pod is what
//! tells other pods apart. Nothing is placed here.

mod barred;
#[cfg(test)]
mod cases;
mod counts;
pub(crate) mod daemons;
pub(crate) mod headroom;
mod interner;
mod model;
pub(crate) mod node_agents;
pub(crate) mod nominations;
mod numbered;
pub(crate) mod order;
mod pod_groups;
mod pod_requirements;
pub(crate) mod ports;
mod present_templates;
#[cfg(test)]
mod properties;
mod remembered_agents;
mod resolve;
mod scheduling_input;
#[cfg(test)]
mod spread_tests;
mod storage;
#[cfg(test)]
mod storage_tests;
mod subjects;
mod supplies;
#[cfg(test)]
mod tests;
mod volumes;

use std::cmp::Reverse;
use std::collections::BTreeMap;

pub(crate) use interner::PodInterner;
pub(crate) use model::{Demand, PendingGroup, PlacedPods};

use self::barred::DelayedPods;
use self::daemons::Daemons;
use self::interner::{InternedPodId, InternedPods};
use self::nominations::Nominations;
use self::pod_groups::PodGroups;
use self::resolve::{Parts, Resolved};
use self::scheduling_input::{PodEntry, SchedulingInput};
use self::subjects::{Matchers, NamespaceLabels};
use crate::index::PodIndex;
use crate::input::observed::PassInput;
use crate::input::pods;
use crate::pools::{self, Pools};
use crate::requirements::pod_class::{PodClassId, PodClasses};
use crate::resources::{Amounts, Resource, ResourceNames};

impl Demand {
    /// Everything that `pools` have to be large enough for: the pods, in the order in which they are placed, the
    /// headroom, and what `DaemonSet`s run on new nodes.
    pub(crate) fn of_pass(
        input: PassInput<'_>,
        pools: &Pools,
        names: &mut ResourceNames,
        interner: &mut PodInterner,
        nominations: &Nominations<'_>,
    ) -> Self {
        let reference = pools::largest_node(pools, input.nodes, names);
        let mut demand = Self::of(input, nominations, names, &reference, interner);
        order::order(&mut demand.groups, &demand.classes, &demand.topology_counts, &reference);
        barred::bar_expendable(&mut demand, pools);
        headroom::add(&mut demand, pools, names);
        demand.daemon_sets = Daemons::of(input.observed, input.pods, names, &mut demand.warnings);
        demand
    }

    /// Reads the pods of `input`; those with one of the `nominations` occupy the node that it names. `reference` is the
    /// amount of each resource that a large node has; the size of a pod is measured against it.
    pub(crate) fn of(
        input: PassInput<'_>,
        nominations: &Nominations<'_>,
        names: &mut ResourceNames,
        reference: &Amounts,
        interner: &mut PodInterner,
    ) -> Self {
        let PassInput { observed, nodes: _, pods: all_pods } = input;
        let (daemon_pods, remembered_pods) = (daemons::pods(observed), remembered_agents::pods(observed));
        let SchedulingInput {
            entries,
            daemons,
            remembered,
            interned,
            supplies,
            unreadable,
            waiting,
            misread,
            mut warnings,
        } = SchedulingInput::of(input, nominations, &daemon_pods, &remembered_pods, interner);
        let InternedPods { all: interned_pods, all_requirements, places } = interned;
        let matchers = Matchers::of(&all_requirements);
        let PodGroups { all: pod_groups, group_of, matched } =
            PodGroups::of(&interned_pods, &matchers, &NamespaceLabels::of(&observed.namespaces));
        let parts = Parts {
            all_requirements: &all_requirements,
            matchers: &matchers,
            matched: &matched,
            places: &places,
            supplies: &supplies,
        };
        let Resolved { constraint_sets, mut classes, topology_counts, supplies, class_of } =
            resolve::resolve(&pod_groups, &parts, names);

        let mut placed: PlacedPods = vec![None; all_pods.len()].into();
        let mut pending: BTreeMap<(i32, PodClassId), Vec<PodIndex>> = BTreeMap::new();
        let mut delayed = DelayedPods::at(observed.now);
        for PodEntry { pod: index, node, id } in entries {
            let class = class_of[group_of[id]];
            if let Some(node) = node {
                placed[index] = Some((class, node));
            } else {
                let pod = &all_pods[index];
                let class = delayed.class_of(pod, class, &mut classes, &mut warnings);
                pending.entry((pods::priority(pod), class)).or_default().push(index);
            }
        }
        let raised = |id: InternedPodId| classes[class_of[group_of[id]]].increments.clone();
        let daemons = daemons.iter().map(|made| (made.key(), raised(made.id))).collect();
        let remembered = remembered.iter().map(|made| (made.subject(), raised(made.id))).collect();
        let groups = ordered(pending, &classes, reference);
        Self {
            constraint_sets,
            classes,
            topology_counts,
            supplies,
            groups,
            placed,
            headroom: Vec::new(),
            daemon_sets: Daemons::default(),
            daemons,
            remembered,
            unreadable,
            waiting,
            misread,
            delayed_until: delayed.until,
            warnings,
        }
    }
}

fn ordered(
    pending: BTreeMap<(i32, PodClassId), Vec<PodIndex>>,
    classes: &PodClasses,
    reference: &Amounts,
) -> Vec<PendingGroup> {
    let group = |((priority, class), pods)| PendingGroup { class, priority, pods };
    let mut groups: Vec<_> = pending.into_iter().map(group).collect();
    groups.sort_by_cached_key(|group| {
        let share = share(&classes[group.class].request, reference);
        // Pods are numbered in the order of their names.
        (Reverse(group.priority), Reverse(share), group.pods.first().copied())
    });
    groups
}

/// The sum, over resources, of the share of a large node that a pod requests, in millionths.
fn share(request: &Amounts, reference: &Amounts) -> i128 {
    let of = |(resource, amount): (Resource, i64)| {
        i128::from(amount) * 1_000_000 / i128::from(reference.get(resource).max(1))
    };
    request.iter().map(of).sum()
}
