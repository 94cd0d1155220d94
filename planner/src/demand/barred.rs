//! Pending pods for which pools do not grow although a new node would take them: those that are too young by their own
//! annotation, for which no pool grows yet, and those that are expendable to the autoscaler of a pool. Both are classes of
//! their own, so that the search for places needs no other rule; they keep their places on nodes that exist or are coming.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use shared_crds::QualifiedName;
use shared_crds::protection::POD_SCALE_UP_DELAY;

use super::model::Demand;
use crate::index::{Indexed, PoolIndex};
use crate::input::pod_info::PodInfo;
use crate::input::pods;
use crate::pools::Pools;
use crate::requirements::pod_class::{BarredPools, PodClass, PodClassId, PodClasses};

/// The pending pods of a pass that are too young by their own annotation.
#[derive(Debug)]
pub(super) struct DelayedPods {
    now: Timestamp,
    /// When the first of them is old enough; `None` without any.
    pub(super) until: Option<Timestamp>,
    /// By class, the class of those of its pods that are too young.
    classes: BTreeMap<PodClassId, PodClassId>,
}

impl DelayedPods {
    pub(super) const fn at(now: Timestamp) -> Self {
        Self { now, until: None, classes: BTreeMap::new() }
    }

    /// The class of a pending pod that would be of `class` if it were old enough. New classes are added to `classes`.
    pub(super) fn class_of(
        &mut self,
        pod: &PodInfo,
        class: PodClassId,
        classes: &mut PodClasses,
        warnings: &mut Vec<String>,
    ) -> PodClassId {
        match pods::scale_up_from(pod) {
            Ok(Some(from)) if from > self.now => {
                self.until = self.until.into_iter().chain([from]).min();
                *self.classes.entry(class).or_insert_with(|| {
                    let barred = BarredPools { delayed: true, expendable: Vec::new() };
                    let young = PodClass { barred, ..classes[class].clone() };
                    classes.push(young)
                })
            }
            Ok(_) => class,
            Err(value) => {
                let name = QualifiedName::from(pod.key());
                warnings.push(format!(
                    "pod {name} is planned as if it did not have the annotation {POD_SCALE_UP_DELAY}: \"{value}\" is no \
                     duration such as 5m"
                ));
                class
            }
        }
    }
}

