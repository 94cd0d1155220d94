//! Decisions of the planner, case by case.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use shared_crds::conditions::Reason;
use shared_crds::names;

use super::*;
use crate::input::supply::{FailedMachine, MachineState, ProvisioningFailure};
use crate::testing::{
    SOON, actions, annotate, at, deleted, done, draining, facts, facts_after, machine, node, nodes, observed,
    plan, pool, starting,
};

#[test]
fn missing_nodes_are_requested_in_the_lowest_free_slots() {
    let plan = plan(&observed(pool(3), nodes(1)));
    let prefix = testing::prefix();
    assert_eq!(plan.request, [format!("{prefix}0"), format!("{prefix}1")]);
    assert!(actions(&plan).is_empty());
}

#[test]
fn a_complete_pool_is_not_changed() {
    let plan = plan(&observed(pool(3), nodes(3)));
    assert!(actions(&plan).is_empty() && plan.request.is_empty() && plan.register.is_empty());
    assert_eq!((plan.pool, plan.requeue_at), (PoolStep::Keep, None));
}

#[test]
fn an_unset_count_is_filled_with_the_existing_nodes_and_removes_none() {
    let unset = |min, max| {
        let mut pool = pool(0);
        (pool.spec.replicas, pool.spec.min_replicas, pool.spec.max_replicas) = (None, min, max);
        pool
    };
    let there = || vec![node(0), starting(1), draining(2, 10)];
    // Leaving nodes were not wanted any more, and the bounds apply to every writer.
    for (min, max, fill, leaving, requested) in
        [(0, 10, 2, 1, 0), (3, 10, 3, 0, 0), (5, 10, 5, 0, 2), (0, 1, 1, 2, 0)]
    {
        let observed = observed(unset(min, max), there());
        let plan = plan(&observed);
        assert_eq!((plan.fill, plan.request.len()), (Some(fill), requested), "within {min} to {max}");
        let facts = facts_after(&observed, &plan, &done(&plan));
        assert_eq!(
            (facts.leaving, facts.wanted),
            (leaving, usize::try_from(fill).unwrap()),
            "within {min} to {max}"
        );
    }
    let mut busy = observed(unset(0, 10), vec![node(0)]);
    busy.supply.machines = vec![machine("a", SOON)];
    assert_eq!(plan(&busy).fill, Some(2), "what is on its way counts");
    assert!(plan(&busy).withdraw.is_empty());

    let mut paused = unset(0, 10);
    paused.spec.paused = true;
    assert_eq!(plan(&observed(paused, there())).fill, None);
    let mut deleted = unset(0, 10);
    deleted.metadata.deletion_timestamp = Some(Time(at(90)));
    assert_eq!(plan(&observed(deleted, there())).fill, None);
    assert_eq!(plan(&observed(pool(2), there())).fill, None);
}

#[test]
fn the_finalizer_is_added_before_nodes_are_created() {
    let mut pool = pool(1);
    pool.metadata.finalizers = None;
    assert_eq!(plan(&observed(pool, [])).pool, PoolStep::AddFinalizer);
}

#[test]
fn requests_in_flight_count_and_a_running_machine_registers() {
    let prefix = testing::prefix();
    let mut observed = observed(pool(3), nodes(1));
    observed.supply.machines =
        vec![machine(&format!("{prefix}0"), MachineState::Running), machine(&format!("{prefix}1"), SOON)];
    let plan = plan(&observed);
    assert!(plan.request.is_empty());
    assert_eq!(plan.register.len(), 1);
    assert_eq!(plan.register[0].metadata.name, Some(format!("{prefix}0")));
    assert_eq!(facts(&observed).in_flight, 2);
}

#[test]
fn a_machine_whose_node_exists_does_not_count_twice_and_stays() {
    let mut observed = observed(pool(2), nodes(1));
    observed.supply.machines = vec![machine("n-000", MachineState::Running)];
    let plan = plan(&observed);
    assert!(plan.register.is_empty() && plan.withdraw.is_empty());
    assert_eq!(plan.request.len(), 1);
}

#[test]
fn the_slot_of_a_leaving_or_foreign_node_is_not_requested() {
    let prefix = testing::prefix();
    let mut leaving = draining(0, 10);
    leaving.metadata.name = Some(format!("{prefix}0"));
    let mut observed = observed(pool(2), [deleted(leaving)]);
    observed.supply.taken.insert(format!("{prefix}1"));
    assert_eq!(plan(&observed).request, [format!("{prefix}2"), format!("{prefix}3")]);
}

#[test]
fn nothing_is_requested_during_the_backoff() {
    let mut observed = observed(pool(2), []);
    let failure = |second| ProvisioningFailure {
        reason: Reason::ProvisioningFailed,
        message: "no machine".into(),
        retry_at: at(second),
    };
    observed.supply.failure = Some(failure(130));
    let waits = plan(&observed);
    assert!(waits.request.is_empty());
    assert_eq!(waits.requeue_at, Some(at(130)));
    observed.supply.failure = Some(failure(100));
    assert_eq!(plan(&observed).request.len(), 2);
}

