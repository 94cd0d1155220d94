//! What is sent to the API server for one node.

use std::collections::BTreeMap;
use std::sync::Arc;

use node_lifecycle::DrainStep;
use node_lifecycle::testing::{annotate, deleted, draining, node, pod, set_ready, step};

use super::*;
use crate::testing::{TestContext, failure, success};

/// A deadline that never comes.
const ENDLESS: Duration = Duration::MAX;

/// The API server's answer to a patch of the node.
fn patched() -> (u16, serde_json::Value) {
    (200, serde_json::to_value(draining(0, 5)).unwrap())
}

fn drain(pods: &[&str]) -> NodeStep {
    let evict = pods.iter().map(|name| Arc::new(pod(name))).collect();
    step(draining(0, 5), NodeAction::Drain(DrainStep { evict, ..DrainStep::default() }))
}

fn forced(pods: &[&str]) -> NodeStep {
    let delete = pods.iter().map(|name| Arc::new(pod(name))).collect();
    step(draining(0, 5), NodeAction::Drain(DrainStep { delete, ..DrainStep::default() }))
}

#[tokio::test]
async fn a_refused_eviction_does_not_stop_the_eviction_of_the_next_pod() {
    let test = TestContext::new(|path, _| match path {
        path if path.contains("/two-budgets/") => {
            failure(500, "InternalError", "This pod has more than one PodDisruptionBudget")
        }
        path if path.contains("/ending-namespace/") => failure(403, "Forbidden", "it is being terminated"),
        path if path.starts_with("/api/v1/nodes/") => patched(),
        _ => success(),
    });
    let step = drain(&["two-budgets", "ending-namespace", "web"]);
    let applied = carry_out(&test.ctx, &step, ENDLESS).await.unwrap();
    assert_eq!(applied.count(AppliedAction::Evict), 1);
    let said: Vec<String> = applied.blocked().map(|(_, by)| by.to_string()).collect();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(
        said[0].contains("/two-budgets: ") && said[0].contains("more than one PodDisruptionBudget"),
        "{said:?}"
    );
    assert!(said[1].contains("/ending-namespace: "), "{said:?}");
    assert!(applied.complete(), "a blocked drain is no failure");
}

#[tokio::test]
async fn pods_that_stay_do_not_stop_the_removal_of_others_in_a_later_pass() {
    for (code, forced) in [(403, false), (403, true), (504, false), (504, true)] {
        let test = TestContext::new(move |path, clock| {
            clock.advance(Duration::from_secs(3));
            match path {
                path if path.contains("/stuck") => failure(code, "Stuck", "denied by a webhook"),
                path if path.starts_with("/api/v1/nodes/") => patched(),
                _ => success(),
            }
        });
        let step = if forced { self::forced } else { drain }(&["stuck-1", "stuck-2", "free"]);
        // Refusals take two passes, failures one each.
        for _ in 0..3 {
            let deadline = test.ctx.clock.monotonic() + Duration::from_secs(5);
            let _ = carry_out(&test.ctx, &step, deadline).await;
            test.time.advance(Duration::from_secs(5));
        }
        let requests = test.requests();
        assert!(requests.iter().any(|line| line.contains("/free")), "{code}, forced: {forced}: {requests:?}");
    }
}

#[tokio::test]
async fn an_eviction_without_an_answer_fails_the_pass() {
    let test = TestContext::new(|_, _| failure(504, "Timeout", "the request did not complete"));
    let error = carry_out(&test.ctx, &drain(&["a", "b"]), ENDLESS).await.unwrap_err();
    assert!(matches!(error, Error::Write { what: Write::EvictPod, .. }), "{error:?}");
    assert!(test.requests().iter().all(|line| !line.contains("/pods/b/")), "{:?}", test.requests());
}

#[tokio::test]
async fn no_pod_is_evicted_or_deleted_after_the_deadline() {
    let test = TestContext::new(|_, clock| {
        clock.advance(Duration::from_secs(3));
        success()
    });
    let deadline = test.ctx.clock.monotonic() + Duration::from_secs(5);
    let applied = carry_out(&test.ctx, &drain(&["a", "b", "c"]), deadline).await.unwrap();
    assert_eq!((applied.count(AppliedAction::Evict), applied.extent), (2, Extent::CutShort));
    let applied = carry_out(&test.ctx, &forced(&["d"]), deadline).await.unwrap();
    assert_eq!((applied.count(AppliedAction::DeletePod), applied.extent), (0, Extent::CutShort));
    assert_eq!(test.requests().len(), 2);
}

