//! Property tests that hold for every cluster, however unusual.

use std::collections::BTreeMap;

use k8s_openapi::jiff::SignedDuration;
use proptest::prelude::*;
use serde_json::{Value, json};
use shared_crds::QualifiedName;

use crate::fixtures::{Read, TestCluster};
use crate::{Observed, PoolDecision, ScalingPlan, SchedulingResult, plan};

/// A small cluster with everything that a plan depends on.
pub(super) fn cluster() -> impl Strategy<Value = Observed> {
    let pool =
        (prop::option::weighted(0.9, 0_i32..6), 0_i32..4, 0_i32..4, prop::option::of(Just("gpu")), 1_i32..9);
    let node = (0_usize..3, any::<bool>(), any::<bool>(), 0_i64..7200);
    let running = (0_usize..8, 1_i32..4, any::<bool>());
    let pending = (1_usize..6, 1_i32..10, prop::option::of(Just("gpu")), -1_i32..2);
    (
        prop::collection::vec(pool, 1..4),
        prop::collection::vec(node, 0..8),
        prop::collection::vec(running, 0..8),
        prop::collection::vec(pending, 0..5),
        0_i32..3,
        prop::option::of(1_i32..3),
    )
        .prop_map(|(pools, nodes, running, pending, unneeded, max_nodes)| {
            let mut cluster = TestCluster::new().autoscaler(
                "x",
                json!({ "scaleDown": { "unneededSeconds": unneeded * 600, "delayAfterAddSeconds": 0, "maxNodes": max_nodes } }),
            );
            for (at, (replicas, min, extra, taint, cpu)) in pools.into_iter().enumerate() {
                let taints: Vec<Value> = taint.iter().map(|t| json!({ "key": t, "effect": "NoSchedule" })).collect();
                cluster = cluster.pool(
                    &format!("pool{at}"),
                    json!({ "spec": { "replicas": replicas, "minReplicas": min, "maxReplicas": min + extra, "template": { "spec": {
                        "taints": taints, "capacity": { "cpu": cpu.to_string() } } } } }),
                );
            }
            for (at, (pool, ready, cordoned, age)) in nodes.into_iter().enumerate() {
                let created = cluster.observed.now - SignedDuration::from_secs(age);
                let ready = if ready { "True" } else { "False" };
                cluster = cluster.node(
                    &format!("pool{pool}"),
                    &format!("n{at}"),
                    json!({ "metadata": { "creationTimestamp": created.to_string() }, "spec": { "unschedulable": cordoned },
                            "status": { "conditions": [{ "type": "Ready", "status": ready }] } }),
                );
            }
            for (at, (node, cpu, finished)) in running.into_iter().enumerate() {
                let phase = if finished { "Succeeded" } else { "Running" };
                cluster = cluster.running(&format!("r{at}"), &format!("n{node}"), &cpu.to_string(), json!({ "status": { "phase": phase } }));
            }
            for (at, (count, cpu, tolerates, priority)) in pending.into_iter().enumerate() {
                let tolerations: Vec<Value> = tolerates.iter().map(|t| json!({ "key": t, "operator": "Exists" })).collect();
                let change = json!({ "spec": { "priority": priority, "tolerations": tolerations } });
                cluster = cluster.pending(&format!("p{at}"), count, &format!("{}m", cpu * 500), &change);
            }
            cluster.observed
        })
}

/// How many pods are placed on each node or pool.
fn totals(plan: &ScalingPlan) -> BTreeMap<String, usize> {
    let mut totals = BTreeMap::new();
    plan.results().into_iter().for_each(|result| *totals.entry(result).or_default() += 1);
    totals
}

