//! The difference of two states of an object as a merge patch (RFC 7386) that leaves alone what the Rust type does not
//! know. Pure.
//!
//! A merge patch replaces a list as a whole, so a list of objects is built from the stored one: entries keep the fields
//! that the type lacks.

use serde_json::{Map, Value};

/// Fields by which the entries of Kubernetes lists are told apart. One is used for a list if each entry has it and no
/// two have the same.
const IDENTITIES: [&str; 9] =
    ["uid", "name", "type", "key", "id", "containerPort", "mountPath", "port", "ip"];

/// A list of objects has changed, and how it is stored is not known.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ListNotKnown;

/// The patch that turns `before` into `after`, which differ. `stored` is `before` as the server sent it; `None` when
/// only the typed copy is known.
pub(super) fn patch(
    before: &Value,
    after: &Value,
    stored: Option<&Value>,
) -> Result<Map<String, Value>, ListNotKnown> {
    let (Value::Object(before), Value::Object(after)) = (before, after) else { return Ok(Map::new()) };
    let mut patch = Map::new();
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, wanted) in after {
        let old = before.get(key).unwrap_or(&Value::Null);
        if old == wanted {
            continue;
        }
        let stored = stored.map(|stored| stored.get(key).unwrap_or(&Value::Null));
        patch.insert(key.clone(), member(old, wanted, stored)?);
    }
    Ok(patch)
}

fn member(before: &Value, after: &Value, stored: Option<&Value>) -> Result<Value, ListNotKnown> {
    Ok(match (before, after) {
        (Value::Object(_), Value::Object(_)) => Value::Object(patch(before, after, stored)?),
        (Value::Array(old), Value::Array(new)) if has_objects(old) && has_objects(new) => {
            list(old, new, stored.ok_or(ListNotKnown)?)
        }
        _ => after.clone(),
    })
}

fn has_objects(list: &[Value]) -> bool {
    list.iter().any(Value::is_object)
}

/// `after`, with what `stored` knows in addition of the entries that were there `before`.
fn list(before: &[Value], after: &[Value], stored: &Value) -> Value {
    let Value::Array(stored) = stored else { return Value::Array(after.to_vec()) };
    // A type that drops or adds entries while it is read: nothing tells which is which.
    if stored.len() != before.len() {
        return Value::Array(after.to_vec());
    }
    let origins = origins(before, after);
    let entries = after.iter().zip(origins).map(|(new, origin)| match origin {
        Some(index) => merged(&before[index], new, &stored[index]),
        None => new.clone(),
    });
    Value::Array(entries.collect())
}

/// Which entry of `before` each entry of `after` comes from.
fn origins(before: &[Value], after: &[Value]) -> Vec<Option<usize>> {
    let mut origins = vec![None; after.len()];
    let mut is_free = vec![true; before.len()];
    let mut matched = |origins: &mut Vec<Option<usize>>, same: &dyn Fn(usize, usize) -> bool| {
        for (new, origin) in origins.iter_mut().enumerate() {
            if origin.is_none()
                && let Some(old) = (0..before.len()).find(|old| is_free[*old] && same(*old, new))
            {
                is_free[old] = false;
                *origin = Some(old);
            }
        }
    };
    matched(&mut origins, &|old, new| before[old] == after[new]);
    if let Some(key) = IDENTITIES.iter().find(|key| identifies(key, before) && identifies(key, after)) {
        matched(&mut origins, &|old, new| before[old][key] == after[new][key]);
    } else if before.len() == after.len() {
        matched(&mut origins, &|old, new| old == new);
    }
    origins
}

/// Whether each entry has `key`, and no two have the same.
fn identifies(key: &str, list: &[Value]) -> bool {
    let values: Option<Vec<&Value>> = list
        .iter()
        .map(|entry| entry.get(key).filter(|value| value.is_string() || value.is_number()))
        .collect();
    values.is_some_and(|values| {
        values.iter().enumerate().all(|(index, value)| !values[..index].contains(value))
    })
}

/// `stored` with the change from `before` to `after`.
fn merged(before: &Value, after: &Value, stored: &Value) -> Value {
    match (before, after, stored) {
        _ if before == after => stored.clone(),
        (Value::Object(old), Value::Object(new), Value::Object(stored)) => {
            let mut result = stored.clone();
            for key in old.keys().filter(|key| !new.contains_key(*key)) {
                result.remove(key);
            }
            for (key, wanted) in new {
                let old = old.get(key).unwrap_or(&Value::Null);
                if old == wanted {
                    continue;
                }
                let stored = stored.get(key).unwrap_or(&Value::Null);
                result.insert(key.clone(), merged(old, wanted, stored));
            }
            Value::Object(result)
        }
        (Value::Array(old), Value::Array(new), _) if has_objects(old) && has_objects(new) => {
            list(old, new, stored)
        }
        _ => after.clone(),
    }
}

#[cfg(test)]
#[path = "difference_tests.rs"]
mod tests;
