//! `spec.provider`: what makes the machines of a pool.

#![expect(clippy::doc_markdown, reason = "these comments are also what kubectl explain prints")]

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// Label and annotation by which kwok recognises the nodes whose kubelets it simulates:
/// <https://kwok.sigs.k8s.io/docs/user/kwok-manage-nodes-and-pods/>.
const KWOK_NODE: &[(&str, &str)] = &[("kwok.x-k8s.io/node", "fake")];

/// The provider of the nodes. Exactly one field is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "[has(self.simulated), has(self.exec), has(self.karpenter), has(self.clusterApi)].filter(it, it).size() == 1",
    "message": "exactly one provider must be set; this version knows: simulated, exec, karpenter, clusterApi"
}]))]
pub struct ProviderSpec {
    /// simulated creates Node objects without machines, for tests, demos and what-if runs; kwok simulates their kubelets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulated: Option<SimulatedProvider>,
    /// exec asks a program that the administrator of nodepool-operator has configured. The machines that it makes
    /// register their Nodes themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec: Option<ExecProvider>,
    /// karpenter makes a NodeClaim for each node, for the Karpenter in this cluster to launch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub karpenter: Option<KarpenterProvider>,
    /// clusterApi sizes a MachineDeployment of Cluster API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_api: Option<ClusterApiProvider>,
}

impl ProviderSpec {
    /// The provider as nodes, messages and metrics name it: the field that is set, and what tells two of a kind apart.
    /// `None` where no field is set, or more than one, or one that this version does not know.
    pub fn reference(&self) -> Option<String> {
        match (&self.simulated, &self.exec, &self.karpenter, &self.cluster_api) {
            (Some(_), None, None, None) => Some("simulated".to_owned()),
            (None, Some(exec), None, None) => Some(format!("exec.{}", exec.name)),
            (None, None, Some(_), None) => Some("karpenter".to_owned()),
            (None, None, None, Some(capi)) => {
                Some(format!("clusterApi.{}", capi.machine_deployment_ref.name))
            }
            _ => None,
        }
    }

    /// Whether the provider replaces machines of an earlier template by itself.
    pub const fn replaces_machines(&self) -> bool {
        self.cluster_api.is_some()
    }

    /// The labels, which are also annotations, that every node has because of its provider, whatever the template says.
    pub const fn node_labels(&self) -> &'static [(&'static str, &'static str)] {
        if self.simulated.is_some() { KWOK_NODE } else { &[] }
    }
}

/// A provider that creates Node objects without machines. What happens to a machine is a function of the pool, its name and
/// the number of the attempt to make it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SimulatedProvider {
    /// provisionSeconds is the time between the request for a node and its Node object.
    #[serde(default)]
    #[schemars(range(min = 0, max = 3600))]
    pub provision_seconds: i32,
    /// jitterSeconds is added to provisionSeconds, from zero up to this, another value for each node.
    #[serde(default)]
    #[schemars(range(min = 0, max = 3600))]
    pub jitter_seconds: i32,
    /// failurePercent of the attempts to create a node fail.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100))]
    pub failure_percent: i32,
    /// quota is the maximum number of nodes that the provider creates for this pool; absent means no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub quota: Option<i32>,
    /// neverRegisterPercent of the machines start and never have a Node.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100))]
    pub never_register_percent: i32,
    /// deathPercent of the nodes die: their heartbeats stop. kwok has to be set up for that, as docs/providers/simulated.md
    /// says.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100))]
    pub death_percent: i32,
    /// deathAfterSeconds is the time between the start of a machine and the death of its node.
    #[serde(default = "defaults::death_after")]
    #[schemars(range(min = 0, max = 86_400))]
    pub death_after_seconds: i32,
    /// undersizedPercent of the nodes are smaller than the template promises.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100))]
    pub undersized_percent: i32,
    /// undersizedByPercent of the template's capacity, and of what the template leaves to pods, is what such a node lacks: of
    /// every resource but pods.
    #[serde(default = "defaults::undersized_by")]
    #[schemars(range(min = 1, max = 99))]
    pub undersized_by_percent: i32,
    /// lie is what is wrong with the provider's list of its machines, for as long as it is set; absent means nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lie: Option<ProviderLie>,
}

/// What is wrong with a list of machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ProviderLie {
    /// It is empty, whatever there is.
    EmptyList,
    /// It has each machine twice.
    DoubleName,
    /// It has a machine that is none of the pool's.
    ForeignName,
}

impl Default for SimulatedProvider {
    /// What `simulated: {}` means.
    fn default() -> Self {
        Self {
            provision_seconds: 0,
            jitter_seconds: 0,
            failure_percent: 0,
            quota: None,
            never_register_percent: 0,
            death_percent: 0,
            death_after_seconds: defaults::death_after(),
            undersized_percent: 0,
            undersized_by_percent: defaults::undersized_by(),
            lie: None,
        }
    }
}

/// Values of absent fields.
mod defaults {
    pub(super) const fn death_after() -> i32 {
        60
    }

    pub(super) const fn undersized_by() -> i32 {
        50
    }
}

/// A provider that is a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecProvider {
    /// name of the program, as the administrator configured it with --exec-provider. A pool can only name a program: it
    /// never contains a command.
    #[schemars(length(min = 1, max = 50), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// parameters are handed to the program as they are. They are no place for secrets: a user who may read the pool reads
    /// them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::parameters")]
    pub parameters: BTreeMap<String, String>,
}

/// A provider that is Karpenter, version 1. Each node is a standalone NodeClaim: no Karpenter NodePool is needed, and
/// Karpenter neither consolidates nor expires it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KarpenterProvider {
    /// nodeClassRef names the NodeClass that says how machines are made, as in a NodeClaim.
    pub node_class_ref: NodeClassReference,
    /// requirements that the machine has to meet beside the template's capacity, as in a NodeClaim: instance types, zones,
    /// capacity types.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub requirements: Vec<MachineRequirement>,
}

/// A reference to a NodeClass. They are cluster-scoped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeClassReference {
    /// group of the NodeClass, such as karpenter.k8s.aws.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub group: String,
    /// kind of the NodeClass, such as EC2NodeClass.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[A-Za-z][A-Za-z0-9]*$"))]
    pub kind: String,
    /// name of the NodeClass.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub name: String,
}

/// A requirement on a label of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineRequirement {
    /// key of the label.
    #[schemars(length(min = 1, max = 316))]
    pub key: String,
    /// operator compares the label with the values.
    pub operator: MachineRequirementOperator,
    /// values to compare with: at least one for In and NotIn, exactly one for Gt and Lt, none otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(max = 63)), extend("x-kubernetes-list-type" = "atomic"))]
    pub values: Vec<String>,
}

/// How a requirement compares a label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum MachineRequirementOperator {
    /// It has one of the values.
    #[default]
    In,
    /// It has none of the values.
    NotIn,
    /// It is there.
    Exists,
    /// It is not there.
    DoesNotExist,
    /// It is a larger number.
    Gt,
    /// It is a smaller number.
    Lt,
}

/// A provider that is a MachineDeployment of Cluster API (cluster.x-k8s.io/v1beta2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterApiProvider {
    /// machineDeploymentRef names the MachineDeployment, in the namespace of the pool. Only one pool may use it, and nothing
    /// else should scale it.
    pub machine_deployment_ref: MachineDeploymentReference,
}

/// A reference to a MachineDeployment in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineDeploymentReference {
    /// name of the MachineDeployment: at most 52 characters, because its nodes carry it in a label.
    #[schemars(length(min = 1, max = 52), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub name: String,
}
