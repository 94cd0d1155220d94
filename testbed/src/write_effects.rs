//! The second oracle for "no write is lost": from one version of an object to the next, only fields of the writer may
//! change. A write that restores an older value of another writer changes a field that the writer does not own.
//!
//! It knows the ownership contract and nothing about how the writers write.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};
use serde_json::{Value, json};
use shared_crds::names::{AUTOSCALER_OPERATOR, NODEPOOL_OPERATOR, POOL_FINALIZER};
use shared_crds::ownership;
use shared_crds::ownership::Owner;

use crate::audit::{Event, ObjectKey};
use crate::history;
use crate::history::Effect;

/// A field that changed in a version whose writer does not own it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trespass {
    /// The writer of the version.
    pub writer: String,
    /// The version that was created.
    pub version: u64,
    /// The field, as a path of keys.
    pub field: String,
    /// The value before; `None` when the field was absent.
    pub from: Option<Value>,
    /// The value after; `None` when the field is absent.
    pub to: Option<Value>,
}

/// What was compared and what was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteEffects {
    /// Number of versions compared with the previous one.
    pub compared: usize,
    /// Number of fields that changed, over all versions.
    pub changes: usize,
    /// The changes by a writer that does not own the field.
    pub trespasses: Vec<Trespass>,
    /// Changes of replicas by an operator without a guard: neither on the value that the decision was based on, nor on
    /// the version.
    pub unguarded: Vec<String>,
}

impl WriteEffects {
    /// Compares each version of a `NodePool` with the previous one. `events` must contain all writes of the object.
    pub fn of(events: &[Event], object: &ObjectKey) -> Self {
        let mut effects = Self::default();
        let mut before: Option<BTreeMap<String, Value>> = None;
        let history = history::of_object(events, object);
        for write in &history {
            let (Effect::Moved { .. }, Some(answer)) = (write.effect, &write.event.response) else {
                continue;
            };
            let mut after = leaves(answer);
            if write.event.subresource == "scale" {
                // The answer is a Scale, which contains only the written field of the object.
                let replicas = answer.pointer("/spec/replicas").cloned().unwrap_or_else(|| 0.into());
                after = before.clone().unwrap_or_default();
                after.insert(REPLICAS.to_owned(), replicas);
            }
            if let Some(before) = &before {
                // A write that changed nothing is answered with the same version as the write that created it, and the
                // log does not distinguish the two.
                let candidates: Vec<&Event> = history
                    .iter()
                    .filter(|other| other.version == write.version)
                    .map(|other| other.event)
                    .collect();
                effects.compare(&candidates, write.version, before, &after);
            }
            before = Some(after);
        }
        effects
    }

    /// Checks the step from one version to the next, made by one of `candidates`.
    fn compare(
        &mut self,
        candidates: &[&Event],
        version: u64,
        before: &BTreeMap<String, Value>,
        after: &BTreeMap<String, Value>,
    ) {
        self.compared += 1;
        let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        for field in keys.into_iter().filter(|field| before.get(*field) != after.get(*field)) {
            self.changes += 1;
            if !candidates.iter().any(|event| may_write(event, field, !before.contains_key(field))) {
                self.trespasses.push(Trespass {
                    writer: candidates.first().map(|event| event.writer().to_owned()).unwrap_or_default(),
                    version,
                    field: field.clone(),
                    from: before.get(field).cloned(),
                    to: after.get(field).cloned(),
                });
            }
            let scaled = candidates.iter().find(|event| operator(event).is_some());
            if let Some(event) = scaled.filter(|event| field == REPLICAS && !is_guarded(event, before)) {
                self.unguarded.push(format!("{} made version {version}", event.writer()));
            }
        }
    }

    /// Checks that no writer changed a field of another owner, and that there was something to check.
    ///
    /// # Errors
    /// Names every such change.
    pub fn check_owned(&self) -> Result<()> {
        if self.changes == 0 {
            bail!("no field changed in {} comparisons, so nothing was checked", self.compared);
        }
        if !self.trespasses.is_empty() {
            let all: Vec<String> = self.trespasses.iter().map(|t| format!("{t:?}")).collect();
            bail!("{} of {} changes are under the wrong hand:\n{}", all.len(), self.changes, all.join("\n"));
        }
        if !self.unguarded.is_empty() {
            bail!("replicas were changed without a guard: {}", self.unguarded.join(", "));
        }
        Ok(())
    }
}

/// The field that several writers change.
const REPLICAS: &str = "spec.replicas";

/// The operator that sent the request; `None` for other users.
fn operator(event: &Event) -> Option<Owner> {
    [(Owner::NodepoolOperator, NODEPOOL_OPERATOR), (Owner::AutoscalerOperator, AUTOSCALER_OPERATOR)]
        .into_iter()
        .find(|(_, name)| event.writer().ends_with(name))
        .map(|(owner, _)| owner)
}

