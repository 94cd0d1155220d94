//! Which fields of a definition are missing in another version of it, and an object without them. Pure.
//!
//! Only absence is compared. A field that the served definition has and this version does not know is no concern of
//! this version, and neither is a bound that one of them has tightened.

use std::fmt;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::Value;

/// One step from an object into it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// The field of this name.
    Field(String),
    /// Every item of a list.
    Item,
    /// Every value of a map.
    Value,
}

/// A place in a schema, from the object's root.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FieldPath(Vec<Step>);

impl FieldPath {
    fn with(&self, step: Step) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.0.iter().enumerate() {
            match step {
                Step::Field(name) if index == 0 => f.write_str(name)?,
                Step::Field(name) => write!(f, ".{name}")?,
                Step::Item => f.write_str("[]")?,
                Step::Value => f.write_str(".*")?,
            }
        }
        Ok(())
    }
}

/// The fields that a served definition lacks. The API server drops them from every object, and refuses an apply that
/// has one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingFields(Vec<FieldPath>);

impl MissingFields {
    /// The fields of `known` that `served` lacks, in each version that both have. Of a missing object only its own
    /// name is listed, and not what would be in it.
    pub(super) fn of(known: &CustomResourceDefinition, served: &CustomResourceDefinition) -> Self {
        let mut missing = Vec::new();
        for version in &known.spec.versions {
            if let (Some(known), Some(served)) = (schema(known, &version.name), schema(served, &version.name))
            {
                compare(known, served, &FieldPath(Vec::new()), &mut missing);
            }
        }
        missing.sort();
        missing.dedup();
        Self(missing)
    }

    /// Whether the served definition has every field.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of missing fields.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The missing fields as text, such as `status.rollout`.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(ToString::to_string)
    }

    /// `status`, the status of an object, without the missing fields.
    pub(crate) fn without(&self, mut status: Value) -> Value {
        for path in &self.0 {
            if let Some((Step::Field(root), below)) = path.0.split_first()
                && root == "status"
            {
                remove(&mut status, below);
            }
        }
        status
    }
}

fn schema<'a>(definition: &'a CustomResourceDefinition, version: &str) -> Option<&'a JSONSchemaProps> {
    let version = definition.spec.versions.iter().find(|it| it.name == version && it.served)?;
    version.schema.as_ref()?.open_api_v3_schema.as_ref()
}

/// Adds what `served` lacks of `known` at `path`. What is not described there is kept by the API server if the schema
/// preserves unknown fields, or takes any value; everything else is dropped.
fn compare(
    known: &JSONSchemaProps,
    served: &JSONSchemaProps,
    path: &FieldPath,
    missing: &mut Vec<FieldPath>,
) {
    let keeps_unknown = served.x_kubernetes_preserve_unknown_fields == Some(true);
    for (name, known) in known.properties.iter().flatten() {
        let path = path.with(Step::Field(name.clone()));
        let property = served.properties.as_ref().and_then(|properties| properties.get(name));
        match (property, &served.additional_properties) {
            (Some(served), _) => compare(known, served, &path, missing),
            (None, Some(JSONSchemaPropsOrBool::Schema(served))) => compare(known, served, &path, missing),
            (None, Some(JSONSchemaPropsOrBool::Bool(true))) => {}
            (None, _) if keeps_unknown => {}
            (None, _) => missing.push(path),
        }
    }
    if let Some(JSONSchemaPropsOrBool::Schema(known)) = &known.additional_properties {
        let path = path.with(Step::Value);
        match &served.additional_properties {
            Some(JSONSchemaPropsOrBool::Schema(served)) => compare(known, served, &path, missing),
            Some(JSONSchemaPropsOrBool::Bool(true)) => {}
            _ if keeps_unknown => {}
            _ => missing.push(path),
        }
    }
    // A list has one schema for all of its items; the API server accepts no other.
    if let (Some(JSONSchemaPropsOrArray::Schema(known)), Some(JSONSchemaPropsOrArray::Schema(served))) =
        (&known.items, &served.items)
    {
        compare(known, served, &path.with(Step::Item), missing);
    }
}

