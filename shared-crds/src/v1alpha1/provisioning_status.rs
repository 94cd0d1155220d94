//! `status.provisioning`: what is remembered about the provider of a pool.

#![expect(clippy::doc_markdown, reason = "these comments are also what kubectl explain prints")]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// What the NodePool operator remembers about the provider of a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningStatus {
    /// failures is how often in a row the provider failed to make a node. The wait before the next request grows with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub failures: Option<i32>,
    /// retryTime is when the provider is asked again; nothing is requested before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_time: Option<Time>,
    /// failure is why the pool's provider makes no nodes; absent while there is no reason. After a restart the operator goes on
    /// from it, and the Autoscaler does not count on the pool meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<ProvisioningFailureStatus>,
    /// providers may have machines of the pool: those that were asked for some and have not been seen without any since.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 317)), extend("x-kubernetes-list-type" = "set"))]
    pub providers: Vec<String>,
    /// machines is the number of machines that the operator asked the provider for, or found at first and accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub machines: Option<i32>,
    /// capacity of one node as the provider says it, by resource name. It counts for what the template does not name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::reserved")]
    pub capacity: BTreeMap<String, Quantity>,
    /// contested is the number of machines that another writer set at the provider after the operator, and that writer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contested: Option<ContestedMachines>,
}

/// Why the provider of a pool makes no nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningFailureStatus {
    /// reason is machine-readable, that of the condition ProvisioningHealthy.
    #[schemars(length(max = 64))]
    pub reason: String,
    /// message is for users.
    #[schemars(length(max = 1024))]
    pub message: String,
    /// observedGeneration is the generation of the pool that it was found with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// sinceTime is when the provider first failed without a break, whatever the reasons since.
    pub since_time: Time,
}

/// A number of machines that another writer set at the provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContestedMachines {
    /// machines is the number that it set.
    #[schemars(range(min = 0))]
    pub machines: i32,
    /// writer is the field manager that wrote it; empty if the API server does not record it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub writer: String,
    /// sinceTime is when it was first seen.
    pub since_time: Time,
    /// poolReplicas was the pool's own spec.replicas then. Another number of a person's ends the contest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub pool_replicas: Option<i32>,
}