/// Bars the pools from growing for the pending pods that are expendable to their autoscalers.
pub(super) fn bar_expendable(demand: &mut Demand, pools: &Pools) {
    let cutoffs: Indexed<PoolIndex, i32> =
        pools.iter().map(|pool| pool.assignment.priority_cutoff()).collect();
    let highest = cutoffs.iter().copied().max().unwrap_or(i32::MIN);
    let Demand { groups, classes, .. } = demand;
    for group in groups.iter_mut().filter(|group| group.priority < highest) {
        let expendable = |&(_, &cutoff): &(PoolIndex, &i32)| group.priority < cutoff;
        let expendable = cutoffs.enumerated().filter(expendable).map(|(pool, _)| pool).collect();
        let class = &classes[group.class];
        let barred = BarredPools { expendable, ..class.barred };
        let class = PodClass { barred, ..class.clone() };
        group.class = classes.push(class);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::ScalingPlan;
    use crate::fixtures::{Read as _, TestCluster};

    fn priority(priority: i32) -> Value {
        json!({ "spec": { "priority": priority } })
    }

    fn delay(created: &str, value: &str) -> Value {
        json!({ "metadata": { "creationTimestamp": format!("2026-01-01T{created}Z"),
            "annotations": { POD_SCALE_UP_DELAY: value } } })
    }

    fn message(plan: &ScalingPlan) -> &str {
        let crate::SchedulingResult::Unschedulable { reasons } = &plan.pods[0].result else {
            panic!("it has a place: {plan:?}")
        };
        &reasons[0].message
    }

    #[test]
    fn no_pool_grows_for_a_pod_below_the_cutoff_of_its_autoscaler() {
        for (cutoff, of_pod, result) in [
            (None, -11, "no Expendable"),
            (None, -10, "grows ns/a"),
            (Some(0), -1, "no Expendable"),
            (Some(0), 0, "grows ns/a"),
            (Some(-1000), -1000, "grows ns/a"),
        ] {
            let spec =
                cutoff.map_or(json!({}), |cutoff: i32| json!({ "expendablePodsPriorityCutoff": cutoff }));
            let cluster = TestCluster::new().autoscaler("x", spec).pool("a", json!({}));
            let plan = cluster.pending("p", 1, "1", &priority(of_pod)).plan();
            assert_eq!(plan.results(), [result], "{of_pod} below {cutoff:?}");
            assert_eq!(plan.desired("a"), i32::from(result.starts_with("grows")));
        }
    }

    #[test]
    fn an_expendable_pod_takes_room_that_is_there_and_no_room_on_nodes_that_others_need() {
        let cluster =
            TestCluster::eager().pool("a", json!({ "spec": { "replicas": 1 } })).node("a", "n", json!({}));
        let plan = cluster.pending("cheap", 5, "1", &priority(-100)).plan();
        let fits = "fits n";
        assert_eq!(plan.results(), [fits, fits, fits, fits, "no Expendable"]);
        assert!(!plan.pool("a").limited);
        let cluster = TestCluster::eager().pool("a", json!({})).pending("cheap", 1, "1", &priority(-100));
        let plan = cluster.pending("dear", 1, "1", &json!({})).plan();
        assert_eq!(plan.results(), ["no Expendable", "grows ns/a"]);
        assert_eq!(plan.pool("a").triggering_pods, 1);
        assert!(
            message(&plan).contains("below spec.expendablePodsPriorityCutoff (-10)"),
            "{}",
            message(&plan)
        );
    }

    #[test]
    fn the_room_of_a_running_expendable_pod_is_planned_only_for_a_nominated_pod() {
        for (status, results) in
            [(json!({}), vec!["grows ns/a".to_owned()]), (json!({ "nominatedNodeName": "n" }), vec![])]
        {
            let pool = json!({ "spec": { "replicas": 1 } });
            let cluster = TestCluster::eager().pool("a", pool).node("a", "n", json!({}));
            let cluster = cluster.running("cheap", "n", "4", priority(-100));
            let plan = cluster.pending("p", 1, "1", &json!({ "status": status })).plan();
            assert_eq!(plan.results(), results, "{status}");
        }
    }

    #[test]
    fn each_autoscaler_has_its_own_cutoff() {
        let select = |tier: &str, cutoff: i32| json!({ "nodePoolSelector": { "matchLabels": { "tier": tier } }, "expendablePodsPriorityCutoff": cutoff });
        let pool = |tier: &str| json!({ "metadata": { "labels": { "tier": tier } } });
        let cluster = TestCluster::new()
            .autoscaler("x", select("strict", 0))
            .autoscaler("y", select("lenient", -1000))
            .pool("a", pool("strict"))
            .pool("b", pool("lenient"));
        let plan = cluster.pending("p", 1, "1", &priority(-100)).plan();
        assert_eq!(plan.results(), ["grows ns/b"]);
        assert_eq!((plan.desired("a"), plan.desired("b")), (0, 1));
    }

    #[test]
    fn no_pool_grows_for_a_pod_until_it_is_as_old_as_it_asks_and_then_the_plan_is_made_again() {
        for (created, value, result, next) in [
            ("11:58:00", "5m", "no ScaleUpDelayed", Some("2026-01-01T12:03:00Z")),
            ("11:55:00", "5m", "grows ns/a", None),
            ("11:58:00", "soon", "grows ns/a", None),
        ] {
            let cluster = TestCluster::eager().pool("a", json!({}));
            let plan = cluster.pending("p", 1, "1", &delay(created, value)).plan();
            assert_eq!(plan.results(), [result], "{created} {value}");
            assert!(
                next.is_none_or(|next: &str| plan.next == next.parse().ok()),
                "{created}: {:?}",
                plan.next
            );
            assert_eq!(plan.warnings.len(), usize::from(value == "soon"), "{:?}", plan.warnings);
        }
    }

    #[test]
    fn of_equal_pods_those_that_are_old_enough_have_pools_grow() {
        let cluster =
            TestCluster::eager().pool("a", json!({ "spec": { "replicas": 1 } })).node("a", "n", json!({}));
        let cluster = cluster.running("full", "n", "3", json!({}));
        let plan = cluster
            .pending("old", 2, "1", &delay("11:00:00", "5m"))
            .pending("young", 2, "1", &delay("11:59:00", "5m"))
            .plan();
        let delayed = "no ScaleUpDelayed";
        assert_eq!(plan.results(), ["fits n", "grows ns/a", delayed, delayed]);
    }

    #[test]
    fn a_young_pod_takes_room_that_is_there() {
        let cluster =
            TestCluster::eager().pool("a", json!({ "spec": { "replicas": 1 } })).node("a", "n", json!({}));
        let plan = cluster.pending("young", 1, "1", &delay("11:59:00", "5m")).plan();
        assert_eq!(plan.results(), ["fits n"]);
        assert_eq!(plan.verdict("n"), "NeededByPendingPods");
    }
}
