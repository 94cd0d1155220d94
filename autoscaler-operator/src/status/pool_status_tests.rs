//! A pool's status in each situation.

use k8s_openapi::jiff::Timestamp;
use planner::fixtures::{Read as _, TestCluster};
use planner::plan_for_cluster;
use serde_json::{Value, json};
use shared_crds::reported::{NODE_POOL, is_reported};

use super::*;

fn at(time: &str) -> Time {
    Time(time.parse::<Timestamp>().unwrap())
}

/// The decision about pool `a`, and the status it leads to from the status the pool has.
fn reported(
    cluster: &TestCluster,
    state: &DecisionState,
) -> (PoolDecision, Option<AutoscalingStatus>, Vec<(String, String, String)>) {
    let decision = plan_for_cluster(&cluster.observed).pool("a").clone();
    let owned = owned(&decision.object, &decision, state, &at("2026-01-01T12:00:00Z"));
    for Condition { type_, status, reason, .. } in &owned.conditions {
        let is_known = is_reported(NODE_POOL, type_, status, reason);
        assert!(is_known, "{type_}={status}/{reason}");
    }
    let conditions = owned.conditions.into_iter().map(|c| (c.type_, c.status, c.reason)).collect();
    (decision, owned.autoscaling, conditions)
}

/// The decision about pool `a` was written at noon.
fn scaled(cluster: &TestCluster) -> DecisionState {
    let decision = plan_for_cluster(&cluster.observed).pool("a").clone();
    DecisionState::Scaled(Scaled::of(&decision, &at("2026-01-01T12:00:00Z")))
}

fn short(conditions: &[(String, String, String)]) -> Vec<String> {
    conditions.iter().map(|(type_, status, reason)| format!("{type_}={status}/{reason}")).collect()
}

fn with_status(status: &Value) -> Value {
    json!({ "spec": { "replicas": 2 }, "status": { "autoscaling": status } })
}

#[test]
fn a_written_scale_up_is_recorded_with_its_time_and_leaves_the_list_to_the_announcement() {
    let before = json!({ "scaleDown": { "targetReplicas": 2, "decisionID": "old", "nodes": ["x"] } });
    let cluster = TestCluster::eager().pool("a", with_status(&before)).pending("p", 12, "1", &json!({}));
    let (decision, autoscaling, conditions) = reported(&cluster, &scaled(&cluster));
    let autoscaling = autoscaling.unwrap();
    assert_eq!(autoscaling.autoscaler.as_deref(), Some("all"));
    assert_eq!(autoscaling.desired_replicas, Some(3));
    assert_eq!(autoscaling.last_scale_up_time, Some(at("2026-01-01T12:00:00Z")));
    let last = autoscaling.last_decision.unwrap();
    assert_eq!((last.from_replicas, last.to_replicas, last.id), (2, 3, decision.id));
    assert_eq!(autoscaling.scale_down.map(|plan| plan.decision_id).as_deref(), Some("old"));
    assert_eq!(
        short(&conditions),
        [
            "AbleToScale=True/SucceededRescale",
            "ScalingActive=True/ValidPoolFound",
            "ScalingLimited=False/DesiredWithinRange",
            "ReplicasContested=False/NotContested"
        ]
    );
}

#[test]
fn victims_are_announced_with_their_uids_for_the_generation_that_the_count_makes() {
    let node = |uid: &str| json!({ "metadata": { "uid": uid } });
    let cluster = TestCluster::eager()
        .pool("a", with_status(&json!({ "autoscaler": "all" })))
        .node("a", "n1", node("u1"))
        .node("a", "n2", node("u2"));
    let decision = plan_for_cluster(&cluster.observed).pool("a").clone();
    let plan = ScaleDownPlan {
        decision_id: decision.id.clone(),
        generation: Some(8),
        target_replicas: 0,
        nodes: vec!["n1".into(), "n2".into()],
        node_uids: vec!["u1".into(), "u2".into()],
    };
    let victims = victims(&decision, &cluster.observed.nodes);
    let mut pool = NodePool::clone(&decision.object);
    pool.metadata.generation = Some(7);
    let announced = announcing(&pool, victims.as_ref());
    let expected = json!({ "autoscaling": { "autoscaler": "all", "scaleDown": plan } });
    assert_eq!(serde_json::to_value(&announced).unwrap(), expected, "and nothing else changes");
    assert_eq!(announcing(&pool, None), untouched(&pool));

    let (_, autoscaling, _) = reported(&cluster, &scaled(&cluster));
    let autoscaling = autoscaling.unwrap();
    assert_eq!((autoscaling.last_decision.is_some(), autoscaling.last_scale_up_time), (true, None));
}

