//! Events on pods: a pool grows for the pod, or why none does. Each is published on a change only, and their number per
//! minute is limited. Where more pods have no place, each autoscaler gets one event with their number.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Resource as _;
use planner::input::observed::key;
use planner::input::pod_info::PodInfo;
use planner::{Observed, PoolDecision, PoolRejection, ScalingPlan, SchedulingResult};
use shared_runtime::events::EventKind;

use crate::outcome::Outcome;

/// A pod waits for a node that is being made for it.
const TRIGGERED_SCALE_UP: EventKind = EventKind::normal("TriggeredScaleUp", "ScaleUp");
/// No pool takes the pod; on an autoscaler, no pool takes very many.
const NOT_TRIGGER_SCALE_UP: EventKind = EventKind::normal("NotTriggerScaleUp", "ScaleUp");

/// Number of pods that get an event within [`WINDOW`]. Ten thousand pods of one Deployment do not all need one at once:
/// each event is an object on the API server for an hour.
const MOST_IN_A_WINDOW: usize = 100;
/// The period of [`MOST_IN_A_WINDOW`].
const WINDOW: SignedDuration = SignedDuration::from_secs(60);

/// An event to publish.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Saying {
    pub(super) about: ObjectReference,
    pub(super) kind: EventKind,
    pub(super) note: String,
}

/// The events that pods and autoscalers already got.
#[derive(Debug, Default)]
pub(crate) struct Told(Mutex<Memory>);

#[derive(Debug, Default)]
struct Memory {
    /// Why pods get no node, by their UID.
    pods: HashMap<String, String>,
    /// How many pods get no node, by the autoscaler's UID.
    autoscalers: HashMap<String, String>,
    /// When the window began.
    since: Option<Timestamp>,
    /// Number of pods that got an event in it.
    used: usize,
    /// Whether the autoscalers got their event in it.
    summed_up: bool,
}

impl Told {
    /// The events to publish now.
    pub(super) fn sayings(
        &self,
        observed: &Observed,
        plan: &ScalingPlan,
        outcomes: &[Outcome],
    ) -> Vec<Saying> {
        let mut memory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        memory.begin(observed.now);
        let mut sayings = Vec::new();
        let left_out = memory.pods(observed, plan, outcomes, &mut sayings);
        if left_out && !memory.summed_up {
            memory.summed_up = true;
            memory.autoscalers(observed, plan, &mut sayings);
        }
        sayings
    }
}

impl Memory {
    /// Begins a new window where the last one is over, or where the clock went back.
    fn begin(&mut self, now: Timestamp) {
        let runs = self.since.is_some_and(|since| now >= since && now.duration_since(since) < WINDOW);
        if !runs {
            (self.since, self.used, self.summed_up) = (Some(now), 0, false);
        }
    }

    /// Adds the events of pods, and returns whether some had to be left out.
    fn pods(
        &mut self,
        observed: &Observed,
        plan: &ScalingPlan,
        outcomes: &[Outcome],
        sayings: &mut Vec<Saying>,
    ) -> bool {
        let by_key: HashMap<(&str, &str), &PodInfo> =
            observed.pods.iter().map(|pod| (pod.key(), &**pod)).collect();
        let grown: HashMap<String, &PoolDecision> = plan
            .pools
            .iter()
            .zip(outcomes)
            .filter(|(_, outcome)| matches!(outcome, Outcome::Scaled))
            .map(|(decision, _)| (id(decision), decision))
            .collect();
        let mut still = HashMap::new();
        let mut left_out = false;
        for outcome in &plan.pods {
            let Some(pod) = by_key.get(&(outcome.namespace.as_str(), outcome.name.as_str())) else {
                continue;
            };
            let is_full = self.used >= MOST_IN_A_WINDOW;
            match &outcome.fate {
                SchedulingResult::TriggersScaleUp { pool } => {
                    // The pool's own event holds the number of pods it grew for; those left out here get no event
                    // later.
                    let Some(decision) = grown.get(pool).filter(|_| !is_full) else {
                        // A pod gets no further event about its reason because its pool is tried, and refused, once
                        // more.
                        still.extend(self.pods.remove_entry(pod.uid()));
                        continue;
                    };
                    self.used += 1;
                    let note = triggered(pool, decision);
                    sayings.push(Saying { about: reference(pod), kind: TRIGGERED_SCALE_UP, note });
                }
                SchedulingResult::Unschedulable { reasons } if !reasons.is_empty() => {
                    let note = not_triggered(reasons.iter().map(|r| (r.pool.as_str(), r.reason)));
                    let uid = pod.uid().to_owned();
                    let known = self.pods.get(&uid) == Some(&note);
                    if !known && is_full {
                        // Gets its event in a later window.
                        left_out = true;
                        continue;
                    }
                    if !known {
                        self.used += 1;
                        let (about, note) = (reference(pod), note.clone());
                        sayings.push(Saying { about, kind: NOT_TRIGGER_SCALE_UP, note });
                    }
                    still.insert(uid, note);
                }
                SchedulingResult::Unschedulable { .. } | SchedulingResult::Fits { .. } => {}
            }
        }
        self.pods = still;
        left_out
    }

