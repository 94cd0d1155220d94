//! Which events were published: each is published on a change only, and the number of pods that get one per minute is
//! limited. Where more pods are unschedulable, each autoscaler gets one event with their number.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use planner::{Observed, ScalingPlan};

use crate::outcome::PoolOutcome;
use crate::status::events::NewEvent;
use crate::status::pod_events::{self, PodEventCause};

/// Number of pods that get an event within [`WINDOW`]. Ten thousand pods of one Deployment do not all need one at once:
/// each event is an object on the API server for an hour.
const MOST_IN_A_WINDOW: usize = 100;
/// The period of [`MOST_IN_A_WINDOW`].
const WINDOW: SignedDuration = SignedDuration::from_secs(60);

/// The events that pods and autoscalers already got.
#[derive(Debug, Default)]
pub(crate) struct EventDeduplicator(Mutex<Published>);

#[derive(Debug, Default)]
struct Published {
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

impl EventDeduplicator {
    /// The events about pods and autoscalers to publish now. They count as published.
    pub(crate) fn new_events(
        &self,
        observed: &Observed,
        plan: &ScalingPlan,
        outcomes: &[PoolOutcome],
    ) -> Vec<NewEvent> {
        let mut published = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        published.begin(observed.now);
        let mut events = Vec::new();
        let left_out = published.pods(plan, outcomes, &mut events);
        if left_out && !published.summed_up {
            published.summed_up = true;
            published.autoscalers(observed, plan, &mut events);
        }
        events
    }
}

impl Published {
    /// Begins a new window where the last one is over, or where the clock went back.
    fn begin(&mut self, now: Timestamp) {
        let runs = self.since.is_some_and(|since| now >= since && now.duration_since(since) < WINDOW);
        if !runs {
            (self.since, self.used, self.summed_up) = (Some(now), 0, false);
        }
    }

    /// Adds the events of pods, and returns whether some had to be left out.
    fn pods(&mut self, plan: &ScalingPlan, outcomes: &[PoolOutcome], events: &mut Vec<NewEvent>) -> bool {
        let mut still = HashMap::new();
        let mut left_out = false;
        for (pod, cause) in pod_events::causes(plan, outcomes) {
            let is_full = self.used >= MOST_IN_A_WINDOW;
            match cause {
                PodEventCause::ScaledUp { pool, decision } if !is_full => {
                    self.used += 1;
                    events.push(pod_events::triggered(pod, pool, decision));
                }
                // The pool's own event holds the number of pods it grew for; those left out here get no event later. And
                // a pod gets no further event about its reason because its pool is tried, and refused, once more.
                PodEventCause::ScaledUp { .. } | PodEventCause::NotWritten => {
                    still.extend(self.pods.remove_entry(pod.uid()));
                }
                PodEventCause::Rejected { reasons } => {
                    let note = pod_events::rejections(reasons);
                    let uid = pod.uid().to_owned();
                    let known = self.pods.get(&uid) == Some(&note);
                    if !known && is_full {
                        // Gets its event in a later window.
                        left_out = true;
                        continue;
                    }
                    if !known {
                        self.used += 1;
                        events.push(pod_events::not_triggered(pod, note.clone()));
                    }
                    still.insert(uid, note);
                }
            }
        }
        self.pods = still;
        left_out
    }

    /// Adds an event to each autoscaler with the number of pods its pools do not take, if that has changed.
    fn autoscalers(&mut self, observed: &Observed, plan: &ScalingPlan, events: &mut Vec<NewEvent>) {
        let mut still = HashMap::new();
        for (uid, event) in pod_events::about_autoscalers(observed, plan) {
            let note = event.note.clone();
            if self.autoscalers.get(&uid) != Some(&note) {
                events.push(event);
            }
            still.insert(uid, note);
        }
        self.autoscalers = still;
    }
}

#[cfg(test)]
#[path = "event_deduplicator_tests.rs"]
mod tests;