#[test]
fn victims_stay_in_status_until_they_are_gone_or_the_replicas_are_others() {
    let named = |target: i32| json!({ "scaleDown": { "targetReplicas": target, "decisionID": "x", "nodes": ["n3"] } });
    let busy = |cluster: TestCluster| {
        cluster
            .node("a", "n1", json!({}))
            .node("a", "n2", json!({}))
            .running("r", "n1", "1", json!({}))
            .running("s", "n2", "1", json!({}))
    };
    for (what, cluster, kept) in [
        (
            "on its way out",
            busy(TestCluster::eager().pool("a", with_status(&named(2)))).node("a", "n3", json!({})),
            true,
        ),
        ("gone", busy(TestCluster::eager().pool("a", with_status(&named(2)))), false),
        ("other replicas", busy(TestCluster::eager().pool("a", with_status(&named(1)))), false),
    ] {
        let (_, autoscaling, _) = reported(&cluster, &DecisionState::Settled);
        assert_eq!(autoscaling.unwrap().scale_down.is_some(), kept, "{what}");
    }
}

/// Three nodes, where the current count keeps two; the next list names one of them for a count of one.
fn superseded(writer: Option<&str>) -> TestCluster {
    let status = json!({ "scaleDown": {
        "targetReplicas": 1, "decisionID": "next", "generation": 8, "nodes": ["n2"], "nodeUIDs": ["u2"],
    } });
    let mut pool = with_status(&status);
    let owned = |writer| json!({ "manager": writer, "fieldsV1": { "f:spec": { "f:replicas": {} } } });
    let entries: Vec<_> = writer.map(owned).into_iter().collect();
    pool["metadata"] = json!({ "generation": 7, "managedFields": entries });
    let mut cluster = TestCluster::eager().pool("a", pool);
    for index in 1..=3 {
        let (node, uid) = (format!("n{index}"), format!("u{index}"));
        cluster = cluster.node("a", &node, json!({ "metadata": { "uid": uid } })).running(
            &format!("p{index}"),
            &node,
            "1",
            json!({}),
        );
    }
    cluster
}

#[test]
fn the_list_of_a_count_that_is_slow_or_refused_stays() {
    let failed = || DecisionState::Failed("a webhook minds".into());
    for (what, writer, state, kept) in [
        (
            "the count did not come, and the one before it is our own",
            Some("autoscaler-operator"),
            failed(),
            true,
        ),
        ("the count did not come, and the one before it is a person's", Some("kubectl"), failed(), true),
        ("the count did not come, and the other has no known writer", None, failed(), false),
        (
            "no count is to come, and its node goes by our own",
            Some("autoscaler-operator"),
            DecisionState::Settled,
            true,
        ),
        (
            "no count is to come, and the one that is there is a person's",
            Some("kubectl"),
            DecisionState::Settled,
            false,
        ),
    ] {
        let (_, autoscaling, _) = reported(&superseded(writer), &state);
        assert_eq!(autoscaling.unwrap().scale_down.is_some(), kept, "{what}");
    }
}

#[test]
fn nodes_of_the_decision_before_are_named_before_those_of_this_one() {
    let cluster = superseded(Some("autoscaler-operator"));
    let mut decision = plan_for_cluster(&cluster.observed).pool("a").clone();
    assert_eq!(decision.pending_removal, ["n2"], "the very one that the other operator takes");
    decision.victims = vec!["n1".into(), "n2".into()];
    assert_eq!(victims(&decision, &cluster.observed.nodes).unwrap().nodes, ["n2", "n1"]);
}

