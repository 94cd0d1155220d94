//! A rollout whose drains do not get on waits: that is no failure, and says so.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use shared_crds::v1alpha1::{AutoscalingStatus, DrainSpec, DrainTimeoutAction, RolloutStatus, ScaleDownPlan};

use super::rollout_tests::{asks, changed, leaves, new, surge};
use super::*;
use crate::facts::RolloutFacts;
use crate::input::supply::ProvisioningFailure;
use crate::testing::{
    ALWAYS, SOON, annotate, at, draining, facts, machine, node, plan, pod, pods, starting, with_action,
};

/// The observation a moment after a pass in which each node that is drained had a pod.
fn observed(pool: NodePool, nodes: impl IntoIterator<Item = Node>) -> Observed {
    let mut seen = testing::observed(pool, nodes);
    let drained = |node: &Node| Member::read(&Arc::new(node.clone()), seen.now, ALWAYS).leaving.is_some();
    let names = seen.nodes.iter().filter(|node| drained(node)).filter_map(|node| node.metadata.name.clone());
    let names: Vec<String> = names.collect();
    seen.recent = pods(names.iter().map(|name| (name.as_str(), vec![pod("a")])));
    seen
}

/// Drained for a minute, and nothing says that its pods are ending.
fn stuck(index: usize) -> Node {
    leaves(draining(index, 40), DisruptionReason::Rollout)
}

fn fresh(index: usize) -> Node {
    new(node(index))
}

/// Drained until second 90, and given back.
fn rests(index: usize) -> Node {
    let mut node = node(index);
    annotate(&mut node, names::GIVEN_BACK_ANNOTATION, &at(90).to_string());
    node
}

fn rollout_of(seen: &Observed) -> RolloutFacts {
    facts(seen).rollout.unwrap()
}

/// How many may go, and why none may.
fn found(seen: &Observed) -> (i32, Option<Reason>) {
    let rollout = rollout_of(seen);
    (rollout.record.unwrap().may_go_nodes.unwrap(), rollout.waits.map(|waits| waits.reason))
}

#[test]
fn a_drain_that_does_not_get_on_keeps_the_place_of_the_others() {
    let waits = (0, Some(Reason::WaitsForDrain));
    let three = |spec, nodes: Vec<Node>| found(&observed(changed(3, spec), nodes));
    let old = || vec![node(0), node(1), fresh(3)];
    let with = |mut nodes: Vec<Node>, more: Node| {
        nodes.push(more);
        nodes
    };
    let young = leaves(draining(2, 41), DisruptionReason::Rollout);
    for (what, spec, nodes, expected) in [
        ("the only one", surge(1, 0), with(old(), stuck(2)), waits),
        ("not for a minute yet", surge(1, 0), with(old(), young), (3, None)),
        ("one fewer was allowed", surge(0, 1), vec![node(0), node(1), stuck(2)], waits),
        ("another one goes", surge(1, 1), with(old(), stuck(2)), (2, None)),
        ("the last one", surge(1, 0), vec![fresh(3), fresh(4), fresh(5), stuck(2)], waits),
        ("both places", surge(2, 0), vec![node(0), fresh(3), fresh(4), stuck(1), stuck(2)], waits),
        ("a new node starts", surge(1, 0), vec![node(0), node(1), new(starting(3)), stuck(2)], (2, None)),
        (
            "the others ask",
            surge(1, 0),
            vec![asks(node(0)), asks(node(1)), fresh(3), stuck(2)],
            (0, Some(Reason::WaitsForProtected)),
        ),
    ] {
        assert_eq!(three(spec, nodes), expected, "{what}");
    }
}

#[test]
fn while_a_node_may_come_that_changes_it_the_rollout_goes_on() {
    let all = || [node(0), node(1), fresh(3), stuck(2)];
    let two_more = observed(changed(3, surge(2, 0)), all());
    assert_eq!((plan(&two_more).request.len(), found(&two_more)), (1, (2, None)), "it is requested");
    let mut requested = two_more.clone();
    requested.supply.machines = vec![machine("n-009", SOON)];
    assert_eq!(found(&requested), (2, None), "it is on its way");
    // A provider without room for one changes nothing about what is waited for.
    let mut full = observed(changed(3, surge(1, 0)), [node(0), node(1), stuck(2)]);
    let (reason, message) = (Reason::QuotaExceeded, String::new());
    full.supply.failure = Some(ProvisioningFailure { reason, message, retry_at: at(500) });
    assert_eq!(found(&full), (0, Some(Reason::WaitsForDrain)));
}