#[test]
fn requests_are_withdrawn_before_nodes_are_removed() {
    let mut observed = observed(pool(2), nodes(2));
    observed.supply.machines = vec![machine("a", MachineState::Running), machine("b", SOON)];
    let plan = plan(&observed);
    assert_eq!(plan.withdraw, ["a", "b"]);
    assert!(actions(&plan).is_empty() && plan.register.is_empty());
}

#[test]
fn the_request_that_would_take_longest_is_withdrawn_first() {
    let mut observed = observed(pool(3), nodes(2));
    observed.supply.machines = vec![machine("b", SOON), machine("a", MachineState::Running)];
    let plan = plan(&observed);
    assert_eq!(plan.withdraw, ["b"]);
    assert_eq!(plan.register.len(), 1);
}

#[test]
fn a_paused_pool_is_not_changed_even_while_it_is_deleted() {
    let mut pool = pool(5);
    pool.spec.paused = true;
    pool.metadata.deletion_timestamp = Some(Time(at(90)));
    pool.metadata.finalizers = Some(vec![names::POOL_FINALIZER.into()]);
    let observed = observed(pool, [node(0), deleted(node(1)), starting(2)]);
    let plan = plan(&observed);
    assert_eq!(actions(&plan), [("n-001".to_owned(), NodeAction::Wait)]);
    assert!(plan.request.is_empty() && plan.requeue_at.is_none() && plan.pool == PoolStep::Keep);
}

#[test]
fn nodes_of_a_pool_that_is_gone_are_drained_only_when_they_are_deleted() {
    let mut observed = observed(pool(1), [node(0), deleted(node(1)), draining(2, 10)]);
    observed.pool = None;
    observed.supply.machines = vec![machine("m", SOON)];
    let plan = plan(&observed);
    assert_eq!(actions(&plan), [("n-001".to_owned(), NodeAction::Cordon)]);
    assert_eq!(plan.withdraw, ["m"]);
}

#[test]
fn a_node_that_comes_when_the_deletion_of_its_pool_has_ended_is_deleted_as_any_node_is() {
    let mut observed = observed(pool(1), [node(0), deleted(node(1))]);
    observed.pool = None;
    let names =
        |plan: &Plan| plan.left_over.iter().filter_map(|node| node.metadata.name.clone()).collect::<Vec<_>>();
    assert!(names(&plan(&observed)).is_empty(), "its pool lost its finalizer to another client");
    observed.just_ended = Some(at(-1000));
    assert_eq!(names(&plan(&observed)), ["n-000"]);
    // One that was there before belongs to a pool whose nodes a user wanted to keep.
    observed.just_ended = Some(at(1000));
    assert!(names(&plan(&observed)).is_empty());
    observed.just_ended = Some(at(0));
    let late = plan(&observed);
    assert_eq!(names(&late), ["n-000"]);
    assert_eq!(
        actions(&late),
        [("n-001".to_owned(), NodeAction::Cordon)],
        "what is being deleted is drained as ever"
    );
}

#[test]
fn a_pool_with_an_invalid_spec_requests_nothing_and_reports_why() {
    let mut observed = observed(pool(2), []);
    observed.supply.source = Err("spec.provider is invalid: no such thing".to_owned());
    assert!(plan(&observed).request.is_empty());
    let facts = facts(&observed);
    assert_eq!(facts.in_flight, 0);
    assert!(facts.stalled.unwrap().message.contains("spec.provider"));
}

#[test]
fn a_drain_annotation_that_is_no_time_is_written_again() {
    let mut odd = node(0);
    annotate(&mut odd, names::DRAIN_STARTED_ANNOTATION, "yesterday");
    assert_eq!(actions(&plan(&observed(pool(0), [odd]))), [("n-000".to_owned(), NodeAction::Cordon)]);
}

#[test]
fn a_machine_that_will_never_run_goes_whatever_else_waits() {
    let failed = FailedMachine { name: "m".into(), provider: "simulated".into(), is_new: true };
    let with = |change: fn(&mut Observed)| {
        let mut observed = observed(pool(1), [node(0)]);
        observed.supply.machines = vec![machine("m", MachineState::Deleting)];
        observed.supply.failed = vec![failed.clone()];
        change(&mut observed);
        plan(&observed)
    };
    for change in [
        |_: &mut Observed| {},
        |observed: &mut Observed| Arc::make_mut(observed.pool.as_mut().unwrap()).spec.paused = true,
        |observed: &mut Observed| observed.pool = None,
    ] {
        let plan = with(change);
        assert_eq!((plan.failed, plan.withdraw), (vec![failed.clone()], vec![]));
        assert!(plan.nodes.iter().all(|step| step.action == NodeAction::Keep));
    }
    let deleted = with(|observed| {
        let pool = Arc::make_mut(observed.pool.as_mut().unwrap());
        pool.metadata.deletion_timestamp = Some(Time(at(90)));
        observed.nodes.clear();
    });
    assert_eq!((deleted.pool, deleted.requeue_at), (PoolStep::Keep, Some(at(101))));
}
