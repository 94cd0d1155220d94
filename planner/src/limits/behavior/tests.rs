//! Tests of how policies and stabilization windows change a plan.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::ScalingPlan;
use crate::fixtures::{NOW, Read as _, TestCluster, merged};
use crate::limits::behavior::BehaviorStage;

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn after(seconds: i64) -> Timestamp {
    now() + SignedDuration::from_secs(seconds)
}

fn ago(seconds: i64) -> String {
    after(-seconds).to_string()
}

/// Pool `a` of up to 10 nodes with `replicas` empty nodes, this behavior and this history.
fn cluster(replicas: i32, behavior: &Value, memory: &Value) -> TestCluster {
    let spec =
        json!({ "behavior": behavior, "scaleDown": { "unneededSeconds": 0, "delayAfterAddSeconds": 0 } });
    let pool = json!({ "spec": { "replicas": replicas },
        "status": { "autoscaling": merged(json!({ "writtenReplicas": replicas }), memory.clone()) } });
    let cluster = TestCluster::new().autoscaler("x", spec).pool("a", pool);
    (0..replicas).fold(cluster, |cluster, at| cluster.node("a", &format!("n{at}"), json!({})))
}

/// Pods that need a whole node each: one on each node, and `more` that are pending.
fn busy(cluster: TestCluster, nodes: i32, more: usize) -> TestCluster {
    let running =
        |cluster: TestCluster, at: i32| cluster.running(&format!("r{at}"), &format!("n{at}"), "4", json!({}));
    (0..nodes).fold(cluster, running).pending("p", more, "4", &json!({}))
}

fn nodes(value: i32, period: i32) -> Value {
    json!([{ "type": "Nodes", "value": value, "periodSeconds": period }])
}

fn change(change: i32, seconds: i64) -> Value {
    json!({ "change": change, "time": ago(seconds) })
}

fn wanted(replicas: i32, seconds: i64) -> Value {
    json!({ "replicas": replicas, "time": ago(seconds) })
}

fn said(plan: &ScalingPlan) -> (i32, i32, bool, &'static str) {
    let decision = plan.pool("a");
    (decision.desired, decision.wanted, decision.limited, decision.reason.as_str())
}

#[test]
fn a_policy_limits_growth_and_says_so() {
    let up = |policies: Value| json!({ "scaleUp": { "policies": policies } });
    let events = |events: Value| json!({ "scaleEvents": events });
    let percent = json!([{ "type": "Percent", "value": 50, "periodSeconds": 60 }]);
    for (what, replicas, more, behavior, memory, expected, next) in [
        ("no behaviour", 2, 6, json!({}), json!({}), (8, 8, false, "ScaleUp"), None),
        ("no policies", 2, 6, up(json!([])), json!({}), (8, 8, false, "ScaleUp"), None),
        ("enough", 2, 6, up(nodes(6, 60)), json!({}), (8, 8, false, "ScaleUp"), None),
        ("two of them", 2, 6, up(nodes(2, 60)), json!({}), (4, 8, true, "ScaleUp"), None),
        ("half of them", 2, 6, up(percent), json!({}), (3, 8, true, "ScaleUp"), None),
        (
            "none left of this period",
            4,
            4,
            up(nodes(2, 60)),
            events(json!([change(2, 20)])),
            (4, 8, true, "ScaleUpLimit"),
            Some(40),
        ),
        (
            "a new period",
            4,
            4,
            up(nodes(2, 60)),
            events(json!([change(2, 60)])),
            (6, 8, true, "ScaleUp"),
            None,
        ),
        ("beyond max as well", 8, 9, up(nodes(1, 60)), json!({}), (9, 10, true, "ScaleUp"), None),
        ("max is closer", 8, 9, up(nodes(5, 60)), json!({}), (10, 10, true, "ScaleUp"), None),
    ] {
        let plan = busy(cluster(replicas, &behavior, &memory), replicas, more).plan();
        assert_eq!(said(&plan), expected, "{what}");
        assert_eq!(plan.next, next.map(after), "{what}");
    }
}

#[test]
fn a_policy_limits_shrinking_and_that_is_no_cut_of_what_pods_asked_for() {
    let down = |policies: Value| json!({ "scaleDown": { "policies": policies } });
    for (what, behavior, memory, expected, next) in [
        ("no behaviour", json!({}), json!({}), (0, 0, false, "ScaleDown"), None),
        ("two of them", down(nodes(2, 60)), json!({}), (4, 0, false, "ScaleDown"), None),
        (
            "none left of this period",
            down(nodes(2, 60)),
            json!({ "scaleEvents": [change(-2, 20)] }),
            (6, 0, false, "ScaleDownLimit"),
            Some(40),
        ),
    ] {
        let plan = cluster(6, &behavior, &memory).plan();
        assert_eq!(said(&plan), expected, "{what}");
        assert_eq!(plan.next, next.map(after), "{what}");
        let removed = usize::try_from(6 - expected.0).unwrap();
        assert_eq!(plan.pool("a").victims.len(), removed, "{what}");
    }
}

