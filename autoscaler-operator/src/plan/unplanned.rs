//! Constraints that pods carry and this version does not plan with yet. They are named, never silently ignored.
//!
//! Such a pod is planned as if the constraint were not there.

use k8s_openapi::api::core::v1::{Pod, PodSpec};

/// Says whether a pod has a constraint.
type Check = fn(&PodSpec) -> bool;

/// What of a pending pod's constraints plays no part in the plan.
pub fn constraints(pod: &Pod) -> Vec<&'static str> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let checks: [(_, Check); 6] = [
        ("required pod affinity", has_affinity),
        ("required pod anti-affinity", has_anti_affinity),
        ("topology spread (DoNotSchedule)", has_spread),
        ("host ports", has_host_ports),
        ("the zones of persistent volumes", has_claims),
        ("resource claims", has_resource_claims),
    ];
    checks.into_iter().filter(|(_, present)| present(spec)).map(|(name, _)| name).collect()
}

fn has_affinity(spec: &PodSpec) -> bool {
    let affinity = spec.affinity.as_ref().and_then(|a| a.pod_affinity.as_ref());
    affinity.is_some_and(|a| filled(a.required_during_scheduling_ignored_during_execution.as_ref()))
}

fn has_anti_affinity(spec: &PodSpec) -> bool {
    let affinity = spec.affinity.as_ref().and_then(|a| a.pod_anti_affinity.as_ref());
    affinity.is_some_and(|a| filled(a.required_during_scheduling_ignored_during_execution.as_ref()))
}

fn has_spread(spec: &PodSpec) -> bool {
    spec.topology_spread_constraints.iter().flatten().any(|c| c.when_unsatisfiable == "DoNotSchedule")
}

fn has_host_ports(spec: &PodSpec) -> bool {
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    containers
        .flat_map(|c| c.ports.iter().flatten())
        .any(|port| port.host_port.is_some_and(|p| p != 0) || spec.host_network == Some(true))
}

fn has_claims(spec: &PodSpec) -> bool {
    spec.volumes.iter().flatten().any(|v| v.persistent_volume_claim.is_some() || v.ephemeral.is_some())
}

fn has_resource_claims(spec: &PodSpec) -> bool {
    filled(spec.resource_claims.as_ref())
}

fn filled<T>(list: Option<&Vec<T>>) -> bool {
    list.is_some_and(|list| !list.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn each_constraint_is_named() {
        let term = json!([{ "topologyKey": "zone" }]);
        let required = |kind: &str| json!({ "affinity": { kind: { "requiredDuringSchedulingIgnoredDuringExecution": term } } });
        for (spec, named) in [
            (json!({}), vec![]),
            (required("podAffinity"), vec!["required pod affinity"]),
            (required("podAntiAffinity"), vec!["required pod anti-affinity"]),
            (
                json!({ "topologySpreadConstraints": [{ "maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule" }] }),
                vec!["topology spread (DoNotSchedule)"],
            ),
            (
                json!({ "topologySpreadConstraints": [{ "maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway" }] }),
                vec![],
            ),
            (
                json!({ "containers": [{ "name": "c", "ports": [{ "containerPort": 1, "hostPort": 1 }] }] }),
                vec!["host ports"],
            ),
            (json!({ "containers": [{ "name": "c", "ports": [{ "containerPort": 1 }] }] }), vec![]),
            (
                json!({ "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "c" } }] }),
                vec!["the zones of persistent volumes"],
            ),
            (json!({ "resourceClaims": [{ "name": "r" }] }), vec!["resource claims"]),
        ] {
            let mut pod: Value = json!({ "spec": { "containers": [] } });
            for (key, value) in spec.as_object().unwrap() {
                pod["spec"][key] = value.clone();
            }
            assert_eq!(constraints(&serde_json::from_value(pod).unwrap()), named, "{spec}");
        }
    }
}
