//! Tests of which writer counts as another writer, for how long, and what the planner does then.

use std::sync::Arc;

use k8s_openapi::jiff::SignedDuration;
use serde_json::{Value, json};

use super::*;
use crate::fixtures::{NOW, Read as _, TestCluster, merged};
use crate::{ScalingPlan, plan_for_cluster};

/// Pool `a` with `replicas`, and the remembered status.
fn cluster(policy: &str, replicas: Option<i32>, status: &Value, fields: &Value) -> TestCluster {
    let spec =
        json!({ "onContested": policy, "scaleDown": { "unneededSeconds": 0, "delayAfterAddSeconds": 0 } });
    TestCluster::new().autoscaler("x", spec).pool(
        "a",
        json!({ "metadata": { "uid": "u", "managedFields": fields }, "spec": { "replicas": replicas },
                "status": { "autoscaling": status } }),
    )
}

fn written(by: &str, time: &str) -> Value {
    json!({ "manager": by, "operation": "Update", "time": time, "fieldsV1": { "f:spec": { "f:replicas": {} } } })
}

fn ago(seconds: i64) -> String {
    (NOW.parse::<Timestamp>().unwrap() - SignedDuration::from_secs(seconds)).to_string()
}

fn replicas_writer(cluster: &TestCluster) -> ReplicasWriter {
    plan_for_cluster(&cluster.observed).pool("a").limits.replicas_writer.clone()
}

/// Pool `a` after another writer has set `replicas`, with nodes `n1` to `n3`, all of them unneeded.
fn with_nodes(cluster: TestCluster) -> TestCluster {
    ["n1", "n2", "n3"].iter().fold(cluster, |cluster, node| cluster.node("a", node, json!({})))
}

fn course(replicas_writer: &ReplicasWriter) -> Option<ContestResponse> {
    replicas_writer.contest.as_ref().map(|contest| contest.course)
}

#[test]
fn a_number_is_another_writers_when_it_is_not_the_one_that_was_written_last() {
    let kubectl = json!([written("kubectl", "2026-01-01T11:59:00Z")]);
    let ours = json!([written("autoscaler-operator", "2026-01-01T11:59:00Z")]);
    let filled = json!([written("nodepool-operator", "2026-01-01T11:59:00Z")]);
    let victims = |target: i32| json!({ "writtenReplicas": 3, "scaleDown": { "targetReplicas": target, "decisionID": "d", "nodes": [] } });
    for (what, replicas, status, fields, contested, keeps) in [
        ("the first number that is found", Some(2), json!({}), &kubectl, false, Some(2)),
        ("the same number", Some(3), json!({ "writtenReplicas": 3 }), &kubectl, false, Some(3)),
        ("another number", Some(2), json!({ "writtenReplicas": 3 }), &kubectl, true, Some(3)),
        (
            "another number by an unknown writer",
            Some(2),
            json!({ "writtenReplicas": 3 }),
            &json!([]),
            true,
            Some(3),
        ),
        (
            "an own write that was not reported",
            Some(2),
            json!({ "writtenReplicas": 3 }),
            &ours,
            false,
            Some(2),
        ),
        ("an own removal that was announced", Some(2), victims(2), &json!([]), false, Some(2)),
        ("another number than announced", Some(1), victims(2), &json!([]), true, Some(3)),
        ("a number that was filled in", Some(2), json!({ "writtenReplicas": 3 }), &filled, false, Some(2)),
        ("no number", None, json!({ "writtenReplicas": 3 }), &kubectl, false, Some(3)),
    ] {
        let replicas_writer = replicas_writer(&cluster("Yield", replicas, &status, fields));
        assert_eq!(
            (replicas_writer.contest.is_some(), replicas_writer.written),
            (contested, keeps),
            "{what}"
        );
    }
}

