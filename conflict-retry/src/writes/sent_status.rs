//! Whether the server has dropped a status that was sent to the object itself, as it does for a kind with a status
//! subresource. Pure.

use serde_json::Value;

use super::Writable;
use crate::operation::Subresource;
use crate::outcome::Refusal;

/// The field.
const STATUS: &str = "status";

/// Why a write of `sent` to `subresource` is no success, of whose status the `answer` holds nothing.
///
/// Only what is certain: a kind without the subresource has stored the status, so that the answer shows it, unless the Rust
/// type does not know what was sent.
pub(super) fn dropped<K: Writable>(subresource: Subresource, sent: &Value, answer: &K) -> Option<Refusal> {
    let sent = sent.get(STATUS).filter(|status| subresource == Subresource::Main && !is_empty(status))?;
    let answer = serde_json::to_value(answer).ok()?;
    let stored = answer.get(STATUS).cloned().unwrap_or_default();
    // As it was sent, or as the type writes it.
    let is_stored = holds_any(&stored, sent)
        || as_typed::<K>(&answer, sent.clone()).is_some_and(|typed| holds_any(&stored, &typed));
    if is_stored {
        return None;
    }
    // What would have been answered if it had been stored. If that does not fit the type, the answer, which does, is not it.
    let is_unknown = as_typed::<K>(&answer, merged(&stored, sent)).is_some_and(|typed| typed == stored);
    (!is_unknown).then(|| Refusal::Dropped { field: STATUS.to_owned(), subresource })
}

/// The status as the type writes it; `None` if it does not fit the type.
fn as_typed<K: Writable>(object: &Value, status: Value) -> Option<Value> {
    let mut object = object.clone();
    object.as_object_mut()?.insert(STATUS.to_owned(), status);
    let object: K = serde_json::from_value(object).ok()?;
    let object = serde_json::to_value(object).ok()?;
    Some(object.get(STATUS).cloned().unwrap_or_default())
}

/// Whether there is nothing in it that could be lost.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.values().all(is_empty),
        Value::Array(entries) => entries.iter().all(is_empty),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Whether `stored` holds anything of `sent`. Of a list, that is a whole entry: fields of different entries are often alike.
fn holds_any(stored: &Value, sent: &Value) -> bool {
    match (stored, sent) {
        (Value::Object(stored), Value::Object(sent)) => {
            sent.iter().any(|(key, sent)| stored.get(key).is_some_and(|stored| holds_any(stored, sent)))
        }
        (Value::Array(stored), Value::Array(sent)) => {
            sent.iter().any(|sent| stored.iter().any(|stored| holds(stored, sent)))
        }
        (stored, sent) => stored == sent,
    }
}

/// Whether `stored` holds all of `sent`.
fn holds(stored: &Value, sent: &Value) -> bool {
    match (stored, sent) {
        (Value::Object(stored), Value::Object(sent)) => {
            sent.iter().all(|(key, sent)| stored.get(key).is_some_and(|stored| holds(stored, sent)))
        }
        (Value::Array(stored), Value::Array(sent)) => {
            sent.iter().all(|sent| stored.iter().any(|stored| holds(stored, sent)))
        }
        (stored, sent) => stored == sent,
    }
}

/// An RFC 7386 merge of `patch` into `stored`.
fn merged(stored: &Value, patch: &Value) -> Value {
    let Value::Object(patch) = patch else { return patch.clone() };
    let mut fields = stored.as_object().cloned().unwrap_or_default();
    for (key, value) in patch {
        if value.is_null() {
            fields.remove(key);
        } else {
            let value = merged(fields.get(key).unwrap_or(&Value::Null), value);
            fields.insert(key.clone(), value);
        }
    }
    Value::Object(fields)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::DynamicObject;
    use serde_json::json;

    use super::*;

    fn object<K: Writable>(kind: &str, status: &Value) -> K {
        let api_version = if kind == "ConfigMap" { "v1" } else { "apps/v1" };
        let metadata = json!({ "name": "a", "resourceVersion": "2" });
        let object =
            json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata, "status": status });
        serde_json::from_value(object).unwrap()
    }

    fn is_dropped<K: Writable>(kind: &str, sent: &Value, stored: &Value) -> bool {
        dropped::<K>(Subresource::Main, &json!({ "status": sent }), &object(kind, stored)).is_some()
    }

    fn condition(name: &str, at: &str) -> Value {
        json!({ "conditions": [{ "type": name, "status": "True", "lastTransitionTime": at }] })
    }

    const AT: &str = "2026-01-01T00:00:00Z";

    #[test]
    fn a_status_of_which_nothing_is_stored_is_dropped() {
        let seen = condition("Seen", AT);
        for (sent, stored) in [
            (json!({ "replicas": 3 }), Value::Null),
            (json!({ "replicas": 3 }), json!({})),
            (json!({ "replicas": 3 }), json!({ "replicas": 2, "observedGeneration": 1 })),
            (seen.clone(), Value::Null),
            // The status of the other condition is the same.
            (seen.clone(), condition("Available", AT)),
            // It does not fit the type, and the answer does.
            (json!({ "replicas": "many" }), json!({ "replicas": 2 })),
        ] {
            assert!(is_dropped::<Deployment>("Deployment", &sent, &stored), "{sent}, {stored}");
        }
        let sent = json!({ "status": { "replicas": 3 } });
        let answer = object::<Deployment>("Deployment", &Value::Null);
        assert!(dropped(Subresource::Status, &sent, &answer).is_none(), "another part was written");
        assert!(dropped(Subresource::Main, &json!({ "spec": {} }), &answer).is_none(), "nothing was sent");
    }

    #[test]
    fn a_status_that_is_stored_in_part_or_says_nothing_is_not_dropped() {
        for (sent, stored) in [
            (json!({ "replicas": 3, "readyReplicas": 1 }), json!({ "replicas": 3 })),
            (Value::Null, Value::Null),
            (json!({}), Value::Null),
            (json!({ "conditions": [], "replicas": null }), json!({ "replicas": 2 })),
            // Beside that of another manager.
            (
                condition("Seen", AT),
                json!({ "conditions": [
                    { "type": "Available", "status": "False" },
                    { "type": "Seen", "status": "True", "lastTransitionTime": AT, "reason": "Set" },
                ] }),
            ),
            // Another notation of the same time.
            (condition("Seen", "2026-01-01T00:00:00+00:00"), condition("Seen", AT)),
        ] {
            assert!(!is_dropped::<Deployment>("Deployment", &sent, &stored), "{sent}, {stored}");
        }
    }

    #[test]
    fn what_the_type_does_not_know_is_not_missed_in_the_answer() {
        let sent = json!({ "unheardOf": 3 });
        assert!(!is_dropped::<ConfigMap>("ConfigMap", &sent, &sent), "it has no status");
        assert!(!is_dropped::<Deployment>("Deployment", &sent, &sent), "its status has no such field");
        // A type that knows every field.
        assert!(!is_dropped::<DynamicObject>("Thing", &sent, &sent));
        assert!(is_dropped::<DynamicObject>("Thing", &sent, &json!({})));
    }
}
