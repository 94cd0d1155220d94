//! Whether a node has ever started, case by case: one that has not is replaced, one that has is only reported.

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::testing::{at, fates, node, observed, pod, pool, set_ready, starting};
use super::*;

#[test]
fn a_node_that_is_not_ready_in_time_is_replaced_and_one_that_broke_is_only_reported() {
    let mut broken = node(1);
    set_ready(&mut broken, "Unknown");
    let mut observed = observed(pool(2), [starting(0), broken]);
    observed.now = at(899);
    let waits = plan(&observed);
    assert_eq!((fates(&waits), waits.requeue_at), (vec![], Some(at(900))));
    observed.now = at(900);
    assert_eq!(fates(&plan(&observed)), []);
    assert_eq!(
        pods_needed(&observed).in_doubt,
        ["n-000"],
        "nothing is said of it without a look at its pods"
    );
    observed.pods.insert("n-000".into(), vec![]);
    let acts = plan(&observed);
    assert_eq!(fates(&acts), [("n-000".to_owned(), Fate::Replace)]);
    assert_eq!(acts.request.len(), 1);
    assert_eq!(acts.facts.unwrap().not_ready, 1);
    assert!(pods_needed(&observed).in_doubt.is_empty());
}

/// A node without the Ready annotation and with these pods, at a time when one that never started would be replaced.
fn unmarked(pods: Vec<Pod>) -> Observed {
    let mut observed = observed(pool(1), [starting(0)]);
    observed.now = at(10_000);
    observed.pods.insert("n-000".into(), pods);
    observed
}

fn started(mut pod: Pod) -> Pod {
    pod.status = Some(PodStatus { start_time: Some(Time(at(60))), ..PodStatus::default() });
    pod
}

#[test]
fn a_node_that_has_run_pods_did_not_fail_to_start_although_nobody_marked_it() {
    let ran = unmarked(vec![pod("waits"), started(pod("web"))]);
    let plan_ran = plan(&ran);
    assert_eq!(fates(&plan_ran), [("n-000".to_owned(), Fate::MarkReady)]);
    let facts = plan_ran.facts.unwrap();
    assert_eq!((facts.starting, facts.not_ready), (0, 1));
    // Pods that are only bound to it, and pods that belong to the node itself, show nothing.
    let mut mirror = started(pod("static"));
    mirror.metadata.annotations = Some([("kubernetes.io/config.mirror".to_owned(), "x".to_owned())].into());
    let never = unmarked(vec![pod("waits"), started(testing::pod_of("DaemonSet", "network")), mirror]);
    assert_eq!(fates(&plan(&never)), [("n-000".to_owned(), Fate::Replace)]);
    // A node of the same name existed before, and its pods still show that.
    let mut namesake = unmarked(vec![started(pod("of-the-other"))]);
    let mut node = starting(0);
    node.metadata.creation_timestamp = Some(Time(at(500)));
    namesake.nodes = vec![Arc::new(node)];
    assert_eq!(fates(&plan(&namesake)), [("n-000".to_owned(), Fate::Replace)]);
}

#[test]
fn a_node_that_this_process_has_seen_ready_did_not_fail_to_start() {
    let mut seen = unmarked(vec![]);
    seen.time.nodes.get_mut("uid-n-000").unwrap().was_ready = true;
    assert_eq!(fates(&plan(&seen)), [("n-000".to_owned(), Fate::MarkReady)]);
}

#[test]
fn a_node_that_is_ready_while_its_pool_is_paused_is_marked_all_the_same() {
    let mut paused = pool(1);
    paused.spec.paused = true;
    let mut fresh = starting(0);
    set_ready(&mut fresh, "True");
    assert_eq!(fates(&plan(&observed(paused, [fresh]))), [("n-000".to_owned(), Fate::MarkReady)]);
}

#[test]
fn a_clock_that_jumps_ahead_replaces_no_node() {
    let mut jumped = unmarked(vec![]);
    let seen_for = |observed: &mut Observed, seconds| {
        observed.time.nodes.get_mut("uid-n-000").unwrap().not_ready = SignedDuration::from_secs(seconds);
    };
    seen_for(&mut jumped, 890);
    let waits = plan(&jumped);
    assert_eq!((fates(&waits), waits.requeue_at), (vec![], Some(at(10_010))));
    seen_for(&mut jumped, 900);
    assert_eq!(fates(&plan(&jumped)), [("n-000".to_owned(), Fate::Replace)]);
}

#[test]
fn a_node_that_somebody_else_made_is_adopted_and_never_timed_out() {
    let mut stranger = starting(0);
    stranger.metadata.finalizers = None;
    stranger.metadata.annotations = None;
    let mut observed = observed(pool(1), [stranger]);
    observed.now = at(10_000);
    assert_eq!(fates(&plan(&observed)), [("n-000".to_owned(), Fate::Adopt)]);
}

#[test]
fn the_first_time_a_node_is_ready_is_written_on_it_once() {
    let mut fresh = starting(0);
    set_ready(&mut fresh, "True");
    assert_eq!(fates(&plan(&observed(pool(1), [fresh]))), [("n-000".to_owned(), Fate::MarkReady)]);
}