#[test]
fn the_last_writer_that_the_api_server_knows_is_named() {
    for (fields, writer) in [
        (
            json!([written("helm", "2026-01-01T11:00:00Z"), written("kubectl", "2026-01-01T11:59:00Z")]),
            "kubectl",
        ),
        (
            json!([written("kubectl", "2026-01-01T11:59:00Z"), written("helm", "2026-01-01T11:00:00Z")]),
            "kubectl",
        ),
        (json!([{ "manager": "helm", "fieldsV1": { "f:spec": { "f:template": {} } } }]), "another writer"),
        (json!([]), "another writer"),
    ] {
        let replicas_writer =
            replicas_writer(&cluster("Yield", Some(2), &json!({ "writtenReplicas": 3 }), &fields));
        assert_eq!(replicas_writer.contest.unwrap().writer(), writer, "{fields}");
    }
}

#[test]
fn a_pool_on_which_the_autoscaler_does_not_act_is_not_contested() {
    let status = json!({ "writtenReplicas": 3 });
    for (what, mode, change) in [("recommend", "Recommend", json!({})), ("off", "Off", json!({}))] {
        let cluster = TestCluster::new().autoscaler("x", json!({ "mode": mode })).pool(
            "a",
            merged(json!({ "spec": { "replicas": 2 }, "status": { "autoscaling": status } }), change),
        );
        assert_eq!(replicas_writer(&cluster), ReplicasWriter::default(), "{what}");
    }
}

#[test]
fn a_yielded_number_is_kept_for_ten_minutes_and_then_planned_from() {
    let since = |seconds| json!({ "writtenReplicas": 1, "contested": { "replicas": 3, "writer": "kubectl", "sinceTime": ago(seconds) } });
    for (what, status, desired, held) in [
        ("now", json!({ "writtenReplicas": 1 }), 3, true),
        ("for a while", since(599), 3, true),
        ("long enough", since(600), 0, false),
        // The other writer changed it again.
        (
            "another number",
            json!({ "writtenReplicas": 1, "contested": { "replicas": 5, "writer": "kubectl", "sinceTime": ago(700) } }),
            3,
            true,
        ),
        ("not at all", json!({ "writtenReplicas": 3 }), 0, false),
    ] {
        let cluster = with_nodes(cluster("Yield", Some(3), &status, &json!([])));
        let plan = plan_for_cluster(&cluster.observed);
        let decision = plan.pool("a");
        assert_eq!(
            (decision.desired, decision.limits.replicas_writer.held().is_some()),
            (desired, held),
            "{what}"
        );
        assert!(decision.victims.len() == usize::try_from(3 - desired).unwrap(), "{what}");
        if held {
            assert_eq!(decision.reason.as_str(), "ReplicasContested", "{what}");
            assert_eq!(
                plan.next,
                Some(decision.limits.replicas_writer.contest.as_ref().unwrap().until()),
                "{what}"
            );
        } else {
            assert_eq!(decision.limits.replicas_writer.written, Some(3), "{what}: accepted");
        }
    }
}

#[test]
fn a_yielded_number_keeps_a_pool_from_growing_too_and_that_is_no_bound() {
    let cluster = cluster("Yield", Some(1), &json!({ "writtenReplicas": 3 }), &json!([])).pending(
        "p",
        9,
        "4",
        &json!({}),
    );
    let plan = plan_for_cluster(&cluster.observed);
    let decision = plan.pool("a");
    assert_eq!(
        (decision.desired, decision.limited, decision.reason.as_str()),
        (1, false, "ReplicasContested")
    );
    assert!(
        decision.message.starts_with("another writer set spec.replicas to 1, which is kept for 10 minutes")
    );
}

#[test]
fn bounds_hold_against_a_yielded_number() {
    let status = json!({ "writtenReplicas": 3 });
    for (min, max, desired) in [(2, 10, 2), (0, 0, 0), (0, 10, 1)] {
        let mut cluster = cluster("Yield", Some(1), &status, &json!([]));
        let mut pool = (*cluster.observed.pools[0]).clone();
        (pool.spec.min_replicas, pool.spec.max_replicas) = (min, max);
        cluster.observed.pools = vec![Arc::new(pool)];
        assert_eq!(plan_for_cluster(&cluster.observed).desired("a"), desired, "{min} to {max}");
    }
}

