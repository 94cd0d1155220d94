//! Why a pod is planned, or is not: whether it waits for a node that the planner can provide.

use planner::input::pod_info::PodInfo;
use planner::input::pods;

/// The scheduling state of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PodState<'a> {
    /// The scheduler found no node for it: it is planned.
    Pending,
    /// It runs on this node, or is bound to it.
    Bound(&'a str),
    /// The scheduler preempts pods of this node for it.
    Nominated(&'a str),
    /// It has finished.
    Finished,
    /// It is being deleted.
    Ending,
    /// It has scheduling gates.
    Gated,
    /// It waits for the one node that its `DaemonSet` created it for.
    OfDaemonSet,
    /// The scheduler has not marked it as unschedulable.
    Unmarked,
}

impl<'a> PodState<'a> {
    /// The scheduling state of `pod`.
    pub(crate) fn of(pod: &'a PodInfo) -> Self {
        if pods::is_pending(pod) {
            return Self::Pending;
        }
        let status = pod.status();
        if status
            .and_then(|s| s.phase.as_deref())
            .is_some_and(|phase| matches!(phase, "Succeeded" | "Failed"))
        {
            return Self::Finished;
        }
        if let Some(node) = pod.node() {
            return Self::Bound(node);
        }
        if pod.deleted().is_some() {
            return Self::Ending;
        }
        if let Some(node) =
            status.and_then(|s| s.nominated_node_name.as_deref()).filter(|node| !node.is_empty())
        {
            return Self::Nominated(node);
        }
        if pod.spec().and_then(|s| s.scheduling_gates.as_ref()).is_some_and(|gates| !gates.is_empty()) {
            return Self::Gated;
        }
        if pod.owners().iter().any(|owner| owner.kind == "DaemonSet") {
            return Self::OfDaemonSet;
        }
        Self::Unmarked
    }

    /// The machine-readable name.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Bound(_) => "Bound",
            Self::Nominated(_) => "Nominated",
            Self::Finished => "Finished",
            Self::Ending => "Ending",
            Self::Gated => "Gated",
            Self::OfDaemonSet => "OfDaemonSet",
            Self::Unmarked => "NotMarkedUnschedulable",
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_pod_that_is_not_planned_has_a_reason() {
        let unschedulable = json!([{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" }]);
        let daemon = json!([{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u" }]);
        let time = "2026-01-01T00:00:00Z";
        for (meta, spec, status, expected) in [
            (json!({}), json!({}), json!({ "conditions": unschedulable }), PodState::Pending),
            (json!({}), json!({}), json!({}), PodState::Unmarked),
            (json!({}), json!({ "nodeName": "n" }), json!({}), PodState::Bound("n")),
            (json!({}), json!({ "nodeName": "n" }), json!({ "phase": "Failed" }), PodState::Finished),
            (
                json!({}),
                json!({}),
                json!({ "nominatedNodeName": "n", "conditions": unschedulable }),
                PodState::Nominated("n"),
            ),
            (json!({}), json!({ "schedulingGates": [{ "name": "g" }] }), json!({}), PodState::Gated),
            (
                json!({ "deletionTimestamp": time }),
                json!({}),
                json!({ "conditions": unschedulable }),
                PodState::Ending,
            ),
            (
                json!({ "ownerReferences": daemon }),
                json!({}),
                json!({ "conditions": unschedulable }),
                PodState::OfDaemonSet,
            ),
        ] {
            let mut pod: Value = json!({ "metadata": meta, "spec": spec, "status": status });
            pod["spec"]["containers"] = json!([]);
            let pod: PodInfo = serde_json::from_value(pod).unwrap();
            assert_eq!(PodState::of(&pod), expected);
        }
    }
}
