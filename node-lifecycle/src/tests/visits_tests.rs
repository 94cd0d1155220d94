//! Nothing that is due and cannot be done brings a pool back at once.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::input::supply::{MachineState, NodeSource};
use crate::testing::{at, machine, node, nodes, observed, plan, plan_with, pool, set_ready};

/// A pool that is being deleted.
fn deleted_pool() -> NodePool {
    let mut pool = pool(1);
    pool.metadata.deletion_timestamp = Some(Time(at(90)));
    pool
}

/// When the pool is visited again, for each of the ways it may be in: as it is, paused, being deleted, and gone.
fn visits(observed: &Observed) -> Vec<Option<Timestamp>> {
    let mut paused = pool(1);
    paused.spec.paused = true;
    let pools = [observed.pool.as_deref().cloned(), Some(paused), Some(deleted_pool()), None];
    let of = |pool: Option<NodePool>| Observed { pool: pool.map(Arc::new), ..observed.clone() };
    pools.into_iter().map(|pool| plan_with(&of(pool), &ObservedPods::default()).requeue_at).collect()
}

fn is_later(visit: Option<Timestamp>) -> bool {
    visit.is_none_or(|visit| visit > at(100))
}

#[test]
fn a_list_that_fails_is_not_repeated_at_once_when_a_lost_creation_should_have_shown() {
    for until in [90, 100, 101, 300] {
        let mut observed = observed(pool(1), []);
        observed.supply.is_unknown = true;
        observed.supply.uncertain_until = Some(at(until));
        let visits = visits(&observed);
        assert!(visits.iter().copied().all(is_later), "{until}: {visits:?}");
        assert!(visits[0].is_some(), "no event reports the end of the outage");
    }
}

#[test]
fn a_lost_node_whose_machine_may_not_be_removed_does_not_bring_its_pool_back_at_once() {
    for (lost, expected) in [(59, at(101)), (60, at(105)), (3600, at(105))] {
        let mut node = node(0);
        set_ready(&mut node, "Unknown");
        let mut observed = observed(pool(1), [node]);
        observed.supply.source = Ok(NodeSource::Kubelet);
        observed.supply.removals_wait = Some("the MachineDeployment is rolled out".to_owned());
        for time in observed.times.0.values_mut() {
            time.lost = Some(SignedDuration::from_secs(lost));
        }
        let visits = visits(&observed);
        assert!(visits.iter().copied().all(is_later), "{lost}: {visits:?}");
        assert_eq!(visits[0], Some(expected), "{lost}");
    }
}

#[test]
fn more_candidates_than_are_listed_in_a_pass_do_not_bring_the_pool_back_at_once_while_no_pods_can_be_listed()
{
    let observed = observed(pool(0), nodes(60));
    let unread = ObservedPods { is_incomplete: true, ..ObservedPods::default() };
    let waits = plan_with(&observed, &unread);
    assert!(testing::actions(&waits).is_empty() && !waits.held.is_empty());
    assert!(waits.requeue_at.is_some_and(|visit| visit > observed.now), "{:?}", waits.requeue_at);

    // What a pass learns lets the next one look at others.
    let protected = classify(&observed).reads.undecided.into_iter().map(|node| {
        let mut pod = testing::pod("p");
        testing::protect_pod(&mut pod);
        (node, testing::shared(vec![pod]))
    });
    let learns =
        plan_with(&observed, &ObservedPods { by_node: protected.collect(), ..ObservedPods::default() });
    assert_eq!((learns.protected.len(), learns.requeue_at), (50, Some(observed.now)));
}

#[test]
fn a_pool_that_is_deleted_does_not_come_back_at_once_while_a_withdrawn_machine_is_still_listed() {
    let mut observed = observed(deleted_pool(), []);
    observed.supply.machines = vec![machine("m", MachineState::Running)];
    let first = plan(&observed);
    assert_eq!(first.withdraw, ["m"]);
    assert_eq!(first.requeue_at, Some(at(101)), "whether it is gone is looked at soon");
}
