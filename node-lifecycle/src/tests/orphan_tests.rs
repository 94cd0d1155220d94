//! A pool that is deleted and leaves its nodes where they are, case by case.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::input::supply::{FailedMachine, MachineState};
use crate::testing::writes::patched;
use crate::testing::{
    SOON, actions, at, deleted, done, draining, facts_after, machine, node, nodes, observed, plan, plan_with,
    pod, pods, pool, with_action,
};

/// A pool of three that is being deleted, with this value of the annotation.
fn deleted_with(value: &str) -> NodePool {
    let mut pool = pool(3);
    pool.metadata.deletion_timestamp = Some(Time(at(90)));
    pool.metadata.annotations = Some([(names::ON_DELETE_ANNOTATION.to_owned(), value.to_owned())].into());
    pool
}

/// Lists a machine that is requested, one that runs, and one that has failed.
fn with_machines(mut observed: Observed) -> Observed {
    observed.supply.machines = vec![machine("m", SOON), machine("n-000", MachineState::Running)];
    observed.supply.failed =
        vec![FailedMachine { name: "f".to_owned(), provider: "exec.p".to_owned(), is_new: false }];
    observed
}

/// Whether the plan makes nothing, and ends no machine.
fn leaves_machines_alone(plan: &Plan) -> bool {
    let Plan { request, failed, withdraw, timed_out, register, left_over, join, .. } = plan;
    [request, withdraw, timed_out].into_iter().all(Vec::is_empty)
        && failed.is_empty()
        && register.is_empty()
        && left_over.is_empty()
        && join.is_empty()
}

#[test]
fn every_node_is_released_draining_ones_too_and_no_machine_is_ended() {
    let seen = with_machines(observed(deleted_with("Orphan"), [node(0), draining(1, 10), node(2)]));
    assert_eq!(classify(&seen).reads, PodReads::default());
    let planned = plan(&seen);
    assert_eq!(with_action(&planned, &NodeAction::Release), ["n-000", "n-001", "n-002"]);
    assert!(leaves_machines_alone(&planned) && !planned.only_waits(), "{planned:?}");
    assert_eq!((planned.pool, planned.requeue_at), (PoolStep::Keep, Some(at(101))));
    let facts = facts_after(&seen, &planned, &done(&planned));
    assert_eq!((facts.wanted, facts.staying, facts.leaving), (0, 0, 0));
}

#[test]
fn the_pool_goes_with_its_last_node_whatever_its_provider_says() {
    let mut seen = with_machines(observed(deleted_with("Orphan"), []));
    for is_unknown in [false, true] {
        seen.supply.is_unknown = is_unknown;
        let planned = plan(&seen);
        assert_eq!(planned.pool, PoolStep::RemoveFinalizer, "{is_unknown}");
        assert!(leaves_machines_alone(&planned), "{planned:?}");
    }
    seen.unreadable = ["n-007".to_owned()].into();
    assert_eq!(plan(&seen).pool, PoolStep::Keep, "it may be one of the pool's");
}

#[test]
fn a_released_node_does_not_join_again() {
    let released = patched(&node(0), &patches::release(&node(0))).unwrap();
    let mut seen = observed(deleted_with("Orphan"), [node(1)]);
    let mut own = machine("n-000", MachineState::Running);
    own.provider_id = released.spec.as_ref().unwrap().provider_id.clone();
    assert!(own.provider_id.is_some());
    seen.supply.machines = vec![own];
    seen.registered = vec![Arc::new(released)];
    assert_eq!(seen.joining().len(), 1);
    assert!(leaves_machines_alone(&plan(&seen)));
}

#[test]
fn a_released_node_is_in_no_pool_and_keeps_what_others_did_to_it() {
    let mut cordoned = node(0);
    cordoned.spec.as_mut().unwrap().unschedulable = Some(true);
    cordoned.metadata.finalizers.as_mut().unwrap().insert(0, "example.com/x".to_owned());
    for (before, unschedulable, finalizers) in
        [(node(0), None, vec![]), (cordoned, Some(true), vec!["example.com/x".to_owned()])]
    {
        let cordon = patches::cordon(&before, at(5), Some(DisruptionReason::ScaleDown));
        let drained = patched(&before, &cordon).unwrap();
        let labels = before.metadata.labels.clone().unwrap();
        let labels: BTreeMap<_, _> =
            labels.into_iter().filter(|(name, _)| !names::names_a_pool(name)).collect();
        for node in [&before, &drained] {
            let released = patched(node, &patches::release(node)).unwrap();
            assert_eq!(PoolKey::of_node(&released), None);
            assert_eq!(released.metadata.labels.unwrap_or_default(), labels);
            assert_eq!(released.metadata.annotations, before.metadata.annotations);
            assert_eq!(released.metadata.finalizers.unwrap_or_default(), finalizers);
            let (spec, spec_before) = (released.spec.unwrap(), before.spec.clone().unwrap());
            assert_eq!(spec.unschedulable, unschedulable);
            assert_eq!(spec.taints.unwrap_or_default(), spec_before.taints.unwrap_or_default());
            // Nothing for the garbage collector to follow.
            assert_eq!(released.metadata.owner_references, None);
        }
    }
    assert_eq!(patched(&deleted(node(0)), &patches::release(&node(0))), None, "it would vanish");
}

