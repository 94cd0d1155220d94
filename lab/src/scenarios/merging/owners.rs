//! The owners of fields: `metadata.managedFields` in a readable form.

use std::collections::{BTreeMap, BTreeSet};

use conflict_retry::{Outcome, WriteError, WriteOptions};
use kube::core::ObjectMeta;
use serde_json::{Value, json};

use crate::context::Actor;
use crate::event::Table;
use crate::pool::Pool;

/// Explains the manager in a table that is no actor on the page.
pub(super) const MAKER: &str = "The manager “unknown” is who made the pool: a client that names no field manager goes by its user agent, and this one sends none either.";

/// An apply of these fields of a pool's spec, as the actor and under its name.
pub(super) async fn apply_spec(
    actor: &Actor,
    name: &str,
    spec: &Value,
    force: bool,
) -> Result<Outcome<Pool>, WriteError> {
    let options = WriteOptions::new(actor.name()).with_force(force);
    conflict_retry::apply(&actor.api::<Pool>(), name, &spec_body(name, spec)).with(&options).outcome().await
}

/// Like [`apply_spec`], for the status.
pub(super) async fn apply_status(
    actor: &Actor,
    name: &str,
    status: &Value,
    force: bool,
) -> Result<Outcome<Pool>, WriteError> {
    let options = WriteOptions::new(actor.name()).with_force(force);
    let mut body = spec_body(name, &Value::Null);
    body["status"] = status.clone();
    conflict_retry::apply_status(&actor.api::<Pool>(), name, &body).with(&options).outcome().await
}

/// The body of an apply.
pub(super) fn spec_body(name: &str, spec: &Value) -> Value {
    let mut body = json!({"apiVersion": "lab.tandem.dev/v1", "kind": "Pool", "metadata": {"name": name}});
    if !spec.is_null() {
        body["spec"] = spec.clone();
    }
    body
}

/// The fields of each manager.
pub(super) fn owners(metadata: &ObjectMeta) -> BTreeMap<String, BTreeSet<String>> {
    let mut owners = BTreeMap::<String, BTreeSet<String>>::new();
    for entry in metadata.managed_fields.iter().flatten() {
        let manager = entry.manager.clone().unwrap_or_default();
        if let Some(fields) = &entry.fields_v1 {
            collect(&fields.0, "", owners.entry(manager).or_default());
        }
    }
    owners
}

/// Whether `manager` owns `field`.
pub(super) fn owns(metadata: &ObjectMeta, manager: &str, field: &str) -> bool {
    owners(metadata).get(manager).is_some_and(|fields| fields.contains(field))
}

/// The fields of each manager, as a table.
pub(super) fn table(metadata: &ObjectMeta) -> Table {
    let mut table = Table::new(&["field manager", "owns"]);
    for (manager, fields) in owners(metadata) {
        table.row(&[&manager, &fields.into_iter().collect::<Vec<_>>().join(", ")]);
    }
    table
}

/// Like [`table`], for the spec only.
pub(super) fn spec_table(metadata: &ObjectMeta) -> Table {
    let mut table = Table::new(&["field manager", "owns"]);
    for (manager, fields) in owners(metadata) {
        let fields: Vec<_> = fields.into_iter().filter(|field| field.starts_with("spec.")).collect();
        if !fields.is_empty() {
            table.row(&[&manager, &fields.join(", ")]);
        }
    }
    table
}

/// The leaves of `fieldsV1`. An entry of a list that is a map counts as a leaf.
fn collect(fields: &Value, path: &str, into: &mut BTreeSet<String>) {
    for (key, below) in fields.as_object().into_iter().flatten() {
        if let Some(name) = key.strip_prefix("f:") {
            let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
            if below.as_object().is_none_or(serde_json::Map::is_empty) {
                into.insert(path);
            } else {
                collect(below, &path, into);
            }
        } else if let Some(keys) = key.strip_prefix("k:") {
            into.insert(format!("{path}[{}]", entry(keys)));
        }
    }
}

/// `{"type":"Ready"}` as `type=Ready`.
fn entry(keys: &str) -> String {
    let Ok(Value::Object(keys)) = serde_json::from_str::<Value>(keys) else {
        return keys.to_owned();
    };
    let texts = keys.iter().map(|(key, value)| match value.as_str() {
        Some(text) => format!("{key}={text}"),
        None => format!("{key}={value}"),
    });
    texts.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn managed_fields_are_read_as_paths() {
        let metadata: ObjectMeta = serde_json::from_value(json!({"managedFields": [
            {"manager": "a", "operation": "Apply", "fieldsType": "FieldsV1",
             "fieldsV1": {"f:spec": {"f:replicas": {}, "f:machine": {}}}},
            {"manager": "a", "operation": "Apply", "fieldsType": "FieldsV1", "subresource": "status",
             "fieldsV1": {"f:status": {"f:conditions": {"k:{\"type\":\"Ready\"}": {".": {}, "f:status": {}}}}}},
        ]}))
        .unwrap();
        let fields: Vec<_> = owners(&metadata).remove("a").unwrap().into_iter().collect();
        assert_eq!(fields, ["spec.machine", "spec.replicas", "status.conditions[type=Ready]"]);
        assert!(owns(&metadata, "a", "spec.machine") && !owns(&metadata, "b", "spec.machine"));
    }
}
