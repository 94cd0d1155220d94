//! Why a pod is planned, or is not: whether it waits for a node that the planner can provide.

use planner::Nominations;
use planner::input::{PodInfo, pods};

/// The scheduling state of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PodState<'a> {
    /// The scheduler found no node for it: it is planned.
    Pending,
    /// It runs on this node, or is bound to it.
    Bound(&'a str),
    /// It is nominated to this node, which has room for it, or will have.
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
    /// The scheduling state of `pod`; `nominations` are those that the planner believes.
    pub(crate) fn of(pod: &'a PodInfo, nominations: &Nominations<'a>) -> Self {
        let nominated = nominations.node_of(pod);
        if nominated.is_none() && pods::is_pending(pod) {
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
        if let Some(node) = nominated {
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
    use std::sync::Arc;

    use planner::Observed;
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
            (
                json!({}),
                json!({}),
                json!({ "nominatedNodeName": "gone", "conditions": unschedulable }),
                PodState::Pending,
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
            let node = json!({ "metadata": { "name": "n" },
                "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
            let observed = Observed {
                nodes: vec![Arc::new(serde_json::from_value(node).unwrap())],
                pods: vec![Arc::new(serde_json::from_value(pod).unwrap())],
                ..Observed::default()
            };
            assert_eq!(PodState::of(&observed.pods[0], &Nominations::of(&observed)), expected);
        }
    }
}
