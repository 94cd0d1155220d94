//! `NodePoolAutoscaler`: which pools the Autoscaler operator plans, and how carefully it removes nodes.

#![expect(clippy::duplicated_attributes, reason = "each printer column repeats the names of its parts")]
#![expect(clippy::doc_markdown, reason = "these comments are also what kubectl explain prints")]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// spec says which pools are planned, and how.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    /// onContested says what happens when another writer has changed a pool's replicas since the autoscaler last wrote
    /// them.
    #[serde(default)]
    #[schemars(default)]
    pub on_contested: OnContested,
    /// expander says which pool grows when several could.
    #[serde(default)]
    #[schemars(default)]
    pub expander: Expander,
    /// headroom is capacity kept free: pods that do not exist are planned after all others, and nodes they need stay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub headroom: Vec<Headroom>,
    /// expendablePodsPriorityCutoff is the priority below which pods are expendable: no pool grows for them, and they keep
    /// no node, unless an annotation of theirs asks for that. Where there is headroom, they keep nodes as other pods do.
    /// Pods without a priority have 0.
    #[serde(default = "cutoff")]
    #[schemars(range(min = -2_147_483_648, max = 1_000_000_000))]
    pub expendable_pods_priority_cutoff: i32,
    /// behavior limits how quickly pools grow and shrink, as that of a HorizontalPodAutoscaler does. An absent direction
    /// is not limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behavior: Option<ScalingBehavior>,
    /// scaleDown says when nodes are removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_down: Option<ScaleDownSpec>,
    /// schedules replace the bounds of every selected pool for some time. Where they overlap, the highest minimum and the
    /// lowest maximum hold; where those cross, the minimum does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub schedules: Vec<Schedule>,
}

/// Cluster Autoscaler's `--expendable-pods-priority-cutoff`.
const fn cutoff() -> i32 {
    -10
}

impl Default for NodePoolAutoscalerSpec {
    fn default() -> Self {
        Self {
            node_pool_selector: LabelSelector::default(),
            mode: AutoscalerMode::default(),
            on_contested: OnContested::default(),
            expander: Expander::default(),
            headroom: Vec::new(),
            expendable_pods_priority_cutoff: cutoff(),
            behavior: None,
            scale_down: None,
            schedules: Vec::new(),
        }
    }
}

/// What happens to a pool whose replicas another writer has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum OnContested {
    /// The pool keeps the other writer's number for ten minutes after the autoscaler saw it; bounds are still enforced.
    /// Then the pool is planned again, from that number. A further change by another writer starts another ten minutes.
    #[default]
    Yield,
    /// The autoscaler continues from the number that it wrote itself, and reports the writer that it overruled.
    Reclaim,
}

/// Which pool grows when several could. The names are those of Cluster Autoscaler's expanders. A pool whose new nodes would
/// have GPUs for pods that ask for none comes after the others, except by Random, and by Priority where weights differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Expander {
    /// The pool whose new nodes would have the least cpu, memory and GPUs left unused.
    #[default]
    LeastWaste,
    /// The pool with the highest spec.weight.
    Priority,
    /// The pool whose new nodes take the most pods.
    MostPods,
    /// The pool that needs the fewest new nodes.
    LeastNodes,
    /// Any of them.
    Random,
}

/// Capacity kept free, as pods that do not exist.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Headroom {
    /// count of pods that room is kept for.
    #[schemars(range(min = 1, max = 100_000))]
    pub count: i32,
    /// requests of one of them, by resource name.
    #[schemars(schema_with = "schema::resources")]
    pub requests: BTreeMap<String, Quantity>,
}

/// How quickly pools grow and shrink.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScalingBehavior {
    /// scaleUp limits how quickly pools grow; absent means not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_up: Option<ScalingRules>,
    /// scaleDown limits how quickly pools shrink; absent means not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_down: Option<ScalingRules>,
}

/// The limits of one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScalingRules {
    /// stabilizationWindowSeconds is how far back decisions are looked at: a pool grows to the lowest and shrinks to the
    /// highest number of nodes that was wanted in that time. 0 or absent means no stabilisation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 3600))]
    pub stabilization_window_seconds: Option<i32>,
    /// selectPolicy says which of the policies holds when there are several; Max, the most change, when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub select_policy: Option<SelectPolicy>,
    /// policies limit the change within a period. Without any, the change is not limited.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub policies: Vec<ScalingPolicy>,
}

