//! The part of a status that one operator owns: checked against the contract, compared, spliced in. Pure.
//!
//! Works on JSON, so that one implementation serves both kinds and every strategy, and so that "equal" means what the
//! API server will store.

use serde::Serialize;
use serde::de::Error as _;
use serde_json::{Map, Value, json};
use shared_crds::conditions::ConditionType;
use shared_crds::ownership::{self, GUARDED, GuardedField, Owner};

use super::error::{NotOwned, WriterError};
use super::guarded;

/// The list under `status` that several owners share; each owns the conditions of its types.
pub(super) const CONDITIONS: &str = "conditions";

/// The complete wanted state of an operator's part of a status, made by [`Contract::owned`] only. An owned field or
/// condition that is missing here is removed from the object.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OwnedStatus {
    /// The owner's fields directly under `status`, by their JSON names, without `conditions`.
    fields: Map<String, Value>,
    /// The owner's conditions.
    conditions: Vec<Value>,
}

/// The parts of a status that one operator owns, for one kind.
#[derive(Clone, Debug)]
pub(super) struct Contract {
    owner: Owner,
    /// `None`: every field of the status.
    fields: Option<Vec<&'static str>>,
    /// `None`: every condition.
    conditions: Option<Vec<ConditionType>>,
    /// The fields that are not applied, but written by a patch that tests the observed state.
    pub(super) guarded: &'static [GuardedField],
}

impl Contract {
    pub(super) fn node_pool(owner: Owner) -> Self {
        Self {
            owner,
            fields: Some(ownership::status_fields(owner).collect()),
            conditions: Some(ownership::conditions(owner).collect()),
            guarded: if owner == Owner::AutoscalerOperator { GUARDED } else { &[] },
        }
    }

    /// The Autoscaler owns the whole status of a `NodePoolAutoscaler`; the other operator owns none of it.
    pub(super) fn autoscaler(owner: Owner) -> Self {
        match owner {
            Owner::AutoscalerOperator => Self { owner, fields: None, conditions: None, guarded: &[] },
            Owner::NodepoolOperator | Owner::User | Owner::Scaler => {
                Self { owner, fields: Some(Vec::new()), conditions: Some(Vec::new()), guarded: &[] }
            }
        }
    }

    fn owns_field(&self, field: &str) -> bool {
        field != CONDITIONS && self.fields.as_ref().is_none_or(|fields| fields.contains(&field))
    }

    fn owns_condition(&self, type_: &str) -> bool {
        self.conditions.as_ref().is_none_or(|types| types.iter().any(|owned| owned.as_str() == type_))
    }

    /// The owned part of `decided`, a whole status that was decided from `current`. What belongs to other owners may be
    /// absent from it or equal to `current`; anything else is refused.
    pub(super) fn owned(
        &self,
        current: &Value,
        decided: &impl Serialize,
    ) -> Result<OwnedStatus, WriterError> {
        let owner = self.owner;
        let (mut fields, mut conditions) = parts(serde_json::to_value(decided)?)?;
        let is_foreign = |field: &str, value: &Value| {
            !self.owns_field(field) && !value.is_null() && current.get(field) != Some(value)
        };
        if let Some((field, _)) = fields.iter().find(|(field, value)| is_foreign(field, value)) {
            return Err(NotOwned::Field { field: field.clone(), owner }.into());
        }
        let existing = conditions_of(current);
        let is_foreign =
            |condition: &&Value| !self.owns_condition(type_of(condition)) && !existing.contains(condition);
        if let Some(condition) = conditions.iter().find(is_foreign) {
            return Err(NotOwned::Condition { type_: type_of(condition).to_owned(), owner }.into());
        }
        fields.retain(|field, _| self.owns_field(field));
        conditions.retain(|condition| self.owns_condition(type_of(condition)));
        Ok(OwnedStatus { fields, conditions })
    }

    /// `status` with the owned part replaced by `owned`; everything else is unchanged.
    pub(super) fn splice(&self, status: &Value, owned: OwnedStatus) -> Value {
        let OwnedStatus { mut fields, conditions: mut wanted } = owned;
        let foreign = status.as_object().into_iter().flatten();
        let foreign = foreign.filter(|(field, _)| *field != CONDITIONS && !self.owns_field(field));
        fields.extend(foreign.map(|(field, value)| (field.clone(), value.clone())));
        let before = conditions_of(status);
        let mut conditions = Vec::with_capacity(before.len() + wanted.len());
        for condition in before {
            let type_ = type_of(condition);
            match wanted.iter().position(|wanted| type_of(wanted) == type_) {
                Some(index) => conditions.push(wanted.remove(index)),
                None if self.owns_condition(type_) => {}
                None => conditions.push(condition.clone()),
            }
        }
        conditions.extend(wanted);
        if !conditions.is_empty() {
            fields.insert(CONDITIONS.to_owned(), Value::Array(conditions));
        }
        Value::Object(fields)
    }

    /// The owned part of a whole status that is applied: all but the guarded fields.
    pub(super) fn part(&self, status: &Value) -> Value {
        let mut part = guarded::without(self.guarded, status).as_object().cloned().unwrap_or_default();
        let conditions = part.remove(CONDITIONS);
        part.retain(|field, _| self.owns_field(field));
        if let Some(Value::Array(mut conditions)) = conditions {
            conditions.retain(|condition| self.owns_condition(type_of(condition)));
            if !conditions.is_empty() {
                part.insert(CONDITIONS.to_owned(), Value::Array(conditions));
            }
        }
        Value::Object(part)
    }

    /// The merge patch that turns `status` into `wanted`, a splice of it. A list is replaced as a whole, as merge patch
    /// does; the resourceVersion in the patch makes this safe.
    pub(super) fn merge_patch(status: &Value, wanted: &Value) -> Value {
        json!({ "status": difference(status, wanted) })
    }
}

/// The fields of a status, and its conditions apart from them. What is neither is an error: read as an empty part, it
/// would remove everything that the operator owns.
fn parts(status: Value) -> Result<(Map<String, Value>, Vec<Value>), serde_json::Error> {
    let Value::Object(mut fields) = status else {
        return Err(serde_json::Error::custom("a status is not an object"));
    };
    match fields.remove(CONDITIONS) {
        None | Some(Value::Null) => Ok((fields, Vec::new())),
        Some(Value::Array(conditions)) => Ok((fields, conditions)),
        Some(_) => Err(serde_json::Error::custom("the conditions of a status are not a list")),
    }
}

/// The conditions in a status.
pub(super) fn conditions_of(status: &Value) -> &[Value] {
    status.get(CONDITIONS).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

pub(super) fn type_of(condition: &Value) -> &str {
    condition.get("type").and_then(Value::as_str).unwrap_or_default()
}

/// RFC 7386: the changed fields, with null for removed ones. Only called for objects.
fn difference(from: &Value, to: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (from, to) else {
        return to.clone();
    };
    let mut patch = Map::new();
    for (key, value) in to {
        match from.get(key) {
            Some(before) if before == value => {}
            Some(before) => {
                patch.insert(key.clone(), difference(before, value));
            }
            None => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    for key in from.keys().filter(|key| !to.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    Value::Object(patch)
}

#[cfg(test)]
#[path = "owned_tests.rs"]
mod tests;