/// Whether a change of replicas could only be granted in the state that it was decided on: at one version, at one
/// generation, or with a `test` of the previous value.
fn is_guarded(event: &Event, before: &BTreeMap<String, Value>) -> bool {
    let Some(operations) = event.request.as_ref().and_then(Value::as_array) else {
        return event.base_version().is_some();
    };
    let tested = |path: &str| {
        let test = |operation: &&Value| operation["op"] == "test" && operation["path"] == path;
        operations.iter().find(test).map(|operation| &operation["value"])
    };
    if tested("/metadata/generation").is_some() {
        return tested("/metadata/uid").is_some();
    }
    match before.get(REPLICAS) {
        Some(replicas) if replicas == 0 => tested("/spec") == Some(&json!({})),
        Some(replicas) => tested("/spec/replicas") == Some(replicas),
        // The value that the API server shows to a patch of `/scale` where the field is unset.
        None => event.subresource == "scale" && tested("/spec/replicas") == Some(&json!(i32::MIN)),
    }
}

/// Whether the contract lets the event's writer change `field`, which may be unset. A user may change spec and
/// metadata, but not status.
fn may_write(event: &Event, field: &str, is_unset: bool) -> bool {
    let operator = operator(event);
    if let Some(rest) = field.strip_prefix("status.conditions.") {
        let owner = ownership_of_condition(rest);
        return operator.is_some() && operator == owner;
    }
    if let Some(finalizer) = field.strip_prefix("metadata.finalizers.") {
        return operator == Some(Owner::NodepoolOperator) && finalizer == POOL_FINALIZER;
    }
    if field.starts_with("metadata.") {
        return operator.is_none();
    }
    ownership::rule_for(field).is_some_and(|rule| rule.may_write(operator.unwrap_or(Owner::User), is_unset))
}

/// The owner of the condition type that `rest` starts with.
fn ownership_of_condition(rest: &str) -> Option<Owner> {
    let type_ = rest.split('.').next()?;
    let known = shared_crds::conditions::ConditionType::ALL.iter().find(|known| known.as_str() == type_)?;
    known.owner_on_node_pool()
}

/// Maintained by the API server itself; they change with every write of any writer.
const SERVER_OWNED: [&str; 4] =
    ["metadata.resourceVersion", "metadata.generation", "metadata.managedFields", "metadata.deletion"];

/// Every leaf of the object by its path. Conditions are keyed by their type and finalizers by their name, so that the
/// order of a list does not matter; other lists are leaves.
fn leaves(object: &Value) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    collect(object, String::new(), &mut found);
    found.retain(|path, _| !SERVER_OWNED.iter().any(|own| path.starts_with(own)));
    found
}

