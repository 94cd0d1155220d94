//! Whether a pod may run on a node, apart from resources: one file for each of the scheduler's filters, called in the
//! scheduler's order.

pub(crate) mod node_affinity;
pub(crate) mod selector;
pub(crate) mod taints;
pub(crate) mod volumes;

use super::constraints::Constraints;
use crate::reasons::Rejection;
use crate::requirements::node_profile::NodeProfile;

/// The first filter that rejects a pod with these constraints on the node, in kube-scheduler's order.
///
/// # Errors
///
/// The reason why not.
pub(crate) fn admits(constraints: &Constraints, node: &NodeProfile) -> Result<(), Rejection> {
    taints::tolerated(&constraints.tolerations, &node.taints)?;
    selector::matches(&constraints.selector, &node.labels)?;
    node_affinity::matches(constraints.affinity.as_deref(), node)?;
    volumes::usable(&constraints.volumes, node)
}
