//! Which entry of a list is which.

use serde_json::json;

use super::*;

fn list(value: Value) -> Vec<Value> {
    let Value::Array(list) = value else { panic!("{value} is no list") };
    list
}

/// The list that is sent; `None` when it is refused.
fn sent(stored: Value, before: Value, after: Value) -> Option<Value> {
    merged(&list(before), &list(after), &list(stored)).map(Value::Array)
}

#[test]
fn entries_keep_the_fields_that_the_type_does_not_know() {
    let stored = json!([
        {"name": "a", "image": "1", "unknown": {"deep": 1}},
        {"name": "b", "image": "1", "unknown": 2},
        {"name": "c", "image": "1", "unknown": 3},
    ]);
    let before =
        json!([{"name": "a", "image": "1"}, {"name": "b", "image": "1"}, {"name": "c", "image": "1"}]);
    // One is gone, one has changed, one has moved, one is new.
    let after =
        json!([{"name": "new", "image": "9"}, {"name": "c", "image": "1"}, {"name": "a", "image": "2"}]);
    let wanted = json!([
        {"name": "new", "image": "9"},
        {"name": "c", "image": "1", "unknown": 3},
        {"name": "a", "image": "2", "unknown": {"deep": 1}},
    ]);
    assert_eq!(sent(stored, before, after), Some(wanted));
}

#[test]
fn a_type_that_sorts_what_it_reads_changes_the_right_entry() {
    let stored = json!([{"name": "z", "v": 1, "h": "Z"}, {"name": "a", "v": 1, "h": "A"}]);
    let before = json!([{"name": "a", "v": 1}, {"name": "z", "v": 1}]);
    let after = json!([{"name": "a", "v": 1}, {"name": "z", "v": 9}]);
    let wanted = json!([{"name": "a", "v": 1, "h": "A"}, {"name": "z", "v": 9, "h": "Z"}]);
    assert_eq!(sent(stored, before, after), Some(wanted));
    let stored = json!([{"v": 2, "h": 2}, {"v": 1, "h": 1}]);
    let wanted = json!([{"v": 1, "h": 1}, {"v": 3, "h": 2}]);
    assert_eq!(sent(stored, json!([{"v": 1}, {"v": 2}]), json!([{"v": 1}, {"v": 3}])), Some(wanted));
    let stored = json!([{"v": 2, "h": 2}, {"v": 1, "h": 1}, {"v": 1, "h": 3}]);
    let before = json!([{"v": 1}, {"v": 1}, {"v": 2}]);
    assert_eq!(sent(stored, before, json!([{"v": 1}, {"v": 1}, {"v": 3}])), None);
}

#[test]
fn entries_that_the_type_cannot_read_stay_where_they_were() {
    let stored = json!([{"name": "a", "h": 1}, {"name": "future", "kind": "New"}, {"name": "b"}]);
    let (before, after) =
        (json!([{"name": "a"}, {"name": "b"}]), json!([{"name": "a"}, {"name": "b", "x": 1}]));
    let wanted = json!([{"name": "a", "h": 1}, {"name": "future", "kind": "New"}, {"name": "b", "x": 1}]);
    assert_eq!(sent(stored.clone(), before, after), Some(wanted));
    let all_unread = json!([{"name": "future"}]);
    let wanted = json!([{"name": "future"}, {"name": "b"}]);
    assert_eq!(sent(all_unread, json!([]), json!([{"name": "b"}])), Some(wanted));
    let removed = sent(stored, json!([{"name": "a"}, {"name": "b"}]), json!([{"name": "b"}]));
    assert_eq!(removed, Some(json!([{"name": "future", "kind": "New"}, {"name": "b"}])));
}

