//! `NodePool`: a set of like nodes. Its spec belongs to the user, `spec.replicas` to its scaler, and its status to both
//! operators, field by field ([`crate::ownership`]).

#![expect(clippy::duplicated_attributes, reason = "each printer column repeats the names of its parts")]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::disruption::{DisruptionBudget, DisruptionSpec};
use super::provider::ProviderSpec;
use super::repair::RepairSpec;
use super::rollout::RolloutSpec;
use super::status::NodePoolStatus;
use super::template::NodeTemplate;

/// spec is what the user wants: how many nodes, of what kind, from where.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tandem.dev",
    version = "v1alpha1",
    kind = "NodePool",
    plural = "nodepools",
    shortname = "npool",
    category = "tandem",
    namespaced,
    status = "NodePoolStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "NodePool is a set of nodes that are alike. The NodePool operator makes and removes nodes until there are as many as spec.replicas asks for; the Autoscaler operator, a person, an HPA or KEDA sets spec.replicas through the scale subresource.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    selectable = ".status.autoscaling.autoscaler",
    printcolumn(
        name = "Desired",
        type_ = "integer",
        json_path = ".spec.replicas",
        description = "Nodes asked for"
    ),
    printcolumn(
        name = "Current",
        type_ = "integer",
        json_path = ".status.replicas",
        description = "Nodes that exist"
    ),
    printcolumn(
        name = "Ready",
        type_ = "integer",
        json_path = ".status.readyReplicas",
        description = "Nodes that are Ready"
    ),
    printcolumn(
        name = "Min",
        type_ = "integer",
        json_path = ".spec.minReplicas",
        description = "Lower bound for every writer"
    ),
    printcolumn(
        name = "Max",
        type_ = "integer",
        json_path = ".spec.maxReplicas",
        description = "Upper bound for every writer"
    ),
    printcolumn(
        name = "Autoscaler",
        type_ = "string",
        json_path = ".status.autoscaling.autoscaler",
        description = "NodePoolAutoscaler that plans this pool"
    ),
    printcolumn(
        name = "Status",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].reason",
        description = "Why the pool is Ready or not"
    ),
    printcolumn(
        name = "Up-To-Date",
        type_ = "integer",
        json_path = ".status.upToDateReplicas",
        priority = "1",
        description = "Nodes made from the current template"
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].message",
        priority = "1",
        description = "What the pool waits for"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "Time since the pool was made"
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "has(self.provider.clusterApi) || (has(self.template.spec.capacity) && 'cpu' in self.template.spec.capacity && 'memory' in self.template.spec.capacity)",
        "message": "capacity must name at least cpu and memory, or no pod can be planned onto the pool",
        "fieldPath": ".template.spec.capacity"
    },
    {
        "rule": "self.minReplicas <= self.maxReplicas",
        "message": "minReplicas must not be above maxReplicas: lower the one or raise the other",
        "fieldPath": ".minReplicas"
    },
    {
        "rule": "!has(self.replicas) || (oldSelf.hasValue() && has(oldSelf.value().replicas) && oldSelf.value().replicas == self.replicas) || (self.replicas >= self.minReplicas && self.replicas <= self.maxReplicas)",
        "message": "replicas must lie between minReplicas and maxReplicas: choose a number within the bounds, or change the bounds first",
        "fieldPath": ".replicas",
        "optionalOldSelf": true
    }
]))]
pub struct NodePoolSpec {
    /// replicas is the number of nodes wanted. Leave it out of manifests when something scales the pool: where it is
    /// unset nodepool-operator fills in the number of existing nodes, within the bounds, so a new pool starts at
    /// minReplicas and taking the field out of a manifest removes no node. It has no default, because a removed default
    /// would reset what an autoscaler wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub replicas: Option<i32>,
    /// minReplicas is the lower bound for every writer of replicas.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100_000))]
    pub min_replicas: i32,
    /// maxReplicas is the upper bound for every writer of replicas.
    #[schemars(range(min = 0, max = 100_000))]
    pub max_replicas: i32,
    /// weight of the pool for autoscalers whose expander is Priority: the highest grows first. 1 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub weight: Option<i32>,
    /// template says what one node of the pool looks like.
    pub template: NodeTemplate,
    /// provider configures what creates the machines of the nodes.
    pub provider: ProviderSpec,
    /// drain says how pods leave a node before it is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainSpec>,
    /// repair says when a node that was Ready is replaced because it is unhealthy. When absent: after its condition Ready was
    /// False or Unknown for 600 s, while no more than 20% of the nodes are unhealthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repair: Option<RepairSpec>,
    /// rollout says how nodes that are out of date are replaced. When absent: step by step, one node more than wanted at a
    /// time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutSpec>,
    /// disruption bounds how many nodes may be disrupted at a time by decisions of the operators, why, and when. Deleting
    /// the pool waits for no window, and deleting a Node for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disruption: Option<DisruptionSpec>,
    /// provisioningTimeoutSeconds is how long a new node may take to become Ready before it is replaced, and how long
    /// the planner counts on it. nodepool-operator replaces only nodes that it has watched for that long, so after a
    /// restart of the operator the full time starts again for nodes that are starting.
    #[serde(default = "default_provisioning_timeout")]
    #[schemars(range(min = 1, max = 86_400))]
    pub provisioning_timeout_seconds: i32,
    /// paused stops both operators from changing anything about this pool; status is still reported, and it is still
    /// recorded on a node that it has been Ready.
    #[serde(default)]
    pub paused: bool,
}