#[test]
fn pods_that_are_ending_are_progress() {
    let of = |is_ending: bool| {
        let mut pod = pod("a");
        pod.metadata.deletion_timestamp = is_ending.then(|| Time(at(500)));
        let mut seen = observed(changed(3, surge(1, 0)), [node(0), node(1), fresh(3), stuck(2)]);
        seen.recent = pods([("n-002", vec![pod])]);
        found(&seen).1
    };
    assert_eq!((of(true), of(false)), (None, Some(Reason::WaitsForDrain)));
}

#[test]
fn a_node_that_was_given_back_keeps_its_place_while_it_rests() {
    let given_back = |spec, nodes: Vec<Node>| {
        let mut pool = changed(2, spec);
        pool.spec.drain = Some(DrainSpec {
            timeout_seconds: Some(60),
            on_timeout: DrainTimeoutAction::GiveBack,
            ..DrainSpec::default()
        });
        observed(pool, nodes)
    };
    let one = given_back(surge(1, 0), vec![rests(0), node(1), fresh(2)]);
    assert_eq!(found(&one), (0, Some(Reason::WaitsForDrain)));
    let why = rollout_of(&one).waits.unwrap().why;
    assert!(why.starts_with("node n-000 was given back"), "{why}");
    let all = given_back(surge(2, 0), vec![rests(0), rests(1), fresh(2), fresh(3)]);
    assert_eq!(found(&all), (0, Some(Reason::WaitsForDrain)));
    assert_eq!(
        found(&given_back(surge(1, 1), vec![rests(0), node(1), fresh(2)])),
        (2, None),
        "another one goes"
    );
    let mut later = one;
    later.now = at(151);
    assert_eq!(found(&later).1, None, "it is drained again");
}

#[test]
fn no_time_makes_a_failure_of_it_and_the_time_begins_anew_afterwards() {
    let mut pool = changed(3, surge(1, 0));
    pool.status.get_or_insert_default().rollout = Some(RolloutStatus {
        template_hash: pool.spec.template_hash().unwrap(),
        outdated_nodes: 3,
        may_go_nodes: Some(0),
        available_nodes: 1,
        progress_time: Time(at(-100_000)),
    });
    let waits = rollout_of(&observed(pool.clone(), [node(0), node(1), fresh(3), stuck(2)]));
    assert_eq!((waits.is_stuck, waits.record.unwrap().progress_time), (false, Time(at(-100_000))));
    let last = pool.clone();
    let gone = rollout_of(&observed(pool, [node(0), node(1), fresh(3)]));
    assert_eq!((gone.is_stuck, gone.record.unwrap().progress_time), (false, Time(at(100))));
    // New nodes that come, or are not Ready for a while, change nothing where all others are new.
    for more in [vec![], vec![new(starting(5))], vec![fresh(5), fresh(6)]] {
        let mut pool = last.clone();
        let record = pool.status.as_mut().unwrap().rollout.as_mut().unwrap();
        (record.outdated_nodes, record.available_nodes) = (1, 9);
        let nodes = [fresh(3), fresh(4), stuck(2)].into_iter().chain(more);
        let waits = rollout_of(&observed(pool, nodes));
        assert_eq!((waits.is_stuck, waits.waits.unwrap().reason), (false, Reason::WaitsForDrain));
    }
}

#[test]
fn a_pool_that_waits_for_a_drain_can_be_lowered_and_the_named_node_goes_first() {
    let mut pool = changed(2, surge(1, 0));
    let nodes = [node(0), node(1), fresh(3), stuck(2)];
    let scale_down = ScaleDownPlan {
        decision_id: "d".into(),
        generation: pool.metadata.generation,
        target_replicas: 2,
        nodes: vec!["n-000".into()],
        node_uids: vec!["uid-n-000".into()],
    };
    pool.status.get_or_insert_default().autoscaling =
        Some(AutoscalingStatus { scale_down: Some(scale_down), ..AutoscalingStatus::default() });
    assert_eq!(with_action(&plan(&observed(pool, nodes)), &NodeAction::Cordon), ["n-000"]);
}
