//! The difference of two states of an object as a merge patch (RFC 7386) that leaves alone what the Rust type does not
//! know. Pure.
//!
//! A merge patch replaces a list as a whole, so a changed list is built from the stored one: entries keep the fields that
//! the type lacks, and entries stay that the type cannot read. For that, each entry that the type has read must be found
//! in what is stored. Where it cannot be found for certain, nothing is sent.

use serde_json::{Map, Value};

use super::list;
use crate::outcome::Refusal;

/// Why there is no patch.
#[derive(Debug)]
pub(super) enum NoPatch {
    /// A list has changed, and how it is stored is not known.
    ListNotKnown,
    /// The change cannot be said in a merge patch.
    Refused(Refusal),
}

/// What is known of how a value is stored.
#[derive(Clone, Copy)]
pub(super) enum Stored<'a> {
    /// Nothing: only the typed copy is known.
    Unknown,
    /// There is no such field.
    Absent,
    /// This.
    Is(&'a Value),
}

impl<'a> Stored<'a> {
    pub(super) fn of(value: Option<&'a Value>) -> Self {
        value.map_or(Self::Absent, Self::Is)
    }

    fn member(self, key: &str) -> Self {
        match self {
            Self::Unknown => Self::Unknown,
            Self::Absent => Self::Absent,
            Self::Is(value) => Self::of(value.get(key)),
        }
    }
}

/// The patch that turns `before` into `after`, which differ. `stored` is `before` as the server sent it; `None` when
/// only the typed copy is known.
pub(super) fn patch(
    before: &Value,
    after: &Value,
    stored: Option<&Value>,
) -> Result<Map<String, Value>, NoPatch> {
    let stored = stored.map_or(Stored::Unknown, Stored::Is);
    object(before, after, stored, &mut String::new())
}

fn object(
    before: &Value,
    after: &Value,
    stored: Stored<'_>,
    path: &mut String,
) -> Result<Map<String, Value>, NoPatch> {
    let (Value::Object(before), Value::Object(after)) = (before, after) else { return Ok(Map::new()) };
    let mut fields = Map::new();
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        fields.insert(key.clone(), Value::Null);
    }
    for (key, wanted) in after {
        let old = before.get(key);
        if old == Some(wanted) {
            continue;
        }
        let length = path.len();
        path.push('/');
        path.push_str(key);
        if wanted.is_null() && old.is_none() {
            return Err(NoPatch::Refused(Refusal::Null(path.clone())));
        }
        let value = member(old.unwrap_or(&Value::Null), wanted, stored.member(key), path)?;
        fields.insert(key.clone(), value);
        path.truncate(length);
    }
    Ok(fields)
}

fn member(before: &Value, after: &Value, stored: Stored<'_>, path: &mut String) -> Result<Value, NoPatch> {
    Ok(match (before, after) {
        (Value::Object(_), Value::Object(_)) => Value::Object(object(before, after, stored, path)?),
        (Value::Null, Value::Array(new)) => array(&[], new, stored, path)?,
        (Value::Array(old), Value::Array(new)) => array(old, new, stored, path)?,
        _ => after.clone(),
    })
}

fn array(old: &[Value], new: &[Value], stored: Stored<'_>, path: &str) -> Result<Value, NoPatch> {
    let has_containers = |list: &[Value]| list.iter().any(|entry| entry.is_object() || entry.is_array());
    match stored {
        // What is in it is as it is stored, and all of it is scalar.
        Stored::Unknown if !has_containers(old) && !has_containers(new) => Ok(Value::Array(new.to_vec())),
        Stored::Unknown => Err(NoPatch::ListNotKnown),
        Stored::Absent | Stored::Is(Value::Null) => Ok(Value::Array(new.to_vec())),
        Stored::Is(Value::Array(stored)) => list::merged(old, new, stored)
            .map(Value::Array)
            .ok_or_else(|| NoPatch::Refused(Refusal::List(path.to_owned()))),
        Stored::Is(_) => Err(NoPatch::Refused(Refusal::List(path.to_owned()))),
    }
}

#[cfg(test)]
#[path = "difference_tests.rs"]
mod tests;
