//! The API conventions, asserted over the generated schemas. A rule that cannot hold has a waiver with its reason.

use serde_json::Value;
use shared_crds::conditions::ConditionType;

use crate::walk;

const KINDS: [&str; 2] = ["nodepools", "nodepoolautoscalers"];

/// Fields that break a rule on purpose: (rule, path, reason).
const WAIVERS: &[(&str, &str, &str)] = &[
    ("boolean", "spec.paused", "two states only; Cluster API and Deployment call it the same"),
    (
        "boolean",
        "spec.scaleDown.ignoreDaemonSetsUtilization",
        "two states only; the flag of Cluster Autoscaler that people know",
    ),
    ("pattern", "status.autoscaling.lastDecision.message", "text for users"),
    ("pattern", "status.conditions[].message", "text for users"),
    (
        "name",
        "spec.drain.onTimeout",
        "says what happens at the end of spec.drain.timeoutSeconds, and is no time",
    ),
    ("name", "spec.rollout.after", "Cluster API calls it the same"),
    ("name", "spec.template.spec", "the shape of every pod and machine template"),
];

fn waived(rule: &str, path: &str) -> bool {
    WAIVERS.iter().any(|(r, p, _)| *r == rule && *p == path)
}

/// Calls `check` with every field of both kinds, and fails with all the complaints at once.
fn every_field(rule: &str, check: impl Fn(&walk::Field<'_>) -> Option<String>) {
    let mut complaints = Vec::new();
    let mut seen = 0;
    for kind in KINDS {
        let schema = walk::of(kind);
        for field in walk::fields(&schema) {
            seen += 1;
            if let Some(complaint) = check(&field).filter(|_| !waived(rule, &field.path)) {
                complaints.push(format!("{kind}: {}: {complaint}", field.path));
            }
        }
    }
    assert!(seen > 60, "the walk found only {seen} fields");
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

fn type_of(schema: &Value) -> &str {
    schema.get("type").and_then(Value::as_str).unwrap_or("")
}

#[test]
fn everything_is_described() {
    every_field("description", |field| {
        let text = field.schema.get("description").and_then(Value::as_str).unwrap_or("");
        (text.is_empty() || text.contains("Auto-generated")).then(|| "has no description".to_owned())
    });
    for kind in KINDS {
        let schema = walk::of(kind);
        let text = schema["description"].as_str().unwrap();
        assert!(!text.contains("Auto-generated"), "{kind}: {text}");
    }
}

#[test]
fn integers_are_signed_and_bounded_below_and_above_in_spec() {
    every_field("integer", |field| match type_of(field.schema) {
        "number" => Some("is a floating-point number".to_owned()),
        "integer" => {
            let format = field.schema.get("format").and_then(Value::as_str).unwrap_or("");
            if !["int32", "int64"].contains(&format) {
                Some(format!("has the format {format:?}"))
            } else if field.schema.get("minimum").is_none() {
                Some("has no lower bound".to_owned())
            } else if field.path.starts_with("spec") && field.schema.get("maximum").is_none() {
                Some("has no upper bound".to_owned())
            } else {
                None
            }
        }
        _ => None,
    });
}

#[test]
fn strings_are_bounded() {
    every_field("string", |field| {
        let bounded = ["maxLength", "enum", "format"].iter().any(|key| field.schema.get(*key).is_some());
        (type_of(field.schema) == "string" && !bounded)
            .then(|| "has neither maxLength, enum nor format".to_owned())
    });
}

#[test]
fn arrays_are_bounded_and_say_how_they_merge() {
    every_field("array", |field| {
        if type_of(field.schema) != "array" {
            return None;
        }
        for key in ["maxItems", "x-kubernetes-list-type"] {
            if field.schema.get(key).is_none() {
                return Some(format!("has no {key}"));
            }
        }
        None
    });
}

#[test]
fn maps_are_bounded_and_hold_no_objects() {
    every_field("map", |field| {
        let values = field.schema.get("additionalProperties").filter(|v| v.is_object())?;
        if values.get("properties").is_some() {
            return Some("is a map of objects; use a list keyed by name".to_owned());
        }
        field.schema.get("maxProperties").is_none().then(|| "has no maxProperties".to_owned())
    });
}

#[test]
fn nothing_is_nullable() {
    for kind in KINDS {
        let text = serde_json::to_string(&walk::of(kind)).unwrap();
        assert!(
            !text.contains("nullable"),
            "{kind} has a nullable field, which fights merge patch and apply"
        );
    }
}

#[test]
fn spec_has_no_booleans_without_a_reason() {
    every_field("boolean", |field| {
        (field.path.starts_with("spec") && type_of(field.schema) == "boolean")
            .then(|| "is a boolean".to_owned())
    });
    let schemas = KINDS.map(walk::of);
    for (_, path, reason) in WAIVERS.iter().filter(|(rule, ..)| *rule == "boolean") {
        assert!(
            schemas.iter().any(|schema| walk::fields(schema).iter().any(|f| f.path == *path)),
            "the waiver for {path} is stale ({reason})"
        );
    }
}

#[test]
fn names_are_camel_case_and_say_their_unit() {
    every_field("name", |field| {
        let name = field.name().trim_end_matches("[]").trim_end_matches("{}");
        let camel = name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.chars().all(|c| c.is_ascii_alphanumeric());
        if !camel {
            return Some("is not camelCase".to_owned());
        }
        let lower = name.to_lowercase();
        if ["duration", "timeout", "delay", "window"].iter().any(|word| lower.ends_with(word)) {
            return Some("is a duration without its unit in the name".to_owned());
        }
        (field.schema.get("format").and_then(Value::as_str) == Some("date-time") && !lower.ends_with("time"))
            .then(|| "is a time, so its name ends in Time".to_owned())
    });
}

#[test]
fn enum_values_are_camel_case() {
    every_field("enum", |field| {
        let values = field.schema.get("enum")?.as_array()?;
        values
            .iter()
            .filter_map(Value::as_str)
            .find(|v| !v.starts_with(|c: char| c.is_ascii_uppercase()))
            .map(|v| format!("allows {v:?}"))
    });
}

#[test]
fn status_holds_nothing_required_at_its_top() {
    for kind in KINDS {
        let schema = walk::of(kind);
        assert!(schema.pointer("/properties/status/required").is_none(), "{kind}: all of status is optional");
    }
}

#[test]
fn conditions_are_a_map_that_two_managers_can_share() {
    for kind in KINDS {
        let schema = walk::of(kind);
        let conditions = schema.pointer("/properties/status/properties/conditions").unwrap();
        assert_eq!(conditions["x-kubernetes-list-type"], "map", "{kind}");
        assert_eq!(conditions["x-kubernetes-list-map-keys"], serde_json::json!(["type"]), "{kind}");
        assert_eq!(conditions["maxItems"], 32, "{kind}");
    }
    assert!(ConditionType::ALL.len() <= 32);
}

#[test]
fn scale_is_served_with_a_selector_and_replicas_has_no_default() {
    let crd = shared_crds::all().unwrap().remove(0);
    let scale = crd.spec.versions[0].subresources.clone().unwrap().scale.unwrap();
    assert_eq!(scale.spec_replicas_path, ".spec.replicas");
    assert_eq!(scale.status_replicas_path, ".status.replicas");
    assert_eq!(scale.label_selector_path.as_deref(), Some(".status.selector"));
    let schema = walk::of("nodepools");
    assert!(schema.pointer("/properties/spec/properties/replicas/default").is_none());
}

#[test]
fn printer_columns_and_category_show_the_important_fields() {
    for crd in shared_crds::all().unwrap() {
        assert_eq!(crd.spec.names.categories.as_deref(), Some(["tandem".to_owned()].as_slice()));
        let columns = crd.spec.versions[0].additional_printer_columns.clone().unwrap();
        for expected in ["Status", "Age"] {
            assert!(columns.iter().any(|c| c.name == expected), "{}: {expected}", crd.spec.names.kind);
        }
        assert!(columns.iter().all(|c| c.description.is_some()));
    }
}

#[test]
fn cel_rules_carry_messages() {
    fn visit(value: &Value, found: &mut usize) {
        if let Some(rules) = value.get("x-kubernetes-validations").and_then(Value::as_array) {
            for rule in rules {
                *found += 1;
                assert!(rule["message"].as_str().is_some_and(|m| m.len() > 10), "{rule}");
            }
        }
        match value {
            Value::Object(map) => map.values().for_each(|v| visit(v, found)),
            Value::Array(items) => items.iter().for_each(|v| visit(v, found)),
            _ => {}
        }
    }
    let mut found = 0;
    visit(&walk::of("nodepools"), &mut found);
    assert!(found >= 5, "only {found} rules found");
}
