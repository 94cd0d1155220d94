//! The part of a status that one operator owns: checked against the contract, compared, spliced in. Pure.
//!
//! Works on JSON, so that one implementation serves both kinds and every strategy, and so that "equal" means what the
//! API server will store.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Serialize;
use serde_json::{Map, Value, json};
use shared_crds::conditions::ConditionType;
use shared_crds::ownership::{self, GUARDED, GuardedField, Owner};

use super::guarded;

/// The complete wanted state of an operator's part of a status. An owned field or condition that is missing here is
/// removed from the object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnedStatus {
    /// The owner's fields directly under `status`, by their JSON names.
    pub fields: Map<String, Value>,
    /// The owner's conditions.
    pub conditions: Vec<Condition>,
}

/// An attempt to write a part of a status that belongs to another owner.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOwned {
    /// A field of another owner.
    #[error("status.{field} is not a field of the {}", owner.describe())]
    Field {
        /// The field under `status`.
        field: String,
        /// The operator that tried to write it.
        owner: Owner,
    },
    /// A condition of another owner.
    #[error("condition {type_} is not one of the {}", owner.describe())]
    Condition {
        /// The condition's type.
        type_: String,
        /// The operator that tried to write it.
        owner: Owner,
    },
}

impl OwnedStatus {
    /// Takes the fields from the status type itself: fill in the owned ones, leave the rest at their defaults. Absent
    /// fields and `conditions` of `status` are skipped.
    pub fn new(status: &impl Serialize, conditions: Vec<Condition>) -> Result<Self, serde_json::Error> {
        let mut fields = match serde_json::to_value(status)? {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        fields.remove("conditions");
        fields.retain(|_, value| !value.is_null());
        Ok(Self { fields, conditions })
    }
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
        field != "conditions" && self.fields.as_ref().is_none_or(|fields| fields.contains(&field))
    }

    fn owns_condition(&self, type_: &str) -> bool {
        self.conditions.as_ref().is_none_or(|types| types.iter().any(|owned| owned.as_str() == type_))
    }

    pub(super) fn check(&self, status: &OwnedStatus) -> Result<(), NotOwned> {
        let owner = self.owner;
        if let Some(field) = status.fields.keys().find(|field| !self.owns_field(field)) {
            return Err(NotOwned::Field { field: field.clone(), owner });
        }
        if let Some(condition) =
            status.conditions.iter().find(|condition| !self.owns_condition(&condition.type_))
        {
            return Err(NotOwned::Condition { type_: condition.type_.clone(), owner });
        }
        Ok(())
    }

    /// `status` with the owned part replaced by `owned`; everything else is unchanged.
    pub(super) fn splice(&self, status: &Value, owned: &OwnedStatus) -> Result<Value, serde_json::Error> {
        let mut fields = status.as_object().cloned().unwrap_or_default();
        let before = match fields.remove("conditions") {
            Some(Value::Array(conditions)) => conditions,
            _ => Vec::new(),
        };
        fields.retain(|field, _| !self.owns_field(field));
        fields.extend(owned.fields.clone());
        let mut wanted = owned
            .conditions
            .iter()
            .map(|condition| Ok((condition.type_.clone(), serde_json::to_value(condition)?)))
            .collect::<Result<Vec<_>, serde_json::Error>>()?;
        let mut conditions = Vec::with_capacity(before.len() + wanted.len());
        for condition in before {
            let type_ = type_of(&condition);
            match wanted.iter().position(|(wanted, _)| wanted == type_) {
                Some(index) => conditions.push(wanted.remove(index).1),
                None if self.owns_condition(type_) => {}
                None => conditions.push(condition),
            }
        }
        conditions.extend(wanted.into_iter().map(|(_, condition)| condition));
        if !conditions.is_empty() {
            fields.insert("conditions".to_owned(), Value::Array(conditions));
        }
        Ok(Value::Object(fields))
    }

    /// The owned part of a whole status that is applied: all but the guarded fields.
    pub(super) fn part(&self, status: &Value) -> Value {
        let mut part = guarded::without(self.guarded, status).as_object().cloned().unwrap_or_default();
        let conditions = part.remove("conditions");
        part.retain(|field, _| self.owns_field(field));
        if let Some(Value::Array(mut conditions)) = conditions {
            conditions.retain(|condition| self.owns_condition(type_of(condition)));
            if !conditions.is_empty() {
                part.insert("conditions".to_owned(), Value::Array(conditions));
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

fn type_of(condition: &Value) -> &str {
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
