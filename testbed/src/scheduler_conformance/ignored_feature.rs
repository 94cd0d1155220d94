//! Planners that ignore one feature: the real one, called with objects from which that feature has been removed. The
//! comparison is meaningful only if it detects each of them.

use std::sync::Arc;

use AppliesTo::{All, Others, Own};
use anyhow::Result;
use serde_json::{Value, json};

use super::infrastructure::{CORDON, GPU, NO_PROVISIONER, PROVISIONER};
use super::kinds;
use super::objects::key;
use super::planner::SimulatedPlanner;
use super::question;
use super::question::Record;
use super::scheduler_env::PROBE_NODE;

/// A planner that ignores one feature.
#[derive(Clone, Copy, Debug)]
pub struct IgnoredFeature {
    /// The ignored feature, as text.
    pub name: &'static str,
    applies_to: AppliesTo,
    /// Removes the feature from an object.
    remove: fn(&mut Value),
}

/// The objects in which the feature is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AppliesTo {
    /// The pod in question.
    Own,
    /// All other objects.
    Others,
    /// All objects.
    All,
}

/// All features that are tested.
// One line each, so that the table is readable.
#[rustfmt::skip]
pub const IGNORED_FEATURES: [IgnoredFeature; 30] = [
    IgnoredFeature { name: "requests", applies_to: Own, remove: |o| each_container(o, "resources") },
    IgnoredFeature { name: "what placed pods take", applies_to: Others, remove: |o| each_container(o, "resources") },
    IgnoredFeature { name: "init containers", applies_to: Own, remove: |o| set(o, "/spec/initContainers", json!([])) },
    IgnoredFeature { name: "sidecars", applies_to: Own, remove: without_sidecars },
    IgnoredFeature { name: "requests of the whole pod", applies_to: Own, remove: |o| remove(o, "/spec/resources") },
    IgnoredFeature { name: "overhead", applies_to: Own, remove: |o| remove(o, "/spec/overhead") },
    IgnoredFeature { name: "daemons on new nodes", applies_to: Others, remove: |o| set(o, "/spec/template/spec/containers", json!([])) },
    IgnoredFeature { name: "the number of pods", applies_to: Others, remove: |o| set(o, "/status/allocatable/pods", json!("110")) },
    IgnoredFeature { name: "extended resources", applies_to: Own, remove: without_gpu },
    IgnoredFeature { name: "node selectors", applies_to: Own, remove: |o| remove(o, "/spec/nodeSelector") },
    IgnoredFeature { name: "node affinity", applies_to: Own, remove: |o| remove(o, "/spec/affinity/nodeAffinity") },
    IgnoredFeature { name: "taints", applies_to: Others, remove: without_taints },
    IgnoredFeature { name: "cordons", applies_to: Others, remove: without_cordon },
    IgnoredFeature { name: "pod affinity", applies_to: Own, remove: |o| remove(o, "/spec/affinity/podAffinity") },
    IgnoredFeature { name: "its own anti-affinity", applies_to: Own, remove: |o| remove(o, "/spec/affinity/podAntiAffinity") },
    IgnoredFeature { name: "others' anti-affinity", applies_to: Others, remove: |o| remove(o, "/spec/affinity/podAntiAffinity") },
    IgnoredFeature { name: "namespace selectors", applies_to: All, remove: |o| each_term(o, "namespaceSelector") },
    IgnoredFeature { name: "spread", applies_to: Own, remove: |o| remove(o, "/spec/topologySpreadConstraints") },
    IgnoredFeature { name: "the size of a skew", applies_to: Own, remove: with_greater_skew },
    IgnoredFeature { name: "minDomains", applies_to: Own, remove: |o| each_spread(o, "minDomains") },
    IgnoredFeature { name: "spread's matchLabelKeys", applies_to: Own, remove: without_label_keys },
    IgnoredFeature { name: "nodeTaintsPolicy", applies_to: Own, remove: |o| each_spread(o, "nodeTaintsPolicy") },
    IgnoredFeature { name: "nodeAffinityPolicy", applies_to: Own, remove: |o| each_spread(o, "nodeAffinityPolicy") },
    IgnoredFeature { name: "host ports", applies_to: Own, remove: |o| each_container(o, "ports") },
    IgnoredFeature { name: "volumes", applies_to: Own, remove: |o| remove(o, "/spec/volumes") },
    IgnoredFeature { name: "where volumes are made", applies_to: Others, remove: |o| remove(o, "/allowedTopologies") },
    IgnoredFeature { name: "classes that make none", applies_to: Others, remove: |o| if o["provisioner"] == NO_PROVISIONER { set(o, "/provisioner", json!(PROVISIONER)) } },
    IgnoredFeature { name: "claims that do not wait", applies_to: Others, remove: |o| set(o, "/volumeBindingMode", json!("WaitForFirstConsumer")) },
    IgnoredFeature { name: "where free volumes are", applies_to: Others, remove: |o| if !o["spec"]["claimRef"].is_object() { remove(o, "/spec/nodeAffinity") } },
    IgnoredFeature { name: "claims for one pod", applies_to: Others, remove: |o| if o["spec"]["volumeName"].is_string() { set(o, "/spec/accessModes", json!(["ReadWriteOnce"])) } },
];

