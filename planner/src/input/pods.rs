//! Facts about one pod: whether it is pending, which node it occupies, whether it keeps that node, which controller
//! would recreate it.

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::Timestamp;
use shared_crds::protection::{self, POD_SCALE_UP_DELAY};

use super::pod_info::PodInfo;
use crate::time::later;

/// The field selector of the pods that a plan is made from: finished pods use no resources of a node, and leaving them
/// out keeps caches and lists small.
pub const UNFINISHED_SELECTOR: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// The annotation of a static pod, which the kubelet runs from a file.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// The annotation of a `DaemonSet` in which the API server counts the changes of its template.
pub(crate) const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// The label of a `DaemonSet`'s pod with the [`TEMPLATE_GENERATION`] that it was made from.
const TEMPLATE_GENERATION_LABEL: &str = "pod-template-generation";

/// The label of a `DaemonSet`'s pod with the revision of the template that it was made from: equal templates have the same.
const REVISION_LABEL: &str = "controller-revision-hash";

/// Cluster Autoscaler's annotation (`true`) of a pod that counts as a `DaemonSet`'s pod, whatever its owner.
const DAEMON_ANNOTATION: &str = "cluster-autoscaler.kubernetes.io/daemonset-pod";

/// The termination grace period in seconds of a pod that sets none: `DefaultTerminationGracePeriodSeconds` of the core
/// API.
const DEFAULT_GRACE_SECONDS: i32 = 30;

/// Seconds after which a pod that should have terminated no longer keeps its node: Cluster Autoscaler's
/// `PodLongTerminatingExtraThreshold`.
const LONG_TERMINATING_SECONDS: i32 = 30;

/// Whether the pod is pending: the scheduler has reported `Unschedulable`, and the pod is not gated, not being deleted,
/// and not a `DaemonSet`'s (whose pods wait for one certain node). It may be nominated to a node: whether that is
/// believed, `snapshot::nominations` decides.
pub fn is_pending(pod: &PodInfo) -> bool {
    let (Some(spec), Some(status)) = (pod.spec(), pod.status()) else { return false };
    pod.node().is_none()
        && spec.scheduling_gates.as_ref().is_none_or(Vec::is_empty)
        && pod.deleted().is_none()
        && !is_finished(pod.shape().pod())
        && !is_daemon(pod.shape().pod())
        && status.conditions.iter().flatten().any(|c| {
            c.type_ == "PodScheduled" && c.status == "False" && c.reason.as_deref() == Some("Unschedulable")
        })
}

/// Whether the scheduler is at work on the pod, or could not end that: it has no node, nothing holds it, and it is not [`is_pending`].
pub(crate) fn is_being_scheduled(pod: &PodInfo) -> bool {
    pod.node().is_none()
        && pod.spec().is_some_and(|spec| spec.scheduling_gates.as_ref().is_none_or(Vec::is_empty))
        && pod.deleted().is_none()
        && !is_finished(pod.shape().pod())
        && !is_pending(pod)
}

/// The node the pod is bound to, unless it has finished.
pub(crate) fn bound_node(pod: &PodInfo) -> Option<&str> {
    pod.node().filter(|_| !is_finished(pod.shape().pod()))
}

/// The node that `status.nominatedNodeName` names, of a pod that still waits for one. No more than a hint: whether it is
/// believed, `snapshot::nominations` decides.
pub(crate) fn nominated_node(pod: &PodInfo) -> Option<&str> {
    if pod.node().is_some() || pod.deleted().is_some() || is_finished(pod.shape().pod()) {
        return None;
    }
    pod.status().and_then(nominated)
}

/// The node that the pod names: the one it is bound to, or is nominated to.
pub fn occupied_node(pod: &PodInfo) -> Option<&str> {
    bound_node(pod).or_else(|| nominated_node(pod))
}

/// The controller of the pod, which creates a replacement when this pod is gone. Other owners do not.
pub(crate) fn controller(pod: &PodInfo) -> Option<&OwnerReference> {
    controller_among(pod.owners())
}

/// The one of `metadata.ownerReferences` that is the [`controller`].
pub(crate) fn controller_among(owners: &[OwnerReference]) -> Option<&OwnerReference> {
    owners.iter().find(|owner| owner.controller == Some(true))
}

/// Whether the pod, or its replacement, needs a place when its node is removed. A pod that is being deleted already has
/// a replacement by now, which is counted where it is; a `StatefulSet` creates it only after the old pod is gone.
pub(crate) fn needs_place(pod: &PodInfo) -> bool {
    pod.deleted().is_none() || controller(pod).is_some_and(|controller| controller.kind == "StatefulSet")
}

