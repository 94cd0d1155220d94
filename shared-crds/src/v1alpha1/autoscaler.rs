//! `NodePoolAutoscaler`: which pools the Autoscaler operator plans, and how carefully it takes nodes away.

#![expect(clippy::duplicated_attributes, reason = "each printer column repeats the names of its parts")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// spec says which pools are planned, and how.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tandem.dev",
    version = "v1alpha1",
    kind = "NodePoolAutoscaler",
    plural = "nodepoolautoscalers",
    shortname = "npa",
    category = "tandem",
    namespaced,
    status = "NodePoolAutoscalerStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "NodePoolAutoscaler sets spec.replicas of the NodePools it selects in its namespace, so that pending pods find a place and nodes that nothing needs go.",
    selectable = ".spec.mode",
    printcolumn(
        name = "Mode",
        type_ = "string",
        json_path = ".spec.mode",
        description = "Auto acts, Recommend only reports, Off does nothing"
    ),
    printcolumn(
        name = "Pools",
        type_ = "integer",
        json_path = ".status.selectedPools",
        description = "Pools selected"
    ),
    printcolumn(
        name = "Pending",
        type_ = "integer",
        json_path = ".status.pendingPods",
        description = "Pods that wait for nodes of these pools"
    ),
    printcolumn(
        name = "Status",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].reason",
        description = "Why the autoscaler is Ready or not"
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].message",
        priority = "1",
        description = "What the autoscaler says"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "Time since the autoscaler was made"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolAutoscalerSpec {
    /// nodePoolSelector picks pools of this namespace by their labels; an empty selector picks them all. A pool that
    /// two autoscalers pick is planned by neither.
    #[schemars(schema_with = "schema::label_selector")]
    pub node_pool_selector: LabelSelector,
    /// mode says whether decisions are written (Auto), only reported (Recommend), or not made (Off).
    #[serde(default)]
    #[schemars(default)]
    pub mode: AutoscalerMode,
    /// scaleDown says when nodes go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_down: Option<ScaleDownSpec>,
}

/// What becomes of decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum AutoscalerMode {
    /// Decisions are written to the pools.
    #[default]
    Auto,
    /// Decisions are reported in status, events and metrics, and not written.
    Recommend,
    /// No decisions are made.
    Off,
}

/// When nodes go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleDownSpec {
    /// unneededSeconds is how long a node must have been unneeded before it goes; 0 means at once.
    #[serde(default = "ten_minutes")]
    #[schemars(range(min = 0, max = 604_800))]
    pub unneeded_seconds: i32,
    /// delayAfterAddSeconds is how long after the last scale-up of a pool none of its nodes goes; 0 means no delay.
    #[serde(default = "ten_minutes")]
    #[schemars(range(min = 0, max = 604_800))]
    pub delay_after_add_seconds: i32,
    /// maxNodes is how many nodes one decision may remove over all pools of this autoscaler; absent means any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub max_nodes: Option<i32>,
}

/// Cluster Autoscaler's `--scale-down-unneeded-time` and `--scale-down-delay-after-add`.
const fn ten_minutes() -> i32 {
    600
}

impl Default for ScaleDownSpec {
    fn default() -> Self {
        Self { unneeded_seconds: ten_minutes(), delay_after_add_seconds: ten_minutes(), max_nodes: None }
    }
}

/// status is what the autoscaler last saw and decided.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolAutoscalerStatus {
    /// conditions of the autoscaler. Ready, Reconciling and Stalled are always present.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// observedGeneration is the generation that was last planned with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// selectedPools is the number of pools selected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub selected_pools: Option<i32>,
    /// pendingPods is the number of pods that wait for nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub pending_pods: Option<i32>,
    /// pools says of each selected pool what was decided, by name, the first hundred.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub pools: Vec<PoolSummary>,
}

/// What was decided about one pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolSummary {
    /// name of the pool.
    #[schemars(length(max = 253))]
    pub name: String,
    /// currentReplicas is what the pool was set to.
    #[schemars(range(min = 0))]
    pub current_replicas: i32,
    /// desiredReplicas is what the autoscaler wants.
    #[schemars(range(min = 0))]
    pub desired_replicas: i32,
    /// reason for machines.
    #[schemars(length(max = 64))]
    pub reason: String,
}