#[test]
fn with_reclaim_the_autoscaler_goes_on_from_its_own_number() {
    for (what, theirs, ours, nodes, pods, desired, reason) in [
        ("lowered", 1, 3, 3, 3, 3, "ReplicasReclaimed"),
        ("lowered, and pods need more", 1, 3, 3, 5, 5, "ScaleUp"),
        ("raised, and the nodes are not there yet", 9, 3, 3, 3, 3, "ReplicasReclaimed"),
        ("raised, and one of the nodes is there and at work", 9, 2, 3, 3, 3, "ReplicasReclaimed"),
    ] {
        let status = json!({ "writtenReplicas": ours });
        let mut cluster = cluster("Reclaim", Some(theirs), &status, &json!([written("argocd", NOW)]));
        for at in 0..nodes {
            cluster = cluster.node("a", &format!("n{at}"), json!({}));
        }
        for at in 0..pods.min(nodes) {
            cluster = cluster.running(&format!("r{at}"), &format!("n{at}"), "4", json!({}));
        }
        let cluster = cluster.pending("p", usize::try_from(pods - pods.min(nodes)).unwrap(), "4", &json!({}));
        let plan = plan_for_cluster(&cluster.observed);
        let decision = plan.pool("a");
        assert_eq!((decision.desired, decision.reason.as_str()), (desired, reason), "{what}");
        assert_eq!(course(&decision.limits.replicas_writer), Some(ContestResponse::Reclaim), "{what}");
        assert!(decision.victims.is_empty(), "{what}: {:?}", decision.victims);
    }
}

#[test]
fn who_was_overruled_is_remembered_for_ten_minutes_and_again_when_they_come_back() {
    let record = |seconds: i64| json!({ "replicas": 1, "writer": "argocd", "sinceTime": ago(seconds) });
    let decision = |seconds: i64| json!({ "id": "d", "fromReplicas": 1, "toReplicas": 3, "reason": "r", "message": "m", "time": ago(seconds) });
    for (what, replicas, status, expected) in [
        (
            "just done",
            3,
            json!({ "writtenReplicas": 3, "contested": record(599) }),
            Some((ContestResponse::Reclaimed, false)),
        ),
        ("long ago", 3, json!({ "writtenReplicas": 3, "contested": record(600) }), None),
        (
            "not written yet",
            1,
            json!({ "writtenReplicas": 3, "contested": record(20) }),
            Some((ContestResponse::Reclaim, false)),
        ),
        (
            "they are back",
            1,
            json!({ "writtenReplicas": 3, "contested": record(20), "lastDecision": decision(10) }),
            Some((ContestResponse::Reclaim, true)),
        ),
    ] {
        let replicas_writer = replicas_writer(&cluster("Reclaim", Some(replicas), &status, &json!([])));
        assert_eq!(
            replicas_writer.contest.map(|contest| (contest.course, contest.is_new)),
            expected,
            "{what}"
        );
    }
}

#[test]
fn a_pool_that_was_made_anew_paused_or_deleted_is_left_alone() {
    let contested = json!({ "writtenReplicas": 3 });
    for (what, change, status) in [
        ("made anew: its status is gone", json!({}), json!({})),
        ("paused", json!({ "spec": { "paused": true } }), contested.clone()),
        ("deleted", json!({ "metadata": { "deletionTimestamp": NOW } }), contested),
    ] {
        for policy in ["Yield", "Reclaim"] {
            let cluster = TestCluster::new().autoscaler("x", json!({ "onContested": policy })).pool(
                "a",
                merged(
                    json!({ "spec": { "replicas": 2 }, "status": { "autoscaling": status } }),
                    change.clone(),
                ),
            );
            let plan: ScalingPlan = plan_for_cluster(&cluster.observed);
            assert!(!plan.pool("a").changes_replicas(), "{what} {policy}");
        }
    }
}

#[test]
fn what_was_written_and_not_reported_is_not_another_writers() {
    let mut cluster = cluster("Yield", Some(5), &json!({ "writtenReplicas": 3 }), &json!([]));
    assert!(replicas_writer(&cluster).contest.is_some());
    let told = AutoscalingStatus { written_replicas: Some(5), ..AutoscalingStatus::default() };
    cluster.observed.unreported.insert("u".to_owned(), told);
    assert_eq!(replicas_writer(&cluster), ReplicasWriter { written: Some(5), ..ReplicasWriter::default() });
}
