//! The lab's own resource: a minimal custom resource with a spec, a status, a scale and conditions. So a user's cluster
//! does not need Tandem's definitions.

use anyhow::Result;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, CustomResourceExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The API group of everything that the lab defines.
pub const GROUP: &str = "lab.tandem.dev";

/// A pool of something that is counted.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "lab.tandem.dev",
    version = "v1",
    kind = "Pool",
    namespaced,
    status = "PoolStatus",
    derive = "PartialEq",
    derive = "Default",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct PoolSpec {
    /// How many are wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// What kind they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// What there is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolStatus {
    /// How many there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// How many are ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<i32>,
    /// What a person should know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Which objects belong to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// A list that is a map by `type`: each writer owns its entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The same as one value, as a schema without a list type has it: its last writer owns all of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub atomic_conditions: Vec<Condition>,
}

/// The resource of the Foo article: what a controller is to say, and what it said. It is defined without a status
/// subresource.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "lab.tandem.dev",
    version = "v1",
    kind = "Foo",
    plural = "foos",
    namespaced,
    status = "FooStatus",
    derive = "PartialEq",
    derive = "Default"
)]
pub struct FooSpec {
    /// What is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub greeting: Option<String>,
}

/// What was said.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FooStatus {
    /// The last greeting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub said: Option<String>,
}

/// All definitions that the lab installs.
pub fn definitions() -> Result<Vec<CustomResourceDefinition>> {
    let mut foos = Foo::crd();
    for version in &mut foos.spec.versions {
        // kube derives one for each kind that has a status.
        version.subresources = None;
    }
    Ok(vec![Pool::crd(), foos])
}

/// A pool with `replicas` of machine type `small`.
pub fn pool(name: &str, replicas: i32) -> Pool {
    let spec = PoolSpec { replicas: Some(replicas), machine: Some("small".to_owned()), note: None };
    Pool::new(name, spec)
}

/// A condition, as of the beginning of time, so that it is equal from run to run.
pub fn condition(type_: &str, status: &str, reason: &str) -> Result<Condition> {
    Ok(serde_json::from_value(json!({
        "type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": "1970-01-01T00:00:00Z",
    }))?)
}
