//! A rollout that waits says the same in every pass, however much time passes and whatever was listed a moment ago: a status that
//! changes to and fro is written over and over, and each time begins its deadline anew.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::json;
use shared_crds::v1alpha1::{DrainSpec, DrainTimeoutAction};

use super::rollout_tests::{changed, cordoned, leaves, new, surge};
use super::*;
use crate::facts::RolloutFacts;
use crate::input::supply::ProvisioningFailure;
use crate::outcome::Applied;
use crate::testing::{annotate, at, draining, facts_after, node, nodes, observed, pod, pods, protect_pod};

/// For how many seconds the operator remembers the pods of a node that is drained.
const LIST_KEPT_FOR: i64 = 10;
/// For how many seconds a provider without quota is left alone.
const BACKOFF: i64 = 60;

/// What a pass finds, and how many nodes it would drain.
struct Pass {
    second: i64,
    rollout: RolloutFacts,
    cordoned: usize,
}

/// The passes of so many seconds. Nothing is carried out but the write of the status, which brings the next pass soon. Each node has the
/// pods `on` it. A provider that has failed fails again.
fn passes(mut seen: Observed, on: impl Fn() -> Vec<Pod>, seconds: i64) -> Vec<Pass> {
    let end = seen.now.as_second() + seconds;
    let mut listed: BTreeMap<String, i64> = BTreeMap::new();
    let mut passes = Vec::new();
    while seen.now.as_second() < end {
        let second = seen.now.as_second();
        listed.retain(|_, at| second - *at < LIST_KEPT_FOR);
        seen.recent = pods(listed.keys().map(|node| (node.as_str(), on())));
        let classified = classify(&seen);
        let PodReads { recent, draining, undecided, .. } = classified.reads.clone();
        listed.extend(recent.iter().chain(&draining).map(|node| (node.clone(), second)));
        let read = recent.iter().chain(&draining).chain(&undecided);
        let read = pods(read.map(|node| (node.as_str(), on())));
        let plan = plan(&seen, classified, &read);
        let rollout = facts_after(&seen, &plan, &Applied::default()).rollout.unwrap();
        let next = Applied::default().next_visit(&plan, seen.now);
        // Something in the cluster changes at least every minute.
        let next = next.map_or(second + 60, |next| next.as_second().clamp(second + 1, second + 60));

        let mut pool = seen.pool.as_deref().unwrap().clone();
        let status = pool.status.get_or_insert_default();
        let is_written = status.rollout != rollout.record;
        status.rollout.clone_from(&rollout.record);
        seen.pool = Some(Arc::new(pool));
        seen.protected.extend(plan.protected.iter().cloned());
        seen.unprotected.extend(plan.unprotected.iter().cloned());
        if let Some(failure) = &mut seen.supply.failure
            && failure.retry_at <= at(second)
        {
            failure.retry_at = at(second + BACKOFF);
        }
        seen.now = at(if is_written { second + 1 } else { next });
        passes.push(Pass { second, rollout, cordoned: cordoned(&plan) });
    }
    passes
}

/// The reason for which each of the passes waits, and that all say the same.
fn reason(what: &str, passes: &[Pass]) -> Option<Reason> {
    let said = |pass: &Pass| (pass.rollout.waits.clone(), pass.rollout.record.clone());
    for pass in passes {
        assert_eq!(said(pass), said(&passes[0]), "{what}: at {}", pass.second);
        assert_eq!(pass.cordoned, 0, "{what}: at {}", pass.second);
    }
    passes[0].rollout.waits.as_ref().map(|waits| waits.reason)
}

/// The pods of each node.
type Pods = fn() -> Vec<Pod>;

fn no_pods() -> Vec<Pod> {
    Vec::new()
}

fn one_pod() -> Vec<Pod> {
    vec![pod("a")]
}

fn asking_pod() -> Vec<Pod> {
    let mut pod = pod("a");
    protect_pod(&mut pod);
    vec![pod]
}

/// The drain of one of three nodes has begun at second 90, and its successor is there.
fn one_is_drained() -> Vec<Node> {
    vec![node(0), node(1), new(node(3)), leaves(draining(2, 90), DisruptionReason::Rollout)]
}

/// External load balancers have 200 seconds.
fn patient(replicas: i32) -> NodePool {
    let mut pool = changed(replicas, surge(1, 0));
    pool.spec.drain = Some(DrainSpec { load_balancer_drain_seconds: Some(200), ..DrainSpec::default() });
    pool
}

#[test]
fn a_rollout_that_waits_says_the_same_in_every_pass() {
    let mut no_budget = changed(3, surge(1, 0));
    no_budget.spec.disruption = serde_json::from_value(json!({ "budgets": [{ "nodes": 0 }] })).unwrap();
    let too_many = leaves(draining(9, 90), DisruptionReason::ScaleDown);
    let (no_pods, one_pod, asking_pod): (Pods, Pods, Pods) = (no_pods, one_pod, asking_pod);
    for (what, seen, on, seconds, expected) in [
        (
            "the drain is blocked",
            observed(changed(3, surge(1, 0)), one_is_drained()),
            one_pod,
            900,
            Some(Reason::WaitsForDrain),
        ),
        ("the empty node waits", observed(patient(3), one_is_drained()), no_pods, 180, None),
        (
            "an empty node that is too many waits",
            observed(patient(2), [node(0), node(1), too_many]),
            no_pods,
            180,
            None,
        ),
        (
            "all ask",
            observed(changed(3, surge(1, 0)), nodes(3)),
            asking_pod,
            900,
            Some(Reason::WaitsForProtected),
        ),
        ("no budget", observed(no_budget, nodes(3)), one_pod, 900, Some(Reason::WaitsForBudget)),
    ] {
        let passes = passes(seen, on, seconds);
        // The drain is blocked for a minute first.
        let settled: Vec<Pass> = passes.into_iter().filter(|pass| pass.second >= 155).collect();
        assert!(settled.len() > 2, "{what}");
        assert_eq!(reason(what, &settled), expected, "{what}");
    }
}

#[test]
fn a_provider_without_quota_beside_a_node_that_was_given_back_is_what_holds_the_rollout_up() {
    let mut pool = changed(3, surge(1, 0));
    pool.spec.drain = Some(DrainSpec {
        timeout_seconds: Some(100_000),
        on_timeout: DrainTimeoutAction::GiveBack,
        ..DrainSpec::default()
    });
    let mut rests = node(0);
    annotate(&mut rests, names::GIVEN_BACK_ANNOTATION, &at(90).to_string());
    let mut seen = observed(pool, [rests, node(1), node(2)]);
    let (reason, message) = (Reason::QuotaExceeded, String::new());
    seen.supply.failure = Some(ProvisioningFailure { reason, message, retry_at: at(130) });
    let passes = passes(seen, no_pods, 2400);
    assert_eq!(self::reason("no quota", &passes), None);
    assert!(passes.last().unwrap().rollout.is_stuck, "its deadline does not begin anew");
}
