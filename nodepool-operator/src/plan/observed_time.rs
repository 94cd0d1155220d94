//! For how long this process itself has seen the cluster as it is.
//!
//! Times in objects come from other machines' clocks, and `now` from this one's, which somebody may set. What destroys
//! something therefore also needs time that this process has measured with a monotonic clock. A restart begins to
//! measure anew, which prolongs a time-out once and never shortens it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// What the shell has measured, as an input of the plan.
#[derive(Clone, Debug, Default)]
pub struct ObservedTime {
    /// Nodes by UID. One that is missing is seen for the first time.
    pub nodes: BTreeMap<String, NodeTime>,
    /// Pods that are terminating, by UID, and for how long they have been seen so.
    pub terminating_pods: BTreeMap<String, SignedDuration>,
}

/// What was measured on one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeTime {
    /// It was seen Ready.
    pub was_ready: bool,
    /// For how long it has been seen without being Ready.
    pub not_ready: SignedDuration,
    /// For how long it has been seen draining, that is, closed and with the very mark it has now.
    pub draining: SignedDuration,
}

impl ObservedTime {
    /// What was measured on `node`.
    pub fn of_node(&self, node: &Node) -> NodeTime {
        node.metadata.uid.as_ref().and_then(|uid| self.nodes.get(uid)).copied().unwrap_or_default()
    }

    /// For how long `pod` has been seen terminating.
    pub fn of_pod(&self, pod: &Pod) -> SignedDuration {
        pod.metadata.uid.as_ref().and_then(|uid| self.terminating_pods.get(uid)).copied().unwrap_or_default()
    }
}

/// When both clocks agree that `limit` has passed: the wall clock since `since`, and the monotonic one, on which
/// `observed` has passed. Not after `now` means that it has.
pub fn due(since: Timestamp, limit: SignedDuration, observed: SignedDuration, now: Timestamp) -> Timestamp {
    let by_wall = since.checked_add(limit).unwrap_or(Timestamp::MAX);
    let rest = limit.checked_sub(observed).unwrap_or(SignedDuration::ZERO).max(SignedDuration::ZERO);
    by_wall.max(now.checked_add(rest).unwrap_or(Timestamp::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::testing::at;

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
}
