//! Pod constraints that this version does not support yet. They are reported, never silently ignored.
//!
//! Such a pod is planned as if it did not have the constraint.

use k8s_openapi::api::core::v1::{Pod, PodSpec};

/// Whether a pod has a constraint.
type Check = fn(&PodSpec) -> bool;

/// The constraints of a pending pod that the plan ignores.
pub fn constraints(pod: &Pod) -> Vec<&'static str> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let checks: [(_, Check); 3] = [
        ("resource claims", has_resource_claims),
        ("how many volumes a node can attach, and how much storage is left", has_claims),
        ("scheduling groups", has_group),
    ];
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
            (json!({ "resourceClaims": [] }), vec![]),
            (json!({ "resourceClaims": [{ "name": "r" }] }), vec!["resource claims"]),
            (json!({ "schedulingGroup": { "podGroupName": "g" } }), vec!["scheduling groups"]),
        ] {
            let mut pod: Value = json!({ "spec": { "containers": [] } });
            for (key, value) in spec.as_object().unwrap() {
                pod["spec"][key] = value.clone();
            }
            assert_eq!(constraints(&serde_json::from_value(pod).unwrap()), named, "{spec}");
        }
    }
}
