//! `NodePool.status`: what both operators observed and decided. Each field has one writer; see [`crate::ownership`].

#![expect(clippy::doc_markdown, reason = "these comments are also what kubectl explain prints")]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    DisruptionReason, OnContested, ProvisioningStatus, ReplacementStatus, RolloutStatus, ScaleDownPlan,
};
use crate::schema;

/// Pods a node takes when its template does not say, the kubelet's default `--max-pods`.
pub const ASSUMED_POD_CAPACITY: i64 = 110;

/// status is what the operators observed and decided; it can be rebuilt from the cluster at any time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolStatus {
    /// conditions of the pool. Ready, Reconciling and Stalled are always present; each type has one writer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// observedGeneration is the generation that the NodePool operator last acted on with success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// replicas is the number of nodes that exist and are not being removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,
    /// readyReplicas is the number of those that are Ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ready_replicas: Option<i32>,
    /// upToDateReplicas is the number of those that are up to date, as spec.rollout says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub up_to_date_replicas: Option<i32>,
    /// unavailableReplicas is the number of wanted nodes that are not Ready yet or do not exist yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub unavailable_replicas: Option<i32>,
    /// selector matches the pool's nodes; the scale subresource serves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub selector: Option<String>,
    /// nodes counts the pool's nodes by state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NodesSummary>,
    /// provisioning is what the NodePool operator remembers about the pool's provider; stored here, it survives a restart
    /// of the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioning: Option<ProvisioningStatus>,
    /// disruption counts the nodes that are being disrupted, by the reasons of spec.disruption.budgets; absent when there are
    /// none. The Autoscaler draws on the same budgets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disruption: Option<DisruptedNodes>,
    /// rollout is how far the replacement of nodes that are out of date has come; absent when there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutStatus>,
    /// replacement says whether nodes are being replaced because they are out of date, by the operator or by the provider. The
    /// Autoscaler removes none meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacement: Option<ReplacementStatus>,
    /// autoscaling is what the Autoscaler operator decided about this pool. Only the Autoscaler writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscaling: Option<AutoscalingStatus>,
}

/// The pool's nodes by state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodesSummary {
    /// provisioning nodes were requested and have no Node object yet.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub provisioning: i32,
    /// starting nodes exist and have not been Ready yet.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub starting: i32,
    /// ready nodes run pods.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub ready: i32,
    /// notReady nodes were Ready and are not now.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub not_ready: i32,
    /// draining nodes are being removed.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub draining: i32,
}

/// The nodes that are being disrupted, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DisruptedNodes {
    /// scaleDown nodes are too many.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub scale_down: i32,
    /// rollout nodes are of another template.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub rollout: i32,
    /// repair nodes are unhealthy.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub repair: i32,
    /// expiry nodes are too old.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub expiry: i32,
}

impl DisruptedNodes {
    /// Counts the reasons of nodes; `None` when there are none.
    pub fn count(reasons: impl IntoIterator<Item = DisruptionReason>) -> Option<Self> {
        let mut counts = Self::default();
        for reason in reasons {
            let count = match reason {
                DisruptionReason::ScaleDown => &mut counts.scale_down,
                DisruptionReason::Rollout => &mut counts.rollout,
                DisruptionReason::Repair => &mut counts.repair,
                DisruptionReason::Expiry => &mut counts.expiry,
            };
            *count = count.saturating_add(1);
        }
        (counts != Self::default()).then_some(counts)
    }

    /// One reason for each node.
    pub fn reasons(&self) -> impl Iterator<Item = DisruptionReason> {
        let Self { scale_down, rollout, repair, expiry } = *self;
        let counts = [
            (DisruptionReason::ScaleDown, scale_down),
            (DisruptionReason::Rollout, rollout),
            (DisruptionReason::Repair, repair),
            (DisruptionReason::Expiry, expiry),
        ];
        counts.into_iter().flat_map(|(reason, count)| {
            std::iter::repeat_n(reason, usize::try_from(count).unwrap_or_default())
        })
    }
}