/// The features that the questions of [`KINDS`](super::kinds::KINDS) are about.
#[rustfmt::skip]
pub const KIND_FEATURES: [IgnoredFeature; 5] = [
    IgnoredFeature { name: "nominations of other pods", applies_to: Others, remove: |o| remove(o, "/status/nominatedNodeName") },
    IgnoredFeature { name: "what static pods take", applies_to: Others, remove: |o| if kinds::is_static(o) { each_container(o, "resources"); } },
    IgnoredFeature { name: "what daemons really take", applies_to: Others, remove: |o| if kinds::is_daemon(o) { each_container(o, "resources"); } },
    IgnoredFeature { name: "what nodes have granted", applies_to: Others, remove: without_granted },
    IgnoredFeature { name: "that pods are ending", applies_to: Others, remove: |o| remove(o, "/metadata/deletionTimestamp") },
];

impl IgnoredFeature {
    /// Whether this planner is detected by a question that the unmodified one answered correctly. `None` if the
    /// question does not contain the ignored feature, so that its answer would be the same.
    ///
    /// # Errors
    /// When the planner does not answer.
    pub async fn is_detected(&self, planner: &SimulatedPlanner, record: &Record) -> Result<Option<bool>> {
        let mut objects = record.state.clone();
        let pod = Arc::new(record.pod.clone());
        let mut changed = 0;
        if self.applies_to != Own {
            changed += objects.iter_mut().filter_map(|object| self.remove_from(object)).count();
        }
        objects.push(pod);
        if let (Some(pod), true) = (objects.last_mut(), self.applies_to != Others) {
            changed += usize::from(self.remove_from(pod).is_some());
        }
        if changed == 0 {
            return Ok(None);
        }
        let answer = planner.ask(&objects).await?;
        let prediction = question::prediction(&answer, &record.pod);
        Ok(Some(prediction.is_none_or(|prediction| record.observed.contradicts(&prediction))))
    }

    /// Removes the feature from `object`; `None` if there was nothing to remove.
    fn remove_from(&self, object: &mut Arc<Value>) -> Option<()> {
        let mut without = Value::clone(object);
        (self.remove)(&mut without);
        let changed = without != **object;
        *object = Arc::new(without);
        changed.then_some(())
    }
}

/// Changes a field if it exists.
fn set(object: &mut Value, pointer: &str, value: Value) {
    if let Some(field) = object.pointer_mut(pointer).filter(|field| !field.is_null()) {
        *field = value;
    }
}

/// Removes a field.
fn remove(object: &mut Value, pointer: &str) {
    let (parent, field) = pointer.rsplit_once('/').unwrap_or_default();
    if let Some(fields) = object.pointer_mut(parent).and_then(Value::as_object_mut) {
        fields.remove(field);
    }
}

fn list<'a>(object: &'a mut Value, pointer: &str) -> impl Iterator<Item = &'a mut Value> {
    object.pointer_mut(pointer).and_then(Value::as_array_mut).into_iter().flatten()
}

fn each_container(pod: &mut Value, field: &str) {
    list(pod, "/spec/containers").for_each(|container| remove(container, &format!("/{field}")));
}

fn without_gpu(pod: &mut Value) {
    for container in list(pod, "/spec/containers") {
        for part in ["/resources/requests", "/resources/limits"] {
            if let Some(amounts) = container.pointer_mut(part).and_then(Value::as_object_mut) {
                amounts.remove(GPU);
            }
        }
    }
}

fn without_granted(pod: &mut Value) {
    for field in ["resources", "allocatedResources", "containerStatuses", "initContainerStatuses"] {
        remove(pod, &format!("/status/{field}"));
    }
}

