//! Facts about one pod: does it wait for a node, does it sit on one, does it keep one.

use k8s_openapi::{
    api::core::v1::{Pod, PodSpec, PodStatus},
    jiff::Timestamp,
};

use super::nodes::later;

/// The annotation of a pod that the kubelet runs from a file.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// Seconds a pod has to end in when it does not say: `DefaultTerminationGracePeriodSeconds` of the core API.
const DEFAULT_GRACE_SECONDS: i32 = 30;

/// Seconds after which a pod that should have ended no longer keeps its node: Cluster Autoscaler's
/// `PodLongTerminatingExtraThreshold`.
const LONG_TERMINATING_SECONDS: i32 = 30;

/// Whether the pod waits for a node that nobody has promised it: the scheduler has said `Unschedulable`, and the pod is
/// not gated, not nominated to a node, not being deleted, and not a `DaemonSet`'s (whose pods wait for one certain node).
pub fn is_pending(pod: &Pod) -> bool {
    let (Some(spec), Some(status)) = (&pod.spec, &pod.status) else { return false };
    node_of(spec).is_none()
        && nominated(status).is_none()
        && spec.scheduling_gates.as_ref().is_none_or(Vec::is_empty)
        && pod.metadata.deletion_timestamp.is_none()
        && !is_finished(pod)
        && !is_daemon(pod)
        && status.conditions.iter().flatten().any(|c| {
            c.type_ == "PodScheduled" && c.status == "False" && c.reason.as_deref() == Some("Unschedulable")
        })
}

/// The node the pod occupies: the one it is bound to, or the one that is being cleared for it.
pub fn occupied_node(pod: &Pod) -> Option<&str> {
    if is_finished(pod) {
        return None;
    }
    pod.spec.as_ref().and_then(node_of).or_else(|| pod.status.as_ref().and_then(nominated))
}

/// Whether the pod, on a node, is a reason to keep that node: everything but `DaemonSet` pods, mirror pods, finished pods
/// and those that should have ended long ago.
pub fn keeps_node(pod: &Pod, now: Timestamp) -> bool {
    !is_finished(pod)
        && !is_daemon(pod)
        && !is_mirror(pod)
        && keeps_until(pod).is_none_or(|until| now <= until)
}

/// The last moment at which a pod that is being deleted is a reason to keep its node. The grace period counts once more
/// after `deletionTimestamp`, which already is the end of it, because it does in Cluster Autoscaler.
pub fn keeps_until(pod: &Pod) -> Option<Timestamp> {
    let deleted = pod.metadata.deletion_timestamp.as_ref()?.0;
    let asked = pod.spec.as_ref().and_then(|s| s.termination_grace_period_seconds);
    let grace = asked.map_or(DEFAULT_GRACE_SECONDS, |seconds| i32::try_from(seconds).unwrap_or(i32::MAX));
    Some(later(later(deleted, grace), LONG_TERMINATING_SECONDS))
}

/// The priority that admission has resolved; 0 without one.
pub fn priority(pod: &Pod) -> i32 {
    pod.spec.as_ref().and_then(|s| s.priority).unwrap_or(0)
}

fn is_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

fn is_daemon(pod: &Pod) -> bool {
    pod.metadata.owner_references.iter().flatten().any(|owner| owner.kind == "DaemonSet")
}

fn is_mirror(pod: &Pod) -> bool {
    pod.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(MIRROR_ANNOTATION))
}

fn node_of(spec: &PodSpec) -> Option<&str> {
    spec.node_name.as_deref().filter(|name| !name.is_empty())
}

fn nominated(status: &PodStatus) -> Option<&str> {
    status.nominated_node_name.as_deref().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A pending pod with `change` merged over it.
    fn pod(change: Value) -> Pod {
        let mut pod = json!({
            "metadata": { "name": "p" }, "spec": { "containers": [] },
            "status": { "phase": "Pending", "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" }] }
        });
        merge(&mut pod, change);
        serde_json::from_value(pod).unwrap()
    }

    fn merge(into: &mut Value, change: Value) {
        match (into, change) {
            (Value::Object(into), Value::Object(change)) => {
                for (key, value) in change {
                    merge(into.entry(key).or_insert(Value::Null), value);
                }
            }
            (into, change) => *into = change,
        }
    }

    #[test]
    fn a_pod_is_pending_only_when_the_scheduler_found_no_node_and_nothing_else_holds_it() {
        assert!(is_pending(&pod(json!({}))));
        for (why, change) in [
            ("bound", json!({ "spec": { "nodeName": "n" } })),
            ("nominated", json!({ "status": { "nominatedNodeName": "n" } })),
            ("gated", json!({ "spec": { "schedulingGates": [{ "name": "g" }] } })),
            ("being deleted", json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } })),
            (
                "a DaemonSet's",
                json!({ "metadata": { "ownerReferences": [
                { "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": true }] } }),
            ),
            ("finished", json!({ "status": { "phase": "Failed" } })),
            ("not looked at yet", json!({ "status": { "conditions": [] } })),
            (
                "gated by condition",
                json!({ "status": { "conditions": [
                { "type": "PodScheduled", "status": "False", "reason": "SchedulingGated" }] } }),
            ),
            (
                "scheduled",
                json!({ "status": { "conditions": [{ "type": "PodScheduled", "status": "True" }] } }),
            ),
        ] {
            assert!(!is_pending(&pod(change)), "{why}");
        }
    }

    #[test]
    fn a_nominated_pod_occupies_the_node_that_is_cleared_for_it() {
        assert_eq!(occupied_node(&pod(json!({ "status": { "nominatedNodeName": "n" } }))), Some("n"));
        assert_eq!(
            occupied_node(&pod(json!({ "spec": { "nodeName": "n" }, "status": { "phase": "Succeeded" } }))),
            None
        );
    }

    #[test]
    fn daemon_mirror_and_finished_pods_keep_no_node() {
        let kind = |kind: &str| {
            json!({ "metadata": { "ownerReferences": [
            { "apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "u", "controller": true }] } })
        };
        let keeps = |change: Value| keeps_node(&pod(change), Timestamp::UNIX_EPOCH);
        assert!(keeps(kind("ReplicaSet")));
        assert!(!keeps(kind("DaemonSet")));
        assert!(!keeps(json!({ "metadata": { "annotations": { MIRROR_ANNOTATION: "x" } } })));
        assert!(!keeps(json!({ "status": { "phase": "Failed" } })));
    }

    #[test]
    fn a_pod_that_should_have_ended_keeps_its_node_for_its_grace_period_and_thirty_seconds() {
        for (grace, now, keeps) in [
            (Value::Null, "2026-01-01T00:01:00Z", true),
            (Value::Null, "2026-01-01T00:01:00.001Z", false),
            (json!(0), "2026-01-01T00:00:30Z", true),
            (json!(0), "2026-01-01T00:00:31Z", false),
            (json!(600), "2026-01-01T00:10:30Z", true),
            (json!(600), "2026-01-01T00:10:31Z", false),
            (json!(i64::MAX), "2026-01-01T00:10:31Z", true),
        ] {
            let pod = pod(json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" },
                "spec": { "nodeName": "n", "terminationGracePeriodSeconds": grace } }));
            assert_eq!(keeps_node(&pod, now.parse().unwrap()), keeps, "{grace} at {now}");
        }
    }
}
