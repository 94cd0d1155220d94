//! What scale-down needs from the cluster: whether the pods of a node have places on other nodes, all at the same time.

use crate::index::{PassNodeIndex, PodIndex};

/// The nodes that stay, and their free capacity. Answers depend on earlier calls: removed nodes take no pods any more,
/// and moved pods occupy their new places.
pub(crate) trait RemainingNodes {
    /// Removes `node` and gives each of `pods`, and each pod that moved to it before, a place on a remaining node: one
    /// where it can be while `node` is drained, and one where it can be after that.
    ///
    /// # Errors
    ///
    /// A pod without a place; then nothing has changed.
    fn leave(&mut self, node: PassNodeIndex, pods: &[PodIndex]) -> Result<(), PodIndex>;

    /// What [`Self::leave`] would return. Nothing changes.
    ///
    /// # Errors
    ///
    /// As there.
    fn could_leave(&mut self, node: PassNodeIndex, pods: &[PodIndex]) -> Result<(), PodIndex>;

    /// Removes a node that is removed in any case, and gives places to as many of its pods as possible.
    fn abandon(&mut self, node: PassNodeIndex, pods: &[PodIndex]);
}
