//! The changes to a snapshot, as they are remembered to be reverted.

use super::node_index::NodeIndex;
use crate::requirements::pod_class::PodClassId;

/// A change.
#[derive(Clone, Copy, Debug)]
pub(super) enum UndoEntry {
    /// Pods were placed on a node.
    Placed(NodeIndex, PodClassId, usize),
    /// Pods were removed from a node.
    Evicted(NodeIndex, PodClassId, usize),
    /// A node was added at the end.
    Opened,
    /// An open node was closed.
    Closed(NodeIndex),
    /// A node was cordoned.
    Cordoned(NodeIndex),
    /// A node was retired.
    Retired(NodeIndex),
}
