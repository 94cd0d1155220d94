//! The template of a pool's nodes, with which planning works from zero nodes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// What one node of the pool looks like.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeTemplate {
    /// metadata holds labels and annotations that every node of the pool gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<NodeTemplateMetadata>,
    /// spec holds what the scheduler uses: taints and capacity.
    pub spec: NodeTemplateSpec,
}

/// Labels and annotations of the pool's nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeTemplateMetadata {
    /// labels that every node of the pool carries, beside the pool's own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::labels")]
    pub labels: BTreeMap<String, String>,
    /// annotations that every node of the pool carries.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::annotations")]
    pub annotations: BTreeMap<String, String>,
}

/// The properties that the scheduler uses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(self.reserved) || !has(self.capacity) || self.reserved.all(name, name in self.capacity)",
        "message": "reserved may only name resources that capacity names",
        "fieldPath": ".reserved"
    }
]))]
pub struct NodeTemplateSpec {
    /// taints that the nodes keep for as long as they live.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key", "effect"]))]
    pub taints: Vec<NodeTaint>,
    /// startupTaints that a node is created with and that another component removes once the node is ready. The planner
    /// ignores them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key", "effect"]))]
    pub startup_taints: Vec<NodeTaint>,
    /// capacity of one node, by resource name. cpu and memory are required, unless the provider is clusterApi: what is not
    /// named here is then what the scale-from-zero annotations of Cluster API say. pods is 110 when neither does.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::resources")]
    pub capacity: BTreeMap<String, Quantity>,
    /// reserved is the part of capacity that pods cannot have; allocatable is capacity less reserved.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::reserved")]
    pub reserved: BTreeMap<String, Quantity>,
}

/// A taint of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeTaint {
    /// key of the taint, a qualified name.
    #[schemars(
        length(min = 1, max = 317),
        regex(pattern = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
    )]
    pub key: String,
    /// value of the taint; empty when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), regex(pattern = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"))]
    pub value: Option<String>,
    /// effect on pods that do not tolerate the taint.
    pub effect: TaintEffect,
}

/// What a taint does to pods that do not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum TaintEffect {
    /// New pods are not placed on the node.
    NoSchedule,
    /// The scheduler avoids the node when it can.
    PreferNoSchedule,
    /// New pods are not placed on the node, and running ones are evicted.
    NoExecute,
}

impl TaintEffect {
    /// The effect's name in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }
}

impl From<&NodeTaint> for Taint {
    fn from(taint: &NodeTaint) -> Self {
        Self {
            key: taint.key.clone(),
            value: taint.value.clone(),
            effect: taint.effect.as_str().to_owned(),
            time_added: None,
        }
    }
}