#[test]
fn a_recommendation_is_recorded_once_and_never_names_victims() {
    let cluster = |status: &Value| {
        TestCluster::new()
            .autoscaler("r", json!({ "mode": "Recommend", "scaleDown": { "unneededSeconds": 0, "delayAfterAddSeconds": 0 } }))
            .pool("a", with_status(status))
            .node("a", "n1", json!({}))
            .node("a", "n2", json!({}))
    };
    let (_, autoscaling, conditions) = reported(&cluster(&json!({})), &DecisionState::Settled);
    let autoscaling = autoscaling.unwrap();
    assert_eq!((autoscaling.desired_replicas, autoscaling.scale_down.is_none()), (Some(0), true));
    assert_eq!(short(&conditions)[1], "ScalingActive=True/RecommendOnly");
    let first = autoscaling.last_decision.clone();
    assert!(first.is_some());
    let (_, again, _) =
        reported(&cluster(&serde_json::to_value(&autoscaling).unwrap()), &DecisionState::Settled);
    assert_eq!(again.unwrap().last_decision, first);
}

#[test]
fn pools_that_are_not_planned_say_so_or_say_nothing() {
    for (what, cluster, expected) in [
        ("no autoscaler", TestCluster::new(), vec![]),
        (
            "off",
            TestCluster::new().autoscaler("o", json!({ "mode": "Off" })),
            vec!["AbleToScale=False/AutoscalerOff", "ScalingActive=False/AutoscalerOff"],
        ),
        (
            "two",
            TestCluster::new().autoscaler("o", json!({})).autoscaler("p", json!({})),
            vec!["AbleToScale=False/AmbiguousSelector", "ScalingActive=False/AmbiguousSelector"],
        ),
    ] {
        let (_, autoscaling, conditions) = reported(&cluster.pool("a", json!({})), &DecisionState::Settled);
        assert_eq!(autoscaling, None, "{what}");
        assert_eq!(short(&conditions), expected, "{what}");
    }
}

#[test]
fn a_failed_write_and_a_bound_are_said_in_conditions() {
    let cluster = TestCluster::eager().pool("a", json!({ "spec": { "maxReplicas": 1 } })).pending(
        "p",
        9,
        "1",
        &json!({}),
    );
    let (_, autoscaling, conditions) = reported(&cluster, &DecisionState::Failed("forbidden".into()));
    assert_eq!(autoscaling.unwrap().last_decision, None);
    assert_eq!(
        short(&conditions),
        [
            "AbleToScale=False/FailedUpdateScale",
            "ScalingActive=True/ValidPoolFound",
            "ScalingLimited=True/TooManyReplicas",
            "ReplicasContested=False/NotContested"
        ]
    );
}

#[test]
fn what_was_reported_is_reported_again_in_the_next_pass() {
    let cluster = TestCluster::eager().pool("a", json!({ "spec": { "replicas": 1 } })).pending(
        "p",
        12,
        "1",
        &json!({}),
    );
    let decision = plan_for_cluster(&cluster.observed).pool("a").clone();
    let first = owned(&decision.object, &decision, &scaled(&cluster), &at("2026-01-01T12:00:00Z"));
    let mut pool = (*decision.object).clone();
    pool.spec.replicas = Some(decision.desired);
    pool.status = Some(first.clone());
    let mut cluster = cluster;
    cluster.observed.pools = vec![Arc::new(pool)];
    let next = plan_for_cluster(&cluster.observed).pool("a").clone();
    assert!(!next.changes_replicas());
    let second = owned(&next.object, &next, &DecisionState::Settled, &at("2026-01-01T12:00:30Z"));
    assert_eq!(second, first, "nothing to write");
    assert_eq!(untouched(&next.object), first);
}

#[test]
fn a_decision_that_could_not_be_reported_is_reported_by_the_next_pass() {
    let cluster = TestCluster::eager().pool("a", json!({})).pending("p", 4, "1", &json!({}));
    let earlier = scaled(&cluster);
    let later =
        TestCluster::eager().pool("a", json!({ "spec": { "replicas": 1 } })).pending("p", 4, "1", &json!({}));
    let (decision, autoscaling, conditions) = reported(&later, &earlier);
    assert!(!decision.changes_replicas());
    let last = autoscaling.unwrap().last_decision.unwrap();
    assert_eq!((last.from_replicas, last.to_replicas), (0, 1));
    assert_eq!(short(&conditions)[0], "AbleToScale=True/SucceededRescale");
}

fn contested(conditions: &[Condition]) -> (&str, &str, &str) {
    let condition = conditions.iter().find(|c| c.type_ == "ReplicasContested").unwrap();
    (&condition.status, &condition.reason, &condition.message)
}

