//! Detects a retry that may have overwritten the winner's change: the one mistake that no version check prevents.
//!
//! A closure that assigns a captured value does so whatever object it gets. It cannot be told for certain from a
//! closure that decides the same again for a good reason, so this is a hint to check the closure, not an error. Pure.

use serde_json::Value;

/// What an attempt was based on, and what it wanted to write.
pub(super) struct Decided {
    pub(super) seen: Value,
    pub(super) wanted: Value,
}

/// The first field (as a JSON pointer) that another writer changed between the two attempts and that the second attempt
/// sets to the value wanted by the first.
pub(super) fn overwritten(before: &Decided, now: &Decided) -> Option<String> {
    let mut path = String::new();
    find(&mut path, &before.seen, &before.wanted, &now.seen, &now.wanted).then_some(path)
}

fn find(path: &mut String, seen: &Value, wanted: &Value, seen_now: &Value, wanted_now: &Value) -> bool {
    if seen == seen_now || seen_now == wanted_now || seen == wanted {
        return false;
    }
    let (Value::Object(now), Value::Object(wanted_object)) = (seen_now, wanted_now) else {
        return wanted == wanted_now;
    };
    let null = Value::Null;
    for key in now.keys().chain(wanted_object.keys().filter(|key| !now.contains_key(*key))) {
        let at = |value: &'_ Value| value.get(key).cloned().unwrap_or_default();
        let length = path.len();
        path.push('/');
        path.push_str(&key.replace('~', "~0").replace('/', "~1"));
        let (seen_now, wanted_now) = (now.get(key).unwrap_or(&null), wanted_object.get(key).unwrap_or(&null));
        if find(path, &at(seen), &at(wanted), seen_now, wanted_now) {
            return true;
        }
        path.truncate(length);
    }
    false
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn decided(seen: Value, wanted: Value) -> Decided {
        Decided { seen, wanted }
    }

    #[test]
    fn repeating_a_value_over_the_winners_is_detected() {
        let before = decided(json!({"spec": {"replicas": 3}}), json!({"spec": {"replicas": 5}}));
        let blind = decided(json!({"spec": {"replicas": 2}}), json!({"spec": {"replicas": 5}}));
        assert_eq!(overwritten(&before, &blind).as_deref(), Some("/spec/replicas"));
    }

    #[test]
    fn another_decision_another_field_and_an_untouched_value_are_not_detected() {
        let before = decided(json!({"spec": {"replicas": 3}}), json!({"spec": {"replicas": 5}}));
        let again = decided(json!({"spec": {"replicas": 2}}), json!({"spec": {"replicas": 4}}));
        assert_eq!(overwritten(&before, &again), None);
        let elsewhere = decided(
            json!({"spec": {"replicas": 3}, "label": "x"}),
            json!({"spec": {"replicas": 5}, "label": "x"}),
        );
        assert_eq!(overwritten(&before, &elsewhere), None);
        let agreed = decided(json!({"spec": {"replicas": 5}}), json!({"spec": {"replicas": 5}}));
        assert_eq!(overwritten(&before, &agreed), None);
    }

    #[test]
    fn a_field_that_the_winner_added_or_removed_counts() {
        let before = decided(json!({"data": {}}), json!({"data": {"colour": "blue"}}));
        let added = decided(json!({"data": {"colour": "red"}}), json!({"data": {"colour": "blue"}}));
        assert_eq!(overwritten(&before, &added).as_deref(), Some("/data/colour"));
        let before = decided(json!({"data": {"a/b": "red"}}), json!({"data": {"a/b": "blue"}}));
        let removed = decided(json!({"data": {}}), json!({"data": {"a/b": "blue"}}));
        assert_eq!(overwritten(&before, &removed).as_deref(), Some("/data/a~1b"));
    }

    #[test]
    fn metadata_set_by_the_server_is_not_a_decision() {
        let before = decided(
            json!({"metadata": {"resourceVersion": "1"}, "data": {"k": "a"}}),
            json!({"metadata": {"resourceVersion": "1"}, "data": {"k": "b"}}),
        );
        let now = decided(
            json!({"metadata": {"resourceVersion": "2"}, "data": {"k": "a"}}),
            json!({"metadata": {"resourceVersion": "2"}, "data": {"k": "b"}}),
        );
        assert_eq!(overwritten(&before, &now), None);
    }
}