#[test]
fn a_node_that_is_being_deleted_is_drained_first_and_the_pool_waits_for_it() {
    let seen = observed(deleted_with("Orphan"), [deleted(draining(0, 10)), node(1)]);
    let reads = PodReads { draining: ["n-000".to_owned()].into(), ..PodReads::default() };
    assert_eq!(classify(&seen).reads, reads);
    let busy = plan_with(&seen, &pods([("n-000", vec![pod("p")])]));
    assert!(matches!(actions(&busy)[0].1, NodeAction::Drain(_)), "{:?}", actions(&busy));
    assert_eq!(with_action(&busy, &NodeAction::Release), ["n-001"]);
    let last = observed(deleted_with("Orphan"), [deleted(draining(0, 10))]);
    let empty = plan_with(&last, &pods([("n-000", vec![])]));
    assert_eq!(actions(&empty), [("n-000".to_owned(), NodeAction::Remove)]);
    assert_eq!(empty.pool, PoolStep::Keep);
}

#[test]
fn with_an_unknown_word_nothing_happens_and_the_known_ones_are_named() {
    for value in ["orphan", "true", ""] {
        let all = [node(0), draining(1, 10), deleted(node(2))];
        let seen = observed(deleted_with(value), all);
        assert_eq!(classify(&seen).reads, PodReads::default(), "{value:?}");
        let planned = plan(&seen);
        let waits = |name: &str| (name.to_owned(), NodeAction::Wait);
        assert_eq!(actions(&planned), [waits("n-001"), waits("n-002")], "{value:?}");
        assert!(leaves_machines_alone(&planned), "{value:?}");
        let stall = planned.stalled.unwrap();
        assert_eq!(stall.reason, Reason::UnknownOnDelete);
        for part in [names::ON_DELETE_ANNOTATION, &format!("{value:?}"), "Orphan", "Drain"] {
            assert!(stall.message.contains(part), "{part}: {}", stall.message);
        }
        assert_eq!(plan(&observed(deleted_with(value), [])).pool, PoolStep::Keep, "{value:?}");
    }
    let long = "x".repeat(100_000);
    let stall = plan(&observed(deleted_with(&long), [])).stalled.unwrap();
    assert!(stall.message.len() < 400, "{}", stall.message.len());
}

#[test]
fn with_the_word_drain_and_while_the_pool_is_not_deleted_the_annotation_changes_nothing() {
    let drains = plan(&observed(deleted_with("Drain"), nodes(2)));
    assert_eq!(with_action(&drains, &NodeAction::Cordon).len(), 2);
    for value in ["Orphan", "orphan"] {
        let mut pool = deleted_with(value);
        pool.metadata.deletion_timestamp = None;
        let planned = plan(&observed(pool, nodes(3)));
        assert_eq!((actions(&planned), planned.stalled), (vec![], None), "{value}");
    }
}

#[test]
fn a_paused_pool_waits_whatever_it_says() {
    for value in ["Orphan", "orphan"] {
        let mut pool = deleted_with(value);
        pool.spec.paused = true;
        let planned = plan(&observed(pool, nodes(2)));
        assert_eq!((actions(&planned), planned.pool), (vec![], PoolStep::Keep), "{value}");
    }
}

#[test]
fn machines_of_a_pool_that_is_gone_are_ended_unless_it_left_them() {
    let mut gone = observed(pool(1), []);
    gone.pool = None;
    let mut gone = with_machines(gone);
    let ended = plan(&gone);
    assert_eq!((ended.withdraw.len(), ended.failed.len()), (2, 1));
    gone.may_be_hidden = true;
    let kept = plan(&gone);
    assert_eq!(
        (kept.withdraw.len(), kept.failed.len()),
        (0, 1),
        "one of them may have a Node that cannot be read"
    );
    gone.may_be_hidden = false;
    gone.is_orphaned = true;
    assert!(leaves_machines_alone(&plan(&gone)));
}

#[test]
fn a_pool_that_is_gone_is_visited_again_while_machines_may_be_left() {
    let with = |change: fn(&mut Observed)| {
        let mut gone = observed(pool(1), []);
        gone.pool = None;
        change(&mut gone);
        (gone.may_have_machines_left(), plan(&gone).requeue_at)
    };
    let runs = |gone: &mut Observed| gone.supply.machines = vec![machine("m", MachineState::Running)];
    assert_eq!(with(|_| ()), (false, None));
    assert_eq!(with(runs), (true, Some(at(101))));
    assert_eq!(
        with(|gone| gone.supply.machines = vec![machine("m", MachineState::Deleting)]),
        (true, Some(at(105)))
    );
    assert_eq!(with(|gone| gone.supply.is_unknown = true), (true, Some(at(130))));
    assert_eq!(with(|gone| gone.supply.uncertain_until = Some(at(220))), (true, Some(at(105))));
    let left = |gone: &mut Observed| {
        gone.is_orphaned = true;
        gone.supply.is_unknown = true;
    };
    assert_eq!(with(left), (false, None), "its machines were to outlive it");
    let ended = |gone: &mut Observed| {
        gone.just_ended = Some(at(90));
        gone.supply.is_unknown = true;
    };
    assert_eq!(with(ended), (false, None), "there was none when it was let go");
}
