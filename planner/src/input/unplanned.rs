//! Pod constraints that this version does not support yet. They are reported, never silently ignored.

use k8s_openapi::api::core::v1::{Pod, PodSpec};

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
