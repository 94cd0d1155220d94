//! How many nodes of a pool that is deleted leave at a time, and which leave whatever the pace.

use serde_json::{Value, json};

use super::*;
use crate::testing::{ALWAYS, at, draining, node, pod, pod_of, pool, set_ready, shared, starting};

fn with_budgets(budgets: &Value) -> NodePool {
    let mut pool = pool(10);
    pool.spec.disruption = Some(serde_json::from_value(json!({ "budgets": budgets })).unwrap());
    pool
}

#[test]
fn a_tenth_leaves_at_a_time_unless_a_budget_without_a_schedule_says_otherwise() {
    let night = |nodes: &str| json!({ "nodes": nodes, "schedule": "0 1 * * *", "durationSeconds": 600 });
    let window = json!({ "nodes": 5, "effect": "AllowOnly", "schedule": "0 1 * * 6", "durationSeconds": 60 });
    let of = |nodes: i32, reason: &str| json!({ "nodes": nodes, "reasons": [reason] });
    for (what, budgets, pool_size, expected) in [
        ("a tenth", json!([]), 10, (1, None)),
        ("rounded up", json!([]), 11, (2, None)),
        ("at least one", json!([]), 0, (1, None)),
        ("of many", json!([]), 500, (50, None)),
        ("a budget allows more", json!([{ "nodes": 4 }]), 10, (4, Some(0))),
        ("or all", json!([{ "nodes": "100%" }]), 10, (10, Some(0))),
        ("or less", json!([{ "nodes": 2 }]), 500, (2, Some(0))),
        ("0 counts as 1", json!([{ "nodes": 0 }]), 10, (1, Some(0))),
        ("0% counts as 1", json!([{ "nodes": "0%" }]), 10, (1, Some(0))),
        ("the least", json!([{ "nodes": 7 }, { "nodes": "30%" }, { "nodes": 9 }]), 10, (3, Some(1))),
        ("one for scale-down", json!([of(3, "ScaleDown")]), 10, (3, Some(0))),
        ("one for something else says nothing", json!([of(0, "Rollout"), of(0, "Repair")]), 10, (1, None)),
        ("one in windows says nothing", json!([night("0"), night("100%")]), 10, (1, None)),
        ("one that allows in windows says nothing", json!([window]), 10, (1, None)),
        ("beside one that holds always", json!([night("1"), window, { "nodes": 5 }]), 10, (5, Some(2))),
        ("one that cannot be followed says nothing", json!([{ "nodes": "many" }]), 10, (1, None)),
    ] {
        let DeletionPace { most, budget } = DeletionPace::of(&with_budgets(&budgets), pool_size);
        assert_eq!((most, budget), expected, "{what}");
    }
}

#[test]
fn the_account_has_the_ready_nodes_that_leave_and_no_others() {
    let read = |node| Member::read(&Arc::new(node), at(100), ALWAYS);
    let mut silent = draining(3, 10);
    set_ready(&mut silent, "Unknown");
    let members = [node(0), draining(1, 10), draining(2, 10), silent, starting(4)].map(read);
    let pace = DeletionPace { most: 3, budget: None };
    assert_eq!(pace.account(&members, at(100)).room(DisruptionReason::ScaleDown), 1);
    let pace = DeletionPace { most: 1, budget: None };
    assert_eq!(pace.account(&members, at(100)).room(DisruptionReason::ScaleDown), 0);
}

#[test]
fn a_node_whose_going_disturbs_no_pod_goes_at_once() {
    let read = |node| Member::read(&Arc::new(node), at(100), ALWAYS);
    let mut silent = node(0);
    set_ready(&mut silent, "Unknown");
    let (busy, idle) = (shared(vec![pod("p")]), shared(vec![pod_of("DaemonSet", "agent")]));
    for (what, node, pods, expected) in [
        ("a working one", node(0), Some(&busy), false),
        ("one whose pods are not listed", node(0), None, false),
        ("one with pods of the node only", node(0), Some(&idle), true),
        ("one that is not Ready", silent, Some(&busy), true),
        ("one that has never been Ready", starting(0), None, true),
    ] {
        assert_eq!(goes_at_once(&read(node), pods.map(|pods| &**pods)), expected, "{what}");
    }
}

#[test]
fn a_node_that_waits_says_what_the_pace_is_and_who_says_so() {
    let said = |budgets: &Value| DeletionPace::of(&with_budgets(budgets), 20).to_string();
    let tenth = "has to wait: of a pool that is deleted 2 nodes leave at a time \
                 (a tenth, because no budget of spec.disruption says otherwise)";
    assert_eq!(said(&json!([])), tenth);
    let own = "has to wait: of a pool that is deleted 1 node leaves at a time (spec.disruption.budgets[0])";
    assert_eq!(said(&json!([{ "nodes": 0 }])), own);
}
