//! Nodes past `spec.rollout.hardMaxAgeSeconds`: they go although they or their pods ask to be left alone.

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};
use shared_crds::protection::DO_NOT_DISRUPT;

use super::*;
use crate::testing::{
    actions, annotate, at, draining, facts, node, observed, plan, plan_with, pod, pods, pool, protect_pod,
    with_action,
};

/// A pool whose nodes are out of date from 60 s on, and go from 100 s on whatever they ask for.
fn aging(replicas: i32, surge: i32) -> NodePool {
    let mut pool = pool(replicas);
    pool.spec.rollout = Some(RolloutSpec {
        max_surge: IntOrString::Int(surge),
        max_age_seconds: Some(60),
        hard_max_age_seconds: Some(100),
        ..RolloutSpec::default()
    });
    pool
}

fn born(index: usize, second: i64) -> Node {
    let mut node = node(index);
    node.metadata.creation_timestamp = Some(Time(at(second)));
    node
}

/// `node` with an annotation that protects it.
fn asks(mut node: Node) -> Node {
    annotate(&mut node, DO_NOT_DISRUPT, "true");
    node
}

fn asking_pod() -> Pod {
    let mut pod = pod("a");
    protect_pod(&mut pod);
    pod
}

/// What is observed at second `now`.
fn seen(pool: NodePool, nodes: impl IntoIterator<Item = Node>, now: i64) -> Observed {
    let mut observed = observed(pool, nodes);
    observed.now = at(now);
    observed
}

#[test]
fn a_node_that_asks_to_be_left_alone_stays_until_its_hard_age_and_goes_then() {
    let fresh = || born(1, 95);
    let by_node = |now| seen(aging(1, 1), [asks(node(0)), fresh()], now);
    let by_pod = |now| seen(aging(1, 1), [node(0), fresh()], now);
    let mut remembered = by_pod(101);
    remembered.protected = [("n-000".to_owned(), "has pod default/a, which asks".to_owned())].into();
    let asking = pods([("n-000", vec![asking_pod()])]);
    for (what, before, after) in [
        ("a Node", by_node(99), by_node(101)),
        ("a pod", by_pod(99), by_pod(101)),
        ("remembered", by_node(99), remembered),
    ] {
        let stays = plan_with(&before, &asking);
        assert!(with_action(&stays, &NodeAction::Cordon).is_empty(), "{what}");
        assert_eq!(stays.held.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["n-000"], "{what}");
        assert_eq!(stays.requeue_at, Some(at(100)), "{what}");
        let goes = plan_with(&after, &asking);
        assert_eq!(with_action(&goes, &NodeAction::Cordon), ["n-000"], "{what}");
        let step = goes.nodes.iter().find(|step| step.member.name() == "n-000").unwrap();
        assert_eq!((step.cause, &goes.held[..]), (Some(DisruptionReason::Expiry), &[][..]), "{what}");
    }
}

#[test]
fn its_successor_is_made_first() {
    assert!(plan(&seen(aging(1, 1), [asks(node(0))], 99)).request.is_empty());
    let old = plan(&seen(aging(1, 1), [asks(node(0))], 101));
    assert_eq!((old.request.len(), with_action(&old, &NodeAction::Cordon).len()), (1, 0));
}

#[test]
fn a_drain_past_the_hard_age_of_its_node_evicts_pods_that_ask_to_be_left_alone() {
    let mut going = draining(0, 90);
    annotate(&mut going, names::DISRUPTION_REASON_ANNOTATION, DisruptionReason::Expiry.as_str());
    for (now, evicted, blocked) in [(99, 0, 1), (101, 1, 0)] {
        let observed = seen(aging(0, 1), [going.clone()], now);
        let plan = plan_with(&observed, &pods([("n-000", vec![asking_pod()])]));
        let all = actions(&plan);
        let NodeAction::Drain(step) = &all[0].1 else { panic!() };
        assert_eq!(
            (step.evict.len(), step.delete.len(), step.blockers.len()),
            (evicted, 0, blocked),
            "at {now}"
        );
    }
}

#[test]
fn budgets_bound_how_many_go_at_a_time_and_windows_hold_none() {
    let closed =
        json!({ "effect": "AllowOnly", "nodes": 1, "schedule": "0 22 * * *", "durationSeconds": 3600 });
    let forbidden = json!({ "nodes": 0, "schedule": "0 0 * * *", "durationSeconds": 80_000 });
    let of = |budgets: &Value, nodes: Vec<Node>| {
        let mut pool = aging(4, 4);
        pool.spec.disruption = serde_json::from_value(json!({ "budgets": budgets })).unwrap();
        plan(&seen(pool, nodes, 101))
    };
    let fresh = || (10..14).map(|index| born(index, 95));
    let all = || (0..4).map(node).map(asks).chain(fresh()).collect::<Vec<_>>();
    for (budgets, expected) in [
        (json!([]), 4),
        (json!([{ "nodes": 2 }]), 2),
        (json!([{ "nodes": 1 }]), 1),
        (json!([{ "nodes": 0 }]), 1),
        (json!([closed]), 4),
        (json!([forbidden]), 4),
        (json!([closed, { "nodes": 1, "reasons": ["Expiry"] }]), 1),
    ] {
        let plan = of(&budgets, all());
        assert_eq!(with_action(&plan, &NodeAction::Cordon).len(), expected, "{budgets}");
    }
    // While one of them leaves, the next one waits.
    let mut going = asks(draining(3, 99));
    annotate(&mut going, names::DISRUPTION_REASON_ANNOTATION, DisruptionReason::Expiry.as_str());
    for (budgets, why) in
        [(json!([{ "nodes": 1 }]), "1 node at a time"), (json!([{ "nodes": 0 }]), "0 nodes")]
    {
        let three = (0..3).map(node).map(asks).chain([going.clone()]).chain(fresh()).collect();
        let plan = of(&budgets, three);
        assert!(with_action(&plan, &NodeAction::Cordon).is_empty(), "{budgets}");
        assert!(!plan.held.is_empty() && plan.held.iter().all(|(_, held)| held.contains(why)), "{budgets}");
    }
}

#[test]
fn a_node_past_its_hard_age_goes_before_others_that_are_out_of_date() {
    let plan = plan(&seen(aging(2, 1), [born(0, 20), born(1, 0), born(10, 99)], 101));
    assert_eq!(with_action(&plan, &NodeAction::Cordon), ["n-001"]);
}

#[test]
fn nodes_that_no_rollout_replaces_have_no_hard_age() {
    let mut foreign = asks(node(0));
    foreign.metadata.annotations.as_mut().unwrap().remove(names::TEMPLATE_HASH_ANNOTATION);
    let mut on_delete = aging(1, 1);
    on_delete.spec.rollout.as_mut().unwrap().type_ = RolloutType::OnDelete;
    for (pool, node) in [(aging(1, 1), foreign), (on_delete, asks(node(0)))] {
        let plan = plan(&seen(pool, [node], 101));
        assert_eq!((plan.request.len(), with_action(&plan, &NodeAction::Cordon).len()), (0, 0));
        assert!(!plan.nodes[0].member.outdated.is_past_hard_age());
    }
}

#[test]
fn the_facts_count_such_nodes_and_say_that_they_may_go() {
    let rollout = facts(&seen(aging(2, 1), [asks(node(0)), asks(born(1, 10))], 101)).rollout.unwrap();
    assert_eq!((rollout.outdated, rollout.past_hard_age, rollout.waits), (2, 1, None));
    assert_eq!(rollout.record.unwrap().may_go_nodes, Some(1));
}