/// What the Autoscaler operator decided about a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AutoscalingStatus {
    /// autoscaler is the name of the NodePoolAutoscaler that plans this pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub autoscaler: Option<String>,
    /// desiredReplicas is the number of nodes the Autoscaler wants, also where it only recommends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub desired_replicas: Option<i32>,
    /// lastScaleUpTime is when the Autoscaler last raised replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_scale_up_time: Option<Time>,
    /// lastDecision is the last change of replicas that the Autoscaler decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_decision: Option<Decision>,
    /// writtenReplicas is spec.replicas as the Autoscaler last wrote or accepted it. Another number in spec.replicas is
    /// from another writer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub written_replicas: Option<i32>,
    /// contested is the number that another writer set in spec.replicas after the Autoscaler, and that writer; it is
    /// kept for ten minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contested: Option<ContestedReplicas>,
    /// onContested is that of the autoscaler, for the numbers of machines that other writers set at the pool's provider.
    /// Yield if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_contested: Option<OnContested>,
    /// discovered is what the pool's nodes have and run, where the template does not say so. New nodes are planned with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discovered: Option<DiscoveredResources>,
    /// scaleDown names the nodes to remove once the Autoscaler has set replicas to its targetReplicas. The NodePool
    /// operator then removes no other node, so both operators always mean the same nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_down: Option<ScaleDownPlan>,
    /// unneededNodes are the nodes that no pod needs, and since when; stored here, they survive a restart of the
    /// Autoscaler.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub unneeded_nodes: Vec<UnneededNode>,
    /// recommendations are the numbers of nodes that were wanted within the stabilisation windows, the oldest first;
    /// stored here, they survive a restart of the Autoscaler.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "atomic"))]
    pub recommendations: Vec<Recommendation>,
    /// scaleEvents are the changes of replicas within the periods of the policies, the oldest first; stored
    /// here, they survive a restart of the Autoscaler.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "atomic"))]
    pub scale_events: Vec<ScaleEvent>,
}

/// A number of nodes that another writer set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContestedReplicas {
    /// replicas is the number that it set.
    #[schemars(range(min = 0))]
    pub replicas: i32,
    /// writer is the field manager that wrote it; empty if the API server does not record it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub writer: String,
    /// sinceTime is when it was first seen.
    pub since_time: Time,
}

/// What the pool's Ready nodes have and run, where the template does not say so.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveredResources {
    /// allocatable is what a Ready node of the template gives pods: the largest amount that one has, for each resource of which
    /// the template leaves more to pods, and the smallest, for each that the template does not name.
    #[schemars(schema_with = "schema::reserved")]
    pub allocatable: BTreeMap<String, Quantity>,
    /// labels are those that all Ready nodes of the template share and that the template does not set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::node_labels")]
    pub labels: BTreeMap<String, String>,
    /// varying names labels, and resources that the template does not name, which the nodes once shared and no longer do. New
    /// nodes are not expected to have them until several nodes, and all of them, share them again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), inner(length(max = 317)), extend("x-kubernetes-list-type" = "set"))]
    pub varying: Vec<String>,
    /// pods run on every Ready node of the template and ask for something that no DaemonSet's template says: static pods, pods
    /// that count as those of a DaemonSet, and a DaemonSet's own pods if they ask for other amounts than its template.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub pods: Vec<DiscoveredPod>,
    /// templateHash is that of the nodes' template.
    #[schemars(length(max = 64))]
    pub template_hash: String,
    /// untilTime is when the first of pods and the amounts below the template's no longer counts: an hour after the last such
    /// node, or later as beliefs say. Absent while there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_time: Option<Time>,
    /// beliefs are what has kept pods away from nodes of the template, where that outlives the nodes or was tried anew: each time
    /// that it is learnt again it is believed for twice as long, from one hour up to 24.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub beliefs: Vec<DiscoveredBelief>,
}

