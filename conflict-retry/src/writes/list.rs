//! A changed list, built from the stored one. Pure.
//!
//! Three lists are compared: what the type has read (`before`), what the closure made of it (`after`), and what is
//! `stored`. Entries are matched by what identifies them, else by their value or place; an entry of another name is
//! another entry. Where that is not certain, and something would be lost or come to the wrong entry, there is no result.

use std::collections::{HashMap, HashSet};

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
    let read: HashSet<usize> = partners.iter().copied().collect();
    let unread: Vec<usize> = (0..stored.len()).filter(|index| !read.contains(index)).collect();
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
    if !before.iter().any(Value::is_object) {
        return scalar_partners(before, stored);
    }
    if before.len() == stored.len() && before.iter().zip(stored).all(|(old, raw)| agrees(old, raw)) {
        return Some((0..before.len()).collect());
    }
    let named = IDENTITIES.iter().find_map(|keys| Some((keys, places(keys, before)?, places(keys, stored)?)));
    if let Some((keys, _, stored)) = named {
        return before.iter().map(|old| stored.get(&identity(keys, old)?).copied()).collect();
    }
    let mut partners = Vec::with_capacity(before.len());
    let mut taken = HashSet::new();
    for old in before {
        let mut fitting = (0..stored.len()).filter(|index| agrees(old, &stored[*index]));
        let (first, second) = (fitting.next()?, fitting.next());
        if second.is_some() || !taken.insert(first) {
            return None;
        }
        partners.push(first);
    }
    Some(partners)
}

/// Of values that are not objects: equal ones, in whatever order. A value that is left is one that the type has read as
/// another, if the one that is left in its place is of its kind.
fn scalar_partners(before: &[Value], stored: &[Value]) -> Option<Vec<usize>> {
    let mut left: HashMap<&Value, Vec<usize>> = HashMap::new();
    for (index, raw) in stored.iter().enumerate().rev() {
        left.entry(raw).or_default().push(index);
    }
    let equal: Vec<Option<usize>> = before.iter().map(|old| left.get_mut(old).and_then(Vec::pop)).collect();
    let taken: HashSet<usize> = equal.iter().flatten().copied().collect();
    let in_place = |index: usize| {
        let raw = stored.get(index).filter(|_| !taken.contains(&index))?;
        agrees(&before[index], raw).then_some(index)
    };
    equal.into_iter().enumerate().map(|(index, found)| found.or_else(|| in_place(index))).collect()
}

/// Whether `raw` may be what `old` was read from: what both have is the same.
fn agrees(old: &Value, raw: &Value) -> bool {
    match (old, raw) {
        (Value::Object(old), Value::Object(raw)) => {
            old.iter().all(|(key, old)| raw.get(key).is_none_or(|raw| is_alike(old, raw)))
        }
        // A text that the type does not know is read as another one.
        (Value::String(_), Value::String(_)) => true,
        _ => is_alike(old, raw),
    }
}

/// The same for what is within an entry, where no text stands for another one. Lists may be read with other entries.
fn is_alike(old: &Value, raw: &Value) -> bool {
    match (old, raw) {
        (Value::Object(_), Value::Object(_)) => agrees(old, raw),
        (Value::Array(old), Value::Array(raw)) => {
            old.len() != raw.len() || old.iter().zip(raw).all(|(old, raw)| is_alike(old, raw))
        }
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
    let named = IDENTITIES.iter().find_map(|keys| Some((keys, places(keys, before)?, places(keys, after)?)));
    if let Some((keys, before, _)) = named {
        return Some(after.iter().map(|new| before.get(&identity(keys, new)?).copied()).collect());
    }
    let mut left: HashMap<&Value, Vec<usize>> = HashMap::new();
    for (index, old) in before.iter().enumerate().rev() {
        left.entry(old).or_default().push(index);
    }
    let alike = left.clone();
    let origins: Vec<Option<usize>> = after.iter().map(|new| left.get_mut(new).and_then(Vec::pop)).collect();
    // Entries that are the same for the type, and not as they are stored, cannot be told apart when one goes and
    // another one stays.
    let is_stored_alike =
        |same: &Vec<usize>| same.iter().all(|index| stored[partners[*index]] == stored[partners[same[0]]]);
    let is_certain = alike.iter().all(|(old, same)| {
        let gone = left[old].len();
        gone == 0 || gone == same.len() || is_stored_alike(same)
    });
    let is_permutation = before.len() == after.len() && !origins.contains(&None);
    let is_scalar = |list: &[Value]| !list.iter().any(|entry| entry.is_object() || entry.is_array());
    if is_permutation || (is_certain && is_scalar(before) && is_scalar(after)) {
        return Some(origins);
    }
    let has_unknown = |old: usize| hides(&before[old], &stored[partners[old]]);
    if before.len() == after.len() {
        // An entry is new, and one that was there is at the place of another: one may have gone, and another one come.
        let has_moved =
            (0..before.len()).any(|place| origins[place].is_some() && before[place] != after[place]);
        if has_moved && (0..before.len()).any(has_unknown) {
            return None;
        }
        return Some((0..before.len()).map(Some).collect());
    }
    let loses = origins.contains(&None) && left.values().flatten().any(|old| has_unknown(*old));
    (is_certain && !loses).then_some(origins)
}

/// Whether `raw`, which `old` was read from, holds anything that the type does not know.
fn hides(old: &Value, raw: &Value) -> bool {
    match (old, raw) {
        (Value::Object(old), Value::Object(raw)) => {
            raw.iter().any(|(key, raw)| old.get(key).is_none_or(|old| hides(old, raw)))
        }
        (Value::Array(old), Value::Array(raw)) => {
            old.len() != raw.len() || old.iter().zip(raw).any(|(old, raw)| hides(old, raw))
        }
        _ => old != raw,
    }
}

/// What identifies an entry; `None` when it lacks a part of that.
fn identity<'a>(keys: &[&str], entry: &'a Value) -> Option<Vec<&'a Value>> {
    let is_scalar = |value: &&Value| value.is_string() || value.is_number();
    keys.iter().map(|key| entry.get(key).filter(is_scalar)).collect()
}

/// The place of each entry by what identifies it; `None` when `keys` do not identify each.
fn places<'a>(keys: &[&str], list: &'a [Value]) -> Option<HashMap<Vec<&'a Value>, usize>> {
    let mut places = HashMap::with_capacity(list.len());
    for (index, entry) in list.iter().enumerate() {
        if places.insert(identity(keys, entry)?, index).is_some() {
            return None;
        }
    }
    (!list.is_empty()).then_some(places)
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
