//! Whether a plan is what it should be: counts that the peers assert too, and what must hold of every plan of Karpenter's
//! mix, computed without the planner's code.

use std::collections::{BTreeMap, BTreeSet};

use planner::input::PodInfo;
use planner::{Observed, ScalingPlan, SchedulingResult};
use planner_mixes::{AFFINITY_LABEL, ANTI_AFFINITY_LABEL, ExpectedPlacement};

use super::case::{Case, Mix};
use super::counts::Counts;
use super::offers::{amount, label, name, pools, requests};
use super::witness;

/// Up to this many pods of Karpenter's mix are placed again one by one: that takes pods × nodes.
const WITNESSED: usize = 10_000;

/// What is wrong with the plan of a row.
pub(crate) fn check(case: Case, observed: &Observed, plan: &ScalingPlan) -> Vec<String> {
    let Counts { added, removed, placed } = Counts::of(plan);
    let pending = plan.pods.len();
    let mut complaints = Vec::new();
    let mut must = |holds: bool, what: String| {
        if !holds {
            complaints.push(what);
        }
    };
    must(placed == pending, format!("{placed} of {pending} pods have a place"));
    match case.mix {
        Mix::Karpenter => {
            must(pending == case.pods, format!("{pending} of {} pods were planned", case.pods));
            let bound = case.pods.div_ceil(5);
            must(added <= bound, format!("{added} nodes, {bound} are the most"));
            complaints.extend(constraints(observed, plan));
            if case.pods <= WITNESSED {
                let found = witness::placed(observed, plan);
                if found < pending {
                    complaints.push(format!(
                        "a scheduler that takes pods one by one finds a place for {found} of {pending} on the planned nodes"
                    ));
                }
            }
        }
        Mix::ClusterAutoscaler => {
            let exactly = planner_mixes::estimator_nodes(case.percent());
            must(added == exactly, format!("{added} nodes, not {exactly}"));
        }
        Mix::RunOnceUp => must(added == case.pods / 50, format!("{added} nodes, not {}", case.pods / 50)),
        Mix::RunOnceDown => {
            let exactly = case.nodes * 3 / 5;
            must(removed == exactly, format!("{removed} nodes go, not {exactly}"));
            must(added == 0, format!("{added} nodes are added"));
        }
        Mix::Replan => {}
    }
    complaints
}

/// What is wrong with the plan's result for the new pod.
pub(crate) fn newcomer(expected: ExpectedPlacement, plan: &ScalingPlan, pass: usize) -> Option<String> {
    let [pod] = &plan.pods[..] else { return Some(format!("{} pods were planned, not 1", plan.pods.len())) };
    let right = match (expected, &pod.result) {
        (ExpectedPlacement::Fits, SchedulingResult::Fits { node, .. }) => !node.is_empty(),
        (ExpectedPlacement::NewNode, SchedulingResult::TriggersScaleUp { .. }) => Counts::of(plan).added == 1,
        _ => false,
    };
    (!right).then(|| format!("new pod of kind {}: not {expected:?} but {:?}", pass % 5, pod.result))
}

/// What must hold in any plan of Karpenter's mix, as far as the pools of the pods tell: no pool is asked for more than
/// its new nodes have, no more pods that want a host each than hosts, and pods that want to be near their like in one
/// zone.
fn constraints(observed: &Observed, plan: &ScalingPlan) -> Vec<String> {
    let pods: BTreeMap<&str, &PodInfo> = observed.pods.iter().map(|pod| (name(pod), &**pod)).collect();
    let mut asked: BTreeMap<&str, Asked> = BTreeMap::new();
    let mut zones: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let pools = pools(plan);
    let mut complaints = Vec::new();
    for outcome in &plan.pods {
        let SchedulingResult::TriggersScaleUp { pool } = &outcome.result else { continue };
        let Some(pod) = pods.get(outcome.name.as_str()) else {
            complaints.push(format!("there is no pod {}", outcome.name));
            continue;
        };
        let sum = asked.entry(pool).or_default();
        let requests = requests(pod);
        sum.cpu += amount(requests, "cpu").milli();
        sum.memory += amount(requests, "memory").units();
        sum.pods += 1;
        sum.alone += i64::from(label(pod, ANTI_AFFINITY_LABEL).is_some());
        if let (Some(value), Some(offer)) = (label(pod, AFFINITY_LABEL), pools.get(pool.as_str())) {
            zones.entry(value).or_default().insert(offer.zone);
        }
    }
    for (pool, asked) in asked {
        let Some(has) = pools.get(pool) else {
            complaints.push(format!("there is no pool {pool}"));
            continue;
        };
        let nodes = i64::try_from(has.nodes).unwrap_or(i64::MAX);
        let too_much = [
            ("cpu", asked.cpu, has.cpu * nodes),
            ("memory", asked.memory, has.memory * nodes),
            ("places for pods", asked.pods, has.pods * nodes),
            ("hosts of their own", asked.alone, nodes),
        ];
        for (what, asked, has) in too_much.into_iter().filter(|(_, asked, has)| asked > has) {
            complaints.push(format!("the pods of {pool} want {asked} {what}, its new nodes have {has}"));
        }
    }
    for (value, zones) in zones.iter().filter(|(_, zones)| zones.len() > 1) {
        complaints.push(format!("pods that want to be near {value} are in {} zones", zones.len()));
    }
    complaints
}

#[derive(Default)]
struct Asked {
    cpu: i64,
    memory: i64,
    pods: i64,
    alone: i64,
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
