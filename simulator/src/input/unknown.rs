//! Fields that this version does not know. A typing error such as `nodeSelctor` would silently change a plan, so each
//! unknown field is reported: once, with the number of further objects that have it.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use super::documents::At;

/// Unknown fields by kind and path.
#[derive(Debug, Default)]
pub(crate) struct UnknownFields(BTreeMap<(String, String), Found>);

#[derive(Debug)]
struct Found {
    /// The first object that has it, with the field's path.
    first: String,
    objects: usize,
}

impl UnknownFields {
    /// Compares an object as given with what was understood of it. `status` of Kubernetes' own kinds is skipped: a
    /// newer cluster may have fields there that this version does not know, and users do not write it.
    pub(crate) fn compare<K: Serialize>(&mut self, at: At<'_>, kind: &str, given: &Value, understood: &K) {
        let (Some(given), Ok(Value::Object(known))) = (given.as_object(), serde_json::to_value(understood))
        else {
            return;
        };
        let own =
            given.get("apiVersion").and_then(Value::as_str).is_some_and(|v| v.starts_with("tandem.dev/"));
        let mut unknown = BTreeSet::new();
        for (field, value) in given {
            let skipped = match field.as_str() {
                "apiVersion" | "kind" => true,
                "status" => !own,
                _ => false,
            };
            if !skipped {
                differences(field, Some(value), known.get(field), &mut unknown);
            }
        }
        let name =
            given.get("metadata").and_then(|m| m.get("name")).and_then(Value::as_str).unwrap_or_default();
        for field in unknown {
            let first = || Found {
                first: format!("{}, document {}: {kind} {name}: {field}", at.file, at.document),
                objects: 0,
            };
            self.0.entry((kind.to_owned(), field.clone())).or_insert_with(first).objects += 1;
        }
    }

    /// One line for each field.
    pub(crate) fn warnings(self) -> impl Iterator<Item = String> {
        self.0.into_values().map(|Found { first, objects }| {
            let more = match objects - 1 {
                0 => String::new(),
                1 => " (1 more object has it)".to_owned(),
                more => format!(" ({more} more objects have it)"),
            };
            format!("{first} is not a field of this version and plays no part{more}")
        })
    }
}

/// Paths of fields in `given` that are missing in `known`. Empty values do not count: they are not serialised.
fn differences(path: &str, given: Option<&Value>, known: Option<&Value>, unknown: &mut BTreeSet<String>) {
    match (given, known) {
        (Some(Value::Object(given)), Some(Value::Object(known))) => {
            for (key, value) in given {
                differences(&format!("{path}.{key}"), Some(value), known.get(key), unknown);
            }
        }
        (Some(Value::Array(given)), Some(Value::Array(known))) => {
            for (at, (given, known)) in given.iter().zip(known).enumerate() {
                differences(&format!("{path}[{at}]"), Some(given), Some(known), unknown);
            }
        }
        (Some(given), None) if !is_empty(given) => {
            unknown.insert(path.to_owned());
        }
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.values().all(is_empty),
        Value::Array(items) => items.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