/// Which of several policies holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum SelectPolicy {
    /// The one that allows the most change.
    #[default]
    Max,
    /// The one that allows the least change.
    Min,
    /// None: the pool does not change in this direction. Bounds are still enforced.
    Disabled,
}

/// A limit of the change within a period.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScalingPolicy {
    /// type says what value counts.
    #[serde(rename = "type")]
    pub kind: ScalingPolicyType,
    /// value is the number of nodes, or the percentage of the pool's nodes at the beginning of the period.
    #[schemars(range(min = 1, max = 100_000))]
    pub value: i32,
    /// periodSeconds is how long the limit looks back.
    #[schemars(range(min = 1, max = 3600))]
    pub period_seconds: i32,
}

/// What the value of a policy counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ScalingPolicyType {
    /// Nodes.
    Nodes,
    /// Percent of the pool's nodes at the beginning of the period.
    Percent,
}

/// Other bounds for some time, again and again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "has(self.minReplicas) || has(self.maxReplicas)",
        "message": "a schedule must set minReplicas, maxReplicas, or both"
    },
    {
        "rule": "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
        "message": "minReplicas must not be above maxReplicas: lower the one or raise the other",
        "fieldPath": ".minReplicas"
    }
]))]
pub struct Schedule {
    /// name of the schedule, for messages.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// schedule says when the bounds begin to hold: minute, hour, day of month, month, day of week, as in cron.
    #[schemars(length(min = 9, max = 256))]
    pub schedule: String,
    /// timeZone that schedule is read in, a name of the IANA database such as Europe/Berlin; UTC when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: Option<String>,
    /// durationSeconds is how long they hold, measured in elapsed time also where clocks are put forward or back.
    #[schemars(range(min = 1, max = 2_678_400))]
    pub duration_seconds: i32,
    /// minReplicas replaces that of every selected pool; absent leaves theirs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub min_replicas: Option<i32>,
    /// maxReplicas replaces that of every selected pool; absent leaves theirs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub max_replicas: Option<i32>,
}

/// What happens to decisions.
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

/// When nodes are removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleDownSpec {
    /// utilizationThresholdPercent is the share of a node's cpu, and of its memory, below which the node is removed if
    /// its pods fit on other nodes; of a node with GPUs, the share of these alone. 0 means that only nodes whose pods
    /// request nothing are removed.
    #[serde(default = "half")]
    #[schemars(range(min = 0, max = 100))]
    pub utilization_threshold_percent: i32,
    /// unneededSeconds is how long a node must have been unneeded before it is removed; 0 means at once.
    #[serde(default = "ten_minutes")]
    #[schemars(range(min = 0, max = 604_800))]
    pub unneeded_seconds: i32,
    /// delayAfterAddSeconds is how long after the last scale-up of a pool none of its nodes is removed; 0 means no delay.
    #[serde(default = "ten_minutes")]
    #[schemars(range(min = 0, max = 604_800))]
    pub delay_after_add_seconds: i32,
    /// maxNodes is how many nodes of all pools of this autoscaler may be removed at the same time; absent means any
    /// number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub max_nodes: Option<i32>,
    /// ignoreDaemonSetsUtilization leaves pods of DaemonSets and static pods out of what utilizationThresholdPercent
    /// measures: neither they nor what they request of the node count.
    #[serde(default)]
    pub ignore_daemon_sets_utilization: bool,
}

/// Cluster Autoscaler's `--scale-down-unneeded-time` and `--scale-down-delay-after-add`.
const fn ten_minutes() -> i32 {
    600
}

/// Cluster Autoscaler's `--scale-down-utilization-threshold`.
const fn half() -> i32 {
    50
}

impl Default for ScaleDownSpec {
    fn default() -> Self {
        Self {
            utilization_threshold_percent: half(),
            unneeded_seconds: ten_minutes(),
            delay_after_add_seconds: ten_minutes(),
            max_nodes: None,
            ignore_daemon_sets_utilization: false,
        }
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
    /// reason is machine-readable.
    #[schemars(length(max = 64))]
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_the_same_in_code_and_on_the_api_server() {
        let spec: NodePoolAutoscalerSpec = serde_json::from_str(r#"{ "nodePoolSelector": {} }"#).unwrap();
        assert_eq!(spec, NodePoolAutoscalerSpec::default());
        assert_eq!(serde_json::from_str::<ScaleDownSpec>("{}").unwrap(), ScaleDownSpec::default());
    }
}
