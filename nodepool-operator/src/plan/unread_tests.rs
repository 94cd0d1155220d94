//! How unreadable nodes change a decision: only their existence is known.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machine_providers::supply::MachineState;
use shared_crds::conditions::{ConditionType, Reason};

use super::testing::{actions, facts, machine, node, observed, plan, pool};
use super::*;
use crate::outcome::Applied;
use crate::status;

/// A pool of `replicas`, with `readable` nodes and `unreadable` ones in its first slots.
fn pool_with(replicas: Option<i32>, readable: usize, unreadable: usize) -> Observed {
    let mut pool = pool(0);
    pool.spec.replicas = replicas;
    let mut observed = observed(pool, (0..readable).map(node));
    observed.unreadable = (0..unreadable).map(slot).collect();
    observed
}

fn slot(number: usize) -> String {
    format!("{}{number}", testing::prefix())
}

#[test]
fn unreadable_nodes_are_not_created_a_second_time() {
    for (wanted, readable, unreadable, requested) in
        [(3, 0, 3, vec![]), (3, 2, 1, vec![]), (3, 1, 1, vec![slot(1)]), (1, 0, 3, vec![])]
    {
        let plan = plan(&pool_with(Some(wanted), readable, unreadable));
        assert_eq!(plan.request, requested, "{wanted} wanted, {readable} readable, {unreadable} not");
        assert!(actions(&plan).is_empty());
    }
}

#[test]
fn no_node_is_removed_because_others_are_unreadable() {
    for replicas in [Some(2), None] {
        let mut observed = pool_with(replicas, 2, 2);
        // A machine whose node already exists does not count as another machine.
        observed.supply.machines = vec![machine(&slot(0), MachineState::Running)];
        let plan = plan(&observed);
        assert_eq!((actions(&plan), plan.withdraw, plan.register), (vec![], vec![], vec![]), "{replicas:?}");
    }
}

#[test]
fn an_unset_count_is_not_filled_in_while_nodes_are_unreadable() {
    let plan = plan(&pool_with(None, 1, 2));
    assert_eq!((plan.fill, plan.request, plan.wanted), (None, vec![], 3));
}

#[test]
fn a_foreign_node_in_a_slot_does_not_count_whether_it_is_readable_or_not() {
    let mut observed = pool_with(Some(1), 0, 1);
    observed.supply.taken = observed.unreadable.clone();
    assert_eq!(plan(&observed).request, [slot(1)]);
}

#[test]
fn the_conditions_name_the_unreadable_node_and_what_waits_for_it() {
    use ConditionType::{Ready, Reconciling, ReplicasClamped, Stalled};
    let reported = |observed: &Observed, type_| {
        let (pool, facts) = (observed.pool.as_deref().unwrap(), facts(observed));
        let all = status::statements(pool, &facts, &Applied::default());
        let one = all.into_iter().find(|statement| statement.type_ == type_).unwrap();
        (one.status, one.reason, one.message)
    };
    let cannot = format!("cannot read node {}", slot(0));
    let whole = pool_with(Some(3), 2, 1);
    let (_, reason, message) = reported(&whole, Ready);
    assert_eq!(
        (reason, message.as_str()),
        (Reason::Unreadable, "2 of 3 nodes are ready, 1 unreadable"),
        "nothing is being made"
    );
    for (type_, status) in [(Reconciling, false), (Stalled, true)] {
        let (is, reason, message) = reported(&whole, type_);
        assert_eq!((is, reason), (Some(status), Reason::Unreadable));
        assert!(message.contains(&cannot), "{message}");
    }
    let (_, reason, message) = reported(&pool_with(None, 1, 2), ReplicasClamped);
    assert_eq!(reason, Reason::ReplicasUnset);
    assert!(
        message.contains("not filled in") && message.contains(&format!("{cannot} (and 1 more)")),
        "{message}"
    );

    let mut deleted = pool_with(Some(1), 0, 1);
    Arc::make_mut(deleted.pool.as_mut().unwrap()).metadata.deletion_timestamp = Some(Time(deleted.now));
    let (_, reason, message) = reported(&deleted, Reconciling);
    assert!(reason == Reason::Deleting && message.contains(&cannot), "{message}");
    assert!(reported(&deleted, Ready).2.ends_with("1 node left"));

    let (growing, reason, message) = reported(&pool_with(Some(3), 1, 1), Reconciling);
    assert_eq!((growing, reason), (Some(true), Reason::Provisioning));
    assert!(message.contains("1 unreadable"), "{message}");
    assert_eq!(reported(&pool_with(Some(2), 2, 0), Stalled).0, Some(false));
}