/// 15 minutes, Cluster Autoscaler's `--max-node-provision-time`.
const fn default_provisioning_timeout() -> i32 {
    900
}

/// How pods leave a node before it is removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.onTimeout != 'GiveBack' || (has(self.timeoutSeconds) && self.timeoutSeconds > 0)",
    "message": "onTimeout GiveBack needs a timeout: set timeoutSeconds above 0",
    "fieldPath": ".onTimeout"
}]))]
pub struct DrainSpec {
    /// timeoutSeconds is how long the drain of a node may take; absent or 0 means no limit, so that a disruption budget
    /// is never violated. Pods are evicted, which a budget can delay. What happens at the end of the time is said by
    /// onTimeout. Choose it well above the grace periods of the pods. nodepool-operator has to watch the drain for that long itself, so after a restart of the operator the
    /// full time of a drain starts again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 604_800))]
    pub timeout_seconds: Option<i32>,
    /// onTimeout says what happens to a drain that takes longer than timeoutSeconds. With Force a pod is deleted regardless
    /// of its budget when no more than its grace period is left, so it has that period to end in; the node is removed
    /// when its pods have ended, or 10 s after their grace periods. With the other value no budget is violated; the node
    /// is uncordoned and stays, and is drained again at the earliest after another timeoutSeconds.
    #[serde(default)]
    pub on_timeout: DrainTimeoutAction,
    /// protectedNodes says what a lower number of replicas does to nodes that ask to be left alone, by annotation, or
    /// whose pods do: cluster-autoscaler.kubernetes.io/safe-to-evict, cluster-autoscaler.kubernetes.io/scale-down-disabled
    /// and karpenter.sh/do-not-disrupt. Wait: such a node is not chosen, and such a pod is not evicted;
    /// onTimeout Force ends its wait, too. The pool has more nodes than it should until then, and says which ones and why. Last: such a
    /// node is chosen after all others, and then drained like them. Deleting the pool takes such nodes
    /// last; deleting the Node is not held up.
    #[serde(default)]
    pub protected_nodes: ProtectedNodes,
    /// volumeDetachTimeoutSeconds is how long a node without pods waits for its volumes to be detached, counted from when
    /// nodepool-operator first sees that only they are left; 300 when absent, 0 not to wait. A machine that ends with a
    /// volume attached can keep it from being attached elsewhere for minutes. The volumes of pods that stay with the node
    /// do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 86_400))]
    pub volume_detach_timeout_seconds: Option<i32>,
}

impl DrainSpec {
    /// `volumeDetachTimeoutSeconds` where it is absent. Attaching and detaching take seconds as a rule; the attach-detach
    /// controller itself gives a node 6 minutes to unmount a volume.
    pub const DEFAULT_VOLUME_DETACH_TIMEOUT_SECONDS: i32 = 300;
}

/// What a lower number of replicas does to nodes that ask to be left alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ProtectedNodes {
    /// They stay as long as they ask for it.
    #[default]
    Wait,
    /// They are removed after all others.
    Last,
}

/// What happens to a drain that takes too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum DrainTimeoutAction {
    /// The pods are deleted.
    #[default]
    Force,
    /// The node is given back.
    GiveBack,
}

impl NodePool {
    /// The capacity of one node: what the template names, and what the provider says of the rest.
    pub fn capacity(&self) -> BTreeMap<String, Quantity> {
        let said = self.status.as_ref().and_then(|status| status.provisioning.as_ref());
        let mut capacity = said.map(|provisioning| provisioning.capacity.clone()).unwrap_or_default();
        capacity.extend(self.spec.template.spec.capacity.clone());
        capacity
    }
}

impl NodePoolSpec {
    /// The number of nodes the pool should have: `replicas` within the bounds, `minReplicas` when unset. Where the
    /// bounds cross (which the schema refuses), the upper one wins.
    pub fn effective_replicas(&self) -> i32 {
        self.replicas_or(self.min_replicas)
    }

    /// The number of nodes the pool should have when `present` exist: like
    /// [`effective_replicas`](Self::effective_replicas), but an unset count means the existing ones.
    pub fn replicas_or(&self, present: i32) -> i32 {
        self.within_bounds(self.replicas.unwrap_or(present))
    }

    /// The budgets of `spec.disruption`; empty when it is absent.
    pub fn disruption_budgets(&self) -> &[DisruptionBudget] {
        self.disruption.as_ref().map_or(&[], |disruption| &disruption.budgets)
    }

    /// The number nearest to `replicas` within the bounds.
    pub fn within_bounds(&self, replicas: i32) -> i32 {
        replicas.max(self.min_replicas).min(self.max_replicas).max(0)
    }
}
