//! The objects of the test: built from JSON, and stored as `kubectl get -o yaml` shows them.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::planner::Key;

/// Namespace and name of a pod.
pub fn key(pod: &Value) -> Key {
    let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

/// Namespace and name of a typed pod.
pub(super) fn key_of(pod: &Pod) -> Key {
    (pod.metadata.namespace.clone().unwrap_or_default(), pod.metadata.name.clone().unwrap_or_default())
}

/// Creates an object.
pub(super) async fn create<K>(api: &Api<K>, object: &Value, kind: &str) -> Result<Value>
where
    K: Resource + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let typed: K = serde_json::from_value(object.clone()).with_context(|| format!("no {kind}: {object}"))?;
    let made = api.create(&PostParams::default(), &typed).await;
    tidy(&made.with_context(|| format!("the API server refuses the {kind} {object}"))?, kind)
}

/// An object as `kubectl get -o yaml` shows it.
pub(super) fn tidy(object: &impl Serialize, kind: &str) -> Result<Value> {
    let mut object = serde_json::to_value(object)?;
    object["kind"] = json!(kind);
    object["apiVersion"] = json!("v1");
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    Ok(object)
}
