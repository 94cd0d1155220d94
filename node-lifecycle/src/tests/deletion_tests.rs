//! A pool that is deleted and takes its nodes along, case by case: how fast they go, and what holds one.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use shared_crds::v1alpha1::{DrainSpec, ProtectedNodes};

use super::model_cluster::ModelCluster;
use super::*;
use crate::testing::{
    actions, at, done, draining, facts_after, no_volumes, node, nodes, observed, plan_with, pod, pods, pool,
    protect_pod, set_ready, shared, starting, with_action,
};

/// A pool of so many nodes that is being deleted.
fn deleted_pool(replicas: i32) -> NodePool {
    let mut pool = pool(replicas);
    pool.metadata.deletion_timestamp = Some(Time(at(90)));
    pool
}

fn with_budgets(mut pool: NodePool, budgets: &Value) -> NodePool {
    pool.spec.disruption = Some(serde_json::from_value(json!({ "budgets": budgets })).unwrap());
    pool
}

/// The plan when a pod runs on every node whose pods are listed.
fn plan_busy(observed: &Observed) -> Plan {
    let classified = classify(observed);
    let busy = classified.reads.undecided.iter().map(|name| (name.clone(), shared(vec![pod("p")])));
    let pods = ObservedPods { by_node: busy.collect(), attached: no_volumes(), ..ObservedPods::default() };
    plan(observed, classified, &pods)
}

fn cordoned(plan: &Plan) -> Vec<String> {
    with_action(plan, &NodeAction::Cordon)
}

#[test]
fn one_of_ten_nodes_is_cordoned_and_the_next_one_when_it_has_left() {
    let first = plan_busy(&observed(deleted_pool(10), nodes(10)));
    assert_eq!((cordoned(&first).len(), first.held.len()), (1, 9));
    assert!(first.nodes.iter().all(|step| step.cause.is_none()), "a user's decision is in no account");
    let why = "has to wait: of a pool that is deleted 1 node leaves at a time";
    assert!(first.held.iter().all(|(_, said)| said.starts_with(why)), "{:?}", first.held);
    let waits = first.nodes.iter().filter(|step| step.waits.is_some()).count();
    assert_eq!(waits, 9);

    let going = || nodes(9).into_iter().chain([draining(9, 90)]);
    let second = plan_busy(&observed(deleted_pool(10), going()));
    assert_eq!((cordoned(&second).len(), second.held.len()), (0, 9));
    assert_eq!(cordoned(&plan_busy(&observed(deleted_pool(10), nodes(9)))).len(), 1);
}

#[test]
fn a_budget_makes_a_deletion_faster_or_slower_and_a_window_does_not() {
    for (what, budgets, leaving, expected) in [
        ("four at a time", json!([{ "nodes": 4 }]), 0, 4),
        ("of which one leaves already", json!([{ "nodes": 4 }]), 1, 3),
        ("all at once", json!([{ "nodes": "100%" }]), 0, 20),
        ("none is one", json!([{ "nodes": 0 }]), 0, 1),
        (
            "a window that is closed",
            json!([{ "nodes": 9, "effect": "AllowOnly", "schedule": "0 1 * * 6", "durationSeconds": 60 }]),
            0,
            2,
        ),
    ] {
        let going = (20..20 + leaving).map(|index| draining(index, 90));
        let seen = observed(with_budgets(deleted_pool(20), &budgets), nodes(20).into_iter().chain(going));
        let plan = plan_busy(&seen);
        assert_eq!((cordoned(&plan).len(), plan.held.len()), (expected, 20 - expected), "{what}");
    }
}

#[test]
fn nodes_that_are_empty_or_not_ready_or_have_never_started_go_at_once() {
    let mut silent = node(1);
    set_ready(&mut silent, "Unknown");
    let all = [node(0), silent, starting(2), node(3), node(4), node(5)];
    let seen = observed(deleted_pool(6), all);
    let listed: Vec<String> = classify(&seen).reads.undecided.into_iter().collect();
    assert_eq!(listed, ["n-000", "n-003", "n-004", "n-005"], "no pods are listed in vain");
    let busy = |name| (name, vec![pod("p")]);
    let of_nodes = pods([("n-000", vec![]), busy("n-003"), busy("n-004"), ("n-005", vec![])]);
    let planned = plan_with(&seen, &of_nodes);
    assert_eq!(cordoned(&planned), ["n-000", "n-001", "n-002", "n-005"]);
    assert_eq!(planned.held.len(), 2, "those with pods wait for the empty ones");
}

