//! What the caches keep of the other types besides nodes and pods: only what the planner reads.

use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec};
use k8s_openapi::api::core::v1::{Namespace, NamespaceStatus, Pod, PodTemplateSpec};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::api::storage::v1::StorageClass;

use super::pod::template;
use crate::input::claim_info::DEFAULT_CLASS;
use crate::input::pods::TEMPLATE_GENERATION;

/// Drops what the planner does not read of a `DaemonSet`: the requests and constraints of its pods stay, and the generation of
/// their template.
pub fn daemon_set(set: &mut DaemonSet) {
    if let Some(annotations) = &mut set.metadata.annotations {
        annotations.retain(|key, _| key == TEMPLATE_GENERATION);
    }
    set.status = None;
    let Some(whole) = set.spec.take() else { return };
    let mut made = Pod {
        metadata: whole.template.metadata.unwrap_or_default(),
        spec: whole.template.spec,
        status: None,
    };
    template(&mut made);
    set.spec = Some(DaemonSetSpec {
        selector: whole.selector,
        template: PodTemplateSpec { metadata: Some(made.metadata), spec: made.spec },
        ..DaemonSetSpec::default()
    });
}

/// Drops what the planner does not read of a `PodDisruptionBudget`: its selector and the allowed disruptions stay.
pub fn budget(budget: &mut PodDisruptionBudget) {
    budget.metadata.annotations = None;
    if let Some(whole) = budget.status.take() {
        budget.status = Some(PodDisruptionBudgetStatus {
            current_healthy: whole.current_healthy,
            desired_healthy: whole.desired_healthy,
            disruptions_allowed: whole.disruptions_allowed,
            expected_pods: whole.expected_pods,
            observed_generation: whole.observed_generation,
            ..PodDisruptionBudgetStatus::default()
        });
    }
}

/// Drops what the planner does not read of a storage class: when and where volumes are provisioned stays, and which
/// class is the default.
pub fn storage_class(class: &mut StorageClass) {
    if let Some(annotations) = &mut class.metadata.annotations {
        annotations.retain(|key, _| DEFAULT_CLASS.contains(&key.as_str()));
    }
    class.parameters = None;
    class.mount_options = None;
}

/// Drops what the planner does not read of a namespace: its labels stay.
pub fn namespace(namespace: &mut Namespace) {
    namespace.metadata.annotations = None;
    namespace.spec = None;
    if let Some(whole) = namespace.status.take() {
        namespace.status = Some(NamespaceStatus { phase: whole.phase, conditions: None });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Prunes an object, and returns what is left as JSON.
    fn left<K: serde::de::DeserializeOwned + serde::Serialize>(whole: Value, prune: fn(&mut K)) -> Value {
        let mut object: K = serde_json::from_value(whole).unwrap();
        prune(&mut object);
        serde_json::to_value(&object).unwrap()
    }

    #[test]
    fn of_the_other_kinds_what_a_plan_is_made_from_stays_and_the_rest_goes() {
        let set = left(
            json!({ "metadata": { "name": "d", "annotations": { "x": "y", TEMPLATE_GENERATION: "2" } }, "status": { "numberReady": 3, "currentNumberScheduled": 3, "desiredNumberScheduled": 3, "numberMisscheduled": 0 },
                "spec": { "selector": { "matchLabels": { "a": "b" } }, "updateStrategy": { "type": "OnDelete" },
                    "template": { "metadata": { "labels": { "a": "b" }, "annotations": { "x": "y" } },
                        "spec": { "nodeSelector": { "k": "v" }, "containers": [{ "name": "c", "image": "i", "resources": { "requests": { "cpu": "1" } } }] } } } }),
            daemon_set,
        );
        assert_eq!(
            set["spec"]["template"]["spec"]["containers"],
            json!([{ "name": "c", "resources": { "requests": { "cpu": "1" } } }])
        );
        assert_eq!(set["spec"]["template"]["spec"]["nodeSelector"], json!({ "k": "v" }));
        assert_eq!(set["spec"]["template"]["metadata"]["labels"], json!({ "a": "b" }));
        assert_eq!(set["metadata"]["annotations"], json!({ TEMPLATE_GENERATION: "2" }));
        assert_eq!((&set["status"], &set["spec"]["updateStrategy"]), (&Value::Null, &Value::Null));

        let spec =
            json!({ "selector": {}, "maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow" });
        let counts = json!({ "currentHealthy": 3, "desiredHealthy": 2, "disruptionsAllowed": 1, "expectedPods": 3, "observedGeneration": 4 });
        let mut status = counts.clone();
        status["disruptedPods"] = json!({ "p": "2026-01-01T00:00:00Z" });
        let pdb = left(
            json!({ "metadata": { "annotations": { "x": "y" } }, "spec": spec, "status": status }),
            budget,
        );
        assert_eq!((&pdb["spec"], &pdb["status"]), (&spec, &counts));

        let topologies = json!([{ "matchLabelExpressions": [{ "key": "zone", "values": ["a"] }] }]);
        let class = left(
            json!({ "metadata": { "annotations": { "storageclass.kubernetes.io/is-default-class": "true", "x": "y" } }, "provisioner": "p",
                "parameters": { "x": "y" }, "mountOptions": ["ro"], "volumeBindingMode": "WaitForFirstConsumer", "allowedTopologies": topologies }),
            storage_class,
        );
        assert_eq!(
            (&class["volumeBindingMode"], &class["allowedTopologies"]),
            (&json!("WaitForFirstConsumer"), &topologies)
        );
        assert_eq!(
            class["metadata"]["annotations"],
            json!({ "storageclass.kubernetes.io/is-default-class": "true" })
        );
        assert_eq!((&class["parameters"], &class["mountOptions"]), (&Value::Null, &Value::Null));

        let space = left(
            json!({ "metadata": { "labels": { "team": "a" }, "annotations": { "x": "y" } }, "spec": { "finalizers": ["kubernetes"] } }),
            namespace,
        );
        assert_eq!(
            (&space["metadata"]["labels"], &space["metadata"]["annotations"]),
            (&json!({ "team": "a" }), &Value::Null)
        );
    }
}
