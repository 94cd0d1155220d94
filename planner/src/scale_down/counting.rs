//! Which pods count on a node, as the autoscaler of its pool says: which of them are expendable, and whether daemons are
//! left out of its utilization.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;

use crate::index::{Indexed, PassNodeIndex};
use crate::input::pod_info::PodInfo;
use crate::input::pods;
use crate::pools::Pool;
use crate::scale_down::budgets::{Budgets, EvictionCost};
use crate::scale_down::drainability;

/// Which pods count on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CountingRules {
    /// Pods of a lower priority are expendable.
    cutoff: i32,
    /// Whether pods of `DaemonSet`s and mirror pods are left out of the utilization.
    ignores_daemons: bool,
}

/// What a pod counts by and has in common with all pods of its template, which is a pod's shape without its labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CountedTemplate {
    priority: i32,
    /// Whether it is a `DaemonSet`'s or a mirror pod.
    is_agent: bool,
    /// Whether its pods are a reason to keep their nodes, if no other rule says otherwise.
    is_workload: bool,
}

impl CountedTemplate {
    /// Reads a template.
    pub(crate) fn of(template: &Pod) -> Self {
        Self {
            priority: pods::priority_of(template),
            is_agent: pods::is_daemon(template) || pods::is_mirror(template),
            is_workload: pods::is_workload(template),
        }
    }
}

/// How the request of a pod counts in the utilization of its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    /// It is a part of what is used.
    Used,
    /// What it asks for is no part of the node that could be used.
    Reserved,
    /// Not at all.
    Not,
}

impl CountingRules {
    /// The rules for a node of no pool: every pod counts.
    const EVERY_POD: Self = Self { cutoff: i32::MIN, ignores_daemons: false };

    /// The rules for each of `nodes` nodes.
    ///
    /// Where an autoscaler has headroom, no pod is expendable to the nodes of its pools. Pods that run in the headroom make
    /// it grow by a node; if they kept nothing, the node that they are on would go, they would run on the new one, and so
    /// on without end.
    pub(crate) fn of_nodes(pools: &[Pool], nodes: usize) -> Indexed<PassNodeIndex, Self> {
        let mut rules: Indexed<PassNodeIndex, Self> = vec![Self::EVERY_POD; nodes].into();
        for pool in pools {
            let of_pool = Self {
                cutoff: if pool.assignment.has_headroom() {
                    i32::MIN
                } else {
                    pool.assignment.priority_cutoff()
                },
                ignores_daemons: pool.assignment.scale_down().ignore_daemon_sets_utilization,
            };
            pool.staying.iter().chain(&pool.leaving).for_each(|&node| rules[node] = of_pool);
        }
        rules
    }

    /// Whether pods of this priority are expendable.
    pub(crate) const fn is_below_cutoff(self, priority: i32) -> bool {
        priority < self.cutoff
    }

    /// Whether a pod on the node is a reason to keep it: [`pods::keeps_node`], and it is not expendable. One that a budget
    /// keeps from eviction is a reason too, unlike in Cluster Autoscaler: a drain evicts expendable pods as it does others,
    /// and would wait for this one.
    pub(crate) fn keeps_node(
        self,
        pod: &PodInfo,
        template: CountedTemplate,
        budgets: &Budgets,
        now: Timestamp,
    ) -> bool {
        let keeps = || !self.is_expendable(pod, template, now) || drainability::is_refused(pod, budgets);
        template.is_workload && !pods::is_overdue(pod, now) && keeps()
    }

    /// Whether a pod that does not keep its node takes a disruption of a budget when the node is drained: it is expendable, and
    /// the budget covers it.
    pub(crate) fn takes_disruption(
        self,
        pod: &PodInfo,
        template: CountedTemplate,
        budgets: &Budgets,
    ) -> bool {
        template.is_workload
            && self.is_below_cutoff(template.priority)
            && matches!(budgets.eviction_cost(pod), EvictionCost::One(_))
    }

    /// Whether a pod on the node is expendable: it keeps no node, counts in no utilization, and needs no place elsewhere.
    /// A pod that asks by an annotation not to be evicted is not, unlike in Cluster Autoscaler: the `NodePool` operator
    /// would wait for such a pod, and the node would be cordoned in vain.
    fn is_expendable(self, pod: &PodInfo, template: CountedTemplate, now: Timestamp) -> bool {
        self.is_below_cutoff(template.priority) && !pods::asks_to_stay(pod, now)
    }

    /// How the request of a pod on the node counts. Pods that should have terminated long ago do not count, as in
    /// Cluster Autoscaler.
    pub(super) fn counted(self, pod: &PodInfo, template: CountedTemplate, now: Timestamp) -> Counted {
        if self.ignores_daemons && template.is_agent {
            Counted::Reserved
        } else if pods::is_overdue(pod, now) || self.is_expendable(pod, template, now) {
            Counted::Not
        } else {
            Counted::Used
        }
    }
}