#[test]
fn a_node_that_asks_to_be_left_alone_goes_last_and_its_pod_stays_until_the_drain_is_over() {
    let mut asks = pod("p");
    protect_pod(&mut asks);
    let seen = observed(deleted_pool(3), nodes(3));
    let of_nodes =
        pods([("n-000", vec![pod("a")]), ("n-001", vec![pod("b")]), ("n-002", vec![asks.clone()])]);
    assert_eq!(cordoned(&plan_with(&seen, &of_nodes)), ["n-001"]);
    let alone = observed(deleted_pool(3), [node(2)]);
    assert_eq!(cordoned(&plan_with(&alone, &pods([("n-002", vec![asks.clone()])]))), ["n-002"]);

    let step = |policy, timeout_seconds| {
        let mut pool = deleted_pool(1);
        let drain = DrainSpec { timeout_seconds, protected_nodes: policy, ..DrainSpec::default() };
        pool.spec.drain = Some(drain);
        let plan = plan_with(&observed(pool, [draining(0, 10)]), &pods([("n-000", vec![asks.clone()])]));
        let [(_, NodeAction::Drain(DrainStep { evict, delete, blockers, .. }))] = &actions(&plan)[..] else {
            panic!("{plan:?}")
        };
        (evict.len(), delete.len(), blockers.len())
    };
    // The drain began 90 s ago, and the pod's grace period is 30 s.
    assert_eq!(step(ProtectedNodes::Wait, None), (0, 0, 1));
    assert_eq!(step(ProtectedNodes::Wait, Some(600)), (0, 0, 1));
    assert_eq!(step(ProtectedNodes::Wait, Some(100)), (0, 1, 0));
    assert_eq!(step(ProtectedNodes::Last, None), (1, 0, 0));
}

#[test]
fn more_nodes_than_are_looked_at_in_a_pass_go_by_the_next_one() {
    let seen = observed(deleted_pool(600), nodes(600));
    let first = plan_busy(&seen);
    assert_eq!((cordoned(&first).len(), first.requeue_at), (50, Some(seen.now)), "60 may leave");
    let rest = nodes(550).into_iter().chain((550..600).map(|index| draining(index, 90)));
    let second = plan_busy(&observed(deleted_pool(600), rest));
    assert_eq!(cordoned(&second).len(), 10);
    assert!(second.requeue_at.is_none_or(|visit| visit > seen.now), "{:?}", second.requeue_at);
}

#[test]
fn the_facts_say_how_many_leave_and_how_many_do_later() {
    let seen = observed(deleted_pool(10), nodes(10));
    let planned = plan_busy(&seen);
    let facts = facts_after(&seen, &planned, &done(&planned));
    assert_eq!((facts.wanted, facts.staying, facts.leaving, facts.held.len()), (0, 9, 1, 9));
    assert_eq!(facts.disrupted, None);
}

#[test]
fn a_pool_is_emptied_at_its_pace_and_goes_with_its_last_node() {
    for (budgets, most) in [(json!([]), 1), (json!([{ "nodes": 3 }]), 3), (json!([{ "nodes": 0 }]), 1)] {
        let mut cluster = ModelCluster::new(false);
        cluster.pool.spec.replicas = Some(10);
        for _ in 0..10 {
            cluster.become_ready(0);
            let plan = cluster.plan();
            cluster.apply(&plan, usize::MAX);
            cluster.second += 2;
        }
        cluster.become_ready(0);
        assert_eq!(cluster.ready(), 10);
        cluster.pool = with_budgets(cluster.pool.clone(), &budgets);
        cluster.pool.metadata.deletion_timestamp = Some(Time(at(cluster.second)));
        let mut at_a_time = 0;
        for _ in 0..200 {
            let plan = cluster.plan();
            cluster.apply(&plan, usize::MAX);
            at_a_time = at_a_time.max(cluster.members().count() - cluster.staying());
            cluster.second += 2;
        }
        assert_eq!((cluster.nodes.len(), at_a_time), (0, most), "{budgets}");
        assert_eq!(cluster.pool.metadata.finalizers, None, "the pool goes with its last node");
    }
}

#[test]
fn the_annotation_that_keeps_nodes_stops_a_deletion_that_has_begun() {
    let mut pool = deleted_pool(10);
    let annotation = (names::ON_DELETE_ANNOTATION.to_owned(), "Orphan".to_owned());
    pool.metadata.annotations = Some([annotation].into());
    let seen = observed(pool, nodes(8).into_iter().chain([draining(8, 90)]));
    assert_eq!(with_action(&plan_busy(&seen), &NodeAction::Release).len(), 9);
}
