//! For how long this process itself has observed the cluster's state.
//!
//! Times in objects come from the clocks of other machines, and `now` from the local wall clock, which may be adjusted.
//! Destructive steps therefore also require time that this process has measured with a monotonic clock. A restart
//! starts the measurement again, which prolongs a timeout once and never shortens it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use shared_crds::v1alpha1::ConditionStatus;

/// The tracker's measurements of nodes, by UID. A missing one is observed for the first time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeTimes(pub BTreeMap<String, NodeTime>);

/// For how long each unhealthy node has had the conditions that make it so, by UID.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConditionTimes(pub BTreeMap<String, BTreeMap<ConditionKey, SignedDuration>>);

/// Type and status of a condition.
pub type ConditionKey = (String, ConditionStatus);

/// For how long each terminating pod has been observed terminating, by UID.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodTimes(pub BTreeMap<String, SignedDuration>);

/// For how long each machine has been observed without a Node, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineTimes(pub BTreeMap<String, SignedDuration>);

/// The measurements of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeTime {
    /// It was observed Ready.
    pub was_ready: bool,
    /// For how long it has been observed not Ready.
    pub not_ready: SignedDuration,
    /// For how long it has been observed not Ready while its provider listed other machines and not its own; `None` when
    /// that is not so now.
    pub lost: Option<SignedDuration>,
    /// For how long it has been observed with its current annotation that it was given back.
    pub given_back: SignedDuration,
    /// For how long it has been observed draining, that is, cordoned and with its current drain annotation.
    pub draining: SignedDuration,
}

impl NodeTimes {
    /// The measurements of `node`.
    pub fn of_node(&self, node: &Node) -> NodeTime {
        node.metadata.uid.as_ref().and_then(|uid| self.0.get(uid)).copied().unwrap_or_default()
    }
}

impl ConditionTimes {
    /// The measurements of `node`; `None` for a healthy one.
    pub fn of_node(&self, node: &Node) -> Option<&BTreeMap<ConditionKey, SignedDuration>> {
        self.0.get(node.metadata.uid.as_ref()?)
    }
}

impl MachineTimes {
    /// For how long the machine `name` has been observed without a Node.
    pub fn of_machine(&self, name: &str) -> SignedDuration {
        self.0.get(name).copied().unwrap_or_default()
    }
}

impl PodTimes {
    /// For how long `pod` has been observed terminating.
    pub fn of_pod(&self, pod: &Pod) -> SignedDuration {
        pod.metadata.uid.as_ref().and_then(|uid| self.0.get(uid)).copied().unwrap_or_default()
    }
}

/// How far ahead of the clock a time is that was rounded up to whole seconds.
const ROUNDING: SignedDuration = SignedDuration::from_secs(1);

/// When both clocks agree that `limit` has passed: the wall clock since `since`, and the monotonic clock, which has
/// measured `observed`. It has passed if the result is not after `now`.
///
/// A time to come was written by a clock that is ahead, or was: what this process has measured decides alone. Otherwise a drain that began
/// before a clock was set back by an hour would wait for an hour, and nothing would say for what.
pub fn due(since: Timestamp, limit: SignedDuration, observed: SignedDuration, now: Timestamp) -> Timestamp {
    let is_to_come = since.checked_sub(ROUNDING).is_ok_and(|since| since > now);
    let since = if is_to_come { Timestamp::MIN } else { since };
    let by_wall = since.checked_add(limit).unwrap_or(Timestamp::MAX);
    let rest = limit.checked_sub(observed).unwrap_or(SignedDuration::ZERO).max(SignedDuration::ZERO);
    by_wall.max(now.checked_add(rest).unwrap_or(Timestamp::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    #[test]
    fn a_limit_has_passed_only_when_both_clocks_say_so() {
        let seconds = SignedDuration::from_secs;
        for (now, observed, expected) in
            [(100, 60, 110), (110, 0, 170), (110, 59, 111), (110, 60, 110), (5000, 10, 5050)]
        {
            let due = due(at(50), seconds(60), seconds(observed), at(now));
            assert_eq!(due, at(expected), "at {now} after {observed} s");
        }
        assert!(due(at(50), seconds(60), SignedDuration::MAX, at(500)) <= at(500));
    }

    #[test]
    fn a_time_to_come_prolongs_no_limit() {
        let seconds = SignedDuration::from_secs;
        for (since, observed, expected) in [(3700, 20, 140), (3700, 60, 100), (102, 20, 140), (101, 60, 161)]
        {
            let due = due(at(since), seconds(60), seconds(observed), at(100));
            assert_eq!(due, at(expected), "since {since}, after {observed} s");
        }
    }
}
