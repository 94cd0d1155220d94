//! The schedules of an autoscaler: which bounds replace a pool's own at some time, when that changes next, and which
//! schedules cannot be followed.

mod cron;
mod zone;

use k8s_openapi::jiff::tz::TimeZone;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use shared_crds::NodePoolAutoscaler;
use shared_crds::v1alpha1::{AutoscalerMode, Schedule};

use self::cron::Cron;
use crate::input::observed::{Observed, key};
use crate::numbers::count;
use crate::time::later;

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
            match Readable::of(schedule) {
                Ok(readable) => all.add(schedule, &readable, now),
                Err(problem) => all.problems.push(format!("schedule {}: {problem}", schedule.name)),
            }
        }
        all
    }

    fn add(&mut self, schedule: &Schedule, readable: &Readable, now: Timestamp) {
        let Readable { cron, zone, duration } = readable;
        let mut moments = vec![zone::next(cron, zone, now)];
        let earliest = now.checked_sub(*duration).unwrap_or(Timestamp::MIN);
        if let Some(began) = zone::last(cron, zone, earliest, now) {
            moments.push(Some(later(began, schedule.duration_seconds)));
            let (min, max) = (schedule.min_replicas.map(count), schedule.max_replicas.map(count));
            self.bounds.min = self.bounds.min.max(min);
            self.bounds.max = [self.bounds.max, max].into_iter().flatten().min();
            self.bounds.names.push(schedule.name.clone());
        }
        self.next = moments.into_iter().chain([self.next]).flatten().min();
    }
}

/// The parsed parts of a schedule.
struct Readable {
    cron: Cron,
    zone: TimeZone,
    duration: SignedDuration,
}

impl Readable {
    fn of(schedule: &Schedule) -> Result<Self, String> {
        let cron = Cron::parse(&schedule.schedule)?;
        let zone = schedule.time_zone.as_deref().map_or(Ok(TimeZone::UTC), zone::zone)?;
        let seconds = schedule.duration_seconds;
        if seconds < 1 {
            return Err(format!("durationSeconds is {seconds}; write 1 or more"));
        }
        Ok(Self { cron, zone, duration: SignedDuration::from_secs(seconds.into()) })
    }
}

/// When a schedule of any planning autoscaler begins or ends next.
pub fn next(observed: &Observed) -> Option<Timestamp> {
    let plans =
        |autoscaler: &&std::sync::Arc<NodePoolAutoscaler>| autoscaler.spec.mode != AutoscalerMode::Off;
    let next = |autoscaler: &std::sync::Arc<NodePoolAutoscaler>| {
        Schedules::of(&autoscaler.spec.schedules, observed.now).next
    };
    observed.autoscalers.iter().filter(plans).filter_map(next).min()
}

/// What is wrong with the schedules of planning autoscalers, as messages for users.
pub fn problems(observed: &Observed) -> Vec<String> {
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