/// Whether the kubelet reports the pod as not ready. A pod without that condition counts as ready.
pub(crate) fn is_unready(pod: &PodInfo) -> bool {
    let conditions = pod.status().into_iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status != "True")
}

/// Whether the pod, on a node, is a reason to keep that node: every pod except `DaemonSet` pods, mirror pods, finished
/// pods and those that should have terminated long ago.
pub fn keeps_node(pod: &PodInfo, now: Timestamp) -> bool {
    is_workload(pod.shape().pod()) && !is_overdue(pod, now)
}

/// The part of [`keeps_node`] that is the same for all pods of a template, which is a pod's shape without its labels.
pub(crate) fn is_workload(template: &Pod) -> bool {
    !is_finished(template) && !is_daemon(template) && !is_mirror(template)
}

/// Whether the pod is being deleted and should have terminated long ago.
pub(crate) fn is_overdue(pod: &PodInfo, now: Timestamp) -> bool {
    keeps_until(pod).is_some_and(|until| until < now)
}

/// The last moment at which a pod that is being deleted is a reason to keep its node. The grace period is added once
/// more to `deletionTimestamp`, which already includes it, because Cluster Autoscaler does so.
pub(crate) fn keeps_until(pod: &PodInfo) -> Option<Timestamp> {
    let deleted = pod.deleted()?;
    let asked = pod.spec().and_then(|s| s.termination_grace_period_seconds);
    let grace = asked.map_or(DEFAULT_GRACE_SECONDS, |seconds| i32::try_from(seconds).unwrap_or(i32::MAX));
    Some(later(later(deleted, grace), LONG_TERMINATING_SECONDS))
}

/// The priority that admission has resolved; 0 without one.
pub(crate) fn priority(pod: &PodInfo) -> i32 {
    priority_of(pod.shape().pod())
}

/// The [`priority`] of the pods of a template.
pub(crate) fn priority_of(template: &Pod) -> i32 {
    template.spec.as_ref().and_then(|s| s.priority).unwrap_or(0)
}

/// Whether an annotation asks at `now` that the pod is not evicted. It asks for nothing once the pod is being deleted.
pub(crate) fn asks_to_stay(pod: &PodInfo, now: Timestamp) -> bool {
    let is_deleted = pod.deleted().is_some();
    protection::of_annotations(|key| pod.annotation(key), is_deleted, pod.started(), now).is_some()
}

/// From when on pools grow for the pod, if an annotation says so; counted from its creation, as in Cluster Autoscaler
/// (`filterOutYoungPods`). `None` without the annotation, and for a pod that no API server has seen.
///
/// # Errors
///
/// The annotation's value, if it is no duration, or below zero.
pub(crate) fn scale_up_from(pod: &PodInfo) -> Result<Option<Timestamp>, &str> {
    let Some(value) = pod.annotation(POD_SCALE_UP_DELAY) else { return Ok(None) };
    let delay = protection::scale_up_delay(value).ok_or(value)?;
    Ok(pod.created().map(|created| created.checked_add(delay).unwrap_or(Timestamp::MAX)))
}

/// `status.phase`.
pub(crate) fn phase(pod: &PodInfo) -> Option<&str> {
    pod.status()?.phase.as_deref()
}

fn is_finished(template: &Pod) -> bool {
    let phase = template.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Whether a `DaemonSet` created the pod, or an annotation has it treated as if one had.
pub(crate) fn is_daemon(pod: &Pod) -> bool {
    let annotations = pod.metadata.annotations.as_ref();
    pod.metadata.owner_references.iter().flatten().any(|owner| owner.kind == "DaemonSet")
        || annotations.and_then(|a| a.get(DAEMON_ANNOTATION)).is_some_and(|value| value == "true")
}

/// Namespace and name of the `DaemonSet` that created the pod.
pub(crate) fn daemon_set(pod: &PodInfo) -> Option<(&str, &str)> {
    let owner = pod.owners().iter().find(|owner| owner.kind == "DaemonSet")?;
    Some((pod.key().0, owner.name.as_str()))
}

/// The generation of the `DaemonSet`'s template that the pod was made from.
pub(crate) fn template_generation(pod: &PodInfo) -> Option<i64> {
    pod.labels().get(TEMPLATE_GENERATION_LABEL)?.parse().ok()
}

/// The revision of the `DaemonSet`'s template that the pod was made from.
pub(crate) fn revision(pod: &PodInfo) -> Option<&str> {
    pod.labels().get(REVISION_LABEL).map(String::as_str)
}

/// Whether the kubelet runs the pod from a file: the object only mirrors it.
pub(crate) fn is_mirror(pod: &Pod) -> bool {
    pod.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(MIRROR_ANNOTATION))
}

