//! The fields of a schema as the API server holds it: path, type, default, what is checked, description.

use serde_json::Value;

use super::markdown::{code, codes, prose};

/// A field of a kind.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Field {
    /// From the object's root: `spec.disruption.budgets[].nodes`.
    pub path: String,
    /// As in `kubectl explain`.
    pub type_: String,
    /// As JSON; empty without one.
    pub default: String,
    /// What the API server checks.
    pub checks: String,
    /// The doc comment.
    pub description: String,
}

/// The field at `path`, and all below it.
pub(super) fn fields(path: &str, schema: &Value, is_required: bool) -> Vec<Field> {
    let mut checks: Vec<String> = is_required.then(|| "required".to_owned()).into_iter().collect();
    checks.extend(self::checks(schema));
    let mut found = vec![Field {
        path: path.to_owned(),
        type_: type_name(schema),
        default: schema.get("default").map(|value| code(&value.to_string())).unwrap_or_default(),
        checks: checks.join("; "),
        description: prose(text(schema, "description")),
    }];
    found.extend(below(path, schema));
    found
}

/// The fields below `path`.
pub(super) fn below(path: &str, schema: &Value) -> Vec<Field> {
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let mut found = Vec::new();
    for (name, field) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        found.extend(fields(&path, field, required.contains(&name.as_str())));
    }
    if let Some((suffix, each)) = each(schema) {
        found.extend(below(&format!("{path}{suffix}"), each));
    }
    found
}

/// The schema of a list's items or a map's values, and how paths name them.
fn each(schema: &Value) -> Option<(&'static str, &Value)> {
    let of = |key: &str, suffix: &'static str| {
        schema.get(key).filter(|each| each.is_object()).map(|each| (suffix, each))
    };
    of("items", "[]").or_else(|| of("additionalProperties", ".*"))
}

fn type_name(schema: &Value) -> String {
    if schema.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
        return "integer or string".to_owned();
    }
    match (each(schema), text(schema, "type"), text(schema, "format")) {
        (Some(("[]", each)), ..) => format!("[]{}", type_name(each)),
        (Some((_, each)), ..) => format!("map[string]{}", type_name(each)),
        (None, "string", "date-time") => "time".to_owned(),
        (None, type_, _) => type_.to_owned(),
    }
}

/// What the API server checks of a value, one text each.
fn checks(schema: &Value) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        found.push(format!("one of {}", codes(values.iter().filter_map(Value::as_str))));
    }
    for (least, most, what) in [
        ("minimum", "maximum", ""),
        ("minLength", "maxLength", " characters"),
        ("minItems", "maxItems", " items"),
        ("minProperties", "maxProperties", " keys"),
    ] {
        found.extend(range(schema, least, most, what));
    }
    if let Some(pattern) = schema.get("pattern").and_then(Value::as_str) {
        found.push(format!("matches {}", code(pattern)));
    }
    if let Some(keys) = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array) {
        found.push(format!("unique by {}", codes(keys.iter().filter_map(Value::as_str))));
    }
    if text(schema, "x-kubernetes-list-type") == "set" {
        found.push("unique".to_owned());
    }
    for rule in schema.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten() {
        let message = text(rule, "message");
        found.push(if message.is_empty() { code(text(rule, "rule")) } else { prose(message) });
    }
    if let Some((_, each)) = each(schema) {
        let of_each = checks(each);
        if !of_each.is_empty() {
            found.push(format!("each: {}", of_each.join("; ")));
        }
    }
    found
}

fn range(schema: &Value, least: &str, most: &str, what: &str) -> Option<String> {
    let bound = |key| schema.get(key).and_then(Value::as_f64);
    match (bound(least), bound(most)) {
        (None, None) => None,
        (Some(least), None) => Some(format!("at least {least}{what}")),
        (None, Some(most)) => Some(format!("at most {most}{what}")),
        (Some(least), Some(most)) => Some(format!("{least} to {most}{what}")),
    }
}

fn text<'a>(of: &'a Value, key: &str) -> &'a str {
    of.get(key).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_says_its_type_its_default_and_what_is_checked() {
        let schema = json!({
            "type": "object",
            "required": ["budgets"],
            "properties": {
                "budgets": {
                    "type": "array",
                    "description": "budgets\nbound.",
                    "maxItems": 8,
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "x-kubernetes-validations": [{ "rule": "has(self.nodes)", "message": "set nodes" }],
                        "properties": {
                            "effect": { "type": "string", "default": "Limit", "enum": ["Limit", "AllowOnly"] },
                            "nodes": { "x-kubernetes-int-or-string": true, "pattern": "a|b" },
                            "seconds": { "type": "integer", "format": "int32", "minimum": 1.0, "maximum": 60.0 },
                        },
                    },
                },
                "labels": { "type": "object", "additionalProperties": { "type": "string", "maxLength": 63 } },
                "time": { "type": "string", "format": "date-time" },
            },
        });
        let found = fields("spec", &schema, true);
        let short: Vec<String> = found
            .iter()
            .map(|f| format!("{} {} {} {} {}", f.path, f.type_, f.default, f.checks, f.description))
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            short,
            [
                "spec object required",
                "spec.budgets []object required; at most 8 items; unique by `name`; each: set nodes budgets bound.",
                "spec.budgets[].effect string `\"Limit\"` one of `Limit`, `AllowOnly`",
                r"spec.budgets[].nodes integer or string matches `a\|b`",
                "spec.budgets[].seconds integer 1 to 60",
                "spec.labels map[string]string each: at most 63 characters",
                "spec.time time",
            ]
        );
    }
}
