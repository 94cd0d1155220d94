//! Events on pods: a pool grows for the pod, or why none does; and on autoscalers, where too many pods have no place for
//! one event each. Pure: which of them are new is decided elsewhere.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::Resource as _;
use planner::input::{PodInfo, key};
use planner::{Observed, PoolDecision, PoolRejection, ScalingPlan, SchedulingResult};
use shared_crds::{NodePoolAutoscaler, QualifiedName};
use shared_runtime::events::EventKind;

use super::events::NewEvent;
use crate::outcome::PoolOutcome;

/// A pod waits for a node that is being made for it.
const TRIGGERED_SCALE_UP: EventKind = EventKind::normal("TriggeredScaleUp", "ScaleUp");
/// No pool takes the pod; on an autoscaler, no pool takes very many.
const NOT_TRIGGER_SCALE_UP: EventKind = EventKind::normal("NotTriggerScaleUp", "ScaleUp");

/// All of these, each with the kinds of objects it is on and when it is published.
pub(crate) const ALL: &[(EventKind, &str, &str)] = &[
    (TRIGGERED_SCALE_UP, "Pod", "A pool was scaled up for the pod."),
    (
        NOT_TRIGGER_SCALE_UP,
        "Pod, NodePoolAutoscaler",
        "No pool takes the pod; the note says why not. On an autoscaler: no pool takes very many pods.",
    ),
];

/// Why a pending pod that has no place on an existing node gets an event, or gets none.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PodEventCause<'a> {
    /// This pool was scaled up for it in this pass.
    ScaledUp {
        /// The pool, as `namespace/name`.
        pool: &'a str,
        /// The decision that was written.
        decision: &'a PoolDecision,
    },
    /// A pool should be scaled up for it, and this pass did not write its replicas.
    NotWritten,
    /// No pool takes it.
    Rejected {
        /// Why not; there is at least one reason.
        reasons: &'a [PoolRejection],
    },
}

/// The pending pods that have no place on an existing node.
pub(crate) fn causes<'a>(
    plan: &'a ScalingPlan,
    outcomes: &[PoolOutcome],
) -> impl Iterator<Item = (&'a PodInfo, PodEventCause<'a>)> {
    let grown: HashMap<String, &PoolDecision> = plan
        .pools
        .iter()
        .zip(outcomes)
        .filter(|(_, outcome)| matches!(outcome, PoolOutcome::Scaled))
        .map(|(decision, _)| (QualifiedName::of(&decision.object.metadata).to_string(), decision))
        .collect();
    plan.pods.iter().filter_map(move |planned| {
        let cause = match &planned.result {
            SchedulingResult::TriggersScaleUp { pool } => grown
                .get(pool)
                .map_or(PodEventCause::NotWritten, |decision| PodEventCause::ScaledUp { pool, decision }),
            SchedulingResult::Unschedulable { reasons } if !reasons.is_empty() => {
                PodEventCause::Rejected { reasons }
            }
            SchedulingResult::Unschedulable { .. } | SchedulingResult::Fits { .. } => return None,
        };
        Some((&*planned.object, cause))
    })
}

/// The event on a pod that `pool` was scaled up for, in the wording of Cluster Autoscaler, so that existing log filters
/// keep working.
pub(crate) fn triggered(pod: &PodInfo, pool: &str, decision: &PoolDecision) -> NewEvent {
    let PoolDecision { current, desired, .. } = decision;
    let max = decision.object.spec.max_replicas;
    let note = format!("pod triggered scale-up: [{{{pool} {current}->{desired} (max: {max})}}]");
    NewEvent { regarding: reference(pod), kind: TRIGGERED_SCALE_UP, note }
}

/// The event on a pod that no pool takes; `note` has the reasons, see [`rejections`].
pub(crate) fn not_triggered(pod: &PodInfo, note: String) -> NewEvent {
    NewEvent { regarding: reference(pod), kind: NOT_TRIGGER_SCALE_UP, note }
}