#[test]
fn a_direction_that_is_disabled_stops_that_direction_and_no_correction() {
    let both = json!({ "scaleUp": { "selectPolicy": "Disabled", "policies": nodes(9, 60), "stabilizationWindowSeconds": 60 },
                       "scaleDown": { "selectPolicy": "Disabled" } });
    assert_eq!(said(&busy(cluster(2, &both, &json!({})), 2, 5).plan()), (2, 2, true, "ScaleUpLimit"));
    let idle = cluster(4, &both, &json!({})).plan();
    assert_eq!(said(&idle), (4, 4, false, "DesiredWithinRange"));
    let slow = json!({ "scaleUp": { "policies": nodes(1, 3600), "stabilizationWindowSeconds": 3600 },
                       "scaleDown": { "policies": nodes(1, 3600), "stabilizationWindowSeconds": 3600 } });
    for behavior in [both, slow] {
        for (replicas, min, max, desired) in [(2, 5, 9, 5), (6, 0, 3, 3)] {
            let mut cluster = cluster(replicas, &behavior, &json!({}));
            let mut pool = (*cluster.observed.pools[0]).clone();
            (pool.spec.min_replicas, pool.spec.max_replicas) = (min, max);
            cluster.observed.pools = vec![std::sync::Arc::new(pool)];
            let plan = cluster.plan();
            assert_eq!(plan.desired("a"), desired, "{replicas} in {min} to {max}");
            let limits = &plan.pool("a").limits;
            let bound = usize::try_from(desired).unwrap();
            assert!(limits.ceiling(BehaviorStage::Limited).unwrap() >= bound, "{limits:?}");
            assert!(limits.floor(BehaviorStage::Limited).unwrap() <= bound, "{limits:?}");
        }
    }
}

#[test]
fn a_pool_grows_to_the_lowest_number_that_was_wanted_within_the_window() {
    let up = json!({ "scaleUp": { "stabilizationWindowSeconds": 60 } });
    for (what, memory, desired, reason, next) in [
        // Of the time before, only the number of nodes is known, and that it was enough.
        ("no record", json!([]), 2, "ScaleUpStabilized", Some(60)),
        ("wanted just now", json!([wanted(2, 10), wanted(8, 10)]), 2, "ScaleUpStabilized", Some(50)),
        ("wanted for long enough", json!([wanted(2, 60), wanted(8, 60)]), 8, "ScaleUp", None),
        ("fewer in between", json!([wanted(8, 90), wanted(5, 50), wanted(8, 30)]), 5, "ScaleUp", Some(10)),
        ("more in between", json!([wanted(8, 90), wanted(9, 50), wanted(8, 30)]), 8, "ScaleUp", None),
    ] {
        let plan = busy(cluster(2, &up, &json!({ "recommendations": memory })), 2, 6).plan();
        assert_eq!(said(&plan), (desired, 8, false, reason), "{what}");
        assert_eq!(plan.next, next.map(after), "{what}");
    }
}

#[test]
fn a_pool_shrinks_to_the_highest_number_that_was_wanted_within_the_window() {
    let down = json!({ "scaleDown": { "stabilizationWindowSeconds": 300 } });
    for (what, memory, desired, reason, next) in [
        ("no record", json!([]), 6, "ScaleDownStabilized", Some(300)),
        ("wanted for long enough", json!([wanted(6, 400), wanted(1, 300)]), 1, "ScaleDown", None),
        (
            "more a while ago",
            json!([wanted(6, 400), wanted(4, 350), wanted(1, 250)]),
            4,
            "ScaleDown",
            Some(50),
        ),
    ] {
        let plan = busy(cluster(6, &down, &json!({ "recommendations": memory })), 1, 0).plan();
        assert_eq!(said(&plan), (desired, 1, false, reason), "{what}");
        assert_eq!(plan.next, next.map(after), "{what}");
    }
    let at_once = json!({ "scaleDown": { "stabilizationWindowSeconds": 0 } });
    assert_eq!(said(&busy(cluster(6, &at_once, &json!({})), 1, 0).plan()), (1, 1, false, "ScaleDown"));
}

#[test]
fn what_one_pool_may_not_take_yet_goes_to_another() {
    let up = json!({ "scaleUp": { "policies": nodes(1, 60) } });
    let spec = json!({ "behavior": up });
    let plan = TestCluster::new()
        .autoscaler("x", spec)
        .pool("a", json!({}))
        .pool("b", json!({}))
        .pending("p", 3, "4", &json!({}))
        .plan();
    assert_eq!((plan.desired("a"), plan.desired("b")), (1, 1));
}

#[test]
fn a_pool_that_has_changed_too_often_to_remember_rests() {
    let up = json!({ "scaleUp": { "policies": nodes(100, 3600) } });
    let changes: Vec<_> = (0..256).map(|at| change(if at % 2 == 0 { 1 } else { -1 }, 600 - at)).collect();
    let plan = busy(cluster(2, &up, &json!({ "scaleEvents": changes })), 2, 5).plan();
    assert_eq!(said(&plan), (2, 7, true, "ScaleUpLimit"));
    let fewer = busy(cluster(2, &up, &json!({ "scaleEvents": changes[1..] })), 2, 5).plan();
    assert_eq!(fewer.desired("a"), 7);
}

#[test]
fn what_is_remembered_goes_when_nothing_asks_for_it() {
    let memory = json!({ "recommendations": [wanted(2, 10)], "scaleEvents": [change(1, 10)] });
    for (behavior, recommendations, events) in [
        (json!({}), 0, 0),
        (json!({ "scaleUp": { "policies": nodes(1, 60) } }), 0, 1),
        (json!({ "scaleDown": { "stabilizationWindowSeconds": 60 } }), 1, 0),
    ] {
        let plan = busy(cluster(2, &behavior, &memory), 2, 0).plan();
        let memory = &plan.pool("a").limits.memory;
        assert_eq!(
            (memory.recommendations.len(), memory.events.len()),
            (recommendations, events),
            "{behavior}"
        );
    }
}
