//! The policies of one direction: how far a pool may scale up or down within a period, given the past changes.
//!
//! The formulas are those of a `HorizontalPodAutoscaler`: a limit is measured from the number of nodes at the beginning
//! of the period, which is the current number minus the nodes added and plus the nodes removed since. Only zero nodes
//! are different: a percentage of zero would keep a pool at zero forever, so the first node is always allowed.

use k8s_openapi::jiff::Timestamp;
use shared_crds::v1alpha1::{ScaleEvent, ScalingPolicy, ScalingPolicyType, ScalingRules, SelectPolicy};

use super::direction::Direction;
use crate::time::later;

/// What the policies allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AllowedChange {
    /// The maximum number of nodes, or the minimum.
    pub bound: i64,
    /// When a change next leaves one of the periods; `None` if none does.
    pub until: Option<Timestamp>,
}

/// What `rules` allow a pool of `current` nodes; `None` without policies. The caller handles `Disabled`.
pub(super) fn rate(
    rules: &ScalingRules,
    direction: Direction,
    current: i64,
    events: &[ScaleEvent],
    now: Timestamp,
) -> Option<AllowedChange> {
    let allowed = rules.policies.iter().map(|policy| allowed(policy, direction, current, events, now));
    let most_change = rules.select_policy.unwrap_or_default() != SelectPolicy::Min;
    let bound = if most_change == (direction == Direction::Up) { allowed.max() } else { allowed.min() };
    let ends = |policy: &ScalingPolicy| {
        let end = |event: &ScaleEvent| later(event.time.0, policy.period_seconds);
        events.iter().map(end).filter(|&end| end > now).min()
    };
    let until = rules.policies.iter().filter_map(ends).min();
    let bound = match direction {
        // What was allowed earlier may be more, or less, than the current number.
        Direction::Up => bound?.max(current),
        Direction::Down => bound?.clamp(0, current.max(0)),
    };
    Some(AllowedChange { bound, until })
}

