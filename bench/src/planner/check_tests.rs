use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use planner as plan;

use super::*;
use crate::planner::case::Work;

fn still(row: &str) -> (Case, Box<Observed>) {
    let case: Case = row.parse().unwrap();
    let Work::Still(observed) = case.work() else { panic!("{row} is no mix that stays as it is") };
    (case, observed)
}

/// A plan by hand: `count` nodes of the largest pool of each zone, and pods to zones as `zone_of` says.
fn by_hand(observed: &Observed, count: i32, zone_of: impl Fn(&PodInfo) -> usize) -> ScalingPlan {
    let mut plan = plan::plan(observed);
    let largest = ["bench/zone-a-096", "bench/zone-b-096", "bench/zone-c-096"];
    for decision in &mut plan.pools {
        let name = decision.object.metadata.name.clone().unwrap();
        decision.desired = if name.ends_with("-096") { count } else { 0 };
    }
    let pods: BTreeMap<&str, &Arc<PodInfo>> = observed.pods.iter().map(|p| (name(p), p)).collect();
    for outcome in &mut plan.pods {
        let pool = largest[zone_of(pods[outcome.name.as_str()])].to_owned();
        outcome.result = SchedulingResult::TriggersScaleUp { pool };
    }
    plan
}

/// Pods round the zones by their number, those that want to be near their like by their label.
fn sensible(pod: &PodInfo) -> usize {
    label(pod, AFFINITY_LABEL).map_or(number(pod) % 3, |value| usize::from(value.as_bytes()[0]) % 3)
}

fn number(pod: &PodInfo) -> usize {
    name(pod).rsplit('-').next().unwrap().parse().unwrap()
}

#[test]
fn a_good_plan_of_karpenters_mix_has_nothing_to_complain_about() {
    let (case, observed) = still("karpenter/0/150");
    // 30 pods want a host each.
    assert_eq!(check(case, &observed, &by_hand(&observed, 10, sensible)), Vec::<String>::new());
}

#[test]
fn each_kind_of_broken_plan_of_karpenters_mix_is_told() {
    let (case, observed) = still("karpenter/0/150");
    let told = |plan: &ScalingPlan, what: &str| {
        let complaints = check(case, &observed, plan);
        assert!(complaints.iter().any(|c| c.contains(what)), "{what}: {complaints:?}");
    };
    told(&by_hand(&observed, 11, sensible), "33 nodes, 30 are the most");
    told(&by_hand(&observed, 7, sensible), "hosts of their own");
    told(&by_hand(&observed, 7, sensible), "one by one finds a place for");
    told(&by_hand(&observed, 10, |_| 0), "hosts of their own");
    told(&by_hand(&observed, 10, |pod| number(pod) % 3), "are in 3 zones");
    let mut crowded = by_hand(&observed, 10, sensible);
    for outcome in &mut crowded.pods {
        outcome.result = SchedulingResult::TriggersScaleUp { pool: "bench/zone-a-002".to_owned() };
    }
    told(&crowded, "cpu, its new nodes have 0");
    let mut without = by_hand(&observed, 10, sensible);
    without.pods[0].result = SchedulingResult::Unschedulable { reasons: Arc::new([]) };
    told(&without, "149 of 150 pods have a place");
}

#[test]
fn the_naive_scheduler_heeds_every_constraint_of_its_own() {
    let (_, observed) = still("karpenter/0/150");
    let only = |kind: &str| Observed {
        pods: observed.pods.iter().filter(|p| name(p).starts_with(kind)).cloned().collect(),
        ..(*observed).clone()
    };
    // Two nodes in each of three zones: so many pods of the kind find a place there.
    for (kind, most) in [("plain", 30), ("host-apart", 6), ("zone-near", 30)] {
        let of_kind = only(kind);
        assert_eq!(of_kind.pods.len(), 30);
        assert_eq!(witness::placed(&of_kind, &by_hand(&of_kind, 2, sensible)), most, "{kind}");
    }
    // All of one label, all counting it: one more on a host than on the emptiest is the most there may be.
    let mut alike = only("host-spread");
    for pod in &mut alike.pods {
        let pod = Arc::make_mut(pod);
        let label = [(planner_mixes::SPREAD_LABEL.to_owned(), "a".to_owned())];
        *pod.labels_mut() = label.clone().into();
        let spread = pod.pod_mut().spec.as_mut().unwrap().topology_spread_constraints.as_mut().unwrap();
        spread[0].label_selector.as_mut().unwrap().match_labels = Some(label.into());
    }
    let mut plan = by_hand(&alike, 2, sensible);
    assert_eq!(witness::placed(&alike, &plan), 30);
    // A node too small for any of them keeps the least at zero.
    for decision in &mut plan.pools {
        if decision.object.metadata.name.as_deref() == Some("zone-a-002") {
            decision.desired = 1;
            let template = &mut Arc::make_mut(&mut decision.object).spec.template.spec;
            template.capacity.insert("cpu".to_owned(), Quantity("1m".to_owned()));
        }
    }
    assert_eq!(witness::placed(&alike, &plan), 6);
}

#[test]
fn wrong_counts_of_the_other_mixes_are_told() {
    let (case, observed) = still("cluster-autoscaler/0/5100");
    let mut plan = plan::plan(&observed);
    assert_eq!(check(case, &observed, &plan), Vec::<String>::new());
    plan.pools[0].desired += 1;
    assert_eq!(check(case, &observed, &plan), ["261 nodes, not 260"]);

    let (case, observed) = still("runonce-up/0/500");
    let mut plan = plan::plan(&observed);
    assert_eq!(check(case, &observed, &plan), Vec::<String>::new());
    plan.pools[0].desired -= 1;
    assert_eq!(check(case, &observed, &plan), ["9 nodes, not 10"]);

    let (case, observed) = still("runonce-down/10/400");
    let mut plan = plan::plan(&observed);
    plan.pools[0].victims = (0..6).map(|n| format!("node-{n:05}")).collect();
    plan.pools[0].desired = 4;
    assert_eq!(check(case, &observed, &plan), Vec::<String>::new());
    plan.pools[0].victims.pop();
    assert_eq!(check(case, &observed, &plan), ["5 nodes go, not 6"]);
}

#[test]
fn a_wrong_answer_about_the_new_pod_is_told() {
    let case: Case = "replan/6/61".parse().unwrap();
    let Work::Stream(mut observed, replan) = case.work() else { panic!("no stream") };
    let expected = super::super::case::arrive(&mut observed, &replan, 0);
    let plan = plan::plan_for_cluster(&observed);
    assert_eq!(newcomer(expected, &plan, 0), None);
    assert!(newcomer(ExpectedPlacement::NewNode, &plan, 0).is_some());
}
