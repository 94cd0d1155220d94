//! Kubernetes events with the reasons that users of Cluster Autoscaler know. Each is published on a change only: of
//! replicas, or of why a pod gets no node.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource as _;
use planner::input::observed::key;
use planner::limits::contested::ContestResponse;
use planner::{Observed, PoolDecision, ScalingPlan};
use shared_runtime::events::{EventKind, Recorder};

use crate::outcome::Outcome;
use crate::status::pod_events::{Saying, Told};

/// A scale-up of a pool.
const SCALED_UP_GROUP: EventKind = EventKind::normal("ScaledUpGroup", "ScaleUp");
/// A scale-down of a pool; one of its nodes is removed.
const SCALE_DOWN: EventKind = EventKind::normal("ScaleDown", "ScaleDown");
/// A pool should grow and its replicas cannot be written.
const FAILED_TO_SCALE_UP: EventKind = EventKind::warning("FailedToScaleUpGroup", "ScaleUp");
/// A pool should shrink and its replicas cannot be written.
const SCALE_DOWN_FAILED: EventKind = EventKind::warning("ScaleDownFailed", "ScaleDown");

/// Another writer has set the pool's replicas, and its number is kept for now.
const REPLICAS_CONTESTED: EventKind = EventKind::warning("ReplicasContested", "Yield");
/// Another writer has set the pool's replicas, and its number was overwritten.
const REPLICAS_RECLAIMED: EventKind = EventKind::warning("ReplicasReclaimed", "Reclaim");

/// Maximum number of removed nodes that get an event in one pass; the pool's event names them all.
const MOST_IN_A_PASS: usize = 100;

/// Publishes events about what has changed.
pub(crate) fn publish(
    recorder: &Recorder,
    told: &Told,
    observed: &Observed,
    plan: &ScalingPlan,
    outcomes: &[Outcome],
) {
    for (decision, outcome) in plan.pools.iter().zip(outcomes) {
        contested(recorder, decision, outcome);
        match outcome {
            Outcome::Scaled => scaled(recorder, observed, decision),
            Outcome::Failed(_) => {
                let kind =
                    if decision.desired < decision.current { SCALE_DOWN_FAILED } else { FAILED_TO_SCALE_UP };
                let note = format!(
                    "cannot set replicas from {} to {}; it is tried again",
                    decision.current, decision.desired
                );
                recorder.publish(&decision.object.object_ref(&()), kind, note);
            }
            Outcome::Settled
            | Outcome::Outdated
            | Outcome::Unobserved
            | Outcome::Gone
            | Outcome::Waiting(_) => {}
        }
    }
    for Saying { about, kind, note } in told.sayings(observed, plan, outcomes) {
        recorder.publish(&about, kind, note);
    }
}

fn contested(recorder: &Recorder, decision: &PoolDecision, outcome: &Outcome) {
    let Some(contest) = &decision.limits.claim.contest else { return };
    let pool = decision.object.object_ref(&());
    let (writer, theirs) = (contest.writer(), contest.record.replicas);
    match contest.course {
        ContestResponse::Yield if contest.is_new => {
            let note = format!("{writer} set replicas to {theirs}, which is kept until {}", contest.until());
            recorder.publish(&pool, REPLICAS_CONTESTED, note);
        }
        ContestResponse::Reclaim if matches!(outcome, Outcome::Scaled) => {
            let note = format!("{writer} set replicas to {theirs}; replicas set to {}", decision.desired);
            recorder.publish(&pool, REPLICAS_RECLAIMED, note);
        }
        ContestResponse::Yield | ContestResponse::Reclaim | ContestResponse::Reclaimed => {}
    }
}

fn scaled(recorder: &Recorder, observed: &Observed, decision: &PoolDecision) {
    let pool = decision.object.object_ref(&());
    let PoolDecision { current, desired, message, .. } = decision;
    if desired > current {
        let max = decision.object.spec.max_replicas;
        recorder.publish(
            &pool,
            SCALED_UP_GROUP,
            format!("replicas set from {current} to {desired} (max {max}): {message}"),
        );
    } else if desired < current {
        let going = decision.victims.join(", ");
        recorder.publish(
            &pool,
            SCALE_DOWN,
            format!("replicas set from {current} to {desired}: {message}; going: {going}"),
        );
    }
    let going = observed
        .nodes
        .iter()
        .filter(|n| n.metadata.name.as_ref().is_some_and(|n| decision.victims.contains(n)));
    for node in going.take(MOST_IN_A_PASS) {
        let (namespace, name) = key(&decision.object.metadata);
        // The kubelet's events about a node carry the node's name as its UID, and `kubectl describe node` looks for
        // that.
        let about = ObjectReference { uid: node.metadata.name.clone(), ..node.object_ref(&()) };
        recorder.publish(
            &about,
            SCALE_DOWN,
            format!("NodePool {namespace}/{name} goes to {desired} nodes: {message}"),
        );
    }
}
