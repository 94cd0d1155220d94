//! A changed list, built from the stored one. Pure.
//!
//! Three lists are compared: what the type has read (`before`), what the closure made of it (`after`), and what is
//! `stored`. Entries are matched by what identifies them, else by their place. An entry of another name is another entry. Where that is not certain, and something
//! would be lost or come to the wrong entry, there is no result.

use serde_json::{Map, Value};

/// Fields by which the entries of Kubernetes lists are told apart, alone or together. One set is used for lists in which
/// each entry has all of its fields, and no two the same values.
const IDENTITIES: [&[&str]; 14] = [
    &["uid"],
    &["name"],
    &["type"],
    &["key"],
    &["id"],
    &["containerPort"],
    &["mountPath"],
    &["port"],
    &["ip"],
    &["name", "namespace"],
    &["kind", "name"],
    &["containerPort", "protocol"],
    &["port", "protocol"],
    &["ip", "port"],
];

/// `stored` with the change from `before` to `after`; `None` when it cannot be told which entry is which.
pub(super) fn merged(before: &[Value], after: &[Value], stored: &[Value]) -> Option<Vec<Value>> {
    let partners = partners(before, stored)?;
    let origins = origins(before, after, &partners, stored)?;
    let mut result = Vec::with_capacity(after.len().max(stored.len()));
    // The place of each stored entry in the result, for those that the type cannot read: they stay behind what they were
    // behind.
    let mut places: Vec<Option<usize>> = vec![None; stored.len()];
    for (new, origin) in after.iter().zip(&origins) {
        match origin {
            Some(old) => {
                let of = partners[*old];
                places[of] = Some(result.len());
                result.push(value(&before[*old], new, &stored[of])?);
            }
            None => result.push(new.clone()),
        }
    }
    let unread: Vec<usize> = (0..stored.len()).filter(|index| !partners.contains(index)).collect();
    for index in unread {
        let behind = (0..index).rev().find_map(|earlier| places[earlier]).map_or(0, |place| place + 1);
        for place in places.iter_mut().flatten().filter(|place| **place >= behind) {
            *place += 1;
        }
        result.insert(behind, stored[index].clone());
        places[index] = Some(behind);
    }
    Some(result)
}

/// The stored entry of each entry that the type has read.
fn partners(before: &[Value], stored: &[Value]) -> Option<Vec<usize>> {
    let in_place =
        before.len() == stored.len() && before.iter().zip(stored).all(|(old, raw)| agrees(old, raw));
    if in_place {
        return Some((0..before.len()).collect());
    }
    let identity = IDENTITIES.iter().find(|keys| identifies(keys, before) && identifies(keys, stored));
    let mut partners = Vec::with_capacity(before.len());
    for old in before {
        let is_partner = |raw: &&Value| match identity {
            Some(keys) => is_same(keys, old, raw),
            None if old.is_object() => agrees(old, raw),
            None => old == *raw,
        };
        let mut found = stored.iter().enumerate().filter(|(_, raw)| is_partner(raw)).map(|(index, _)| index);
        let (first, second) = (found.next(), found.next());
        match (first, second) {
            (Some(index), None) if !partners.contains(&index) => partners.push(index),
            _ => return None,
        }
    }
    Some(partners)
}

/// Whether `raw` may be what `old` was read from: what both have is the same.
fn agrees(old: &Value, raw: &Value) -> bool {
    match (old, raw) {
        (Value::Object(old), Value::Object(raw)) => old.iter().all(|(key, value)| {
            raw.get(key).is_none_or(|raw| match (value, raw) {
                (Value::Object(_) | Value::Array(_), Value::Object(_) | Value::Array(_)) => true,
                _ => value == raw,
            })
        }),
        // A text that the type does not know is read as another one.
        (Value::Array(_), Value::Array(_)) | (Value::String(_), Value::String(_)) => true,
        _ => old == raw,
    }
}