#[test]
fn a_scalar_that_the_type_reads_as_another_one_stays_what_it_is() {
    let stored = json!(["RWO", "FutureMode"]);
    let (before, after) = (json!(["RWO", "Unknown"]), json!(["RWO", "Unknown", "ROX"]));
    assert_eq!(sent(stored, before, after), Some(json!(["RWO", "FutureMode", "ROX"])));
    assert_eq!(sent(json!(["a", "b"]), json!(["a", "b"]), json!(["b"])), Some(json!(["b"])));
    // A set, which is read in its own order.
    assert_eq!(sent(json!(["b", "a"]), json!(["a", "b"]), json!(["b"])), Some(json!(["b"])));
    assert_eq!(
        sent(json!(["b", "a", "a"]), json!(["a", "a", "b"]), json!(["a", "b", "c"])),
        Some(json!(["a", "b", "c"]))
    );
    let replaced = sent(json!(["RWO", "Future"]), json!(["RWO", "Unknown"]), json!(["Unknown", "ROX"]));
    assert_eq!(replaced, Some(json!(["Future", "ROX"])));
    assert_eq!(sent(json!(["Future", "RWO"]), json!(["RWO", "Unknown"]), json!(["RWO"])), None);
    assert_eq!(sent(json!([1, 2]), json!([1, 2]), json!([1, 5])), Some(json!([1, 5])));
}

#[test]
fn scalars_that_the_type_reads_alike_are_not_told_apart_when_one_goes() {
    let (stored, before) = (json!(["FutA", "FutB", "RWO"]), json!(["Unknown", "Unknown", "RWO"]));
    let sent = |after: Value| sent(stored.clone(), before.clone(), after);
    for after in [json!(["Unknown", "RWO"]), json!(["Unknown", "RWO", "ROX"])] {
        assert_eq!(sent(after.clone()), None, "{after}");
    }
    // While both stay, or none does, they are certain.
    let appended = sent(json!(["Unknown", "Unknown", "RWO", "ROX"]));
    assert_eq!(appended, Some(json!(["FutA", "FutB", "RWO", "ROX"])));
    let replaced = sent(json!(["Unknown", "Unknown", "ROX"]));
    assert_eq!(replaced, Some(json!(["FutA", "FutB", "ROX"])));
    assert_eq!(sent(json!(["Unknown", "Unknown"])), Some(json!(["FutA", "FutB"])));
    assert_eq!(sent(json!(["RWO"])), Some(json!(["RWO"])));
}

#[test]
fn lists_within_lists_and_removed_fields_of_entries_are_followed() {
    let stored =
        json!([{"name": "a", "old": 1, "hidden": 1, "env": [{"name": "x", "value": "1", "hidden": 2}]}]);
    let before = json!([{"name": "a", "old": 1, "env": [{"name": "x", "value": "1"}]}]);
    let after = json!([{"name": "a", "env": [{"name": "x", "value": "2"}, {"name": "y"}]}]);
    let env = json!([{"name": "x", "value": "2", "hidden": 2}, {"name": "y"}]);
    assert_eq!(sent(stored, before, after), Some(json!([{"name": "a", "hidden": 1, "env": env}])));
    let stored = json!([[{"name": "a", "v": 1, "h": 1}]]);
    let changed = sent(stored, json!([[{"name": "a", "v": 1}]]), json!([[{"name": "a", "v": 2}]]));
    assert_eq!(changed, Some(json!([[{"name": "a", "v": 2, "h": 1}]])));
}

#[test]
fn without_a_name_entries_are_known_by_place_while_their_number_stays() {
    let stored = json!([{"v": 1, "h": 1}, {"v": 2, "h": 2}]);
    let before = json!([{"v": 1}, {"v": 2}]);
    let counted = sent(stored.clone(), before.clone(), json!([{"v": 1}, {"v": 3}]));
    assert_eq!(counted, Some(json!([{"v": 1, "h": 1}, {"v": 3, "h": 2}])));
    let swapped = sent(stored.clone(), before.clone(), json!([{"v": 2}, {"v": 1}]));
    assert_eq!(swapped, Some(json!([{"v": 2, "h": 2}, {"v": 1, "h": 1}])));
    assert_eq!(sent(stored.clone(), before.clone(), json!([{"v": 2}])), Some(json!([{"v": 2, "h": 2}])));
    // One removed and one changed: nothing tells which.
    assert_eq!(sent(stored, before, json!([{"v": 3}])), None);
}

