//! What a pool's status says in each situation.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use shared_crds::v1alpha1::NodePoolStatus;

use super::*;
use crate::plan::{
    fixtures::{Read as _, World},
    plan_for_cluster,
};

fn at(time: &str) -> Time {
    Time(time.parse::<Timestamp>().unwrap())
}

/// The decision about pool `a`, and the status it leads to from the status the pool has.
fn reported(
    world: &World,
    standing: &Standing,
) -> (PoolDecision, Option<AutoscalingStatus>, Vec<(String, String, String)>) {
    let decision = plan_for_cluster(&world.observed).pool("a").clone();
    let owned = owned(&decision.object, &decision, standing, &at("2026-01-01T12:00:00Z"));
    let conditions = owned.conditions.into_iter().map(|c| (c.type_, c.status, c.reason)).collect();
    let autoscaling =
        owned.fields.get("autoscaling").cloned().map(|value| serde_json::from_value(value).unwrap());
    (decision, autoscaling, conditions)
}

/// The decision about pool `a` was written at noon.
fn scaled(world: &World) -> Standing {
    let decision = plan_for_cluster(&world.observed).pool("a").clone();
    Standing::Scaled(Scaled::of(&decision, &at("2026-01-01T12:00:00Z")))
}

fn short(conditions: &[(String, String, String)]) -> Vec<String> {
    conditions.iter().map(|(type_, status, reason)| format!("{type_}={status}/{reason}")).collect()
}

fn with_status(status: &Value) -> Value {
    json!({ "spec": { "replicas": 2 }, "status": { "autoscaling": status } })
}

#[test]
fn a_written_scale_up_is_recorded_with_its_time_and_names_no_victims() {
    let before = json!({ "scaleDown": { "targetReplicas": 2, "decisionID": "old", "nodes": ["x"] } });
    let world = World::eager().pool("a", with_status(&before)).pending("p", 12, "1", &json!({}));
    let (decision, autoscaling, conditions) = reported(&world, &scaled(&world));
    let autoscaling = autoscaling.unwrap();
    assert_eq!(autoscaling.autoscaler.as_deref(), Some("all"));
    assert_eq!(autoscaling.desired_replicas, Some(3));
    assert_eq!(autoscaling.last_scale_up_time, Some(at("2026-01-01T12:00:00Z")));
    let last = autoscaling.last_decision.unwrap();
    assert_eq!((last.from_replicas, last.to_replicas, last.id), (2, 3, decision.id));
    assert_eq!(autoscaling.scale_down, None);
    assert_eq!(
        short(&conditions),
        [
            "AbleToScale=True/SucceededRescale",
            "ScalingActive=True/ValidPoolFound",
            "ScalingLimited=False/DesiredWithinRange"
        ]
    );
}

#[test]
fn victims_are_in_status_before_and_after_the_replicas_are_written() {
    let world = World::eager().pool("a", with_status(&json!({}))).node("a", "n1", json!({})).node(
        "a",
        "n2",
        json!({}),
    );
    let decision = plan_for_cluster(&world.observed).pool("a").clone();
    let plan =
        ScaleDownPlan { decision_id: decision.id, target_replicas: 0, nodes: vec!["n1".into(), "n2".into()] };
    for standing in [Standing::Announced(plan.clone()), scaled(&world)] {
        let (_, autoscaling, _) = reported(&world, &standing);
        let autoscaling = autoscaling.unwrap();
        assert_eq!(autoscaling.scale_down, Some(plan.clone()), "{standing:?}");
        assert_eq!(autoscaling.last_decision.is_some(), matches!(standing, Standing::Scaled(_)));
        assert_eq!(autoscaling.last_scale_up_time, None);
    }
}

#[test]
fn victims_stay_in_status_until_they_are_gone_or_the_replicas_are_others() {
    let named = |target: i32| json!({ "scaleDown": { "targetReplicas": target, "decisionID": "x", "nodes": ["n3"] } });
    let busy = |world: World| {
        world
            .node("a", "n1", json!({}))
            .node("a", "n2", json!({}))
            .running("r", "n1", "1", json!({}))
            .running("s", "n2", "1", json!({}))
    };
    for (what, world, kept) in [
        (
            "on its way out",
            busy(World::eager().pool("a", with_status(&named(2)))).node("a", "n3", json!({})),
            true,
        ),
        ("gone", busy(World::eager().pool("a", with_status(&named(2)))), false),
        ("other replicas", busy(World::eager().pool("a", with_status(&named(1)))), false),
    ] {
        let (_, autoscaling, _) = reported(&world, &Standing::Settled);
        assert_eq!(autoscaling.unwrap().scale_down.is_some(), kept, "{what}");
    }
}