/// Removes what is at `path` below `value`.
fn remove(value: &mut Value, path: &[Step]) {
    let Some((step, below)) = path.split_first() else { return };
    match (step, value) {
        (Step::Field(name), Value::Object(map)) if below.is_empty() => {
            map.remove(name);
        }
        (Step::Field(name), Value::Object(map)) => {
            if let Some(child) = map.get_mut(name) {
                remove(child, below);
            }
        }
        (Step::Value, Value::Object(map)) if below.is_empty() => map.clear(),
        (Step::Value, Value::Object(map)) => map.values_mut().for_each(|child| remove(child, below)),
        (Step::Item, Value::Array(items)) => items.iter_mut().for_each(|item| remove(item, below)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn definition(schema: &Value) -> CustomResourceDefinition {
        let version =
            json!({ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } });
        let names = json!({ "kind": "Thing", "plural": "things" });
        let spec = json!({ "group": "x.dev", "scope": "Namespaced", "names": names, "versions": [version] });
        serde_json::from_value(json!({ "metadata": { "name": "things.x.dev" }, "spec": spec })).unwrap()
    }

    fn object(properties: &Value) -> Value {
        json!({ "type": "object", "properties": properties })
    }

    fn text() -> Value {
        json!({ "type": "string" })
    }

    fn missing(known: &Value, served: &Value) -> MissingFields {
        MissingFields::of(&definition(known), &definition(served))
    }

    fn names(known: &Value, served: &Value) -> Vec<String> {
        missing(known, served).names().collect()
    }

    fn status(fields: &Value) -> Value {
        object(&json!({ "status": object(fields) }))
    }

    #[test]
    fn what_is_missing_is_named_once_and_not_what_would_be_in_it() {
        let known = status(&json!({ "a": text(), "b": object(&json!({ "c": text(), "d": text() })) }));
        assert_eq!(names(&known, &known), [""; 0]);
        assert_eq!(names(&known, &status(&json!({ "a": text() }))), ["status.b"]);
        let older = status(&json!({ "b": object(&json!({ "d": text() })) }));
        assert_eq!(names(&known, &older), ["status.a", "status.b.c"]);
        assert_eq!(names(&known, &object(&json!({}))), ["status"]);
    }

    #[test]
    fn a_newer_definition_lacks_nothing() {
        let newer = status(&json!({ "a": text(), "new": text() }));
        assert!(missing(&status(&json!({ "a": text() })), &newer).is_empty());
    }

    #[test]
    fn items_of_lists_and_values_of_maps_are_compared_too() {
        let list = |item: Value| status(&json!({ "list": { "type": "array", "items": item } }));
        let map =
            |value: Value| status(&json!({ "map": { "type": "object", "additionalProperties": value } }));
        let (two, one) = (object(&json!({ "a": text(), "b": text() })), object(&json!({ "a": text() })));
        assert_eq!(names(&list(two.clone()), &list(one.clone())), ["status.list[].b"]);
        assert_eq!(names(&map(two.clone()), &map(one)), ["status.map.*.b"]);
        assert_eq!(names(&map(two.clone()), &map(json!(true))), [""; 0]);
        let fixed = status(&json!({ "map": object(&json!({ "a": text() })) }));
        assert_eq!(names(&map(two), &fixed), ["status.map.*"]);
    }

    #[test]
    fn what_the_api_server_keeps_undescribed_is_not_missing() {
        let known = status(&json!({ "free": object(&json!({ "a": text() })) }));
        let keeps = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        assert_eq!(names(&known, &status(&json!({ "free": keeps }))), [""; 0]);
        let map = json!({ "type": "object", "additionalProperties": text() });
        assert_eq!(names(&known, &status(&json!({ "free": map }))), [""; 0]);
        // What is described is cut down to its description all the same.
        let inside = json!({
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": true,
            "properties": { "free": { "type": "object" } },
        });
        assert_eq!(names(&known, &object(&json!({ "status": inside }))), ["status.free.a"]);
    }

    #[test]
    fn a_version_that_is_not_served_is_not_compared() {
        let mut served = definition(&object(&json!({})));
        served.spec.versions[0].served = false;
        assert!(MissingFields::of(&definition(&status(&json!({}))), &served).is_empty());
    }

    #[test]
    fn a_status_loses_what_is_missing_and_keeps_the_rest() {
        let known = object(&json!({
            "spec": object(&json!({ "a": text() })),
            "status": object(&json!({
                "a": text(),
                "gone": object(&json!({ "x": text() })),
                "list": { "type": "array", "items": object(&json!({ "x": text(), "y": text() })) },
                "map": { "type": "object", "additionalProperties": object(&json!({ "x": text(), "y": text() })) },
            })),
        }));
        let served = status(&json!({
            "a": text(),
            "list": { "type": "array", "items": object(&json!({ "x": text() })) },
            "map": { "type": "object", "additionalProperties": object(&json!({ "x": text() })) },
        }));
        let missing = missing(&known, &served);
        assert_eq!(
            missing.names().collect::<Vec<_>>(),
            ["spec", "status.gone", "status.list[].y", "status.map.*.y"]
        );
        let both = json!({ "x": "1", "y": "2" });
        let full = json!({ "a": "0", "gone": { "x": "1" }, "list": [both, both], "map": { "k": both } });
        let one = json!({ "x": "1" });
        assert_eq!(missing.without(full), json!({ "a": "0", "list": [one, one], "map": { "k": one } }));
        assert_eq!(missing.without(json!({ "list": null })), json!({ "list": null }));
    }

    #[test]
    fn the_definitions_of_this_version_lack_nothing_of_themselves() {
        for definition in shared_crds::all().unwrap() {
            assert!(MissingFields::of(&definition, &definition).is_empty());
        }
    }
}