fn collect(value: &Value, path: String, found: &mut BTreeMap<String, Value>) {
    let below = |key: &str| {
        if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
    };
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                collect(value, below(key), found);
            }
        }
        Value::Array(items) if path == "status.conditions" => {
            for item in items {
                let type_ = item["type"].as_str().unwrap_or("?");
                collect(item, below(type_), found);
            }
        }
        Value::Array(items) if path == "metadata.finalizers" => {
            for item in items {
                found.insert(below(item.as_str().unwrap_or("?")), Value::Bool(true));
            }
        }
        leaf => {
            found.insert(path, leaf.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::tests::Wrote;

    const AUTOSCALER: &str = "system:serviceaccount:tandem-system:tandem-autoscaler-operator";
    const NODE_POOL: &str = "system:serviceaccount:tandem-system:tandem-nodepool-operator";

    fn pool(version: &str, annotation: &str, replicas: i64, ready: i64) -> Value {
        json!({
            "metadata": {"name": "x", "resourceVersion": version, "generation": 1, "annotations": {"a": annotation}},
            "spec": {"replicas": replicas, "maxReplicas": 5},
            "status": {"readyReplicas": ready},
        })
    }

    fn event(user: &str, verb: &str, subresource: &str, response: Value, at: i64) -> Event {
        Wrote { user, verb, subresource, request: Value::Null, code: 200, response, at }.event()
    }

    /// A scale by the Autoscaler that is granted only if the count is `from`.
    fn scale(from: i64, to: i64, version: &str, at: i64) -> Event {
        let request = json!([
            {"op": "test", "path": "/spec/replicas", "value": from},
            {"op": "add", "path": "/spec/replicas", "value": to},
        ]);
        let response = json!({"metadata": {"resourceVersion": version}, "spec": {"replicas": to}});
        Wrote { user: AUTOSCALER, verb: "patch", subresource: "scale", request, code: 200, response, at }
            .event()
    }

    fn judge(events: &[Event]) -> WriteEffects {
        let object = events.first().and_then(|event| event.object.clone()).unwrap();
        WriteEffects::of(events, &object)
    }

    #[test]
    fn each_writer_changing_its_own_fields_is_fine() {
        let effects = judge(&[
            event("admin", "create", "", pool("1", "old", 1, 0), 0),
            event(NODE_POOL, "patch", "status", pool("2", "old", 1, 1), 1),
            event("admin", "patch", "", pool("3", "new", 1, 1), 2),
            scale(1, 3, "4", 3),
            event(NODE_POOL, "patch", "status", pool("5", "new", 3, 3), 4),
        ]);
        assert_eq!(effects.compared, 4);
        effects.check_owned().unwrap();
    }

    #[test]
    fn an_operator_that_puts_an_old_annotation_back_is_named() {
        let effects = judge(&[
            event("admin", "create", "", pool("1", "old", 1, 0), 0),
            event("admin", "patch", "", pool("2", "new", 1, 0), 1),
            event(NODE_POOL, "update", "", pool("3", "old", 1, 0), 2),
        ]);
        let complaint = effects.check_owned().unwrap_err().to_string();
        assert!(
            complaint.contains("metadata.annotations.a") && complaint.contains("nodepool-operator"),
            "{complaint}"
        );
    }

    #[test]
    fn a_status_write_that_takes_a_scale_back_is_named() {
        let effects = judge(&[
            event("admin", "create", "", pool("1", "x", 1, 0), 0),
            scale(1, 3, "2", 1),
            event(NODE_POOL, "update", "", pool("3", "x", 1, 0), 2),
        ]);
        assert_eq!(effects.trespasses.len(), 1);
        assert_eq!(effects.trespasses[0].field, "spec.replicas");
    }

    #[test]
    fn a_count_is_filled_by_the_nodepool_operator_while_it_is_unset_and_not_otherwise() {
        let filled = |from: &Value| {
            let request = json!([
                {"op": "test", "path": "/metadata/uid", "value": "u"},
                {"op": "test", "path": "/metadata/generation", "value": 1},
                {"op": "test", "path": "/spec/replicas", "value": from},
                {"op": "add", "path": "/spec/replicas", "value": 2},
            ]);
            let (user, verb, response) = (NODE_POOL, "patch", pool("2", "x", 2, 0));
            Wrote { user, verb, subresource: "", request, code: 200, response, at: 1 }.event()
        };
        let mut unset = pool("1", "x", 1, 0);
        unset["spec"].as_object_mut().unwrap().remove("replicas");
        judge(&[event("admin", "create", "", unset, 0), filled(&Value::Null)]).check_owned().unwrap();
        let changed = judge(&[event("admin", "create", "", pool("1", "x", 1, 0), 0), filled(&json!(1))]);
        assert_eq!(changed.trespasses.len(), 1, "{changed:?}");
    }

    #[test]
    fn a_condition_of_the_other_operator_is_not_ones_own() {
        let with = |version: &str, status: &str| json!({"metadata": {"resourceVersion": version}, "status": {"conditions": [{"type": "AbleToScale", "status": status}]}});
        let effects = judge(&[
            event("admin", "create", "", with("1", "True"), 0),
            event(NODE_POOL, "patch", "status", with("2", "False"), 1),
        ]);
        assert_eq!(effects.trespasses[0].field, "status.conditions.AbleToScale.status");
    }

    #[test]
    fn a_log_without_a_change_proves_nothing() {
        assert!(judge(&[event("admin", "create", "", pool("1", "x", 1, 0), 0)]).check_owned().is_err());
    }

    #[test]
    fn a_scale_without_a_guard_on_what_was_there_is_named() {
        let unguarded = json!({"metadata": {"resourceVersion": "2"}, "spec": {"replicas": 3}});
        for write in [event(AUTOSCALER, "patch", "scale", unguarded, 1), scale(2, 3, "2", 1)] {
            let effects = judge(&[event("admin", "create", "", pool("1", "x", 1, 0), 0), write]);
            assert!(effects.check_owned().unwrap_err().to_string().contains("without a guard"));
        }
    }

    #[test]
    fn a_write_that_changed_nothing_does_not_take_the_blame_for_the_one_before_it() {
        let held = |version: &str| {
            let mut held = pool(version, "x", 1, 0);
            held["metadata"]["finalizers"] = json!([POOL_FINALIZER]);
            held
        };
        // The administrator's patch changed nothing; it was answered with the operator's version, and logged first.
        let effects = judge(&[
            event("admin", "create", "", pool("1", "x", 1, 0), 0),
            event("admin", "patch", "", held("2"), 1),
            event(NODE_POOL, "patch", "", held("2"), 2),
        ]);
        effects.check_owned().unwrap();
    }
}
