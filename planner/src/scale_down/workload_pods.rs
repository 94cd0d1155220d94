//! The pods on each node that are a reason to keep it.

use k8s_openapi::jiff::Timestamp;

use crate::demand::PlacedPods;
use crate::index::{Indexed, PassNodeIndex, PodIndex};
use crate::input::last_template::LastTemplate;
use crate::input::observed::PassPods;
use crate::scale_down::budgets::Budgets;
use crate::scale_down::counting::{CountedTemplate, CountingRules};
use crate::steps;

/// The pods of one node that are a reason to keep it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WorkloadPods {
    /// Those that run on it.
    pub pods: Vec<PodIndex>,
    /// Expendable ones that run on it and that a budget covers: they need no place elsewhere, but the removal of the node takes a
    /// disruption for each.
    pub covered: Vec<PodIndex>,
    /// How many pods it is kept for that are not bound to it yet: nominated to it, or with a volume that is being made there.
    pub awaited: usize,
}

impl WorkloadPods {
    /// Their number.
    pub(crate) const fn count(&self) -> usize {
        self.pods.len() + self.awaited
    }

    /// Those that a drain of the node evicts, as far as budgets may cover them.
    pub(crate) fn evicted(&self) -> impl Iterator<Item = PodIndex> {
        self.pods.iter().chain(&self.covered).copied()
    }
}

/// The pods that are a reason to keep each node: `rules` are those of the nodes, `placed` holds for each pod the node it
/// occupies.
pub(crate) fn workload_pods(
    rules: &Indexed<PassNodeIndex, CountingRules>,
    all_pods: &PassPods,
    placed: &PlacedPods,
    budgets: &Budgets,
    now: Timestamp,
) -> Indexed<PassNodeIndex, WorkloadPods> {
    let mut workload_pods: Indexed<PassNodeIndex, WorkloadPods> =
        vec![WorkloadPods::default(); rules.len()].into();
    steps::count(rules.len() + all_pods.len());
    let mut last = LastTemplate::default();
    for ((index, pod), placed) in all_pods.enumerated().zip(placed) {
        let Some((_, node)) = *placed else { continue };
        let template = last.of(pod, CountedTemplate::of);
        if !rules[node].keeps_node(pod, template, budgets, now) {
            if rules[node].takes_disruption(pod, template, budgets) {
                workload_pods[node].covered.push(index);
            }
            continue;
        }
        if pod.node().is_some() {
            workload_pods[node].pods.push(index);
        } else {
            workload_pods[node].awaited += 1;
        }
    }
    workload_pods
}
