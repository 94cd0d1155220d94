//! Pod constraints that this version does not support yet. They are reported, never silently ignored.

use k8s_openapi::api::core::v1::{Pod, PodCondition, PodSpec};

/// A part of the scheduler's reason for a node on which a CSI driver can attach no more volumes:
/// `ErrReasonMaxVolumeCountExceeded` of its plugin `NodeVolumeLimits`.
/// <https://kubernetes.io/docs/concepts/storage/storage-limits/>
const VOLUME_LIMIT: &str = "exceed max volume count";

/// Whether a pod has a constraint.
type Check = fn(&PodSpec) -> bool;

/// The constraint of a pod without which a plan for it would be a guess. While the pod is pending, no node is said to take it, and no
/// pool grows for it. While it runs, its node is not removed: whether another one could take it is not known either.
pub(crate) fn obstacle(pod: &Pod) -> Option<&'static str> {
    let spec = pod.spec.as_ref()?;
    let checks: [(_, Check); 2] =
        [("resource claims", has_resource_claims), ("a scheduling group", has_group)];
    checks.into_iter().find(|(_, present)| present(spec)).map(|(name, _)| name)
}

/// The constraints of a pending pod that the plan ignores: it is planned as if it had none.
pub fn constraints(pod: &Pod) -> Vec<&'static str> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let checks: [(_, Check); 1] =
        [("how many volumes a node can attach, and how much storage is left", has_claims)];
    checks.into_iter().filter(|(_, present)| present(spec)).map(|(name, _)| name).collect()
}

/// Whether the scheduler has said that nodes can attach no more volumes for the pod. Only the scheduler knows: the limits
/// of nodes are not read.
pub(crate) fn meets_volume_limit(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.filter(|condition| condition.status == "False").any(|c| read_of_message(c).is_some())
}

/// What is read of a condition's message. The rest is not kept: its numbers of nodes change, and would tell apart pods
/// that are equal.
pub(super) fn read_of_message(condition: &PodCondition) -> Option<String> {
    let message = condition.message.as_deref().filter(|_| condition.type_ == "PodScheduled")?;
    message.contains(VOLUME_LIMIT).then(|| VOLUME_LIMIT.to_owned())
}

fn has_claims(spec: &PodSpec) -> bool {
    spec.volumes.iter().flatten().any(|v| v.persistent_volume_claim.is_some() || v.ephemeral.is_some())
}

const fn has_group(spec: &PodSpec) -> bool {
    spec.scheduling_group.is_some()
}

fn has_resource_claims(spec: &PodSpec) -> bool {
    spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn each_constraint_is_named() {
        let volumes = "how many volumes a node can attach, and how much storage is left";
        for (spec, named) in [
            (json!({}), vec![]),
            (
                json!({ "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "c" } }] }),
                vec![volumes],
            ),
            (json!({ "volumes": [{ "name": "v", "ephemeral": {} }] }), vec![volumes]),
            (json!({ "volumes": [{ "name": "v", "emptyDir": {} }] }), vec![]),
        ] {
            assert_eq!(constraints(&pod(&spec)), named, "{spec}");
        }
    }

    fn pod(spec: &Value) -> Pod {
        let mut pod: Value = json!({ "spec": { "containers": [] } });
        for (key, value) in spec.as_object().unwrap() {
            pod["spec"][key] = value.clone();
        }
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn the_schedulers_message_tells_that_nodes_can_attach_no_more_volumes() {
        let message = "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) exceed max volume count.";
        for (type_, status, message, meets) in [
            ("PodScheduled", "False", Some(message), true),
            ("PodScheduled", "False", Some("0/3 nodes are available: 3 Insufficient cpu."), false),
            ("PodScheduled", "False", None, false),
            ("PodScheduled", "True", Some(message), false),
            ("Ready", "False", Some(message), false),
        ] {
            let condition = json!({ "type": type_, "status": status, "message": message });
            let object = json!({ "spec": { "containers": [] }, "status": { "conditions": [condition] } });
            let pod: Pod = serde_json::from_value(object).unwrap();
            assert_eq!(meets_volume_limit(&pod), meets, "{type_} {status} {message:?}");
        }
    }

    #[test]
    fn what_makes_a_plan_a_guess_is_an_obstacle() {
        for (spec, obstacle) in [
            (json!({}), None),
            (json!({ "resourceClaims": [] }), None),
            (json!({ "resourceClaims": [{ "name": "r" }] }), Some("resource claims")),
            (json!({ "schedulingGroup": { "podGroupName": "g" } }), Some("a scheduling group")),
        ] {
            assert_eq!(super::obstacle(&pod(&spec)), obstacle, "{spec}");
        }
    }
}