#[tokio::test]
async fn a_drain_that_ran_out_of_time_deletes_pods_with_their_own_grace_and_not_the_node() {
    let test = TestContext::new(|path, _| match path {
        path if path.contains("/pods/denied") => failure(403, "Forbidden", "denied by a webhook"),
        path if path.contains("/pods/web/eviction") => failure(403, "Forbidden", "not by eviction"),
        path if path.starts_with("/api/v1/nodes/") => patched(),
        _ => success(),
    });
    let applied = carry_out(&test.ctx, &forced(&["denied", "web"]), ENDLESS).await.unwrap();
    let deleted = applied.count(AppliedAction::DeletePod);
    assert_eq!((deleted, applied.blocked().count()), (1, 1), "{applied:?}");
    let requests = test.requests();
    let (on_node, of_pods): (Vec<_>, Vec<_>) =
        requests.iter().partition(|line| line.starts_with("PATCH /api/v1/nodes/"));
    // Each budget is asked first.
    let asked = of_pods.iter().filter(|line| line.contains("/eviction")).count();
    assert_eq!((asked, of_pods.len()), (2, 4), "{requests:?}");
    let own_grace = |line: &&String| line.contains("/pods/") && !line.contains("gracePeriodSeconds");
    assert!(of_pods.iter().all(own_grace), "{requests:?}");
    // What it waits for stands on the node.
    let [note] = &on_node[..] else { panic!("{requests:?}") };
    assert!(note.contains("pod default/denied: ") && note.contains("denied by a webhook"), "{note}");
}

#[tokio::test]
async fn a_node_that_changed_since_its_removal_was_decided_is_not_deleted_and_is_a_conflict() {
    for action in [NodeAction::Remove, NodeAction::Replace] {
        let test =
            TestContext::new(|_, _| failure(409, "Conflict", "the ResourceVersion in the precondition"));
        let mut node = draining(0, 5);
        node.metadata.resource_version = Some("7".into());
        let applied = carry_out(&test.ctx, &step(node, action), ENDLESS).await.unwrap();
        assert_eq!(applied, Applied { extent: Extent::Conflict, ..Applied::default() });
        let requests = test.requests();
        assert_eq!(
            requests.len(),
            1,
            "no finalizer is removed, and no second attempt in this pass: {requests:?}"
        );
        assert!(
            requests[0].contains(r#""resourceVersion":"7""#) && requests[0].contains(r#""uid":"#),
            "{requests:?}"
        );
    }
}

#[tokio::test]
async fn a_drain_starts_when_the_node_is_cordoned_not_when_that_was_decided() {
    let test = TestContext::new(|_, _| patched());
    test.time.advance(Duration::from_millis(40_100));
    let mut marked = node(0);
    annotate(&mut marked, "x", "y");
    let _ = carry_out(&test.ctx, &step(marked, NodeAction::Cordon), ENDLESS).await;
    let requests = test.requests();
    assert!(requests[0].contains("1970-01-01T00:00:41Z"), "{requests:?}");
}

#[tokio::test]
async fn a_node_that_is_cordoned_is_recorded_with_its_cause() {
    use DisruptionReason::{Expiry, Repair, Rollout, ScaleDown};
    let asked = || {
        let mut node = node(0);
        annotate(&mut node, names::REPLACE_ANNOTATION, "true");
        node
    };
    for (node, cause, expected) in [
        (node(0), ScaleDown, AppliedAction::DrainSurplus),
        (node(0), Rollout, AppliedAction::DrainOutdated),
        (node(0), Expiry, AppliedAction::DrainOutdated),
        (asked(), Rollout, AppliedAction::DrainAsked),
        (asked(), ScaleDown, AppliedAction::DrainSurplus),
        (asked(), Repair, AppliedAction::DrainUnhealthy),
    ] {
        let test = TestContext::new(|_, _| patched());
        let step = NodeStep { cause: Some(cause), ..step(node, NodeAction::Cordon) };
        let applied = carry_out(&test.ctx, &step, ENDLESS).await.unwrap();
        assert_eq!(applied.entries, Applied::done(expected, ["n-000"]).entries, "{cause:?}");
    }
}

/// A node that is being deleted and whose kubelet is silent.
fn silent() -> Node {
    let mut node = deleted(draining(0, 5));
    set_ready(&mut node, "Unknown");
    node
}

#[tokio::test]
async fn a_machine_is_said_to_be_off_only_after_a_live_look_at_its_node_and_its_providers_word() {
    let another = || {
        let mut node = silent();
        node.metadata.uid = Some("another".into());
        node
    };
    for (what, live, is_told) in [
        ("it is still silent", Some(silent()), true),
        ("it is back", Some(deleted(draining(0, 5))), false),
        ("it is another one", Some(another()), false),
        ("it is gone", None, false),
    ] {
        let test = TestContext::new(move |path, _| match (&live, path.contains('?')) {
            (Some(node), false) => (200, serde_json::to_value(node).unwrap()),
            (None, false) => failure(404, "NotFound", "no such node"),
            (_, true) => patched(),
        });
        let applied = carry_out(&test.ctx, &step(silent(), NodeAction::EndMachine), ENDLESS).await.unwrap();
        assert_eq!(applied.extent == Extent::Complete, is_told, "{what}: {applied:?}");
        let requests = test.requests();
        let tainted =
            requests.iter().any(|line| line.starts_with("PATCH") && line.contains("out-of-service"));
        assert_eq!(tainted, is_told, "{what}: {requests:?}");
        assert!(applied.count(AppliedAction::Remove) == 0, "the finalizer stays: {applied:?}");
    }
}

/// A silent node whose machine Karpenter made, with these finalizers besides the operator's.
fn silent_with(finalizers: &[&str]) -> Node {
    let mut node = silent();
    node.metadata.labels.get_or_insert_default().insert(names::PROVIDER_LABEL.into(), "karpenter".into());
    let all = node.metadata.finalizers.get_or_insert_default();
    all.extend(finalizers.iter().map(|&name| name.to_owned()));
    node
}

/// Ends the machine of `node`, which Karpenter has registered or not, at second `now`. Its claim is of the pool `pool`.
async fn ended(
    node: &Node,
    is_registered: bool,
    pool: &str,
    now: u64,
) -> (Result<Applied, Error>, Vec<String>) {
    let registered = serde_json::json!({
        "type": "Registered", "status": if is_registered { "True" } else { "Unknown" }, "reason": "r", "message": "",
        "lastTransitionTime": "1970-01-01T00:00:00Z",
    });
    let labels =
        BTreeMap::from([(names::NODEPOOL_LABEL, pool), (names::NODEPOOL_NAMESPACE_LABEL, "default")]);
    let claim = serde_json::json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "status": { "conditions": [registered] },
        "metadata": { "name": "n-000", "uid": "uid-claim", "resourceVersion": "1", "labels": labels },
        "spec": { "nodeClassRef": { "group": "g", "kind": "k", "name": "n" } },
    });
    let live = serde_json::to_value(node).unwrap();
    let test = TestContext::new(move |path, _| match path {
        path if path.contains("/nodeclaims/") => (200, claim.clone()),
        path if path.contains('?') => patched(),
        _ => (200, live.clone()),
    });
    test.time.advance(Duration::from_secs(now));
    let applied = carry_out(&test.ctx, &step(node.clone(), NodeAction::EndMachine), ENDLESS).await;
    let requests = test.requests();
    assert!(requests.iter().all(|line| !line.contains("out-of-service")), "it is not off: {requests:?}");
    (applied, requests)
}

