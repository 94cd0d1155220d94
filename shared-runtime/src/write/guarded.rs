//! Fields that must not be written late: a JSON Patch that tests the observed state writes them, and they are not part
//! of the apply. Pure.
//!
//! A forced apply overwrites whatever it finds, also when it arrives long after its sender stopped being the leader.
//! For a field that reports a state that is harmless, because the next pass corrects it; a list of victims is acted
//! upon.

use serde_json::{Map, Value, json};
use shared_crds::ownership::GuardedField;

/// A status, and whether the object has one at all.
#[derive(Clone, Copy)]
pub(super) struct Current<'a> {
    pub(super) status: &'a Value,
    pub(super) is_set: bool,
}

/// `status` without the guarded fields, and without objects that contain nothing else.
pub(super) fn without(fields: &[GuardedField], status: &Value) -> Value {
    let mut rest = status.clone();
    for field in fields {
        remove(&mut rest, field.path);
    }
    rest
}

/// Whether two statuses are equal: an object that would contain nothing but guarded fields may be present or not.
pub(super) fn is_equal(fields: &[GuardedField], one: &Value, other: &Value) -> bool {
    one == other
        || (fields.iter().all(|field| at(one, field.path) == at(other, field.path))
            && without(fields, one) == without(fields, other))
}

fn remove(value: &mut Value, path: &[&str]) {
    let (Some(map), Some((key, below))) = (value.as_object_mut(), path.split_first()) else { return };
    let Some(child) = map.get_mut(*key) else { return };
    remove(child, below);
    if below.is_empty() || child.as_object().is_some_and(Map::is_empty) {
        map.remove(*key);
    }
}

/// The operations that change the guarded fields of `current` to their values in `wanted`; empty if they are equal.
pub(super) fn operations(fields: &[GuardedField], current: Current<'_>, wanted: &Value) -> Vec<Value> {
    let differs = |field: &&GuardedField| at(current.status, field.path) != at(wanted, field.path);
    let fields = fields.iter().filter(differs);
    fields.flat_map(|field| [test(field, current), change(field, current, at(wanted, field.path))]).collect()
}

/// The tests that the guarded fields have their values in `current`.
pub(super) fn tests(fields: &[GuardedField], current: Current<'_>) -> Vec<Value> {
    fields.iter().map(|field| test(field, current)).collect()
}

/// The test that the field has its current value, or, by the first of its absent parents, that there is none.
fn test(field: &GuardedField, current: Current<'_>) -> Value {
    let (path, value) = match at(current.status, field.path) {
        Some(value) => (pointer(field.path) + "/" + field.witness, value.get(field.witness).cloned()),
        None => (pointer(present(field, current).0), None),
    };
    // A `test` of null holds where the field is absent (measured; its parent must exist).
    json!({ "op": "test", "path": path, "value": value })
}

fn change(field: &GuardedField, current: Current<'_>, wanted: Option<&Value>) -> Value {
    let Some(wanted) = wanted else {
        return json!({ "op": "remove", "path": pointer(field.path) });
    };
    let (path, below) = present(field, current);
    let value = below.iter().rev().fold(wanted.clone(), |value, key| json!({ *key: value }));
    json!({ "op": "add", "path": pointer(path), "value": value })
}

/// The part of the path that exists, and the keys that are missing below it.
fn present(field: &GuardedField, current: Current<'_>) -> (&'static [&'static str], &'static [&'static str]) {
    if !current.is_set {
        return (&[], field.path);
    }
    let mut value = Some(current.status);
    let mut there = 0;
    for key in field.path {
        value = value.and_then(|value| value.get(key));
        there += 1;
        if value.is_none() {
            break;
        }
    }
    field.path.split_at(there)
}

fn at<'a>(status: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(status, |value, key| value.get(key))
}

fn pointer(path: &[&str]) -> String {
    path.iter().fold("/status".to_owned(), |pointer, key| pointer + "/" + key)
}

#[cfg(test)]
mod tests {
    use shared_crds::ownership::GUARDED;

    use super::*;

    fn ops(current: Option<Value>, wanted: &Value) -> Value {
        let is_set = current.is_some();
        let status = current.unwrap_or_else(|| json!({}));
        operations(GUARDED, Current { status: &status, is_set }, wanted).into()
    }

    fn list(id: &str) -> Value {
        json!({ "decisionID": id, "targetReplicas": 1 })
    }

    #[test]
    fn a_list_is_written_over_exactly_what_was_seen() {
        let wanted = json!({ "autoscaling": { "scaleDown": list("b") } });
        let path = "/status/autoscaling/scaleDown";
        assert_eq!(
            ops(Some(json!({ "autoscaling": { "scaleDown": list("a") } })), &wanted),
            json!([
                { "op": "test", "path": format!("{path}/decisionID"), "value": "a" },
                { "op": "add", "path": path, "value": list("b") },
            ])
        );
        assert_eq!(
            ops(Some(json!({ "autoscaling": { "autoscaler": "x" } })), &wanted),
            json!([
                { "op": "test", "path": path, "value": null },
                { "op": "add", "path": path, "value": list("b") },
            ])
        );
        assert_eq!(
            ops(Some(json!({ "replicas": 1 })), &wanted),
            json!([
                { "op": "test", "path": "/status/autoscaling", "value": null },
                { "op": "add", "path": "/status/autoscaling", "value": { "scaleDown": list("b") } },
            ])
        );
        assert_eq!(
            ops(None, &wanted),
            json!([
                { "op": "test", "path": "/status", "value": null },
                { "op": "add", "path": "/status", "value": wanted },
            ])
        );
        assert_eq!(
            ops(Some(wanted.clone()), &json!({})),
            json!([
                { "op": "test", "path": format!("{path}/decisionID"), "value": "b" },
                { "op": "remove", "path": path },
            ])
        );
        assert_eq!(ops(Some(wanted.clone()), &wanted), json!([]));
    }

    #[test]
    fn what_is_left_of_a_list_that_was_taken_away_is_nothing_to_write_about() {
        let (left, none) = (json!({ "autoscaling": {} }), json!({}));
        assert!(is_equal(GUARDED, &left, &none) && is_equal(GUARDED, &none, &left));
        for differs in [json!({ "scaleDown": list("a") }), json!({ "autoscaler": "x" })] {
            assert!(!is_equal(GUARDED, &left, &json!({ "autoscaling": differs })));
        }
    }

    #[test]
    fn the_rest_has_no_trace_of_it() {
        let with = |autoscaling: Value| json!({ "replicas": 1, "autoscaling": autoscaling });
        let rest = |autoscaling| without(GUARDED, &with(autoscaling));
        assert_eq!(
            rest(json!({ "autoscaler": "x", "scaleDown": list("a") })),
            with(json!({ "autoscaler": "x" }))
        );
        assert_eq!(rest(json!({ "scaleDown": list("a") })), json!({ "replicas": 1 }));
        assert_eq!(rest(json!({ "autoscaler": "x" })), with(json!({ "autoscaler": "x" })));
    }
}
