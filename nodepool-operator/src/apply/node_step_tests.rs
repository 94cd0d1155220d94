//! What is sent to the API server for one node.

use super::*;
use crate::plan::DrainStep;
use crate::plan::testing::{annotate, draining, node, pod, step};
use crate::testing::{TestContext, failure, success};

/// A deadline that never comes.
const ENDLESS: Duration = Duration::MAX;

/// The API server's answer to a patch of the node.
fn patched() -> (u16, serde_json::Value) {
    (200, serde_json::to_value(draining(0, 5)).unwrap())
}

fn drain(pods: &[&str]) -> NodeStep {
    let evict = pods.iter().map(|name| pod(name)).collect();
    step(draining(0, 5), NodeAction::Drain(DrainStep { evict, ..DrainStep::default() }))
}

fn forced(pods: &[&str]) -> NodeStep {
    let delete = pods.iter().map(|name| pod(name)).collect();
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
    assert_eq!(applied.evicted, 1);
    let said: Vec<String> = applied.blocked.iter().map(|blocked| blocked.by.to_string()).collect();
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
            if path.contains("/stuck") { failure(code, "Stuck", "denied by a webhook") } else { success() }
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
    assert!(matches!(error, Error::Write { what: "an eviction", .. }), "{error:?}");
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
    assert_eq!((applied.evicted, applied.extent), (2, Extent::CutShort));
    let applied = carry_out(&test.ctx, &forced(&["d"]), deadline).await.unwrap();
    assert_eq!((applied.deleted_pods, applied.extent), (0, Extent::CutShort));
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
    assert_eq!((applied.deleted_pods, applied.blocked.len()), (1, 1), "{applied:?}");
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
    let test = TestContext::new(|_, _| success());
    test.time.advance(Duration::from_millis(40_100));
    let mut marked = node(0);
    annotate(&mut marked, "x", "y");
    let _ = carry_out(&test.ctx, &step(marked, NodeAction::Cordon), ENDLESS).await;
    let requests = test.requests();
    assert!(requests[0].contains("1970-01-01T00:00:41Z"), "{requests:?}");
}
