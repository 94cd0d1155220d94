//! The nodes that a decision removes.

use k8s_openapi::api::core::v1::Node;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The nodes to remove at a count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleDownPlan {
    /// decisionID is the decision this plan belongs to.
    #[serde(rename = "decisionID")]
    #[schemars(length(max = 64))]
    pub decision_id: String,
    /// generation is that which the pool has as soon as the decision's count is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub generation: Option<i64>,
    /// targetReplicas is the value of replicas at which the nodes are removed.
    #[schemars(range(min = 0))]
    pub target_replicas: i32,
    /// nodes are the names of the nodes to remove.
    #[schemars(length(max = 1000), inner(length(max = 253)), extend("x-kubernetes-list-type" = "set"))]
    pub nodes: Vec<String>,
    /// nodeUIDs are the UIDs of the nodes to remove: a later node with the name of one of them stays.
    #[serde(default, rename = "nodeUIDs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000), inner(length(max = 64)), extend("x-kubernetes-list-type" = "set"))]
    pub node_uids: Vec<String>,
}

impl ScaleDownPlan {
    /// Whether the plan means this node, and not a later one with the same name.
    pub fn means(&self, node: &Node) -> bool {
        let metadata = &node.metadata;
        metadata.name.as_ref().is_some_and(|name| self.nodes.contains(name))
            && metadata.uid.as_ref().is_none_or(|uid| self.node_uids.contains(uid))
    }
}
