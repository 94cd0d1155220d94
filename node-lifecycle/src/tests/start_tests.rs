//! Whether a node has ever started, case by case: one that has not is replaced, one that has is only reported.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::testing::{
    actions, at, done, facts_after, node, observed, plan, plan_with, pod, pods, pool, set_ready, starting,
};

#[test]
fn a_node_that_is_not_ready_in_time_is_replaced_and_one_that_failed_later_is_only_reported() {
    let mut broken = node(1);
    set_ready(&mut broken, "Unknown");
    let mut observed = observed(pool(2), [starting(0), broken]);
    observed.now = at(899);
    let waits = plan(&observed);
    assert_eq!((actions(&waits), waits.requeue_at), (vec![], Some(at(900))));
    observed.now = at(900);
    assert_eq!(actions(&plan(&observed)), []);
    assert_eq!(
        classify(&observed).reads.unverified,
        BTreeSet::from(["n-000".to_owned()]),
        "it is not replaced before its pods are read"
    );
    let acts = plan_with(&observed, &pods([("n-000", vec![])]));
    assert_eq!(actions(&acts), [("n-000".to_owned(), NodeAction::Replace)]);
    assert_eq!(acts.request.len(), 1);
    assert_eq!(facts_after(&observed, &acts, &done(&acts)).not_ready, 1);
}

/// A node without the Ready annotation and with these pods, at a time when one that never started would be replaced.
fn unmarked(of_node: Vec<Pod>) -> (Observed, ObservedPods) {
    let mut observed = observed(pool(1), [starting(0)]);
    observed.now = at(10_000);
    (observed, pods([("n-000", of_node)]))
}

fn started(mut pod: Pod) -> Pod {
    pod.status = Some(PodStatus { start_time: Some(Time(at(60))), ..PodStatus::default() });
    pod
}

#[test]
fn a_node_that_has_run_pods_did_not_fail_to_start_although_it_lacks_the_annotation() {
    let (ran, pods) = unmarked(vec![pod("waits"), started(pod("web"))]);
    let plan_ran = plan_with(&ran, &pods);
    assert_eq!(actions(&plan_ran), [("n-000".to_owned(), NodeAction::MarkReady)]);
    let facts = facts_after(&ran, &plan_ran, &done(&plan_ran));
    assert_eq!((facts.starting, facts.not_ready), (0, 1));
    // Pods that are only bound to it, and pods that belong to the node itself, show nothing.
    let mut mirror = started(pod("static"));
    mirror.metadata.annotations = Some([("kubernetes.io/config.mirror".to_owned(), "x".to_owned())].into());
    let (never, pods) =
        unmarked(vec![pod("waits"), started(testing::pod_of("DaemonSet", "network")), mirror]);
    assert_eq!(actions(&plan_with(&never, &pods)), [("n-000".to_owned(), NodeAction::Replace)]);
    // A node of the same name existed before, and its pods still show that.
    let (mut namesake, pods) = unmarked(vec![started(pod("of-the-other"))]);
    let mut node = starting(0);
    node.metadata.creation_timestamp = Some(Time(at(500)));
    namesake.nodes = vec![Arc::new(node)];
    assert_eq!(actions(&plan_with(&namesake, &pods)), [("n-000".to_owned(), NodeAction::Replace)]);
}

#[test]
fn a_node_that_this_process_has_seen_ready_did_not_fail_to_start() {
    let (mut seen, pods) = unmarked(vec![]);
    seen.times.0.get_mut("uid-n-000").unwrap().was_ready = true;
    assert_eq!(actions(&plan_with(&seen, &pods)), [("n-000".to_owned(), NodeAction::MarkReady)]);
}

#[test]
fn a_node_that_is_ready_while_its_pool_is_paused_is_annotated_all_the_same() {
    let mut paused = pool(1);
    paused.spec.paused = true;
    let mut fresh = starting(0);
    set_ready(&mut fresh, "True");
    assert_eq!(actions(&plan(&observed(paused, [fresh]))), [("n-000".to_owned(), NodeAction::MarkReady)]);
}

#[test]
fn one_that_its_provider_replaces_is_left_to_it_however_long_it_takes() {
    let (mut left, pods) = unmarked(vec![]);
    left.supply.duties.repairs = ["n-000".to_owned()].into();
    let plan = plan_with(&left, &pods);
    assert!(actions(&plan).is_empty() && plan.request.is_empty(), "{plan:?}");
    let why = "node n-000 has not started, and is left to its provider, which replaces it";
    assert_eq!(plan.nodes[0].waits.as_deref(), Some(why));
    assert_eq!(plan.repair_waits, Some(RepairWait::Held(why.to_owned())));
    left.supply.duties.repairs.clear();
    assert_eq!(actions(&plan_with(&left, &pods)), [("n-000".to_owned(), NodeAction::Replace)]);
}

#[test]
fn a_clock_that_jumps_ahead_replaces_no_node() {
    let (mut jumped, pods) = unmarked(vec![]);
    let seen_for = |observed: &mut Observed, seconds| {
        observed.times.0.get_mut("uid-n-000").unwrap().not_ready = SignedDuration::from_secs(seconds);
    };
    seen_for(&mut jumped, 890);
    let waits = plan_with(&jumped, &pods);
    assert_eq!((actions(&waits), waits.requeue_at), (vec![], Some(at(10_010))));
    seen_for(&mut jumped, 900);
    assert_eq!(actions(&plan_with(&jumped, &pods)), [("n-000".to_owned(), NodeAction::Replace)]);
}

#[test]
fn a_node_of_another_writer_is_adopted_and_never_times_out() {
    let mut foreign = starting(0);
    foreign.metadata.finalizers = None;
    foreign.metadata.annotations = None;
    let mut observed = observed(pool(1), [foreign]);
    observed.now = at(10_000);
    assert_eq!(actions(&plan(&observed)), [("n-000".to_owned(), NodeAction::Adopt)]);
}

#[test]
fn the_first_time_a_node_is_ready_is_written_on_it_once() {
    let mut fresh = starting(0);
    set_ready(&mut fresh, "True");
    assert_eq!(actions(&plan(&observed(pool(1), [fresh]))), [("n-000".to_owned(), NodeAction::MarkReady)]);
}