fn without_sidecars(pod: &mut Value) {
    list(pod, "/spec/initContainers").for_each(|container| remove(container, "/restartPolicy"));
}

/// The probe node keeps its taint; without it, pods would be placed there.
fn without_taints(object: &mut Value) {
    if key(object).1 != PROBE_NODE {
        remove(object, "/spec/taints");
    }
}

fn without_cordon(node: &mut Value) {
    remove(node, "/spec/unschedulable");
    if let Some(taints) = node.pointer_mut("/spec/taints").and_then(Value::as_array_mut) {
        taints.retain(|taint| taint["key"] != CORDON);
    }
}

fn each_spread(pod: &mut Value, field: &str) {
    list(pod, "/spec/topologySpreadConstraints").for_each(|rule| remove(rule, &format!("/{field}")));
}

/// The API server has merged the keys into the selector, and no other object here uses that label.
fn without_label_keys(pod: &mut Value) {
    each_spread(pod, "matchLabelKeys");
    for rule in list(pod, "/spec/topologySpreadConstraints") {
        if let Some(merged) =
            rule.pointer_mut("/labelSelector/matchExpressions").and_then(Value::as_array_mut)
        {
            merged.retain(|expression| expression["key"] != "version");
        }
    }
}

fn with_greater_skew(pod: &mut Value) {
    for rule in list(pod, "/spec/topologySpreadConstraints") {
        let skew = rule["maxSkew"].as_i64().unwrap_or_default();
        rule["maxSkew"] = json!(skew + 1);
    }
}

fn each_term(pod: &mut Value, field: &str) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        let terms = format!("/spec/affinity/{kind}/requiredDuringSchedulingIgnoredDuringExecution");
        list(pod, &terms).for_each(|term| remove(term, &format!("/{field}")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler_conformance::infrastructure;
    use crate::scheduler_conformance::rules;
    use crate::scheduler_conformance::rules::CLASSES;
    use crate::scheduler_conformance::seeded_rng::SeededRng;

    #[test]
    fn each_ignored_feature_occurs_in_what_is_generated() {
        let mut rng = SeededRng::new(1);
        let mut objects =
            vec![infrastructure::daemon_set(&mut rng, "a"), infrastructure::free_volume(&mut rng, "v", "n")];
        objects.extend(infrastructure::storage_classes());
        let mut bound = infrastructure::late_claim(&mut rng, "a", "c");
        bound["spec"]["volumeName"] = json!("v");
        bound["spec"]["accessModes"] = json!(["ReadWriteOncePod"]);
        objects.push(bound);
        for _ in 0..40 {
            objects.push(infrastructure::node(&mut rng, "n"));
            for class in CLASSES {
                let mut pod =
                    json!({"spec": {"containers": [{"resources": {"requests": {}}}], "overhead": {}}});
                rules::put(&mut rng, class, &mut pod);
                objects.push(pod);
            }
        }
        for feature in IGNORED_FEATURES {
            let changes = |object: &Value| feature.remove_from(&mut Arc::new(object.clone())).is_some();
            assert!(objects.iter().any(changes), "{}", feature.name);
            assert!(!objects.iter().all(changes), "{} is in everything", feature.name);
        }
    }

    #[test]
    fn each_feature_of_a_kind_is_removed_where_it_is() {
        let mut rng = SeededRng::new(1);
        let hidden = kinds::HiddenAgents::random(&mut rng);
        let mut daemon = infrastructure::daemon(&infrastructure::daemon_set(&mut rng, "a"), "n");
        daemon["kind"] = json!("Pod");
        let mut patient = kinds::patient(&mut rng, "a", "n");
        patient["status"]["nominatedNodeName"] = json!("n");
        let (mut resized, status) = kinds::resized_container(&mut rng, "a", "n");
        resized["status"] = status;
        let mut ending = kinds::holder("a", "n");
        ending["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let objects =
            [patient, hidden.static_pod("a", &infrastructure::node(&mut rng, "n")), daemon, resized, ending];
        for (at, feature) in KIND_FEATURES.iter().enumerate() {
            let changes = |object: &Value| feature.remove_from(&mut Arc::new(object.clone())).is_some();
            let of_these: Vec<usize> =
                (0..objects.len()).filter(|&object| changes(&objects[object])).collect();
            assert_eq!(of_these, [at], "{}", feature.name);
        }
    }
}
