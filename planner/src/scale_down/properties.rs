//! Property tests for every decision about nodes, checked by trying all placements.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::fixtures::TestCluster;
use crate::input::pod_info::PodInfo;
use crate::input::{nodes, pods};
use crate::numbers::count;
use crate::scale_down::budgets::{Budgets, EvictionCost};
use crate::{Observed, ScalingPlan, SchedulingResult, plan};

/// Up to six nodes of two pools with pods, some of which need a toleration, block, or are covered by a budget.
fn cluster() -> impl Strategy<Value = Observed> {
    let node = (0_usize..2, prop::bool::weighted(0.2), prop::bool::weighted(0.1), prop::bool::weighted(0.1));
    let running = (
        0_usize..6,
        1_i32..20,
        prop::bool::weighted(0.9),
        prop::bool::weighted(0.3),
        prop::option::of(0_usize..2),
    );
    (
        prop::collection::vec(node, 1..7),
        prop::collection::vec(running, 0..9),
        prop::collection::vec((1_usize..3, 1_i32..20), 0..2),
        prop::array::uniform2(0_i32..4),
        prop::array::uniform2(0_i32..3),
        prop::option::of(1_i32..4),
        prop_oneof![Just(50), Just(100)],
    )
        .prop_map(|(nodes, running, pending, allowed, min, max_nodes, percent)| {
            let rules = json!({ "unneededSeconds": 0, "delayAfterAddSeconds": 0, "maxNodes": max_nodes, "utilizationThresholdPercent": percent });
            let mut cluster = TestCluster::new().autoscaler("x", json!({ "scaleDown": rules }));
            for (pool, min) in min.into_iter().enumerate() {
                let members = i32::try_from(nodes.iter().filter(|node| node.0 == pool).count()).unwrap();
                let spec = json!({ "replicas": members, "minReplicas": min.min(members), "maxReplicas": members });
                cluster = cluster.pool(&format!("p{pool}"), json!({ "spec": spec }));
            }
            for (at, (pool, tainted, cordoned, down)) in nodes.into_iter().enumerate() {
                let taints: Vec<Value> = tainted.then(|| json!({ "key": "t", "effect": "NoSchedule" })).into_iter().collect();
                let ready = if down { "False" } else { "True" };
                let change = json!({ "spec": { "taints": taints, "unschedulable": cordoned }, "status": { "conditions": [{ "type": "Ready", "status": ready }] } });
                cluster = cluster.node(&format!("p{pool}"), &format!("n{at}"), change);
            }
            for (at, (node, tenths, owned, tolerates, budget)) in running.into_iter().enumerate() {
                let owners = if owned { json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o", "uid": "u", "controller": true }]) } else { json!([]) };
                let tolerations: Vec<Value> = tolerates.then(|| json!({ "key": "t", "operator": "Exists" })).into_iter().collect();
                let labels = budget.map(|budget| json!({ "budget": budget.to_string() }));
                let change = json!({ "metadata": { "ownerReferences": owners, "labels": labels }, "spec": { "tolerations": tolerations } });
                cluster = cluster.running(&format!("r{at}"), &format!("n{node}"), &format!("{}m", tenths * 100), change);
            }
            for (at, (count, tenths)) in pending.into_iter().enumerate() {
                cluster = cluster.pending(&format!("p{at}"), count, &format!("{}m", tenths * 100), &json!({}));
            }
            for (at, allowed) in allowed.into_iter().enumerate() {
                let object = json!({ "metadata": { "name": format!("b{at}"), "namespace": "apps" },
                    "spec": { "selector": { "matchLabels": { "budget": at.to_string() } } }, "status": { "disruptionsAllowed": allowed } });
                cluster.observed.budgets.push(Arc::new(serde_json::from_value(object).unwrap()));
            }
            cluster.observed
        })
}

fn victims(plan: &ScalingPlan) -> Vec<&str> {
    plan.pools.iter().flat_map(|decision| decision.victims.iter().map(String::as_str)).collect()
}

fn name(pod: &PodInfo) -> &str {
    pod.key().1
}

/// The cpu request of the first container, in thousandths of a core.
fn cpu(pod: &PodInfo) -> i64 {
    let requests = pod.spec().unwrap().containers[0].resources.as_ref().unwrap().requests.as_ref().unwrap();
    shared_crds::quantity::Exact::parse(&requests["cpu"].0).unwrap().milli()
}

fn tolerates(pod: &PodInfo, node: &Node) -> bool {
    let spec = node.spec.as_ref().unwrap();
    let tainted = spec.taints.as_ref().is_some_and(|taints| !taints.is_empty());
    let tolerant = pod.spec().unwrap().tolerations.as_ref().is_some_and(|t| !t.is_empty());
    spec.unschedulable != Some(true) && (!tainted || tolerant)
}

/// A node that stays, as the checker sees it: free thousandths of a core and free places for pods.
struct Staying<'a> {
    node: &'a Node,
    cpu: i64,
    places: i64,
}

