//! Events on pools and on the nodes that they remove, with the reasons that users of Cluster Autoscaler know. There is
//! one where replicas have changed, or should and cannot.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource as _;
use planner::{ContestResponse, Observed, PoolDecision, ScalingPlan};
use shared_crds::QualifiedName;
use shared_runtime::events::EventKind;

use crate::outcome::PoolOutcome;

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

/// All of these, each with the kinds of objects it is on and when it is published.
pub(crate) const ALL: &[(EventKind, &str, &str)] = &[
    (
        SCALED_UP_GROUP,
        "NodePool",
        "The pool was scaled up; the note says from and to how many nodes, and for what.",
    ),
    (SCALE_DOWN, "NodePool, Node", "The pool was scaled down, and the node is one of those that go."),
    (
        FAILED_TO_SCALE_UP,
        "NodePool",
        "The pool should grow and its replicas cannot be written. It is tried again.",
    ),
    (
        SCALE_DOWN_FAILED,
        "NodePool",
        "The pool should shrink and its replicas cannot be written. It is tried again.",
    ),
    (
        REPLICAS_CONTESTED,
        "NodePool",
        "Another writer has set the pool's replicas, and its number is kept for now.",
    ),
    (
        REPLICAS_RECLAIMED,
        "NodePool",
        "Another writer has set the pool's replicas, and its number was overwritten.",
    ),
];

/// Maximum number of removed nodes that get an event in one pass; the pool's event names them all.
const MOST_IN_A_PASS: usize = 100;

/// An event to publish.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NewEvent {
    /// The object it is about.
    pub regarding: ObjectReference,
    /// Reason, action and type.
    pub kind: EventKind,
    /// Human-readable message.
    pub note: String,
}

/// The events on pools, and on the nodes that they remove. `waits` is whether the status of a pool is not written in this pass, because
/// it was refused a short while ago: what it would record is new in the next pass once more.
pub(crate) fn about_pools(
    observed: &Observed,
    plan: &ScalingPlan,
    outcomes: &[PoolOutcome],
    waits: impl Fn(&ObjectMeta) -> bool,
) -> Vec<NewEvent> {
    let mut events = Vec::new();
    for (decision, outcome) in plan.pools.iter().zip(outcomes) {
        let is_recorded = !waits(&decision.object.metadata);
        let contested = contested(decision, outcome);
        events.extend(contested.filter(|event| is_recorded || event.kind != REPLICAS_CONTESTED));
        match outcome {
            PoolOutcome::Scaled => scaled(&mut events, observed, decision),
            PoolOutcome::Failed(_) => {
                let kind =
                    if decision.desired < decision.current { SCALE_DOWN_FAILED } else { FAILED_TO_SCALE_UP };
                let note = format!(
                    "cannot set replicas from {} to {}; it is tried again",
                    decision.current, decision.desired
                );
                events.push(NewEvent { regarding: decision.object.object_ref(&()), kind, note });
            }
            PoolOutcome::Settled
            | PoolOutcome::Outdated
            | PoolOutcome::Unobserved
            | PoolOutcome::Gone
            | PoolOutcome::Waiting(_) => {}
        }
    }
    events
}

fn contested(decision: &PoolDecision, outcome: &PoolOutcome) -> Option<NewEvent> {
    let contest = decision.limits.replicas_writer.contest.as_ref()?;
    let (writer, theirs) = (contest.writer(), contest.record.replicas);
    let (kind, note) = match contest.course {
        ContestResponse::Yield if contest.is_new => {
            let note = format!("{writer} set replicas to {theirs}, which is kept until {}", contest.until());
            (REPLICAS_CONTESTED, note)
        }
        ContestResponse::Reclaim if matches!(outcome, PoolOutcome::Scaled) => {
            let note = format!("{writer} set replicas to {theirs}; replicas set to {}", decision.desired);
            (REPLICAS_RECLAIMED, note)
        }
        ContestResponse::Yield | ContestResponse::Reclaim | ContestResponse::Reclaimed => return None,
    };
    Some(NewEvent { regarding: decision.object.object_ref(&()), kind, note })
}

fn scaled(events: &mut Vec<NewEvent>, observed: &Observed, decision: &PoolDecision) {
    let PoolDecision { current, desired, message, .. } = decision;
    let mut on_pool = |kind, note| {
        events.push(NewEvent { regarding: decision.object.object_ref(&()), kind, note });
    };
    if desired > current {
        let max = decision.object.spec.max_replicas;
        on_pool(SCALED_UP_GROUP, format!("replicas set from {current} to {desired} (max {max}): {message}"));
    } else if desired < current {
        let going = decision.victims.join(", ");
        on_pool(
            SCALE_DOWN,
            format!("replicas set from {current} to {desired}: {message}; nodes to remove: {going}"),
        );
    }
    let going = observed
        .nodes
        .iter()
        .filter(|n| n.metadata.name.as_ref().is_some_and(|n| decision.victims.contains(n)));
    for node in going.take(MOST_IN_A_PASS) {
        let pool = QualifiedName::of(&decision.object.metadata);
        // The kubelet's events about a node carry the node's name as its UID, and `kubectl describe node` looks for
        // that.
        let regarding = ObjectReference { uid: node.metadata.name.clone(), ..node.object_ref(&()) };
        let note = format!("NodePool {pool} is scaled to {desired} nodes: {message}");
        events.push(NewEvent { regarding, kind: SCALE_DOWN, note });
    }
}

#[cfg(test)]
mod tests {
    use planner::fixtures::TestCluster;
    use planner::plan_for_cluster;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_contested_number_that_no_status_can_record_is_no_event_of_every_pass() {
        let status = json!({ "autoscaling": { "writtenReplicas": 3 } });
        let cluster = TestCluster::new()
            .autoscaler("x", json!({}))
            .pool("a", json!({ "spec": { "replicas": 2 }, "status": status }));
        let plan = plan_for_cluster(&cluster.observed);
        for (waits, reasons) in [(false, vec!["ReplicasContested"]), (true, vec![])] {
            let events = about_pools(&cluster.observed, &plan, &[PoolOutcome::Settled], |_| waits);
            assert_eq!(events.iter().map(|event| event.kind.reason()).collect::<Vec<_>>(), reasons);
        }
    }
}
