//! Pod constraints that this version does not support yet. They are reported, never silently ignored.

use k8s_openapi::api::core::v1::{Pod, PodCondition, PodSpec};

/// A part of the scheduler's reason for a node on which a CSI driver can attach no more volumes:
/// `ErrReasonMaxVolumeCountExceeded` of its plugin `NodeVolumeLimits`.
/// <https://kubernetes.io/docs/concepts/storage/storage-limits/>
const VOLUME_LIMIT: &str = "exceed max volume count";
/// The same for nodes where a claim's storage would have to be and too little of it is left, by the `CSIStorageCapacity` objects
/// of its driver: `ErrReasonNotEnoughSpace` of the plugin `VolumeBinding`.
/// <https://kubernetes.io/docs/concepts/storage/storage-capacity/>
const FREE_STORAGE: &str = "did not have enough free storage";
/// What is read of the scheduler's reasons, and what each says. Its other reasons about volumes (`had volume node affinity
/// conflict`, `didn't find available persistent volumes to bind`, `bound to non-existent pv(s)`) are about objects that the planner
/// reads itself: it has reasons of its own for them, and takes nothing from the message, which may be older.
const READ_REASONS: [(StorageRefusal, &str); 2] =
    [(StorageRefusal::VolumeLimits, VOLUME_LIMIT), (StorageRefusal::FreeStorage, FREE_STORAGE)];

/// Why the scheduler refuses nodes, where only the scheduler knows: neither the limits of nodes nor the free storage are read. A
/// new node may help and may not: the storage that is short may be the whole zone's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StorageRefusal {
    /// A CSI driver can attach no more volumes to them.
    VolumeLimits,
    /// Where they are, too little storage is left for a claim.
    FreeStorage,
}

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

/// Why the scheduler has refused nodes to the pod, where the planner would not: the first reason if there are two.
pub(crate) fn storage_refusal(pod: &Pod) -> Option<StorageRefusal> {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut refused = conditions.filter(|condition| condition.status == "False");
    refused.find_map(|condition| read_reasons(condition).first().map(|(refusal, _)| *refusal))
}

/// What is read of a condition's message. The rest is not kept: its numbers of nodes change, and would tell apart pods
/// that are equal.
pub(super) fn read_of_message(condition: &PodCondition) -> Option<String> {
    let texts: Vec<&str> = read_reasons(condition).into_iter().map(|(_, text)| text).collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

fn read_reasons(condition: &PodCondition) -> Vec<(StorageRefusal, &'static str)> {
    let message = condition.message.as_deref().filter(|_| condition.type_ == "PodScheduled");
    let is_said = |(_, text): &(StorageRefusal, &str)| message.is_some_and(|message| message.contains(text));
    READ_REASONS.into_iter().filter(is_said).collect()
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
    fn the_schedulers_message_tells_what_only_the_scheduler_knows_of_volumes() {
        let limit = "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) exceed max volume count.";
        let storage =
            "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) did not have enough free storage.";
        for (type_, status, message, refusal) in [
            ("PodScheduled", "False", Some(limit), Some(StorageRefusal::VolumeLimits)),
            ("PodScheduled", "False", Some(storage), Some(StorageRefusal::FreeStorage)),
            ("PodScheduled", "False", Some("0/3 nodes are available: 3 Insufficient cpu."), None),
            ("PodScheduled", "False", None, None),
            ("PodScheduled", "True", Some(limit), None),
            ("PodScheduled", "True", Some(storage), None),
            ("Ready", "False", Some(limit), None),
        ] {
            let pod = told(type_, status, message);
            assert_eq!(storage_refusal(&pod), refusal, "{type_} {status} {message:?}");
        }
    }

    /// The planner reads the objects that these are about.
    #[test]
    fn nothing_is_taken_from_what_the_scheduler_says_of_volumes_that_are_planned() {
        for reason in [
            "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
            "node(s) had volume node affinity conflict",
            // The same in newer versions.
            "node(s) didn't match PersistentVolume's node affinity",
            "node(s) didn't find available persistent volumes to bind",
        ] {
            let message = format!("0/2 nodes are available: 2 {reason}.");
            assert_eq!(storage_refusal(&told("PodScheduled", "False", Some(&message))), None, "{reason}");
        }
    }

    #[test]
    fn of_a_message_only_the_reasons_are_kept_that_are_read() {
        let both = "0/5 nodes are available: 2 node(s) did not have enough free storage, 3 node(s) exceed max volume count.";
        let kept = |message: &str| {
            let condition = PodCondition {
                type_: "PodScheduled".to_owned(),
                message: Some(message.to_owned()),
                ..PodCondition::default()
            };
            read_of_message(&condition)
        };
        let known = "exceed max volume count, did not have enough free storage";
        assert_eq!(kept(both).as_deref(), Some(known));
        assert_eq!(kept(known).as_deref(), Some(known), "what was kept is kept again");
        assert_eq!(kept("0/5 nodes are available: 5 Insufficient cpu."), None);
    }

    fn told(type_: &str, status: &str, message: Option<&str>) -> Pod {
        let condition = json!({ "type": type_, "status": status, "message": message });
        let object = json!({ "spec": { "containers": [] }, "status": { "conditions": [condition] } });
        serde_json::from_value(object).unwrap()
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
