//! A pool over time, with written decisions and carried-over statuses: no restart loses anything, the limits always
//! hold, and where nothing happens nothing is written.

use std::sync::Arc;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use planner::fixtures::{NOW, Read as _, TestCluster};
use planner::plan_for_cluster;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// An event after some milliseconds: this many pods request a node of their own, and the report of the write is lost or
/// not.
#[derive(Clone, Debug)]
struct Step {
    millis: i64,
    pods: i32,
    lost: bool,
}

/// How a status is carried from one pass to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carried {
    /// In memory, as a planner that is never restarted has it.
    InMemory,
    /// As JSON through the API server.
    Restarted,
}

/// One pass: the time, the existing, the wanted and the decided count.
#[derive(Clone, Debug, PartialEq)]
struct Pass {
    now: Timestamp,
    current: i32,
    wanted: i32,
    desired: i32,
    status: AutoscalingStatus,
}

fn pass(
    (now, written): (Timestamp, Timestamp),
    behavior: &Value,
    (replicas, pods): (i32, i32),
    status: &AutoscalingStatus,
) -> PoolDecision {
    let spec =
        json!({ "behavior": behavior, "scaleDown": { "unneededSeconds": 0, "delayAfterAddSeconds": 0 } });
    // The API server records the operator's own writes as such.
    let fields = json!([{ "manager": "autoscaler-operator", "time": Time(written), "fieldsV1": { "f:spec": { "f:replicas": {} } } }]);
    let mut cluster = TestCluster::new().autoscaler("x", spec).pool(
        "a",
        json!({ "metadata": { "managedFields": fields }, "spec": { "replicas": replicas, "maxReplicas": 30 } }),
    );
    cluster.observed.now = now;
    let mut pool = (*cluster.observed.pools[0]).clone();
    let status = Some(status.clone());
    pool.status = Some(NodePoolStatus { autoscaling: status, ..Default::default() });
    cluster.observed.pools = vec![Arc::new(pool)];
    for at in 0..replicas {
        cluster = cluster.node("a", &format!("n{at:02}"), json!({}));
    }
    for at in 0..replicas.min(pods) {
        cluster = cluster.running(&format!("r{at}"), &format!("n{at:02}"), "4", json!({}));
    }
    let waiting = usize::try_from(pods - replicas.min(pods)).unwrap();
    plan_for_cluster(&cluster.pending("p", waiting, "4", &json!({})).observed).pool("a").clone()
}

fn run(behavior: &Value, steps: &[Step], carried: Carried) -> Vec<Pass> {
    let mut now = NOW.parse::<Timestamp>().unwrap();
    let (mut replicas, mut status) =
        (3, AutoscalingStatus { written_replicas: Some(3), ..Default::default() });
    let mut passes = Vec::new();
    let (mut written, mut lost) = (now, false);
    for step in steps {
        now = now.checked_add(SignedDuration::from_millis(step.millis)).unwrap();
        let decision = pass((now, written), behavior, (replicas, step.pods), &status);
        let time = Time(now);
        let scales = decision.changes_replicas();
        let state =
            if scales { DecisionState::Scaled(Scaled::of(&decision, &time)) } else { DecisionState::Settled };
        // Of two in a row only the sum of their changes would be known.
        lost = scales && step.lost && !lost;
        if !lost {
            status = autoscaling(&decision.object, &decision, &state, &time).unwrap();
        }
        if carried == Carried::Restarted {
            status = serde_json::from_str(&serde_json::to_string(&status).unwrap()).unwrap();
        }
        let (wanted, desired) = (decision.wanted, decision.desired);
        passes.push(Pass { now, current: replicas, wanted, desired, status: status.clone() });
        replicas = desired;
        written = if scales { now } else { written };
    }
    passes
}

fn steps(lost: f64) -> impl Strategy<Value = Vec<Step>> {
    let step = (1_i64..40_000, 0_i32..12, prop::bool::weighted(lost)).prop_map(|(millis, pods, lost)| Step {
        millis,
        pods,
        lost,
    });
    prop::collection::vec(step, 1..25)
}