/// The entry of `before` that each entry of `after` comes from.
fn origins(
    before: &[Value],
    after: &[Value],
    partners: &[usize],
    stored: &[Value],
) -> Option<Vec<Option<usize>>> {
    let mut origins: Vec<Option<usize>> = vec![None; after.len()];
    if let Some(keys) = IDENTITIES.iter().find(|keys| identifies(keys, before) && identifies(keys, after)) {
        for (new, origin) in after.iter().zip(&mut origins) {
            *origin = before.iter().position(|old| is_same(keys, old, new));
        }
        return Some(origins);
    }
    let mut is_free = vec![true; before.len()];
    if before.len() == after.len() && !is_permutation(before, after) {
        return Some((0..before.len()).map(Some).collect());
    }
    let hides = |old: usize| stored[partners[old]] != before[old];
    for (new, origin) in after.iter().zip(&mut origins) {
        let mut same = (0..before.len()).filter(|old| is_free[*old] && before[*old] == *new);
        let Some(first) = same.next() else { continue };
        // Entries that are the same for the type, and not as they are stored.
        if same.any(|other| stored[partners[other]] != stored[partners[first]]) && before.len() != after.len()
        {
            return None;
        }
        is_free[first] = false;
        *origin = Some(first);
    }
    let has_new = origins.contains(&None);
    if has_new && (0..before.len()).any(|old| is_free[old] && hides(old)) {
        return None;
    }
    Some(origins)
}

fn is_permutation(before: &[Value], after: &[Value]) -> bool {
    let count = |list: &[Value], entry: &Value| list.iter().filter(|other| *other == entry).count();
    before.iter().all(|entry| count(before, entry) == count(after, entry))
}

/// Whether each entry has all `keys`, and no two have the same values.
fn identifies(keys: &[&str], list: &[Value]) -> bool {
    let is_scalar = |value: &Value| value.is_string() || value.is_number();
    !list.is_empty()
        && list.iter().all(|entry| keys.iter().all(|key| entry.get(key).is_some_and(is_scalar)))
        && list
            .iter()
            .enumerate()
            .all(|(index, entry)| !list[..index].iter().any(|other| is_same(keys, other, entry)))
}

fn is_same(keys: &[&str], one: &Value, other: &Value) -> bool {
    keys.iter().all(|key| one.get(key) == other.get(key))
}

/// `stored` with the change from `before` to `after`.
fn value(before: &Value, after: &Value, stored: &Value) -> Option<Value> {
    if before == after {
        return Some(stored.clone());
    }
    Some(match (before, after, stored) {
        (Value::Object(old), Value::Object(new), Value::Object(stored)) => {
            Value::Object(members(old, new, stored)?)
        }
        (Value::Array(old), Value::Array(new), Value::Array(stored)) => {
            Value::Array(merged(old, new, stored)?)
        }
        _ => after.clone(),
    })
}

fn members(
    old: &Map<String, Value>,
    new: &Map<String, Value>,
    stored: &Map<String, Value>,
) -> Option<Map<String, Value>> {
    let mut result = stored.clone();
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        result.remove(key);
    }
    for (key, wanted) in new {
        let before = old.get(key).unwrap_or(&Value::Null);
        if before == wanted {
            continue;
        }
        // Types write an absent field as null, and a server takes null only where the schema has it.
        if wanted.is_null() {
            result.remove(key);
            continue;
        }
        let is_list = before.is_array() || wanted.is_array();
        let merged = match stored.get(key) {
            Some(stored) if is_list && stored.is_array() => {
                let empty = Value::Array(Vec::new());
                value(if before.is_null() { &empty } else { before }, wanted, stored)?
            }
            Some(stored) => value(before, wanted, stored)?,
            None => wanted.clone(),
        };
        result.insert(key.clone(), merged);
    }
    Some(result)
}

#[cfg(test)]
#[path = "list_tests.rs"]
mod tests;
