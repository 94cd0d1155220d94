//! What the steps of the scale-down hand to each other: the candidates, the pods that may have to move, the decisions.

use k8s_openapi::jiff::Timestamp;
use shared_crds::v1alpha1::UnneededNode;

use super::budgets::BudgetId;
use super::utilization::Utilization;
use crate::index::{Indexed, PassNodeIndex, PodIndex, PoolIndex};
use crate::reasons::NodeReason;

/// A node whose removal nothing prevents so far.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// Its pool.
    pub pool: PoolIndex,
    /// The node.
    pub node: PassNodeIndex,
    /// Whether it has to be drained first.
    pub drains: bool,
    /// Its utilization.
    pub utilization: Utilization,
    /// Since when it is unneeded, provided that its pods have places.
    pub since: Timestamp,
    /// The pods that need places, sorted.
    pub pods: Vec<PodIndex>,
    /// How many disruptions of which budget its removal needs.
    pub disruptions: Vec<(BudgetId, usize)>,
}

/// A reason, and its details in this case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemovalVerdict {
    /// The reason.
    pub reason: NodeReason,
    /// The message for users.
    pub message: String,
}

impl From<NodeReason> for RemovalVerdict {
    fn from(reason: NodeReason) -> Self {
        Self { reason, message: reason.sentence().to_owned() }
    }
}

/// The decisions about the nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScaleDown {
    /// The verdict on each node.
    pub verdicts: Indexed<PassNodeIndex, Option<RemovalVerdict>>,
    /// The nodes of each pool that are removed.
    pub victims: Indexed<PoolIndex, Vec<PassNodeIndex>>,
    /// The unneeded nodes of each pool, and since when they are unneeded.
    pub unneeded: Indexed<PoolIndex, Vec<UnneededNode>>,
    /// When the next node may be removed, or stops counting as starting, if nothing changes before.
    pub next: Option<Timestamp>,
}

/// Nodes that are or may be removed, and pods that may have to move: the input for creating a
/// [`RemainingNodes`](super::RemainingNodes).
#[derive(Clone, Debug, Default)]
pub(crate) struct MovingPods {
    /// The nodes, in the order in which they are removed: first those that are removed whatever is decided here.
    pub nodes: Vec<PassNodeIndex>,
    /// Every pod that may have to move, sorted.
    pub pods: Vec<PodIndex>,
}