fn numbers(plan: &ScalingPlan) -> Vec<(i32, bool, Vec<String>, String)> {
    plan.pools.iter().map(|p| (p.desired, p.limited, p.victims.clone(), p.id.clone())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn desired_replicas_are_within_the_bounds(observed in cluster()) {
        for decision in plan(&observed).pools {
            let spec = &decision.object.spec;
            prop_assert!((spec.min_replicas..=spec.max_replicas).contains(&decision.desired), "{decision:?}");
        }
    }

    #[test]
    fn victims_are_exactly_the_nodes_between_what_is_and_what_should_be(observed in cluster()) {
        for decision in plan(&observed).pools {
            let removed = decision.current.saturating_sub(decision.desired);
            if decision.object.spec.replicas == Some(decision.object.spec.effective_replicas()) {
                prop_assert_eq!(decision.victims.len(), usize::try_from(removed).unwrap_or(0), "{:?}", decision);
            }
        }
    }

    #[test]
    fn victims_are_empty_nodes_of_the_pool_that_no_pending_pod_is_planned_onto(observed in cluster()) {
        let plan = plan(&observed);
        let used: Vec<_> = plan.pods.iter().filter_map(|pod| match &pod.result {
            SchedulingResult::Fits { node, .. } => Some(node.clone()),
            SchedulingResult::TriggersScaleUp { .. } | SchedulingResult::Unschedulable { .. } => None,
        }).collect();
        for decision in plan.pools.iter().filter(|d| d.object.spec.replicas == Some(d.object.spec.effective_replicas())) {
            for victim in &decision.victims {
                prop_assert!(!used.contains(victim));
                let occupied = observed.pods.iter().any(|pod| {
                    crate::input::pods::occupied_node(pod) == Some(victim.as_str()) && crate::input::pods::keeps_node(pod, observed.now)
                });
                prop_assert!(!occupied);
            }
        }
    }

    #[test]
    fn pods_planned_onto_a_node_fit_it_together(observed in cluster()) {
        let plan = plan(&observed);
        let cpu = |name: &str| {
            let pod = observed.pods.iter().find(|p| p.key().1 == name).unwrap();
            crate::requirements::requests::of(pod.shape().pod(), &mut crate::resources::ResourceNames::default()).unwrap().basic()[1]
        };
        let mut planned: BTreeMap<&str, i64> = BTreeMap::new();
        for pod in &plan.pods {
            if let SchedulingResult::Fits { node, .. } = &pod.result && !node.is_empty() {
                *planned.entry(node).or_default() += cpu(&pod.name);
            }
        }
        for (node, asked) in planned {
            let object = observed.nodes.iter().find(|n| n.metadata.name.as_deref() == Some(node)).unwrap();
            let own = &object.status.as_ref().unwrap().allocatable.as_ref().unwrap()["cpu"].0;
            let pool = crate::input::nodes::pool_of(object).unwrap().1;
            let of_template = observed.pools.iter().find(|p| p.metadata.name.as_deref() == Some(pool)).map(|p| &p.spec.template.spec.capacity["cpu"].0);
            let up = crate::input::nodes::is_ready(object);
            let has = if up { own } else { of_template.unwrap_or(own) };
            let running: i64 = observed.pods.iter().filter(|p| crate::input::pods::occupied_node(p) == Some(node)).map(|p| cpu(p.key().1)).sum();
            let total = shared_crds::quantity::Exact::parse(has).unwrap().milli();
            prop_assert!(running + asked <= total, "{node}: {running} + {asked} of {total}");
        }
    }

    #[test]
    fn new_nodes_hold_the_pods_they_are_for_and_come_only_to_pools_of_which_no_node_goes(observed in cluster()) {
        for decision in plan(&observed).pools {
            let name = decision.object.metadata.name.as_deref().unwrap();
            let staying = observed.nodes.iter().filter(|n| crate::input::nodes::pool_of(n).unwrap().1 == name).count();
            let base = crate::numbers::count(decision.object.spec.effective_replicas());
            let added = crate::numbers::count(decision.desired).saturating_sub(base.max(staying));
            prop_assert!(decision.triggering_pods <= added * 10, "ten pods a node: {decision:?}");
            prop_assert!(added == 0 || decision.triggering_pods >= added, "no node without a pod: {decision:?}");
            prop_assert!(added == 0 || decision.victims.is_empty(), "{decision:?}");
        }
    }

    #[test]
    fn verdicts_on_nodes_agree_with_the_decisions_about_their_pools(observed in cluster()) {
        let plan = plan(&observed);
        let going: Vec<_> = plan.pools.iter().flat_map(|d| d.victims.iter().chain(&d.leaving)).collect();
        for node in &plan.nodes {
            let said = matches!(node.reason.as_str(), "AboveMaxReplicas" | "CurrentlyBeingDeleted");
            prop_assert!(!said || going.contains(&&node.name), "{node:?}");
        }
        for pod in &plan.pods {
            if let SchedulingResult::Fits { node, .. } = &pod.result {
                prop_assert!(!going.contains(&node), "{pod:?}");
            }
        }
    }

    #[test]
    fn a_bound_limits_a_pool_only_when_it_leaves_a_pod_out_or_the_pool_would_grow_further_without_it(observed in cluster()) {
        let bounded = plan(&observed);
        for (at, decision) in bounded.pools.iter().enumerate().filter(|(_, d)| d.limited) {
            // Without the bound another pool may have the better expansion option, and take that pod too.
            if leaves_out(&bounded, decision) || keeps_nodes(&bounded) {
                continue;
            }
            let mut free = observed.clone();
            let pool = free.pools.iter_mut().find(|p| p.metadata.name == decision.object.metadata.name).unwrap();
            let mut object = (**pool).clone();
            // Only the bound is removed: what it corrects would otherwise be another cluster.
            if object.spec.replicas.is_none_or(|replicas| replicas > object.spec.max_replicas) {
                continue;
            }
            object.spec.max_replicas = 1000;
            *pool = std::sync::Arc::new(object);
            let free = plan(&free);
            prop_assert!(free.pools[at].desired > decision.desired || keeps_nodes(&free), "{decision:?}");
        }
    }

    #[test]
    fn the_order_of_the_objects_does_not_matter(observed in cluster(), seed in any::<u64>()) {
        let mut shuffled = observed.clone();
        shuffle(&mut shuffled.pods, seed);
        shuffle(&mut shuffled.nodes, seed);
        shuffle(&mut shuffled.pools, seed);
        let (a, b) = (plan(&observed), plan(&shuffled));
        prop_assert_eq!(totals(&a), totals(&b));
        prop_assert_eq!(numbers(&a), numbers(&b));
        let pods = |plan: ScalingPlan| -> Vec<_> {
            plan.pods.into_iter().map(|pod| (pod.namespace, pod.name, pod.result)).collect()
        };
        prop_assert_eq!(&a.nodes, &b.nodes);
        prop_assert_eq!(pods(a), pods(b));
    }

    #[test]
    fn plans_that_are_carried_out_settle(observed in cluster()) {
        let mut observed = observed;
        let mut last = plan(&observed);
        // Two passes for each node that is permanently down: it is removed, then another one replaces it.
        for _ in 0..24 {
            carry_out(&last, &mut observed);
            let next = plan(&observed);
            let unchanged = next.pools.iter().all(|decision| decision.desired == decision.current);
            last = next;
            if unchanged {
                return Ok(());
            }
        }
        let moving: Vec<_> = last.pools.iter().map(|d| (d.current, d.desired, d.message.clone())).collect();
        prop_assert!(false, "still moving: {:?}", moving);
    }
}

/// Whether a pod is unschedulable because of the pool's upper bound.
fn leaves_out(plan: &ScalingPlan, decision: &PoolDecision) -> bool {
    let id = QualifiedName::of(&decision.object.metadata).to_string();
    let bound = |result: &SchedulingResult| match result {
        SchedulingResult::Unschedulable { reasons } => {
            reasons.iter().any(|r| r.pool == id && r.reason == "MaxReplicasReached")
        }
        SchedulingResult::Fits { .. } | SchedulingResult::TriggersScaleUp { .. } => false,
    };
    plan.pods.iter().any(|pod| bound(&pod.result))
}

/// Whether a pool that has to scale down keeps nodes for pending pods. Those nodes are free of cost, so which pool has
/// the best expansion option changes with the pool that keeps them.
fn keeps_nodes(plan: &ScalingPlan) -> bool {
    plan.pools.iter().any(|decision| decision.message.contains("kept for pending pods"))
}

/// Does what the operators would do: replicas are set, victims and other excess nodes are removed, missing nodes are
/// created and are Ready. Pods stay pending.
pub(super) fn carry_out(plan: &ScalingPlan, observed: &mut Observed) {
    let mut cluster = TestCluster { observed: observed.clone() };
    cluster.observed.pools.clear();
    let victims: Vec<_> = plan.pools.iter().flat_map(|d| d.victims.clone()).collect();
    cluster.observed.nodes.retain(|n| !victims.contains(n.metadata.name.as_ref().unwrap()));
    for decision in &plan.pools {
        let mut pool = (*decision.object).clone();
        pool.spec.replicas = Some(decision.desired);
        let name = pool.metadata.name.clone().unwrap();
        let capacity = json!(pool.spec.template.spec.capacity);
        let taints: Vec<_> =
            pool.spec.template.spec.taints.iter().map(k8s_openapi::api::core::v1::Taint::from).collect();
        let wanted = crate::numbers::count(decision.desired);
        let is_member = |n: &std::sync::Arc<k8s_openapi::api::core::v1::Node>| {
            crate::input::nodes::pool_of(n).unwrap().1 == name
        };
        let mut members = cluster.observed.nodes.iter().filter(|n| is_member(n)).count();
        cluster.observed.nodes.retain(|n| {
            !is_member(n) || members <= wanted || {
                members -= 1;
                false
            }
        });
        for at in members..wanted {
            let change = json!({ "spec": { "taints": taints }, "status": { "allocatable": capacity } });
            let taken =
                |name: &String| cluster.observed.nodes.iter().any(|n| n.metadata.name.as_ref() == Some(name));
            let free = (at..1000).map(|at| format!("z{name}-{at}")).find(|name| !taken(name)).unwrap();
            cluster = cluster.node(&name, &free, change);
        }
        cluster.observed.pools.push(std::sync::Arc::new(pool));
    }
    *observed = cluster.observed;
}

/// A shuffle without a dependency: sorts by a hash of seed and position.
fn shuffle<T>(items: &mut Vec<T>, seed: u64) {
    let mut keyed: Vec<_> = items
        .drain(..)
        .enumerate()
        .map(|(at, item)| {
            let at = u64::try_from(at).unwrap();
            ((at ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31), item)
        })
        .collect();
    keyed.sort_by_key(|(key, _)| *key);
    items.extend(keyed.into_iter().map(|(_, item)| item));
}
