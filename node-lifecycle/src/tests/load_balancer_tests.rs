//! How long an empty node keeps its machine for external load balancers.

use k8s_openapi::api::core::v1::Node;
use shared_crds::v1alpha1::DrainSpec;

use super::*;
use crate::count::rollout::is_stuck;
use crate::outcome::Applied;
use crate::testing::{
    ALWAYS, actions, at, deleted, draining, observed, plan_with, pod, pods, pool, set_ready,
};

/// A pool that wants no node, and leaves load balancers so many seconds.
fn patient(seconds: i32) -> NodePool {
    let mut pool = pool(0);
    pool.spec.drain = Some(DrainSpec { load_balancer_drain_seconds: Some(seconds), ..DrainSpec::default() });
    pool
}

/// The step of `node`, which no pod keeps, at second `now`, and when its pool is visited again.
fn step_at(seconds: i32, node: Node, now: i64) -> (NodeAction, Option<Timestamp>) {
    let mut observed = observed(patient(seconds), [node]);
    observed.now = at(now);
    let plan = plan_with(&observed, &pods([("n-000", vec![])]));
    let visit = Applied::default().next_visit(&plan, at(now));
    (plan.nodes[0].action.clone(), visit)
}

fn waits() -> NodeAction {
    NodeAction::Drain(DrainStep::waits(Blocker::LoadBalancers, true))
}

#[test]
fn an_empty_node_keeps_its_machine_until_load_balancers_have_had_their_time_since_its_cordon() {
    assert_eq!(step_at(60, draining(0, 10), 20), (waits(), Some(at(50))), "a pod may still come");
    assert_eq!(step_at(60, draining(0, 10), 69), (waits(), Some(at(70))));
    assert_eq!(step_at(60, draining(0, 10), 70).0, NodeAction::Remove);
    assert_eq!(step_at(0, draining(0, 10), 12).0, NodeAction::Remove);
    assert_eq!(step_at(1, draining(0, 10), 11).0, NodeAction::Drain(DrainStep::default()), "its margin");
    // A Node that a user deletes has its machine until then, too.
    assert_eq!(step_at(60, deleted(draining(0, 10)), 69).0, waits());
    assert_eq!(step_at(60, deleted(draining(0, 10)), 70).0, NodeAction::Remove);
}

#[test]
fn pods_are_evicted_meanwhile() {
    let mut observed = observed(patient(60), [draining(0, 10)]);
    observed.now = at(20);
    let plan = plan_with(&observed, &pods([("n-000", vec![pod("web")])]));
    let all = actions(&plan);
    let NodeAction::Drain(step) = &all[0].1 else { panic!() };
    assert_eq!((step.evict.len(), &step.awaited), (1, &None));
}

#[test]
fn load_balancers_are_not_waited_for_where_the_node_is_not_ready_or_never_was() {
    for status in ["False", "Unknown"] {
        let mut broken = draining(0, 10);
        set_ready(&mut broken, status);
        assert_eq!(step_at(60, broken, 20).0, NodeAction::Remove, "Ready is {status}");
    }
    let mut never = draining(0, 10);
    never.metadata.annotations.as_mut().unwrap().remove(names::READY_TIME_ANNOTATION);
    set_ready(&mut never, "False");
    assert_eq!(step_at(60, never, 10).0, NodeAction::Remove);
}

#[test]
fn a_clock_that_jumps_ahead_takes_no_time_from_load_balancers() {
    let mut observed = observed(patient(60), [draining(0, 10)]);
    for time in observed.times.0.values_mut() {
        time.draining = SignedDuration::from_secs(20);
    }
    let plan = plan_with(&observed, &pods([("n-000", vec![])]));
    assert_eq!((&plan.nodes[0].action, plan.requeue_at), (&waits(), Some(at(140))));
}

#[test]
fn a_drain_that_waits_for_load_balancers_is_not_stuck() {
    for (seconds, now, expected) in [(0, 309, false), (0, 310, true), (60, 369, false), (60, 370, true)] {
        let mut observed = observed(patient(seconds), [draining(0, 10)]);
        observed.now = at(now);
        let member = Member::read(&observed.nodes[0], at(now), ALWAYS);
        // It is visited so seldom that its pods were often not listed a moment ago.
        assert_eq!(is_stuck(&observed, &member), expected, "{seconds} s, at {now}, not listed");
        observed.recent = pods([("n-000", vec![])]);
        assert_eq!(is_stuck(&observed, &member), expected, "{seconds} s, at {now}");
    }
}
