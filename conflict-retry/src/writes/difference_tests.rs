//! What a merge patch says, and what it leaves alone.

use serde_json::json;

use super::*;

/// The patch for a change of what the type knows, when `stored` is what the server holds.
fn patched(before: &Value, after: &Value, stored: &Value) -> Value {
    Value::Object(patch(before, after, Some(stored)).unwrap())
}

#[test]
fn only_what_has_changed_is_in_the_patch_and_what_is_gone_is_null() {
    let before = json!({"spec": {"a": 1, "b": {"c": 2, "d": 3}, "gone": true}, "data": {"k": "v"}});
    let after = json!({"spec": {"a": 1, "b": {"c": 5, "d": 3}, "new": [1, 2]}, "data": {"k": "v"}});
    let wanted = json!({"spec": {"b": {"c": 5}, "gone": null, "new": [1, 2]}});
    assert_eq!(Value::Object(patch(&before, &after, None).unwrap()), wanted);
}

#[test]
fn a_list_without_objects_is_replaced_and_needs_no_read() {
    let (before, after) = (json!({"l": ["a", "b"]}), json!({"l": ["b"]}));
    assert_eq!(Value::Object(patch(&before, &after, None).unwrap()), json!({"l": ["b"]}));
    let (empty, filled) = (json!({"l": []}), json!({"l": [{"name": "a"}]}));
    assert_eq!(Value::Object(patch(&empty, &filled, None).unwrap()), filled);
    assert_eq!(Value::Object(patch(&filled, &empty, None).unwrap()), empty);
}

#[test]
fn a_list_of_objects_needs_what_is_stored() {
    let (before, after) = (json!({"l": [{"name": "a"}]}), json!({"l": [{"name": "a", "x": 1}]}));
    assert_eq!(patch(&before, &after, None), Err(ListNotKnown));
    let nested = (json!({"s": {"l": [{"name": "a"}]}}), json!({"s": {"l": [{"name": "b"}]}}));
    assert_eq!(patch(&nested.0, &nested.1, None), Err(ListNotKnown));
}

#[test]
fn entries_keep_the_fields_that_the_type_does_not_know() {
    let stored = json!({"c": [
        {"name": "a", "image": "1", "unknown": {"deep": 1}},
        {"name": "b", "image": "1", "unknown": 2},
        {"name": "c", "image": "1", "unknown": 3},
    ]});
    let before =
        json!({"c": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}, {"name": "c", "image": "1"}]});
    // One is gone, one has changed, one has moved, one is new.
    let after = json!({"c": [{"name": "new", "image": "9"}, {"name": "c", "image": "1"}, {"name": "a", "image": "2"}]});
    assert_eq!(
        patched(&before, &after, &stored),
        json!({"c": [
            {"name": "new", "image": "9"},
            {"name": "c", "image": "1", "unknown": 3},
            {"name": "a", "image": "2", "unknown": {"deep": 1}},
        ]})
    );
}

#[test]
fn lists_within_lists_and_removed_fields_of_entries_are_followed() {
    let stored = json!({"c": [{"name": "a", "old": 1, "hidden": 1, "env": [{"name": "x", "value": "1", "hidden": 2}]}]});
    let before = json!({"c": [{"name": "a", "old": 1, "env": [{"name": "x", "value": "1"}]}]});
    let after = json!({"c": [{"name": "a", "env": [{"name": "x", "value": "2"}, {"name": "y"}]}]});
    assert_eq!(
        patched(&before, &after, &stored),
        json!({"c": [{"name": "a", "hidden": 1, "env": [{"name": "x", "value": "2", "hidden": 2}, {"name": "y"}]}]})
    );
}

#[test]
fn without_names_an_entry_is_known_by_its_place_while_the_length_stays() {
    let stored = json!({"l": [{"v": 1, "hidden": 1}, {"v": 2, "hidden": 2}]});
    let before = json!({"l": [{"v": 1}, {"v": 2}]});
    let changed = json!({"l": [{"v": 1}, {"v": 3}]});
    assert_eq!(
        patched(&before, &changed, &stored),
        json!({"l": [{"v": 1, "hidden": 1}, {"v": 3, "hidden": 2}]})
    );
    let shorter = json!({"l": [{"v": 2}]});
    assert_eq!(patched(&before, &shorter, &stored), json!({"l": [{"v": 2, "hidden": 2}]}));
}

#[test]
fn a_list_that_the_type_reads_with_another_length_is_sent_as_it_is() {
    let stored = json!({"l": [{"name": "a", "hidden": 1}, {"name": "dropped by the type"}]});
    let (before, after) = (json!({"l": [{"name": "a"}]}), json!({"l": [{"name": "a", "x": 1}]}));
    assert_eq!(patched(&before, &after, &stored), after);
}
