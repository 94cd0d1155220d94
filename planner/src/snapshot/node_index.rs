//! Which node of the snapshot is meant, and what it stands for.

use crate::index::{PassNodeIndex, PoolIndex, index_type};

/// Index of a node in a [`ClusterSnapshot`](super::ClusterSnapshot).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeIndex(pub(crate) usize);
index_type!(NodeIndex);

/// Identifies a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// An existing node, by its index in the pass.
    Node(PassNodeIndex),
    /// A node of that pool that was requested and does not exist yet.
    Upcoming(PoolIndex),
    /// A node of that pool that only this plan adds.
    Planned(PoolIndex),
}
