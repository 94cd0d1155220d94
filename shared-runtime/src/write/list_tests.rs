//! The Autoscaler's guarded writes: a replica count, and the list of nodes that goes with it.

use serde_json::{Value, json};
use shared_crds::NodePool;
use shared_crds::v1alpha1::NodePoolStatus;

use super::testing::{STATUS, autoscaler, pool, status, test, unasked};
use super::*;
use crate::freshness::Freshness;
use crate::testing::{Asked, failure, lines};

#[tokio::test]
async fn a_guarded_count_is_a_patch_of_the_object_at_its_generation_with_its_list() {
    let list = json!({ "decisionID": "d", "targetReplicas": 1, "nodes": ["n"] });
    let (writer, log, pool) = autoscaler(&json!({ "scaleDown": list }), |_| (200, pool("6", &json!({}))));
    let written = writer.replicas(&pool, |_| ScaleDecision::Set(1)).await.unwrap();
    assert_eq!(written, Outcome::Written(Some(2)), "what the server says it is");
    let asked = log.lock().unwrap()[0].clone();
    assert_eq!(asked.path, STATUS.trim_end_matches("/status"));
    let expected = json!([
        test("/metadata/uid", "u"),
        test("/metadata/generation", 7),
        test("/status/autoscaling/scaleDown/decisionID", "d"),
        { "op": "add", "path": "/spec/replicas", "value": 1 },
    ]);
    assert_eq!(asked.body, expected);
}

/// A pass writes the list and then applies the rest. If that fails, the next pass must still wait for the list.
#[tokio::test]
async fn a_list_that_was_written_is_waited_for_although_the_rest_was_refused() {
    let list = || json!({ "decisionID": "d", "targetReplicas": 1, "nodes": [] });
    let wrote = json!({ "autoscaling": { "autoscaler": "a", "scaleDown": list() } });
    let answer = move |asked: &Asked| match asked.body.as_array() {
        Some(_) => (200, pool("6", &wrote)),
        None => failure(403, "Forbidden", "no"),
    };
    let (writer, log, pool) = autoscaler(&json!({ "autoscaler": "a" }), answer);
    let _feed = writer.write_tracker().feed::<NodePool>().unwrap();
    let wanted = json!({ "autoscaler": "b", "scaleDown": list() });
    let decide = |_: &NodePool| status(&json!({ "autoscaling": wanted }));
    assert!(writer.node_pool_status(&pool, decide).await.is_err());
    assert_eq!(lines(&log).len(), 2, "the list, and the rest");
    assert_eq!(writer.write_tracker().check(&pool), Freshness::Stale);
}

#[tokio::test]
async fn a_count_is_not_written_where_another_list_has_taken_the_place_of_its_own() {
    let list = |id: &str| json!({ "scaleDown": { "decisionID": id, "targetReplicas": 1, "nodes": [] } });
    let other = json!({ "autoscaling": list("other") });
    let (writer, log, cached) = autoscaler(&list("own"), move |asked| match asked.method {
        http::Method::GET => {
            let mut fresh = pool("9", &other);
            fresh["metadata"]["generation"] = 7.into();
            (200, fresh)
        }
        _ => failure(422, "Invalid", "the server rejected our request due to an error in our request"),
    });
    let written = writer.replicas(&cached, |_| ScaleDecision::Set(1)).await.unwrap();
    assert_eq!(written, Outcome::Aborted);
    assert_eq!(lines(&log).len(), 2, "one patch, one read");
}

#[tokio::test]
async fn a_count_is_not_written_to_a_pool_that_was_paused_since_it_was_decided() {
    let paused = |replicas: i32| {
        move |asked: &Asked| match asked.method {
            http::Method::GET => {
                let mut fresh = pool("9", &json!({ "autoscaling": {} }));
                fresh["metadata"]["generation"] = 8.into();
                fresh["spec"]["paused"] = true.into();
                fresh["spec"]["replicas"] = replicas.into();
                (200, fresh)
            }
            _ => failure(422, "Invalid", "the server rejected our request due to an error in our request"),
        }
    };
    let (writer, log, cached) = autoscaler(&json!({}), paused(2));
    let written = writer.replicas(&cached, |_| ScaleDecision::Set(1)).await.unwrap();
    assert_eq!(written, Outcome::Aborted);
    assert_eq!(lines(&log).len(), 2, "one patch, one read");
    // An existing number was perhaps our own write, whose answer was lost.
    let (writer, _, cached) = autoscaler(&json!({}), paused(1));
    let written = writer.replicas(&cached, |_| ScaleDecision::Set(1)).await.unwrap();
    assert!(written.is_met(), "{written:?}");
}

#[tokio::test]
async fn a_list_is_written_by_a_patch_of_its_own_and_the_rest_is_applied_without_it() {
    let (writer, log, cached) = autoscaler(&json!({ "autoscaler": "a" }), |asked| {
        let list = json!({ "decisionID": "d", "targetReplicas": 1, "nodes": [] });
        let autoscaler = if asked.body.is_array() { "a" } else { "b" };
        let autoscaling = json!({ "autoscaler": autoscaler, "scaleDown": list });
        let mut stored = pool("6", &json!({ "autoscaling": autoscaling }));
        stored["metadata"]["generation"] = 7.into();
        (200, stored)
    });
    let list = json!({ "decisionID": "d", "targetReplicas": 1, "nodes": [] });
    let wanted = json!({ "autoscaler": "b", "scaleDown": list });
    let decide = |_: &NodePool| status(&json!({ "autoscaling": wanted }));
    let written = writer.node_pool_status(&cached, decide).await.unwrap();
    assert!(matches!(written, Outcome::Written(_)), "{written:?}");
    let asked = log.lock().unwrap();
    assert_eq!(asked[0].body[2], test("/status/autoscaling/scaleDown", Value::Null));
    assert_eq!(asked[0].body[3]["path"], "/status/autoscaling/scaleDown");
    assert_eq!(asked[1].body["status"], json!({ "autoscaling": { "autoscaler": "b" } }));
    assert_eq!(asked.len(), 2);
}

#[tokio::test]
async fn what_is_left_when_a_list_was_taken_away_is_not_applied_again_and_again() {
    let (writer, _, cached) = autoscaler(&json!({}), unasked);
    let written = writer.node_pool_status(&cached, |_| NodePoolStatus::default()).await.unwrap();
    assert!(matches!(written, Outcome::Unchanged(_)), "{written:?}");
}