fn allowed(
    policy: &ScalingPolicy,
    direction: Direction,
    current: i64,
    events: &[ScaleEvent],
    now: Timestamp,
) -> i64 {
    let within = |event: &&ScaleEvent| later(event.time.0, policy.period_seconds) > now;
    let change: i64 = events.iter().filter(within).map(|event| i64::from(event.change)).sum();
    let start = (current - change).max(0);
    let value = i64::from(policy.value);
    match (direction, policy.kind) {
        (Direction::Up, ScalingPolicyType::Nodes) => start + value,
        (Direction::Up, ScalingPolicyType::Percent) => {
            let whole = start * (100 + value);
            // Rounded up, or a small pool would never scale up.
            (whole / 100 + i64::from(whole % 100 > 0)).max(1)
        }
        (Direction::Down, ScalingPolicyType::Nodes) => start - value,
        // Rounded down, or a small pool would never scale down.
        (Direction::Down, ScalingPolicyType::Percent) => start * (100 - value).max(0) / 100,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    const NODES: ScalingPolicyType = ScalingPolicyType::Nodes;
    const PERCENT: ScalingPolicyType = ScalingPolicyType::Percent;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).unwrap()
    }

    fn rules(select: SelectPolicy, policies: &[(ScalingPolicyType, i32, i32)]) -> ScalingRules {
        let policy =
            |&(kind, value, period_seconds): &(_, _, _)| ScalingPolicy { kind, value, period_seconds };
        ScalingRules {
            select_policy: Some(select),
            policies: policies.iter().map(policy).collect(),
            ..ScalingRules::default()
        }
    }

    /// Changes, and how many seconds ago they were made.
    fn events(changes: &[(i32, i64)]) -> Vec<ScaleEvent> {
        changes.iter().map(|&(change, ago)| ScaleEvent { change, time: Time(at(-ago)) }).collect()
    }

    #[test]
    fn policies_allow_what_a_horizontal_pod_autoscaler_allows() {
        use Direction::{Down, Up};
        use SelectPolicy::{Max, Min};
        for (direction, select, policies, current, changes, bound) in [
            (Up, Max, &[(NODES, 4, 60)][..], 10, &[][..], Some(14)),
            (Up, Max, &[], 10, &[], None),
            // Nodes added within the period are subtracted, nodes added before are not.
            (Up, Max, &[(NODES, 4, 60)], 10, &[(3, 59)], Some(11)),
            (Up, Max, &[(NODES, 4, 60)], 10, &[(3, 60)], Some(14)),
            (Up, Max, &[(NODES, 4, 60)], 10, &[(3, 30), (2, 10)], Some(10)),
            // Nodes removed within the period may come back.
            (Up, Max, &[(NODES, 4, 60)], 10, &[(-3, 30)], Some(17)),
            (Up, Max, &[(PERCENT, 100, 60)], 10, &[], Some(20)),
            (Up, Max, &[(PERCENT, 10, 60)], 10, &[], Some(11)),
            (Up, Max, &[(PERCENT, 10, 60)], 11, &[], Some(13)),
            (Up, Max, &[(PERCENT, 100, 60)], 10, &[(5, 1)], Some(10)),
            (Up, Max, &[(NODES, 4, 60), (PERCENT, 100, 60)], 10, &[], Some(20)),
            (Up, Max, &[(NODES, 4, 60), (PERCENT, 100, 60)], 2, &[], Some(6)),
            (Up, Min, &[(NODES, 4, 60), (PERCENT, 100, 60)], 10, &[], Some(14)),
            (Up, Min, &[(NODES, 4, 60), (NODES, 6, 600)], 10, &[(5, 100)], Some(11)),
            (Up, Max, &[(PERCENT, 50, 60)], 0, &[], Some(1)),
            (Down, Max, &[(NODES, 4, 60)], 10, &[], Some(6)),
            (Down, Max, &[(NODES, 4, 60)], 10, &[(-3, 59)], Some(9)),
            (Down, Max, &[(NODES, 4, 60)], 10, &[(-3, 60)], Some(6)),
            (Down, Max, &[(NODES, 4, 60)], 10, &[(-9, 10)], Some(10)),
            (Down, Max, &[(NODES, 4, 60)], 3, &[], Some(0)),
            (Down, Max, &[(PERCENT, 10, 60)], 10, &[], Some(9)),
            (Down, Max, &[(PERCENT, 10, 60)], 9, &[], Some(8)),
            (Down, Max, &[(PERCENT, 50, 60)], 1, &[], Some(0)),
            (Down, Max, &[(PERCENT, 300, 60)], 10, &[], Some(0)),
            (Down, Max, &[(NODES, 4, 60), (PERCENT, 10, 60)], 10, &[], Some(6)),
            (Down, Min, &[(NODES, 4, 60), (PERCENT, 10, 60)], 10, &[], Some(9)),
        ] {
            let rate = rate(&rules(select, policies), direction, current, &events(changes), at(0));
            assert_eq!(
                rate.map(|rate| rate.bound),
                bound,
                "{direction:?} {select:?} {policies:?} from {current} after {changes:?}"
            );
        }
    }

    #[test]
    fn a_limit_is_looked_at_again_when_a_change_leaves_a_period() {
        let rules = rules(SelectPolicy::Max, &[(NODES, 1, 60), (PERCENT, 10, 300)]);
        let until = |changes| rate(&rules, Direction::Up, 5, &events(changes), at(0)).unwrap().until;
        assert_eq!(until(&[]), None);
        assert_eq!(until(&[(1, 50)]), Some(at(10)));
        assert_eq!(until(&[(1, 60)]), Some(at(240)));
        assert_eq!(until(&[(1, 290), (1, 5)]), Some(at(10)));
        assert_eq!(until(&[(1, 300)]), None);
    }
}