#[test]
fn an_entry_that_has_moved_takes_over_nothing_from_the_one_that_was_there() {
    let stored = json!([{"host": "a", "http": "A"}, {"host": "b", "http": "B"}]);
    let before = json!([{"host": "a"}, {"host": "b"}]);
    // The first one removed and another one appended, or both changed: nothing tells which.
    assert_eq!(sent(stored, before.clone(), json!([{"host": "b"}, {"host": "c"}])), None);
    // Equal entries that stay where they are have not moved.
    let stored = json!([{"v": 1, "h": 1}, {"v": 1, "h": 2}, {"v": 2}]);
    let changed = sent(stored, json!([{"v": 1}, {"v": 1}, {"v": 2}]), json!([{"v": 3}, {"v": 1}, {"v": 2}]));
    assert_eq!(changed, Some(json!([{"v": 3, "h": 1}, {"v": 1, "h": 2}, {"v": 2}])));
    // Where the type knows all that is stored, it makes no difference. What it writes beside that is a default.
    let (after, whole) = (json!([{"host": "b"}, {"host": "c"}]), json!([{"host": "a"}, {"host": "b"}]));
    assert_eq!(sent(whole, before, after.clone()), Some(after));
    let defaults = |hosts: [&str; 2]| json!(hosts.map(|host| json!({"host": host, "path": null})));
    let sent = sent(json!([{"host": "a"}, {"host": "b"}]), defaults(["a", "b"]), defaults(["b", "c"]));
    assert_eq!(sent, Some(json!([{"host": "b"}, {"host": "c"}])));
}

#[test]
fn entries_that_are_the_same_for_the_type_only_are_not_told_apart() {
    let stored = json!([{"v": 1, "h": 1}, {"v": 1, "h": 2}]);
    assert_eq!(sent(stored, json!([{"v": 1}, {"v": 1}]), json!([{"v": 1}])), None);
    let same = json!([{"v": 1, "h": 1}, {"v": 1, "h": 1}]);
    assert_eq!(sent(same, json!([{"v": 1}, {"v": 1}]), json!([{"v": 1}])), Some(json!([{"v": 1, "h": 1}])));
}

#[test]
fn an_entry_of_another_name_is_another_one_and_two_fields_may_identify_it() {
    let renamed = sent(
        json!([{"name": "a", "v": 1, "h": 1}, {"name": "x", "h": 2}]),
        json!([{"name": "a", "v": 1}, {"name": "x"}]),
        json!([{"name": "b", "v": 1}, {"name": "x"}]),
    );
    assert_eq!(renamed, Some(json!([{"name": "b", "v": 1}, {"name": "x", "h": 2}])));
    let of = |namespace: u8, v: u8| json!({"name": "x", "namespace": namespace, "v": v});
    let raw = |namespace: u8, v: u8| json!({"name": "x", "namespace": namespace, "v": v, "h": namespace});
    let changed = sent(json!([raw(1, 1), raw(2, 1)]), json!([of(1, 1), of(2, 1)]), json!([of(2, 2)]));
    assert_eq!(changed, Some(json!([raw(2, 2)])));
}

#[test]
fn a_field_of_an_entry_that_becomes_null_is_removed() {
    let sent = sent(
        json!([{"name": "a", "y": 1, "h": 1}]),
        json!([{"name": "a", "y": 1}]),
        json!([{"name": "a", "y": null}]),
    );
    assert_eq!(sent, Some(json!([{"name": "a", "h": 1}])));
}

#[test]
fn what_is_within_an_entry_tells_entries_apart_too() {
    let stored = json!([{"spec": {"v": 2}, "h": 2}, {"spec": {"v": 1}, "h": 1}]);
    let (before, after) = (json!([{"spec": {"v": 1}}, {"spec": {"v": 2}}]), json!([{"spec": {"v": 1}}]));
    assert_eq!(sent(stored, before, after), Some(json!([{"spec": {"v": 1}, "h": 1}])));
}

#[test]
fn a_long_list_is_changed_as_a_short_one() {
    let entry = |number: usize, changed: usize| json!({"name": number, "v": usize::from(number == changed)});
    let of = |changed: usize| (0..20_000).map(|number| entry(number, changed)).collect::<Vec<Value>>();
    let (before, after) = (of(0), of(19_999));
    assert_eq!(merged(&before, &after, &before), Some(after));
}
