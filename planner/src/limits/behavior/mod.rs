//! How far a pool may scale in this pass, apart from its bounds: the policies and stabilization windows of
//! `spec.behavior`, and another writer's value that is kept.
//!
//! The limits are known before anything is planned, from what status remembers. So a pass is first planned without the
//! temporary ones; if the plan stays within all limits it is used, otherwise the pass is planned again with them.
//! Status remembers what the first plan wanted.

mod direction;
pub(crate) mod history;
mod rate;

use k8s_openapi::jiff::Timestamp;
use shared_crds::v1alpha1::{
    AutoscalingStatus, Recommendation, ScaleEvent, ScalingBehavior, ScalingRules, SelectPolicy,
};

pub(crate) use self::direction::Direction;

use super::bounds::Bounds;
use super::contested::ReplicasWriter;
use super::schedules::ScheduledBounds;
use crate::numbers::count;
use crate::reasons::PoolReason;
use crate::time::{later, whole_second};

/// Which limits a pass is planned with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BehaviorStage {
    /// Only those that time does not lift: a disabled direction, another writer's value.
    Wanted,
    /// All limits.
    Limited,
}

/// How far a pool may scale in one direction, and why no further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The direction that it limits.
    pub direction: Direction,
    /// The maximum number of nodes, or the minimum.
    pub bound: usize,
    /// Why the limit exists.
    pub reason: PoolReason,
    /// When the limit may change; `None` if only the user or a decision changes it.
    pub until: Option<Timestamp>,
    /// Whether time alone never lifts it.
    pub lasting: bool,
}

/// The limits of a pool in this pass, and what they are computed from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BehaviorLimits {
    /// The limits in both directions.
    pub limits: Vec<Limit>,
    /// The upper bound, which applies in addition to the limits.
    pub max: usize,
    /// The active schedules, whose bounds replace the pool's.
    pub scheduled: ScheduledBounds,
    /// Which writer last set the number of nodes.
    pub replicas_writer: ReplicasWriter,
    /// The history that status remembers.
    pub memory: BehaviorHistory,
}

/// What status remembers for `spec.behavior`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BehaviorHistory {
    /// The longer of the two stabilization windows in seconds; 0 without one.
    pub window_seconds: i32,
    /// The longest period of the policies in seconds; 0 without policies.
    pub period_seconds: i32,
    /// The numbers of nodes that were wanted.
    pub recommendations: Vec<Recommendation>,
    /// The changes that were made.
    pub events: Vec<ScaleEvent>,
}

impl BehaviorHistory {
    fn of(
        behavior: &ScalingBehavior,
        status: Option<&AutoscalingStatus>,
        replicas_writer: &ReplicasWriter,
        now: Timestamp,
    ) -> Self {
        let rules = || [&behavior.scale_up, &behavior.scale_down].into_iter().flatten();
        let window_seconds =
            rules().filter_map(|rules| rules.stabilization_window_seconds).max().unwrap_or(0);
        let periods = rules().flat_map(|rules| &rules.policies).map(|policy| policy.period_seconds);
        let period_seconds = periods.max().unwrap_or(0);
        let recorded = status.map(|s| s.scale_events.as_slice()).unwrap_or_default();
        let (change, time) = replicas_writer.unrecorded.unwrap_or((0, now));
        let mut events = history::changed(recorded, change, period_seconds, time);
        events.sort_by_key(|event| event.time.0);
        let mut recommendations = match (status, window_seconds) {
            (Some(status), 1..) => status.recommendations.clone(),
            _ => Vec::new(),
        };
        recommendations.sort_by_key(|recommendation| recommendation.time.0);
        Self { window_seconds, period_seconds, recommendations, events }
    }

    /// Whether the list of changes has no room for one more.
    fn is_full(&self, now: Timestamp) -> bool {
        let counts = |event: &&ScaleEvent| later(event.time.0, self.period_seconds) > now;
        self.events.iter().filter(counts).count() >= history::MOST_ENTRIES
    }
}

impl BehaviorLimits {
    /// The limits of a pool that has `current` nodes, from the remembered changes.
    pub(crate) fn of(
        status: Option<&AutoscalingStatus>,
        behavior: &ScalingBehavior,
        bounds: &Bounds,
        replicas_writer: ReplicasWriter,
        scheduled: ScheduledBounds,
        current: usize,
        now: Timestamp,
    ) -> Self {
        let now = whole_second(now);
        let memory = BehaviorHistory::of(behavior, status, &replicas_writer, now);
        let mut limits = Vec::new();
        for (direction, rules) in
            [(Direction::Up, &behavior.scale_up), (Direction::Down, &behavior.scale_down)]
        {
            if let Some(rules) = rules {
                limits.extend(of_rules(rules, direction, current, &memory, now));
            }
        }
        if let Some(contest) = replicas_writer.held() {
            let bound = count(contest.record.replicas);
            limits.extend([Direction::Up, Direction::Down].map(|direction| Limit {
                direction,
                bound,
                reason: PoolReason::ReplicasContested,
                until: Some(contest.until()),
                lasting: true,
            }));
        }
        // A correction to a bound, or of another writer's value, is neither slowed down nor stopped.
        for limit in &mut limits {
            limit.bound = match limit.direction {
                Direction::Up => limit.bound.max(bounds.base),
                Direction::Down => limit.bound.min(bounds.base),
            };
        }
        Self { limits, max: bounds.max, scheduled, replicas_writer, memory }
    }

