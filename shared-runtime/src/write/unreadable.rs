//! Reports to the user, on the object, that this version cannot read it.
//!
//! The object is never decoded: it is read and written as JSON, and of its status only the given conditions change.

use conflict_retry::Outcome;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, CustomResourceExt as _, Resource as _};
use serde_json::{Value, json};
use shared_crds::NodePool;
use shared_crds::conditions::{Statement, set};
use tracing::instrument;

use super::owned::{CONDITIONS, Contract, conditions_of, type_of};
use super::{Writer, WriterError};

impl Writer {
    /// Sets `statements` on a pool that cannot be read. Whatever the strategy, this is a server-side apply: the others
    /// would have to send parts that this version cannot decode. Nothing is sent if the conditions are equal.
    #[instrument(skip_all, fields(name = pool.metadata.name))]
    pub async fn unreadable_node_pool(
        &self,
        pool: &DynamicObject,
        statements: &[Statement],
        now: &Time,
    ) -> Result<Outcome<DynamicObject>, WriterError> {
        let options = self.begin()?;
        let name = pool.metadata.name.as_deref().ok_or(WriterError::Unnamed("name"))?;
        let namespace = pool.metadata.namespace.as_deref().ok_or(WriterError::Unnamed("namespace"))?;
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), namespace, &ApiResource::erase::<NodePool>(&()));
        let current = pool.data.get("status").cloned().unwrap_or_else(|| json!({}));
        let generation = pool.metadata.generation;
        let contract = Contract::node_pool(self.owner);
        let decided = stated(&current, statements, generation, now)?;
        let owned = contract.owned(&current, &decided)?;
        let missing = self.served.missing(NodePool::crd_name());
        let (current, wanted) =
            (missing.without(current.clone()), missing.without(contract.splice(&current, owned)));
        if wanted == current {
            return Ok(Outcome::Unchanged(pool.clone()));
        }
        let body = json!({
            "apiVersion": NodePool::api_version(&()),
            "kind": NodePool::kind(&()),
            "metadata": { "name": name, "namespace": namespace },
            "status": contract.part(&wanted),
        });
        let forced = options.with_force(true);
        Ok(conflict_retry::apply_status(&api, name, &body).with(&forced).outcome().await?)
    }
}

/// `status` with `statements` in the place of the conditions of their types. The other conditions stay as they are,
/// also those that this version cannot decode.
fn stated(
    status: &Value,
    statements: &[Statement],
    generation: Option<i64>,
    now: &Time,
) -> Result<Value, serde_json::Error> {
    let mut conditions = conditions_of(status).to_vec();
    // The transition time of a condition that cannot be decoded is not known; if it is stated again, it begins now.
    let decode = |condition: &Value| serde_json::from_value(condition.clone()).ok();
    let existing: Vec<Condition> = conditions.iter().filter_map(decode).collect();
    for statement in statements {
        let condition = serde_json::to_value(set(&existing, statement, generation, now))?;
        match conditions.iter_mut().find(|one| type_of(one) == statement.type_.as_str()) {
            Some(one) => *one = condition,
            None => conditions.push(condition),
        }
    }
    let mut fields = status.as_object().cloned().unwrap_or_default();
    fields.insert(CONDITIONS.to_owned(), Value::Array(conditions));
    Ok(Value::Object(fields))
}