/// Reasons with the pools that gave them, the most frequent first.
pub(crate) fn rejections(reasons: &[PoolRejection]) -> String {
    let mut pools_by_reason: Vec<(&str, Vec<&str>)> = Vec::new();
    for PoolRejection { pool, reason, .. } in reasons {
        match pools_by_reason.iter_mut().find(|(known, _)| known == reason) {
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

/// An event on each autoscaler with the number of pods its pools do not take, with the autoscaler's UID.
pub(crate) fn about_autoscalers(observed: &Observed, plan: &ScalingPlan) -> Vec<(String, NewEvent)> {
    let mut rejected = BTreeMap::<(&str, &str), BTreeMap<&str, usize>>::new();
    let planner: HashMap<String, (&str, &str)> = plan
        .pools
        .iter()
        .filter_map(|d| {
            Some((
                QualifiedName::of(&d.object.metadata).to_string(),
                (key(&d.object.metadata).0, d.autoscaler.as_deref()?),
            ))
        })
        .collect();
    let mut pods = BTreeMap::<(&str, &str), usize>::new();
    for planned in &plan.pods {
        let SchedulingResult::Unschedulable { reasons } = &planned.result else { continue };
        let mut named: Vec<((&str, &str), &str)> = reasons
            .iter()
            .filter_map(|PoolRejection { pool, reason, .. }| Some((*planner.get(pool)?, *reason)))
            .collect();
        named.sort_unstable();
        named.dedup();
        for (autoscaler, reason) in &named {
            *rejected.entry(*autoscaler).or_default().entry(reason).or_default() += 1;
        }
        named.dedup_by_key(|entry| entry.0);
        for (autoscaler, _) in named {
            *pods.entry(autoscaler).or_default() += 1;
        }
    }
    let event = |object: &Arc<NodePoolAutoscaler>| {
        let of = key(&object.metadata);
        let note = summary(*pods.get(&of)?, rejected.get(&of)?);
        let uid = object.metadata.uid.clone().unwrap_or_default();
        Some((uid, NewEvent { regarding: object.object_ref(&()), kind: NOT_TRIGGER_SCALE_UP, note }))
    };
    observed.autoscalers.iter().filter_map(event).collect()
}

/// How many pods have no place, with the reasons that apply to most of them first.
fn summary(pods: usize, reasons: &BTreeMap<&str, usize>) -> String {
    let mut reasons: Vec<_> = reasons.iter().map(|(reason, pods)| (*pods, *reason)).collect();
    reasons.sort_by(|a, b| (b.0, a.1).cmp(&(a.0, b.1)));
    let words: Vec<_> = reasons.iter().map(|(pods, reason)| format!("{pods} {reason}")).collect();
    format!(
        "{pods} pods didn't trigger scale-up, too many for an event each: {}; run `autoscaler-operator explain pod NAME` \
         for the reason of one pod",
        words.join(", ")
    )
}

/// The object of an event; an event needs no resourceVersion of it.
fn reference(pod: &PodInfo) -> ObjectReference {
    let (namespace, name) = pod.key();
    ObjectReference {
        api_version: Some(Pod::api_version(&()).into_owned()),
        kind: Some(Pod::kind(&()).into_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        uid: Some(pod.uid().to_owned()),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted_and_the_most_frequent_comes_first() {
        let reasons =
            [("ns/a", "InsufficientCpu"), ("ns/b", "UntoleratedTaint"), ("ns/c", "UntoleratedTaint")];
        let reasons = reasons.map(|(pool, reason)| PoolRejection {
            pool: pool.to_owned(),
            reason,
            message: String::new(),
            keeps_waiting: false,
        });
        assert_eq!(
            rejections(&reasons),
            "pod didn't trigger scale-up: 2 UntoleratedTaint (ns/b, ns/c), 1 InsufficientCpu (ns/a)"
        );
    }
}
