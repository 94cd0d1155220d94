//! The part of a status that one operator owns: checked against the contract, compared, put in place. Pure.
//!
//! Works on JSON, so that one implementation serves both kinds and every strategy, and so that "equal" means what the API
//! server will store.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Serialize;
use serde_json::{Map, Value, json};
use shared_crds::conditions::ConditionType;
use shared_crds::ownership::{self, GUARDED, GuardedField, Owner};

use super::guarded;

/// What an operator wants its part of a status to be: all of it. An owned field or condition that is missing here is
/// removed from the object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnedStatus {
    /// The owner's fields directly under `status`, by their JSON names.
    pub fields: Map<String, Value>,
    /// The owner's conditions.
    pub conditions: Vec<Condition>,
}

/// An attempt to write a part of a status that belongs to somebody else.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOwned {
    /// A field.
    #[error("status.{field} is not a field of the {}", owner.describe())]
    Field {
        /// The field under `status`.
        field: String,
        /// Who tried.
        owner: Owner,
    },
    /// A condition.
    #[error("condition {type_} is not one of the {}", owner.describe())]
    Condition {
        /// The condition's type.
        type_: String,
        /// Who tried.
        owner: Owner,
    },
}

impl OwnedStatus {
    /// The status type itself says the fields: fill in what is owned, leave the rest at its default. Absent fields and
    /// `conditions` of `status` are skipped.
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

/// Which part of a status is whose, for one operator and one kind.
#[derive(Clone, Debug)]
pub(super) struct Contract {
    owner: Owner,
    /// `None`: every field of the status.
    fields: Option<Vec<&'static str>>,
    /// `None`: every condition.
    conditions: Option<Vec<ConditionType>>,
    /// The fields that are not applied, but written by a patch that tests what was there.
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

    /// Everything in the status of a `NodePoolAutoscaler` is the Autoscaler's, and nothing is anybody else's.
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

    /// `status` with the owned part replaced by `owned`; everything else stays where it is.
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

    /// The merge patch that turns `status` into `wanted`, a splice of it. A list is replaced whole, as merge patch does;
    /// the version that the patch carries is what makes this safe.
    pub(super) fn merge_patch(status: &Value, wanted: &Value) -> Value {
        json!({ "status": difference(status, wanted) })
    }
}

fn type_of(condition: &Value) -> &str {
    condition.get("type").and_then(Value::as_str).unwrap_or_default()
}

/// RFC 7386: what changed, with null for what went. Only called for objects.
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