#[test]
fn a_recommendation_is_recorded_once_and_never_names_victims() {
    let world = |status: &Value| {
        World::new()
            .autoscaler("r", json!({ "mode": "Recommend", "scaleDown": { "unneededSeconds": 0, "delayAfterAddSeconds": 0 } }))
            .pool("a", with_status(status))
            .node("a", "n1", json!({}))
            .node("a", "n2", json!({}))
    };
    let (_, autoscaling, conditions) = reported(&world(&json!({})), &Standing::Settled);
    let autoscaling = autoscaling.unwrap();
    assert_eq!((autoscaling.desired_replicas, autoscaling.scale_down.is_none()), (Some(0), true));
    assert_eq!(short(&conditions)[1], "ScalingActive=True/RecommendOnly");
    let first = autoscaling.last_decision.clone();
    assert!(first.is_some());
    let (_, again, _) = reported(&world(&serde_json::to_value(&autoscaling).unwrap()), &Standing::Settled);
    assert_eq!(again.unwrap().last_decision, first);
}

#[test]
fn pools_that_are_not_planned_say_so_or_say_nothing() {
    for (what, world, expected) in [
        ("nobody", World::new(), vec![]),
        (
            "off",
            World::new().autoscaler("o", json!({ "mode": "Off" })),
            vec!["AbleToScale=False/AutoscalerOff", "ScalingActive=False/AutoscalerOff"],
        ),
        (
            "two",
            World::new().autoscaler("o", json!({})).autoscaler("p", json!({})),
            vec!["AbleToScale=False/AmbiguousSelector", "ScalingActive=False/AmbiguousSelector"],
        ),
    ] {
        let (_, autoscaling, conditions) = reported(&world.pool("a", json!({})), &Standing::Settled);
        assert_eq!(autoscaling, None, "{what}");
        assert_eq!(short(&conditions), expected, "{what}");
    }
}

#[test]
fn a_failed_write_and_a_bound_are_said_in_conditions() {
    let world =
        World::eager().pool("a", json!({ "spec": { "maxReplicas": 1 } })).pending("p", 9, "1", &json!({}));
    let (_, autoscaling, conditions) = reported(&world, &Standing::Failed("forbidden".into()));
    assert_eq!(autoscaling.unwrap().last_decision, None);
    assert_eq!(
        short(&conditions),
        [
            "AbleToScale=False/FailedUpdateScale",
            "ScalingActive=True/ValidPoolFound",
            "ScalingLimited=True/TooManyReplicas"
        ]
    );
}

#[test]
fn what_was_reported_is_reported_again_in_the_next_pass() {
    let world =
        World::eager().pool("a", json!({ "spec": { "replicas": 1 } })).pending("p", 12, "1", &json!({}));
    let decision = plan_for_cluster(&world.observed).pool("a").clone();
    let first = owned(&decision.object, &decision, &scaled(&world), &at("2026-01-01T12:00:00Z"));
    let mut pool = (*decision.object).clone();
    pool.spec.replicas = Some(decision.desired);
    let autoscaling =
        first.fields.get("autoscaling").cloned().map(|value| serde_json::from_value(value).unwrap());
    pool.status = Some(NodePoolStatus {
        autoscaling,
        conditions: first.conditions.clone(),
        ..NodePoolStatus::default()
    });
    let mut world = world;
    world.observed.pools = vec![std::sync::Arc::new(pool)];
    let next = plan_for_cluster(&world.observed).pool("a").clone();
    assert!(!next.changes_replicas());
    let second = owned(&next.object, &next, &Standing::Settled, &at("2026-01-01T12:00:30Z"));
    assert_eq!(second, first, "nothing to write");
    assert_eq!(untouched(&next.object), first);
}

#[test]
fn a_decision_that_could_not_be_reported_is_reported_by_the_next_pass() {
    let world = World::eager().pool("a", json!({})).pending("p", 4, "1", &json!({}));
    let earlier = scaled(&world);
    let later =
        World::eager().pool("a", json!({ "spec": { "replicas": 1 } })).pending("p", 4, "1", &json!({}));
    let (decision, autoscaling, conditions) = reported(&later, &earlier);
    assert!(!decision.changes_replicas());
    let last = autoscaling.unwrap().last_decision.unwrap();
    assert_eq!((last.from_replicas, last.to_replicas), (0, 1));
    assert_eq!(short(&conditions)[0], "AbleToScale=True/SucceededRescale");
}