fn nominated(status: &PodStatus) -> Option<&str> {
    status.nominated_node_name.as_deref().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use shared_crds::protection::{DO_NOT_DISRUPT, SAFE_TO_EVICT};

    use super::*;
    use crate::fixtures::merged;

    /// A pending pod with `change` merged over it.
    fn pod(change: Value) -> PodInfo {
        let pod = json!({
            "metadata": { "name": "p" }, "spec": { "containers": [] },
            "status": { "phase": "Pending", "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" }] }
        });
        serde_json::from_value(merged(pod, change)).unwrap()
    }

    #[test]
    fn a_pod_is_pending_only_when_the_scheduler_found_no_node_and_nothing_else_holds_it() {
        assert!(is_pending(&pod(json!({}))));
        assert!(is_pending(&pod(json!({ "status": { "nominatedNodeName": "n" } }))), "that is a hint");
        for (why, change) in [
            ("bound", json!({ "spec": { "nodeName": "n" } })),
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
    fn a_pod_names_the_node_it_is_bound_or_nominated_to() {
        let nominated = json!({ "status": { "nominatedNodeName": "n" } });
        assert_eq!(occupied_node(&pod(nominated.clone())), Some("n"));
        assert_eq!(bound_node(&pod(nominated.clone())), None);
        for change in [
            json!({ "spec": { "nodeName": "m" } }),
            json!({ "status": { "phase": "Failed" } }),
            json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }),
        ] {
            assert_eq!(nominated_node(&pod(merged(nominated.clone(), change.clone()))), None, "{change}");
        }
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
        assert!(!keeps(json!({ "metadata": { "annotations": { DAEMON_ANNOTATION: "true" } } })));
        assert!(keeps(json!({ "metadata": { "annotations": { DAEMON_ANNOTATION: "false" } } })));
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

    #[test]
    fn a_pod_that_is_being_deleted_needs_no_place_unless_its_successor_waits_for_its_end() {
        let deleted = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
        let owned = |kind: &str, controller: bool| {
            json!({ "metadata": { "ownerReferences": [
            { "apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "u", "controller": controller }] } })
        };
        for (kind, controller, going, needs) in [
            ("ReplicaSet", true, false, true),
            ("ReplicaSet", true, true, false),
            ("StatefulSet", true, true, true),
            ("StatefulSet", false, true, false),
        ] {
            let mut change = owned(kind, controller);
            if going {
                change = merged(change, deleted.clone());
            }
            assert_eq!(needs_place(&pod(change)), needs, "{kind} {controller} {going}");
        }
    }

    #[test]
    fn pools_grow_for_a_pod_when_it_is_as_old_as_its_annotation_says() {
        let created = "2026-01-01T00:00:00Z";
        for (value, created, from) in [
            (None, Some(created), Ok(None)),
            (Some("5m"), Some(created), Ok(Some("2026-01-01T00:05:00Z"))),
            (Some("0s"), Some(created), Ok(Some(created))),
            (Some("5m"), None, Ok(None)),
            (Some("soon"), Some(created), Err("soon")),
            (Some("-5m"), Some(created), Err("-5m")),
        ] {
            let annotations = value.map(|value| json!({ POD_SCALE_UP_DELAY: value }));
            let pod =
                pod(json!({ "metadata": { "annotations": annotations, "creationTimestamp": created } }));
            let from = from.map(|from| from.map(|from| from.parse().unwrap()));
            assert_eq!(scale_up_from(&pod), from, "{value:?}");
        }
    }

    #[test]
    fn a_pod_asks_to_stay_by_either_annotation_until_it_is_deleted() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        for (annotations, asks) in [
            (json!({}), false),
            (json!({ SAFE_TO_EVICT: "false" }), true),
            (json!({ SAFE_TO_EVICT: "on-completion" }), true),
            (json!({ DO_NOT_DISRUPT: "true" }), true),
            (json!({ DO_NOT_DISRUPT: "true", SAFE_TO_EVICT: "true" }), false),
        ] {
            let change = json!({ "metadata": { "annotations": annotations } });
            assert_eq!(asks_to_stay(&pod(change.clone()), now), asks, "{annotations}");
            let deleted = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
            assert!(!asks_to_stay(&pod(merged(change, deleted)), now), "{annotations}");
        }
    }

    #[test]
    fn only_a_pod_that_says_so_is_not_ready() {
        for (conditions, unready) in [
            (json!([]), false),
            (json!([{ "type": "Ready", "status": "True" }]), false),
            (json!([{ "type": "Ready", "status": "False" }]), true),
            (json!([{ "type": "Ready", "status": "Unknown" }]), true),
        ] {
            assert_eq!(is_unready(&pod(json!({ "status": { "conditions": conditions } }))), unready);
        }
    }
}