/// Something that has kept pods away from the nodes of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveredBelief {
    /// kind says what it is.
    pub kind: BeliefKind,
    /// name is that of the resource, or the key of the taint; empty for pods.
    #[schemars(length(max = 317))]
    pub name: String,
    /// value of the taint; empty if it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub value: String,
    /// effect of the taint; empty for what is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 16))]
    pub effect: String,
    /// times is how often it was learnt again after it had no longer counted, up to 5.
    #[schemars(range(min = 0, max = 5))]
    pub times: i32,
    /// untilTime is when it no longer counts, or since when it does not. Absent while nodes show it that have less of a resource,
    /// or run pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_time: Option<Time>,
}

/// What keeps pods away from the nodes of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BeliefKind {
    /// The nodes have less of a resource than the template leaves to pods.
    Resource,
    /// Pods that run on every node.
    Pods,
    /// The nodes keep a startup taint.
    StartupTaint,
    /// The nodes share a taint that the template does not name.
    Taint,
}

/// A pod that every node of a pool runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveredPod {
    /// kind is that of the pod's controller; Node for a static pod, Pod for one without a controller.
    #[schemars(length(max = 63))]
    pub kind: String,
    /// namespace is that of the pod.
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// name is that of the pod's controller. That of a pod without one, or of a static pod, is its own without its node's.
    #[schemars(length(max = 253))]
    pub name: String,
    /// requests are what the one that started last asks for.
    #[schemars(schema_with = "schema::reserved")]
    pub requests: BTreeMap<String, Quantity>,
    /// hostPorts are those that it takes on its node, up to 64; none of a pod of a DaemonSet, whose template says them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub host_ports: Vec<DiscoveredHostPort>,
    /// labels are up to 16 of the pod's, for the anti-affinity of others. None that say where a pod is, which of several it is, or
    /// of which revision, and none of a pod of a DaemonSet, whose template says them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::pod_labels")]
    pub labels: BTreeMap<String, String>,
    /// templateGeneration is that of the DaemonSet of a pod of one: what pods of another template ask for does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub template_generation: Option<i64>,
}

/// A port that a pod takes on its node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveredHostPort {
    /// protocol is TCP, UDP or SCTP.
    #[schemars(length(max = 8))]
    pub protocol: String,
    /// port is its number.
    #[schemars(range(min = 1, max = 65_535))]
    pub port: i32,
    /// hostIP is the address of the node on which the pod takes it; absent if on all of them.
    #[serde(rename = "hostIP", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub host_ip: Option<String>,
}

/// A number of nodes that was wanted from some time on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Recommendation {
    /// replicas is the number that was wanted.
    #[schemars(range(min = 0))]
    pub replicas: i32,
    /// time from which on it was wanted; until that of the next recommendation.
    pub time: Time,
}

/// A change of replicas that the Autoscaler made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleEvent {
    /// change is how many nodes were added; negative when they were removed.
    #[schemars(range(min = -100_000, max = 100_000))]
    pub change: i32,
    /// time of the change.
    pub time: Time,
}

/// A change of replicas that the Autoscaler decided on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// id identifies the decision.
    #[schemars(length(max = 64))]
    pub id: String,
    /// fromReplicas is what replicas was when the decision was made.
    #[schemars(range(min = 0))]
    pub from_replicas: i32,
    /// toReplicas is what the decision makes it.
    #[schemars(range(min = 0))]
    pub to_replicas: i32,
    /// reason is machine-readable.
    #[schemars(length(max = 64))]
    pub reason: String,
    /// message is for users.
    #[schemars(length(max = 1024))]
    pub message: String,
    /// time of the decision.
    pub time: Time,
}

/// A node that no pod needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnneededNode {
    /// name of the node.
    #[schemars(length(max = 253))]
    pub name: String,
    /// sinceTime is when it was first seen unneeded without a break.
    pub since_time: Time,
}
