//! Walks the fields of a generated schema.

use serde_json::Value;

/// One field of a schema: its path in dots, `[]` for the items of a list, `{}` for the values of a map.
pub(crate) struct Field<'a> {
    pub(crate) path: String,
    pub(crate) schema: &'a Value,
}

impl Field<'_> {
    /// The field's own name: the last part of the path.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or(&self.path)
    }

    /// Whether nothing hangs below it.
    pub(crate) fn is_leaf(&self) -> bool {
        self.schema.get("properties").is_none() && self.schema.pointer("/items/properties").is_none()
    }
}

/// Every field below `schema`, in order.
pub(crate) fn fields(schema: &Value) -> Vec<Field<'_>> {
    let mut found = Vec::new();
    walk(schema, "", &mut found);
    found
}

fn walk<'a>(schema: &'a Value, path: &str, found: &mut Vec<Field<'a>>) {
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        for (name, child) in properties {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            found.push(Field { path: path.clone(), schema: child });
            walk(child, &path, found);
        }
    }
    if let Some(items) = schema.get("items") {
        walk(items, &format!("{path}[]"), found);
    }
    if let Some(values) = schema.get("additionalProperties").filter(|v| v.is_object()) {
        walk(values, &format!("{path}{{}}"), found);
    }
}

/// The schema of the one version of `plural`.
pub(crate) fn of(plural: &str) -> Value {
    let crd = shared_crds::all().unwrap().into_iter().find(|crd| crd.spec.names.plural == plural).unwrap();
    let version = crd.spec.versions.into_iter().next().unwrap();
    serde_json::to_value(version.schema.unwrap().open_api_v3_schema.unwrap()).unwrap()
}
