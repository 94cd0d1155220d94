//! Kubernetes events with the reasons that Cluster Autoscaler's users know. Each is published on a change only: of
//! replicas, or of why a pod gets no node.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::Resource as _;
use shared_runtime::events::{EventKind, Recorder};

use crate::{
    apply::Outcome,
    plan::{Fate, Observed, Plan, PoolDecision, observed::key},
};

/// A pod waits for a node that is being made for it.
const TRIGGERED_SCALE_UP: EventKind = EventKind::normal("TriggeredScaleUp", "ScaleUp");
/// No pool takes the pod.
const NOT_TRIGGER_SCALE_UP: EventKind = EventKind::normal("NotTriggerScaleUp", "ScaleUp");
/// A pool grows.
const SCALED_UP_GROUP: EventKind = EventKind::normal("ScaledUpGroup", "ScaleUp");
/// A pool shrinks; a node of it goes.
const SCALE_DOWN: EventKind = EventKind::normal("ScaleDown", "ScaleDown");
/// A pool should grow and its replicas cannot be written.
const FAILED_TO_SCALE_UP: EventKind = EventKind::warning("FailedToScaleUpGroup", "ScaleUp");
/// A pool should shrink and its replicas cannot be written.
const SCALE_DOWN_FAILED: EventKind = EventKind::warning("ScaleDownFailed", "ScaleDown");

/// Events about pods, and about nodes, in one pass. Ten thousand pods of one Deployment need not all be told.
const MOST_IN_A_PASS: usize = 100;

/// What pods have been told about why they get no node, by UID.
#[derive(Debug, Default)]
pub struct Told(Mutex<HashMap<String, String>>);

/// Publishes what has changed.
pub fn publish(recorder: &Recorder, told: &Told, observed: &Observed, plan: &Plan, outcomes: &[Outcome]) {
    for (decision, outcome) in plan.pools.iter().zip(outcomes) {
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
            Outcome::Settled | Outcome::Outdated | Outcome::Gone => {}
        }
    }
    pods(recorder, told, observed, plan, outcomes);
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
        // The kubelet's events about a node carry the node's name as its UID, and `kubectl describe node` looks for that.
        let about = ObjectReference { uid: node.metadata.name.clone(), ..node.object_ref(&()) };
        recorder.publish(
            &about,
            SCALE_DOWN,
            format!("NodePool {namespace}/{name} goes to {desired} nodes: {message}"),
        );
    }
}

fn pods(recorder: &Recorder, told: &Told, observed: &Observed, plan: &Plan, outcomes: &[Outcome]) {
    let by_key: HashMap<(&str, &str), &Pod> =
        observed.pods.iter().map(|pod| (key(&pod.metadata), &**pod)).collect();
    let grown: HashMap<String, &PoolDecision> = plan
        .pools
        .iter()
        .zip(outcomes)
        .filter(|(_, outcome)| matches!(outcome, Outcome::Scaled))
        .map(|(decision, _)| (id(decision), decision))
        .collect();
    let mut told = told.0.lock().unwrap_or_else(PoisonError::into_inner);
    let mut still = HashMap::new();
    let mut left = MOST_IN_A_PASS;
    for outcome in &plan.pods {
        let Some(pod) = by_key.get(&(outcome.namespace.as_str(), outcome.name.as_str())) else { continue };
        match &outcome.fate {
            Fate::TriggersScaleUp { pool } => {
                if let (Some(decision), true) = (grown.get(pool), left > 0) {
                    left -= 1;
                    recorder.publish(&pod.object_ref(&()), TRIGGERED_SCALE_UP, triggered(pool, decision));
                }
            }
            Fate::Unschedulable { reasons } if !reasons.is_empty() => {
                let note = not_triggered(reasons.iter().map(|r| (r.pool.as_str(), r.reason)));
                let uid = pod.metadata.uid.clone().unwrap_or_default();
                let known = told.get(&uid) == Some(&note);
                if !known && left == 0 {
                    // Told in a later pass.
                    continue;
                }
                if !known {
                    left -= 1;
                    recorder.publish(&pod.object_ref(&()), NOT_TRIGGER_SCALE_UP, note.clone());
                }
                still.insert(uid, note);
            }
            Fate::Unschedulable { .. } | Fate::Fits { .. } => {}
        }
    }
    *told = still;
}

fn id(decision: &PoolDecision) -> String {
    let (namespace, name) = key(&decision.object.metadata);
    format!("{namespace}/{name}")
}

/// As Cluster Autoscaler words it, so that what greps for it keeps working.
fn triggered(pool: &str, decision: &PoolDecision) -> String {
    let PoolDecision { current, desired, .. } = decision;
    format!(
        "pod triggered scale-up: [{{{pool} {current}->{desired} (max: {})}}]",
        decision.object.spec.max_replicas
    )
}

/// Reasons with the pools that gave them, the most frequent first.
fn not_triggered<'a>(reasons: impl Iterator<Item = (&'a str, &'static str)>) -> String {
    let mut pools_by_reason: Vec<(&str, Vec<&str>)> = Vec::new();
    for (pool, reason) in reasons {
        match pools_by_reason.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, pools)) => pools.push(pool),
            None => pools_by_reason.push((reason, vec![pool])),
        }
    }
    pools_by_reason.sort_by(|a, b| (b.1.len(), a.0).cmp(&(a.1.len(), b.0)));
    let words: Vec<_> = pools_by_reason
        .iter()
        .map(|(reason, pools)| format!("{} {reason} ({})", pools.len(), pools.join(", ")))
        .collect();
    format!("pod didn't trigger scale-up: {}", words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted_and_the_most_frequent_comes_first() {
        let reasons =
            [("ns/a", "InsufficientCpu"), ("ns/b", "UntoleratedTaint"), ("ns/c", "UntoleratedTaint")];
        assert_eq!(
            not_triggered(reasons.into_iter()),
            "pod didn't trigger scale-up: 2 UntoleratedTaint (ns/b, ns/c), 1 InsufficientCpu (ns/a)"
        );
    }
}
