//! Reports to the user, on the object, that this version cannot read it.
//!
//! The object is never decoded: it is read and written as JSON, and of its status only the given conditions change.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Resource as _};
use serde_json::{Value, json};
use shared_crds::NodePool;
use shared_crds::conditions::{Statement, set};
use tracing::instrument;

use super::owned::Contract;
use super::{Door, DoorError, OwnedStatus, Written};

impl Door {
    /// Sets `statements` on a pool that cannot be read. Whatever the strategy, this is a server-side apply: the others
    /// would have to send parts that this version cannot decode. Nothing is sent if the conditions are equal.
    #[instrument(skip_all, fields(name = pool.metadata.name))]
    pub async fn unreadable_node_pool(
        &self,
        pool: &DynamicObject,
        statements: &[Statement],
        now: &Time,
    ) -> Result<Written<DynamicObject>, DoorError> {
        let options = self.begin()?;
        let name = pool.metadata.name.as_deref().ok_or(DoorError::Unnamed("name"))?;
        let namespace = pool.metadata.namespace.as_deref().ok_or(DoorError::Unnamed("namespace"))?;
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), namespace, &ApiResource::erase::<NodePool>(&()));
        let current = pool.data.get("status").cloned().unwrap_or_else(|| json!({}));
        let generation = pool.metadata.generation;
        let contract = Contract::node_pool(self.owner);
        let owned = OwnedStatus {
            fields: fields(&contract.part(&current)),
            conditions: stated(&contract.part(&current), statements, generation, now),
        };
        contract.check(&owned)?;
        let wanted = contract.splice(&current, &owned)?;
        if wanted == current {
            return Ok(Written::Unchanged);
        }
        let body = json!({
            "apiVersion": NodePool::api_version(&()),
            "kind": NodePool::kind(&()),
            "metadata": { "name": name, "namespace": namespace },
            "status": contract.part(&wanted),
        });
        let forced = options.with_force(true);
        Ok(conflict_retry::apply_status(&api, name, &forced, &body).await?.into())
    }
}

/// The owned fields unchanged.
fn fields(part: &Value) -> serde_json::Map<String, Value> {
    let mut fields = part.as_object().cloned().unwrap_or_default();
    fields.remove("conditions");
    fields
}

/// The owned conditions, with `statements` in the place of those of their types.
fn stated(part: &Value, statements: &[Statement], generation: Option<i64>, now: &Time) -> Vec<Condition> {
    let existing = part.get("conditions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let existing: Vec<Condition> =
        existing.iter().filter_map(|condition| serde_json::from_value(condition.clone()).ok()).collect();
    let is_stated = |type_: &str| statements.iter().any(|statement| statement.type_.as_str() == type_);
    let kept = existing.iter().filter(|condition| !is_stated(&condition.type_)).cloned();
    let new = statements.iter().map(|statement| set(&existing, statement, generation, now));
    kept.chain(new).collect()
}