    /// Adds an event to each autoscaler with the number of pods its pools do not take, if that has changed.
    fn autoscalers(&mut self, observed: &Observed, plan: &ScalingPlan, sayings: &mut Vec<Saying>) {
        let mut refused = BTreeMap::<(&str, &str), BTreeMap<&str, usize>>::new();
        let planner: HashMap<String, (&str, &str)> = plan
            .pools
            .iter()
            .filter_map(|d| Some((id(d), (key(&d.object.metadata).0, d.autoscaler.as_deref()?))))
            .collect();
        let mut pods = BTreeMap::<(&str, &str), usize>::new();
        for outcome in &plan.pods {
            let SchedulingResult::Unschedulable { reasons } = &outcome.fate else { continue };
            let mut named: Vec<((&str, &str), &str)> = reasons
                .iter()
                .filter_map(|PoolRejection { pool, reason, .. }| Some((*planner.get(pool)?, *reason)))
                .collect();
            named.sort_unstable();
            named.dedup();
            for (autoscaler, reason) in &named {
                *refused.entry(*autoscaler).or_default().entry(reason).or_default() += 1;
            }
            named.dedup_by_key(|entry| entry.0);
            for (autoscaler, _) in named {
                *pods.entry(autoscaler).or_default() += 1;
            }
        }
        let mut still = HashMap::new();
        for object in &observed.autoscalers {
            let of = key(&object.metadata);
            let (Some(reasons), Some(pods)) = (refused.get(&of), pods.get(&of)) else { continue };
            let note = summary(*pods, reasons);
            let uid = object.metadata.uid.clone().unwrap_or_default();
            if self.autoscalers.get(&uid) != Some(&note) {
                let (about, note) = (object.object_ref(&()), note.clone());
                sayings.push(Saying { about, kind: NOT_TRIGGER_SCALE_UP, note });
            }
            still.insert(uid, note);
        }
        self.autoscalers = still;
    }
}

fn id(decision: &PoolDecision) -> String {
    let (namespace, name) = key(&decision.object.metadata);
    format!("{namespace}/{name}")
}

/// In the wording of Cluster Autoscaler, so that existing log filters keep working.
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

/// How many pods have no place, with the reasons that apply to most of them first.
fn summary(pods: usize, reasons: &BTreeMap<&str, usize>) -> String {
    let mut reasons: Vec<_> = reasons.iter().map(|(reason, pods)| (*pods, *reason)).collect();
    reasons.sort_by(|a, b| (b.0, a.1).cmp(&(a.0, b.1)));
    let words: Vec<_> = reasons.iter().map(|(pods, reason)| format!("{pods} {reason}")).collect();
    format!(
        "{pods} pods didn't trigger scale-up, more than are told at once: {}; autoscaler-operator explain pod NAME says \
         why of each",
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
#[path = "pod_events_tests.rs"]
mod tests;
