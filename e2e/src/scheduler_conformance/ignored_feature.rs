//! Planners that ignore something: the real one, called with objects from which one feature has been removed. The
//! comparison is meaningful only if it detects each of them.

use std::sync::Arc;

use Whose::{All, Others, Own};
use anyhow::Result;
use serde_json::{Value, json};

use super::objects::key;
use super::planner::SimulatedPlanner;
use super::question::Record;
use super::stage::HARBOUR;
use super::terrain::{CORDON, GPU, NO_PROVISIONER, PROVISIONER};

/// A planner that ignores one feature.
#[derive(Clone, Copy, Debug)]
pub struct Blind {
    /// The ignored feature, as text.
    pub to: &'static str,
    of: Whose,
    /// Removes the feature from an object.
    take_away: fn(&mut Value),
}

/// The objects in which the feature is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
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
pub const BLINDS: [Blind; 30] = [
    Blind { to: "requests", of: Own, take_away: |o| each_container(o, "resources") },
    Blind { to: "what placed pods take", of: Others, take_away: |o| each_container(o, "resources") },
    Blind { to: "init containers", of: Own, take_away: |o| set(o, "/spec/initContainers", json!([])) },
    Blind { to: "sidecars", of: Own, take_away: without_sidecars },
    Blind { to: "requests of the whole pod", of: Own, take_away: |o| remove(o, "/spec/resources") },
    Blind { to: "overhead", of: Own, take_away: |o| remove(o, "/spec/overhead") },
    Blind { to: "daemons on new nodes", of: Others, take_away: |o| set(o, "/spec/template/spec/containers", json!([])) },
    Blind { to: "the number of pods", of: Others, take_away: |o| set(o, "/status/allocatable/pods", json!("110")) },
    Blind { to: "extended resources", of: Own, take_away: without_gpu },
    Blind { to: "node selectors", of: Own, take_away: |o| remove(o, "/spec/nodeSelector") },
    Blind { to: "node affinity", of: Own, take_away: |o| remove(o, "/spec/affinity/nodeAffinity") },
    Blind { to: "taints", of: Others, take_away: without_taints },
    Blind { to: "cordons", of: Others, take_away: without_cordon },
    Blind { to: "pod affinity", of: Own, take_away: |o| remove(o, "/spec/affinity/podAffinity") },
    Blind { to: "its own anti-affinity", of: Own, take_away: |o| remove(o, "/spec/affinity/podAntiAffinity") },
    Blind { to: "others' anti-affinity", of: Others, take_away: |o| remove(o, "/spec/affinity/podAntiAffinity") },
    Blind { to: "namespace selectors", of: All, take_away: |o| each_term(o, "namespaceSelector") },
    Blind { to: "spread", of: Own, take_away: |o| remove(o, "/spec/topologySpreadConstraints") },
    Blind { to: "the size of a skew", of: Own, take_away: with_greater_skew },
    Blind { to: "minDomains", of: Own, take_away: |o| each_spread(o, "minDomains") },
    Blind { to: "spread's matchLabelKeys", of: Own, take_away: without_label_keys },
    Blind { to: "nodeTaintsPolicy", of: Own, take_away: |o| each_spread(o, "nodeTaintsPolicy") },
    Blind { to: "nodeAffinityPolicy", of: Own, take_away: |o| each_spread(o, "nodeAffinityPolicy") },
    Blind { to: "host ports", of: Own, take_away: |o| each_container(o, "ports") },
    Blind { to: "volumes", of: Own, take_away: |o| remove(o, "/spec/volumes") },
    Blind { to: "where volumes are made", of: Others, take_away: |o| remove(o, "/allowedTopologies") },
    Blind { to: "classes that make none", of: Others, take_away: |o| if o["provisioner"] == NO_PROVISIONER { set(o, "/provisioner", json!(PROVISIONER)) } },
    Blind { to: "claims that do not wait", of: Others, take_away: |o| set(o, "/volumeBindingMode", json!("WaitForFirstConsumer")) },
    Blind { to: "where free volumes are", of: Others, take_away: |o| if !o["spec"]["claimRef"].is_object() { remove(o, "/spec/nodeAffinity") } },
    Blind { to: "claims for one pod", of: Others, take_away: |o| if o["spec"]["volumeName"].is_string() { set(o, "/spec/accessModes", json!(["ReadWriteOnce"])) } },
];

impl Blind {
    /// Whether this planner is detected by a question that the unmodified one answered correctly. `None` if the
    /// question does not contain the ignored feature, so that its answer would be the same.
    ///
    /// # Errors
    /// When the planner does not answer.
    pub async fn found_out(&self, planner: &SimulatedPlanner, record: &Record) -> Result<Option<bool>> {
        let mut objects = record.state.clone();
        let pod = Arc::new(record.pod.clone());
        let mut changed = 0;
        if self.of != Own {
            changed += objects.iter_mut().filter_map(|object| self.overlook(object)).count();
        }
        objects.push(pod);
        if let (Some(pod), true) = (objects.last_mut(), self.of != Others) {
            changed += usize::from(self.overlook(pod).is_some());
        }
        if changed == 0 {
            return Ok(None);
        }
        let answer = planner.ask(&objects).await?;
        Ok(Some(answer.pods.get(&key(&record.pod)).is_none_or(|fate| record.truth.contradicts(fate))))
    }

    /// Removes the feature from `object`; `None` if there was nothing to remove.
    fn overlook(&self, object: &mut Arc<Value>) -> Option<()> {
        let mut seen = Value::clone(object);
        (self.take_away)(&mut seen);
        let changed = seen != **object;
        *object = Arc::new(seen);
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

fn without_sidecars(pod: &mut Value) {
    list(pod, "/spec/initContainers").for_each(|container| remove(container, "/restartPolicy"));
}

/// The harbour's taint stays: without it, it is a node like any other.
fn without_taints(object: &mut Value) {
    if key(object).1 != HARBOUR {
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
    use crate::scheduler_conformance::dice::Dice;
    use crate::scheduler_conformance::rules;
    use crate::scheduler_conformance::rules::CLASSES;
    use crate::scheduler_conformance::terrain;

    #[test]
    fn each_blind_planner_has_something_to_overlook_in_what_is_generated() {
        let mut dice = Dice::new(1);
        let mut objects =
            vec![terrain::daemon_set(&mut dice, "a"), terrain::free_volume(&mut dice, "v", "n")];
        objects.extend(terrain::storage_classes());
        let mut bound = terrain::late_claim(&mut dice, "a", "c");
        bound["spec"]["volumeName"] = json!("v");
        bound["spec"]["accessModes"] = json!(["ReadWriteOncePod"]);
        objects.push(bound);
        for _ in 0..40 {
            objects.push(terrain::node(&mut dice, "n"));
            for class in CLASSES {
                let mut pod =
                    json!({"spec": {"containers": [{"resources": {"requests": {}}}], "overhead": {}}});
                rules::put(&mut dice, class, &mut pod);
                objects.push(pod);
            }
        }
        for blind in BLINDS {
            let changes = |object: &Value| blind.overlook(&mut Arc::new(object.clone())).is_some();
            assert!(objects.iter().any(changes), "{}", blind.to);
            assert!(!objects.iter().all(changes), "{} is in everything", blind.to);
        }
    }
}
