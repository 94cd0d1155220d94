//! What a Node's condition `Ready` says.

use k8s_openapi::api::core::v1::{Node, NodeCondition};

/// Whether the Node's `Ready` condition is `True`.
pub fn is_ready(node: &Node) -> bool {
    ready_is(node, "True")
}

/// Whether Kubernetes says that the Node's kubelet does not report any more. One that reports, if only that it is not Ready,
/// runs on a machine.
pub(crate) fn is_silent(node: &Node) -> bool {
    ready_is(node, "Unknown")
}

fn ready_is(node: &Node, status: &str) -> bool {
    let is_it = |condition: &NodeCondition| condition.type_ == "Ready" && condition.status == status;
    node.status.iter().flat_map(|status| status.conditions.iter().flatten()).any(is_it)
}