#[test]
fn the_number_of_another_writer_is_reported_with_the_writer_and_the_response() {
    let fields = json!([{ "manager": "kubectl", "fieldsV1": { "f:spec": { "f:replicas": {} } } }]);
    let cluster = |policy: &str, replicas: i32, status: Value| {
        TestCluster::new().autoscaler("x", json!({ "onContested": policy })).pool(
            "a",
            json!({ "metadata": { "managedFields": fields }, "spec": { "replicas": replicas }, "status": { "autoscaling": status } }),
        )
    };
    let noon = at("2026-01-01T12:00:00Z");
    let report = |cluster: &TestCluster, state: &dyn Fn(&PoolDecision) -> DecisionState| {
        let decision = plan_for_cluster(&cluster.observed).pool("a").clone();
        let owned = owned(&decision.object, &decision, &state(&decision), &noon);
        (owned.autoscaling.unwrap(), owned.conditions)
    };
    let settled = |_: &PoolDecision| DecisionState::Settled;
    let scaled = |decision: &PoolDecision| DecisionState::Scaled(Scaled::of(decision, &noon));

    let (first, conditions) = report(&cluster("Yield", 3, json!({})), &settled);
    assert_eq!(
        (first.written_replicas, first.contested.is_none()),
        (Some(3), true),
        "the first number is taken over"
    );
    assert_eq!(contested(&conditions).1, "NotContested");

    let (kept, conditions) = report(&cluster("Yield", 7, serde_json::to_value(&first).unwrap()), &settled);
    assert_eq!(kept.written_replicas, Some(3));
    let record = kept.contested.clone().unwrap();
    assert_eq!((record.replicas, record.writer.as_str(), record.since_time), (7, "kubectl", noon.clone()));
    let (status, reason, message) = contested(&conditions);
    assert_eq!((status, reason), ("True", "Yielded"));
    assert!(
        message.starts_with(
            "kubectl set spec.replicas to 7 (seen 2026-01-01T12:00:00Z); the Autoscaler had written 3. "
        ),
        "{message}"
    );
    assert!(message.contains("kept until 2026-01-01T12:10:00Z"), "{message}");

    let mut later = cluster("Yield", 7, serde_json::to_value(&kept).unwrap());
    later.observed.now = "2026-01-01T12:09:00Z".parse().unwrap();
    assert_eq!(report(&later, &settled).0, kept, "nothing is written while it is kept");
    later.observed.now = "2026-01-01T12:10:00Z".parse().unwrap();
    let (over, conditions) = report(&later, &settled);
    assert_eq!((over.written_replicas, over.contested), (Some(7), None), "accepted");
    assert_eq!(contested(&conditions).1, "NotContested");

    let reclaim = cluster("Reclaim", 7, serde_json::to_value(&first).unwrap());
    let (done, conditions) = report(&reclaim, &scaled);
    assert_eq!((done.written_replicas, done.contested.map(|record| record.replicas)), (Some(3), Some(7)));
    assert_eq!(contested(&conditions).1, "Reclaimed");
    assert_eq!(done.last_decision.unwrap().reason, "ReplicasReclaimed");
    let (failed, _) = report(&reclaim, &|_| DecisionState::Failed("forbidden".to_owned()));
    assert_eq!((failed.written_replicas, failed.contested.map(|record| record.replicas)), (Some(3), Some(7)));
}

