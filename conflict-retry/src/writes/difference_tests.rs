//! What a merge patch says, and what it leaves alone.

use serde_json::json;

use super::*;

/// The patch for a change of what the type knows, when `stored` is what the server holds.
fn patched(before: &Value, after: &Value, stored: &Value) -> Value {
    Value::Object(patch(before, after, Some(stored)).unwrap())
}

/// The patch when only the typed copy is known.
fn from_copy(before: &Value, after: &Value) -> Option<Value> {
    match patch(before, after, None) {
        Ok(fields) => Some(Value::Object(fields)),
        Err(NoPatch::ListNotKnown) => None,
        Err(NoPatch::Refused(refusal)) => panic!("{refusal}"),
    }
}

fn refused(before: &Value, after: &Value, stored: &Value) -> String {
    match patch(before, after, Some(stored)).unwrap_err() {
        NoPatch::Refused(refusal) => refusal.to_string(),
        NoPatch::ListNotKnown => panic!("it is known"),
    }
}

#[test]
fn only_what_has_changed_is_in_the_patch_and_what_is_gone_is_null() {
    let before = json!({"spec": {"a": 1, "b": {"c": 2, "d": 3}, "gone": true}, "data": {"k": "v"}});
    let after = json!({"spec": {"a": 1, "b": {"c": 5, "d": 3}, "new": [1, 2]}, "data": {"k": "v"}});
    let wanted = json!({"spec": {"b": {"c": 5}, "gone": null, "new": [1, 2]}});
    assert_eq!(from_copy(&before, &after), Some(wanted));
}

#[test]
fn a_list_of_scalars_needs_no_read_and_one_of_objects_does() {
    let (before, after) = (json!({"l": ["a", "b"]}), json!({"l": ["b"]}));
    assert_eq!(from_copy(&before, &after), Some(json!({"l": ["b"]})));
    let object = |list: Value| json!({"s": {"l": list}});
    let (empty, filled) = (object(json!([])), object(json!([{"name": "a"}])));
    for (before, after) in [(&empty, &filled), (&filled, &empty), (&filled, &object(json!([{"name": "b"}])))]
    {
        assert_eq!(from_copy(before, after), None);
    }
    assert_eq!(from_copy(&object(json!([[{"name": "a"}]])), &object(json!([[]]))), None);
}

#[test]
fn a_list_that_the_type_cannot_match_is_refused_by_its_path() {
    let stored = json!({"s": {"l": [{"v": 1}, {"v": 2}, {"v": 2, "hidden": 1}]}});
    let (before, after) = (json!({"s": {"l": [{"v": 2}]}}), json!({"s": {"l": [{"v": 3}]}}));
    let text = refused(&before, &after, &stored);
    assert!(text.contains("/s/l") && text.contains("put"), "{text}");
    // A map in the store that the type reads as a list.
    let text = refused(&before, &after, &json!({"s": {"l": {"x": {"v": 2}}}}));
    assert!(text.contains("/s/l"), "{text}");
}

#[test]
fn a_null_that_was_not_there_is_refused_and_a_field_that_becomes_null_is_removed() {
    let text = refused(&json!({"s": {}}), &json!({"s": {"a": null}}), &json!({"s": {}}));
    assert!(text.contains("/s/a"), "{text}");
    assert_eq!(patched(&json!({"a": 1}), &json!({"a": null}), &json!({"a": 1})), json!({"a": null}));
    // As a type without `skip_serializing_if` writes them.
    assert_eq!(from_copy(&json!({"a": null, "b": 1}), &json!({"a": null, "b": 2})), Some(json!({"b": 2})));
}