#[tokio::test]
async fn a_silent_node_waits_while_its_machine_ends_and_says_so_when_that_takes_long() {
    let alone = silent_with(&[]);
    // Nothing else keeps the Node of a registered claim until its machine is gone.
    for is_registered in [false, true] {
        for (now, is_late) in [(349, false), (351, true)] {
            let (applied, requests) = ended(&alone, is_registered, "web", now).await;
            let applied = applied.unwrap();
            assert_eq!(
                (applied.machines_ending(), applied.count(AppliedAction::Remove)),
                (1, 0),
                "{applied:?}"
            );
            let blocked: Vec<(&str, &Blocker)> = applied.blocked().collect();
            let late = ("n-000", &Blocker::Machine);
            assert_eq!(blocked, if is_late { vec![late] } else { vec![] }, "at {now}");
            assert!(requests.iter().any(|line| line.starts_with("DELETE") && line.contains("/nodeclaims/")));
            let is_noted =
                |line: &String| line.starts_with("PATCH") && line.contains(&Blocker::Machine.to_string());
            assert!(requests.iter().any(is_noted), "{requests:?}");
        }
    }
}

#[tokio::test]
async fn a_silent_node_is_released_to_the_controller_that_ends_its_machine_and_keeps_it_meanwhile() {
    let kept = silent_with(&["karpenter.sh/termination"]);
    let (applied, _) = ended(&kept, true, "web", 100).await;
    let applied = applied.unwrap();
    let removed: Vec<&str> = applied.names(|action| action == AppliedAction::Remove).collect();
    assert_eq!((removed, applied.machines_ending()), (vec!["n-000"], 0));
    let (applied, _) = ended(&kept, false, "web", 100).await;
    let applied = applied.unwrap();
    let removed = applied.count(AppliedAction::Remove);
    assert_eq!((removed, applied.machines_ending()), (0, 1), "it has not been handed over");
}

#[tokio::test]
async fn a_claim_of_another_pool_does_not_say_that_the_machine_of_a_silent_node_is_off() {
    let (applied, requests) = ended(&silent_with(&[]), true, "another", 100).await;
    assert!(matches!(applied, Err(Error::Provider { .. })), "{applied:?}");
    assert!(requests.iter().all(|line| line.starts_with("GET")), "{requests:?}");
}

#[tokio::test]
async fn a_released_node_is_patched_once_and_neither_it_nor_its_pods_nor_its_machine_are_touched() {
    let test = TestContext::new(|path, _| match path {
        path if path.starts_with("/api/v1/nodes/") => patched(),
        _ => failure(500, "InternalError", "not requested"),
    });
    let release = step(draining(0, 5), NodeAction::Release);
    let applied = carry_out(&test.ctx, &release, ENDLESS).await.unwrap();
    assert_eq!(applied.entries, Applied::done(AppliedAction::Release, ["n-000"]).entries);
    let requests = test.requests();
    let [patch] = &requests[..] else { panic!("{requests:?}") };
    assert!(patch.starts_with("PATCH /api/v1/nodes/n-000"), "{patch}");
}