#[test]
fn times_to_come_that_a_wrong_clock_has_written_hold_a_pool_for_no_longer_than_from_now() {
    let policy = json!([{ "type": "Nodes", "value": 1, "periodSeconds": 60 }]);
    let behavior = json!({ "scaleUp": { "policies": policy, "stabilizationWindowSeconds": 60 } });
    let cluster = |status: &Value| {
        TestCluster::new()
            .autoscaler("x", json!({ "behavior": behavior }))
            .pool("a", json!({ "spec": { "replicas": 2 }, "status": { "autoscaling": status } }))
    };
    let (noon, tomorrow) = (at("2026-01-01T12:00:00Z"), "2026-01-02T12:00:00Z");
    let ahead = json!({
        "writtenReplicas": 3,
        "lastScaleUpTime": tomorrow,
        "lastDecision": { "id": "d", "fromReplicas": 1, "toReplicas": 3, "reason": "ScaleUp", "message": "m", "time": tomorrow },
        "contested": { "replicas": 2, "writer": "kubectl", "sinceTime": tomorrow },
        "recommendations": [{ "replicas": 1, "time": tomorrow }, { "replicas": 3, "time": tomorrow }],
        "scaleEvents": [{ "change": 2, "time": tomorrow }],
    });
    let status = reported(&cluster(&ahead), &DecisionState::Settled).1.unwrap();
    assert_eq!(status.last_scale_up_time, Some(noon.clone()));
    assert_eq!(status.last_decision.as_ref().map(|last| &last.time), Some(&noon));
    assert_eq!(status.contested.as_ref().map(|contested| &contested.since_time), Some(&noon));
    assert!(status.recommendations.len() >= 2, "{:?}", status.recommendations);
    assert!(status.recommendations.iter().all(|one| one.time == noon), "{:?}", status.recommendations);
    assert_eq!(status.scale_events, [ScaleEvent { change: 2, time: noon }]);

    let mut later = cluster(&serde_json::to_value(&status).unwrap());
    assert_eq!(reported(&later, &DecisionState::Settled).1.unwrap(), status, "and nothing more is written");
    later.observed.now = "2026-01-01T12:10:00Z".parse().unwrap();
    let plan = plan_for_cluster(&later.observed);
    assert_eq!(plan.pool("a").limits.replicas_writer.contest, None, "it was kept for ten minutes");
}

#[test]
fn what_keeps_a_pool_from_its_number_is_said_as_a_horizontal_pod_autoscaler_does() {
    let up = |rules: Value| json!({ "scaleUp": rules });
    let policy = json!([{ "type": "Nodes", "value": 1, "periodSeconds": 60 }]);
    for (behavior, able, limited) in [
        (json!({}), "True/ReadyForNewScale", "False/DesiredWithinRange"),
        (up(json!({ "policies": policy })), "True/ReadyForNewScale", "True/ScaleUpLimit"),
        (up(json!({ "selectPolicy": "Disabled" })), "True/ReadyForNewScale", "True/ScaleUpLimit"),
        (
            up(json!({ "stabilizationWindowSeconds": 60 })),
            "True/ScaleUpStabilized",
            "False/DesiredWithinRange",
        ),
    ] {
        let cluster = TestCluster::new()
            .autoscaler("x", json!({ "behavior": behavior }))
            .pool("a", json!({}))
            .pending("p", 3, "4", &json!({}));
        let conditions = short(&reported(&cluster, &DecisionState::Settled).2);
        assert_eq!(conditions[0], format!("AbleToScale={able}"), "{behavior}");
        assert_eq!(conditions[2], format!("ScalingLimited={limited}"), "{behavior}");
    }
}

#[test]
fn a_node_that_an_earlier_decision_named_and_that_is_not_marked_is_named_again() {
    // Two of four nodes are named for the count of two; the third is unneeded too.
    let owned = || {
        json!({ "metadata": { "labels": { "app": "web" }, "ownerReferences": [
            { "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o", "uid": "u", "controller": true }] } })
    };
    let cluster = || {
        let named = json!({ "scaleDown": { "targetReplicas": 2, "decisionID": "x", "nodes": ["n1", "n2"] } });
        let pool = json!({ "spec": { "replicas": 2 }, "status": { "autoscaling": named } });
        let cluster =
            TestCluster::eager().pool("a", pool).node("a", "n1", json!({})).node("a", "n2", json!({}));
        cluster.node("a", "n3", json!({})).node("a", "n4", json!({})).running("r", "n4", "4", owned())
    };
    let written = |cluster: &TestCluster| {
        let plan = plan_for_cluster(&cluster.observed);
        let written = victims(plan.pool("a"), &cluster.observed.nodes).unwrap();
        (written.target_replicas, written.nodes)
    };
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(written(&cluster()), (1, names(&["n1", "n2", "n3"])));
    // A pod that comes in between makes the pool grow, and the same two are still the victims.
    let grown = cluster().running("s", "n3", "4", owned()).pending("p", 1, "1", &json!({}));
    assert_eq!(written(&grown), (3, names(&["n1", "n2"])));
}