fn limited() -> Value {
    let nodes = |value: i32, period: i32| json!({ "type": "Nodes", "value": value, "periodSeconds": period });
    json!({ "scaleUp": { "selectPolicy": "Min", "policies": [nodes(3, 60), nodes(2, 20)] },
            "scaleDown": { "policies": [nodes(2, 45)] } })
}

fn stabilized() -> Value {
    json!({ "scaleUp": { "stabilizationWindowSeconds": 30 }, "scaleDown": { "stabilizationWindowSeconds": 90 } })
}

fn both() -> Value {
    let (mut both, other) = (limited(), stabilized());
    for direction in ["scaleUp", "scaleDown"] {
        both[direction]["stabilizationWindowSeconds"] =
            other[direction]["stabilizationWindowSeconds"].clone();
    }
    both
}

/// The count `seconds` before `now`, on a clock of whole seconds.
fn before(passes: &[Pass], now: Timestamp, seconds: i64) -> i32 {
    passes
        .iter()
        .take_while(|pass| pass.now.as_second() <= now.as_second() - seconds)
        .last()
        .map_or(3, |pass| pass.desired)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_planner_that_is_restarted_at_every_step_decides_as_one_that_never_is(steps in steps(0.0)) {
        for behavior in [limited(), stabilized(), both()] {
            let decided = |carried| {
                let passes = run(&behavior, &steps, carried);
                passes.into_iter().map(|pass| (pass.current, pass.wanted, pass.desired)).collect::<Vec<_>>()
            };
            prop_assert_eq!(decided(Carried::Restarted), decided(Carried::InMemory), "{}", behavior);
        }
    }

    #[test]
    fn no_period_sees_more_change_than_its_policy_allows_also_where_reports_are_lost(steps in steps(0.3)) {
        let passes = run(&limited(), &steps, Carried::Restarted);
        for (at, pass) in passes.iter().enumerate() {
            let was = |seconds| before(&passes[..at], pass.now, seconds);
            if pass.desired > pass.current {
                prop_assert!(pass.desired <= was(60) + 3 && pass.desired <= was(20) + 2, "{at} of {passes:#?}");
            } else if pass.desired < pass.current {
                prop_assert!(pass.desired >= was(45) - 2, "{at} of {passes:#?}");
            }
        }
    }

    #[test]
    fn a_pool_goes_only_where_it_was_wanted_for_a_whole_window(steps in steps(0.0)) {
        let passes = run(&stabilized(), &steps, Carried::Restarted);
        for (at, pass) in passes.iter().enumerate() {
            let up = pass.desired > pass.current;
            let window = if up { 30 } else { 90 };
            let begins = pass.now.as_second() - window;
            let within = passes[..=at].iter().filter(|other| other.now.as_second() > begins);
            for other in within.filter(|_| pass.desired != pass.current) {
                let agrees = if up { other.wanted >= pass.desired } else { other.wanted <= pass.desired };
                prop_assert!(agrees, "{at} of {passes:#?}");
            }
        }
    }

    #[test]
    fn where_nothing_happens_nothing_is_written(steps in steps(0.0), quiet in prop::collection::vec(1_i64..5_000_000, 1..6)) {
        for behavior in [limited(), stabilized(), both()] {
            let pods = steps.last().unwrap().pods;
            let same = |millis| Step { millis, pods, lost: false };
            // Long enough for the last pods to have all the nodes they request.
            let settle = std::iter::repeat_n(same(91_000), 12);
            let all: Vec<_> = steps.iter().cloned().chain(settle).chain(quiet.iter().map(|&q| same(q))).collect();
            let passes = run(&behavior, &all, Carried::Restarted);
            let settled = &passes[steps.len() + 11..];
            prop_assert_eq!(settled[0].desired, pods, "it settles: {}", behavior);
            for pass in &settled[1..] {
                prop_assert_eq!(&pass.status, &settled[0].status, "{}", behavior);
            }
        }
    }
}