    fn at(&self, stage: BehaviorStage, direction: Direction) -> impl Iterator<Item = &Limit> {
        self.limits.iter().filter(move |limit| {
            limit.direction == direction && (limit.lasting || stage == BehaviorStage::Limited)
        })
    }

    /// The maximum number of nodes that the pool may scale up to; `None` without a limit.
    pub(crate) fn ceiling(&self, stage: BehaviorStage) -> Option<usize> {
        self.at(stage, Direction::Up).map(|limit| limit.bound).min()
    }

    /// The minimum number of nodes that the pool may scale down to; `None` without a limit.
    pub(crate) fn floor(&self, stage: BehaviorStage) -> Option<usize> {
        self.at(stage, Direction::Down).map(|limit| limit.bound).max()
    }

    /// The limit that keeps a pool from the `wanted` number of nodes: the tightest one of the temporary limits that the
    /// number violates, and of those that time does not lift. Of several, the one that lasts longest.
    pub(crate) fn binding(&self, direction: Direction, wanted: usize) -> Option<&Limit> {
        let tightness = |limit: &Limit| match direction {
            Direction::Up => usize::MAX - limit.bound,
            Direction::Down => limit.bound,
        };
        let cuts = |limit: &&Limit| match direction {
            _ if limit.lasting => true,
            Direction::Up => limit.bound < wanted,
            Direction::Down => limit.bound > wanted,
        };
        let cutting = self.at(BehaviorStage::Limited, direction).filter(cuts);
        cutting.max_by_key(|limit| (tightness(limit), limit.lasting, limit.until))
    }

    /// The remembered changes after a change at `now`.
    pub fn events_after(&self, from: i32, to: i32, now: Timestamp) -> Vec<ScaleEvent> {
        let from = self.replicas_writer.reclaimed().unwrap_or(from);
        history::changed(&self.memory.events, to.saturating_sub(from), self.memory.period_seconds, now)
    }
}

fn of_rules(
    rules: &ScalingRules,
    direction: Direction,
    current: usize,
    memory: &BehaviorHistory,
    now: Timestamp,
) -> Vec<Limit> {
    let (limited, stabilized) = match direction {
        Direction::Up => (PoolReason::ScaleUpLimit, PoolReason::ScaleUpStabilized),
        Direction::Down => (PoolReason::ScaleDownLimit, PoolReason::ScaleDownStabilized),
    };
    let limit = |bound, reason, until, lasting| Limit { direction, bound, reason, until, lasting };
    if rules.select_policy == Some(SelectPolicy::Disabled) {
        return vec![limit(current, limited, None, true)];
    }
    let mut limits = Vec::new();
    let nodes = i64::try_from(current).unwrap_or(i64::MAX);
    if let Some(rate) = rate::rate(rules, direction, nodes, &memory.events, now) {
        let bound = if memory.is_full(now) { nodes } else { rate.bound };
        limits.push(limit(usize::try_from(bound).unwrap_or(0), limited, rate.until, false));
    }
    let window = rules.stabilization_window_seconds.unwrap_or(0);
    if window > 0 {
        let (bound, until) = stabilized_at(direction, current, &memory.recommendations, window, now);
        limits.push(limit(bound, stabilized, until, false));
    }
    limits
}

/// The lowest number of nodes that was wanted within the window for scale-up, the highest for scale-down; and when one
/// of those leaves the window. The number wanted now is not included: it limits nothing.
fn stabilized_at(
    direction: Direction,
    current: usize,
    recommendations: &[Recommendation],
    window: i32,
    now: Timestamp,
) -> (usize, Option<Timestamp>) {
    if recommendations.is_empty() {
        return (current, Some(later(now, window)));
    }
    let within: Vec<_> = history::within(recommendations, window, now).collect();
    let numbers = within.iter().map(|&(number, _)| count(number));
    let bound = match direction {
        Direction::Up => numbers.min().map_or(current, |least| least.max(current)),
        Direction::Down => numbers.max().map_or(current, |most| most.min(current)),
    };
    (bound, within.iter().filter_map(|&(_, end)| end).min())
}

#[cfg(test)]
mod tests;