/// The nodes that stay after `plan`, with their own pods and the pending ones that were planned onto them.
fn staying<'a>(plan: &ScalingPlan, observed: &'a Observed) -> Vec<Staying<'a>> {
    let victims = victims(plan);
    let stays = |node: &&Arc<Node>| {
        nodes::is_ready(node) && !victims.contains(&node.metadata.name.as_deref().unwrap())
    };
    let of_node = |node: &'a Arc<Node>| {
        let its_name = node.metadata.name.as_deref().unwrap();
        let planned = |pod: &&Arc<PodInfo>| {
            let onto = |result: &SchedulingResult| matches!(result, SchedulingResult::Fits { node, .. } if node == its_name);
            plan.pods.iter().any(|outcome| outcome.name == name(pod) && onto(&outcome.result))
        };
        let on_it: Vec<_> =
            observed.pods.iter().filter(|pod| pod.node() == Some(its_name) || planned(pod)).collect();
        let used: i64 = on_it.iter().map(|pod| cpu(pod)).sum();
        Staying { node, cpu: 4000 - used, places: 10 - i64::try_from(on_it.len()).unwrap() }
    };
    observed.nodes.iter().filter(stays).map(of_node).collect()
}

/// Whether all pods find places at the same time, by trying every placement.
fn all_fit(pods: &[&Arc<PodInfo>], nodes: &mut [Staying<'_>]) -> bool {
    let Some((pod, rest)) = pods.split_first() else { return true };
    let asked = cpu(pod);
    (0..nodes.len()).any(|at| {
        if !tolerates(pod, nodes[at].node) || nodes[at].cpu < asked || nodes[at].places < 1 {
            return false;
        }
        nodes[at].cpu -= asked;
        nodes[at].places -= 1;
        let fit = all_fit(rest, nodes);
        nodes[at].cpu += asked;
        nodes[at].places += 1;
        fit
    })
}

fn displaced<'a>(plan: &ScalingPlan, observed: &'a Observed) -> Vec<&'a Arc<PodInfo>> {
    let victims = victims(plan);
    let leaves = |pod: &&Arc<PodInfo>| pod.node().is_some_and(|node| victims.contains(&node));
    observed.pods.iter().filter(leaves).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn every_displaced_pod_has_a_place_when_the_decision_is_carried_out(observed in cluster()) {
        let plan = plan(&observed);
        let displaced = displaced(&plan, &observed);
        prop_assert!(all_fit(&displaced, &mut staying(&plan, &observed)), "{:?}", plan.pools);
    }

    #[test]
    fn no_bound_limit_or_budget_is_exceeded_and_no_pod_that_blocks_is_displaced(observed in cluster()) {
        let plan = plan(&observed);
        for decision in &plan.pools {
            let min = decision.object.spec.min_replicas;
            prop_assert!(decision.desired >= min && decision.current - i32::try_from(decision.victims.len()).unwrap() >= min);
        }
        let most = observed.autoscalers[0].spec.scale_down.as_ref().unwrap().max_nodes.map_or(usize::MAX, count);
        prop_assert!(victims(&plan).len() <= most);
        let budgets = Budgets::of(&observed.budgets);
        let mut claims = BTreeMap::<_, BTreeMap<_, usize>>::new();
        for pod in displaced(&plan, &observed) {
            prop_assert!(pods::controller(pod).is_some(), "{}", name(pod));
            if let EvictionCost::One(budget) = budgets.eviction_cost(pod) {
                *claims.entry(budget).or_default().entry(pod.node()).or_default() += 1;
            }
        }
        for (budget, of_nodes) in claims {
            // The last node may need more disruptions than are left, and is drained as its pods become ready elsewhere.
            let before_the_last = of_nodes.values().sum::<usize>() - of_nodes.values().max().unwrap();
            prop_assert!(before_the_last < budgets.allowed(budget), "{}", budgets.name(budget));
        }
    }

    #[test]
    fn a_node_that_could_go_by_itself_has_places_for_all_its_pods(observed in cluster()) {
        let plan = plan(&observed);
        for verdict in plan.nodes.iter().filter(|verdict| verdict.reason.removable()) {
            let own: Vec<_> = observed.pods.iter().filter(|pod| pod.node() == Some(verdict.name.as_str())).collect();
            let mut alone = plan.clone();
            alone.pools.iter_mut().for_each(|decision| decision.victims.retain(|victim| *victim == verdict.name));
            if !victims(&alone).contains(&verdict.name.as_str()) {
                alone.pools[0].victims.push(verdict.name.clone());
            }
            prop_assert!(all_fit(&own, &mut staying(&alone, &observed)), "{verdict:?}");
        }
    }

    #[test]
    fn the_order_of_the_objects_does_not_matter(observed in cluster()) {
        let mut turned = observed.clone();
        turned.nodes.reverse();
        turned.pods.reverse();
        turned.pools.reverse();
        turned.budgets.reverse();
        prop_assert_eq!(plan(&observed).nodes, plan(&turned).nodes);
    }
}
