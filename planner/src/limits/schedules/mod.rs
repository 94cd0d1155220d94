//! The schedules of an autoscaler: which bounds replace a pool's own at some time, when that changes next, and which
//! schedules cannot be followed.

use k8s_openapi::jiff::Timestamp;
use shared_crds::NodePoolAutoscaler;
use shared_crds::schedule::RecurringWindows;
use shared_crds::v1alpha1::{AutoscalerMode, Schedule};

use crate::input::observed::{Observed, key};
use crate::numbers::count;

/// The result of an autoscaler's schedules at some time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedules {
    /// The bounds of the active schedules.
    pub bounds: ScheduledBounds,
    /// When one of them begins or ends next; `None` if none does.
    pub next: Option<Timestamp>,
    /// What is wrong with the schedules that are ignored, as messages for users.
    pub problems: Vec<String>,
}

/// The bounds of the active schedules, which replace a pool's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScheduledBounds {
    /// The highest of their lower bounds; `None` if none sets one.
    pub min: Option<usize>,
    /// The lowest of their upper bounds; `None` if none sets one.
    pub max: Option<usize>,
    /// The names of the active schedules, sorted.
    pub names: Vec<String>,
}

impl ScheduledBounds {
    /// Whether the schedules' own bounds cross.
    pub fn crosses(&self) -> bool {
        matches!((self.min, self.max), (Some(min), Some(max)) if min > max)
    }
}

impl Schedules {
    /// Evaluates `schedules` at `now`.
    pub fn of(schedules: &[Schedule], now: Timestamp) -> Self {
        let mut schedules: Vec<_> = schedules.iter().collect();
        schedules.sort_by(|a, b| a.name.cmp(&b.name));
        let mut all = Self::default();
        for schedule in schedules {
            let Schedule { schedule: cron, time_zone, duration_seconds, .. } = schedule;
            match RecurringWindows::parse(cron, time_zone.as_deref(), *duration_seconds) {
                Ok(windows) => all.add(schedule, &windows, now),
                Err(problem) => all.problems.push(format!("schedule {}: {problem}", schedule.name)),
            }
        }
        all
    }

    fn add(&mut self, schedule: &Schedule, windows: &RecurringWindows, now: Timestamp) {
        let active = windows.active(now);
        if active.is_some() {
            let (min, max) = (schedule.min_replicas.map(count), schedule.max_replicas.map(count));
            self.bounds.min = self.bounds.min.max(min);
            self.bounds.max = [self.bounds.max, max].into_iter().flatten().min();
            self.bounds.names.push(schedule.name.clone());
        }
        let moments = [active.map(|window| window.ends), windows.next_beginning(now), self.next];
        self.next = moments.into_iter().flatten().min();
    }
}

/// When a schedule of any planning autoscaler begins or ends next.
pub(crate) fn next(observed: &Observed) -> Option<Timestamp> {
    let plans =
        |autoscaler: &&std::sync::Arc<NodePoolAutoscaler>| autoscaler.spec.mode != AutoscalerMode::Off;
    let next = |autoscaler: &std::sync::Arc<NodePoolAutoscaler>| {
        Schedules::of(&autoscaler.spec.schedules, observed.now).next
    };
    observed.autoscalers.iter().filter(plans).filter_map(next).min()
}

/// What is wrong with the schedules of planning autoscalers, as messages for users.
pub(crate) fn problems(observed: &Observed) -> Vec<String> {
    let mut problems = Vec::new();
    for autoscaler in observed.autoscalers.iter().filter(|a| a.spec.mode != AutoscalerMode::Off) {
        let (namespace, name) = key(&autoscaler.metadata);
        let of = Schedules::of(&autoscaler.spec.schedules, observed.now).problems;
        problems.extend(of.iter().map(|problem| format!("NodePoolAutoscaler {namespace}/{name}: {problem}")));
    }
    problems.sort();
    problems
}

#[cfg(test)]
mod tests;
