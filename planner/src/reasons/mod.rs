//! Why: every reason the planner gives, with the name machines read and the sentence people read.
//!
//! Names that Cluster Autoscaler or the scheduler users know are kept. No decision is taken here.

mod rejection;

pub use rejection::Rejection;

/// Why a pool is planned to have as many nodes as it is planned to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PoolReason {
    /// Pending pods need more nodes.
    ScaleUp,
    /// Nodes that nothing needs go.
    ScaleDown,
    /// Fewer nodes than `spec.minReplicas` were asked for.
    BelowMinReplicas,
    /// More nodes than `spec.maxReplicas` were asked for.
    AboveMaxReplicas,
    /// Nobody has asked for a number of nodes.
    ReplicasUnset,
    /// Pending pods need more nodes than `spec.maxReplicas` allows.
    MaxReplicasReached,
    /// As many nodes as are needed.
    DesiredWithinRange,
    /// A policy of `spec.behavior.scaleUp` allows fewer nodes for now.
    ScaleUpLimit,
    /// A policy of `spec.behavior.scaleDown` asks for more nodes for now.
    ScaleDownLimit,
    /// Fewer nodes were wanted within the stabilisation window of `spec.behavior.scaleUp`.
    ScaleUpStabilized,
    /// More nodes were wanted within the stabilisation window of `spec.behavior.scaleDown`.
    ScaleDownStabilized,
    /// Somebody else's number is kept for now.
    ReplicasContested,
    /// Somebody else's number is written over.
    ReplicasReclaimed,
    /// No autoscaler selects the pool.
    NotSelected,
    /// The autoscaler that selects the pool is off.
    AutoscalerOff,
    /// The autoscaler that selects the pool only recommends, and recommendations were not asked for.
    RecommendOnly,
    /// More than one autoscaler selects the pool.
    AmbiguousSelector,
    /// The pool is paused.
    Paused,
    /// The pool is being deleted.
    Deleting,
    /// The pool's template cannot be read.
    InvalidTemplate,
}

impl PoolReason {
    /// The reason's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ScaleUp => "ScaleUp",
            Self::ScaleDown => "ScaleDown",
            Self::BelowMinReplicas => "BelowMinReplicas",
            Self::AboveMaxReplicas => "AboveMaxReplicas",
            Self::ReplicasUnset => "ReplicasUnset",
            Self::MaxReplicasReached => "MaxReplicasReached",
            Self::DesiredWithinRange => "DesiredWithinRange",
            Self::ScaleUpLimit => "ScaleUpLimit",
            Self::ScaleDownLimit => "ScaleDownLimit",
            Self::ScaleUpStabilized => "ScaleUpStabilized",
            Self::ScaleDownStabilized => "ScaleDownStabilized",
            Self::ReplicasContested => "ReplicasContested",
            Self::ReplicasReclaimed => "ReplicasReclaimed",
            Self::NotSelected => "NotSelected",
            Self::AutoscalerOff => "AutoscalerOff",
            Self::RecommendOnly => "RecommendOnly",
            Self::AmbiguousSelector => "AmbiguousSelector",
            Self::Paused => "Paused",
            Self::Deleting => "Deleting",
            Self::InvalidTemplate => "InvalidTemplate",
        }
    }
}

/// Why a node may go, or why not. Names are those of Cluster Autoscaler's unremovable reasons where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeReason {
    /// It goes with this decision, or could.
    Unneeded,
    /// It goes because the pool has more nodes than its bounds allow.
    AboveMaxReplicas,
    /// It belongs to no pool that is planned.
    NotAutoscaled,
    /// It is on its way out already.
    CurrentlyBeingDeleted,
    /// An annotation keeps it.
    ScaleDownDisabledAnnotation,
    /// Pods that are pending now are planned onto it, or it is being cleared for one.
    NeededByPendingPods,
    /// It is not ready yet.
    NotStartedYet,
    /// What it offers, or what its pods ask for, cannot be read.
    UnexpectedError,
    /// Its pods ask for too much of it.
    NotUnderutilized,
    /// A pod on it must not be evicted.
    BlockedByPod,
    /// A pod on it has no place elsewhere.
    NoPlaceToMovePods,
    /// `scaleDown.unneededSeconds` have not passed.
    NotUnneededLongEnough,
    /// `scaleDown.delayAfterAddSeconds` have not passed.
    ScaleDownDelayAfterAdd,
    /// The pool grows in this decision. The node itself could go.
    ScaleUpInProgress,
    /// The pool has more nodes than were asked for, and the `NodePool` operator has yet to say which of them go.
    /// The node itself could go.
    ScaleDownInProgress,
    /// The nodes of the pool are being replaced. The node itself could go.
    RolloutInProgress,
    /// The pool would fall below `spec.minReplicas`. The node itself could go.
    NodeGroupMinSizeReached,
    /// The pool would shrink faster than `behavior.scaleDown` allows. The node itself could go.
    ScaleDownLimit,
    /// `scaleDown.maxNodes` others go first. The node itself could go.
    NodeGroupMaxDeletionCountReached,
    /// Pending pods may be bound to it yet, wherever this pass planned them. The node itself could go.
    SpareForPendingPods,
    /// Others that go first use up a budget that a pod on it is under. The node itself could go.
    BudgetUsedByOthers,
    /// Others that go first take the places of its pods. The node itself could go.
    PlacesTakenByOthers,
}

impl NodeReason {
    /// The reason's name. What others take from a node has the name that it has when nothing is left from the start.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unneeded => "Unneeded",
            Self::AboveMaxReplicas => "AboveMaxReplicas",
            Self::NotAutoscaled => "NotAutoscaled",
            Self::CurrentlyBeingDeleted => "CurrentlyBeingDeleted",
            Self::ScaleDownDisabledAnnotation => "ScaleDownDisabledAnnotation",
            Self::NeededByPendingPods | Self::SpareForPendingPods => "NeededByPendingPods",
            Self::NotStartedYet => "NotStartedYet",
            Self::UnexpectedError => "UnexpectedError",
            Self::NotUnderutilized => "NotUnderutilized",
            Self::BlockedByPod | Self::BudgetUsedByOthers => "BlockedByPod",
            Self::NoPlaceToMovePods | Self::PlacesTakenByOthers => "NoPlaceToMovePods",
            Self::NotUnneededLongEnough => "NotUnneededLongEnough",
            Self::ScaleDownDelayAfterAdd => "ScaleDownDelayAfterAdd",
            Self::ScaleUpInProgress => "ScaleUpInProgress",
            Self::ScaleDownInProgress => "ScaleDownInProgress",
            Self::RolloutInProgress => "RolloutInProgress",
            Self::NodeGroupMinSizeReached => "NodeGroupMinSizeReached",
            Self::ScaleDownLimit => "ScaleDownLimit",
            Self::NodeGroupMaxDeletionCountReached => "NodeGroupMaxDeletionCountReached",
        }
    }

    /// The reason in a sentence, where nothing more precise is known.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Unneeded => "nothing needs the node",
            Self::AboveMaxReplicas => "the pool has more nodes than its bounds allow",
            Self::NotAutoscaled => "the node belongs to no pool that an autoscaler plans now",
            Self::CurrentlyBeingDeleted => "the node is on its way out already",
            Self::ScaleDownDisabledAnnotation => "an annotation of the node keeps it",
            Self::NeededByPendingPods => "pods that are pending now are planned onto the node",
            Self::NotStartedYet => "the node is not ready yet",
            Self::UnexpectedError => "the node cannot be judged",
            Self::NotUnderutilized => "the node's pods ask for too much of it",
            Self::BlockedByPod => "a pod on the node must not be evicted",
            Self::NoPlaceToMovePods => "a pod on the node has no place elsewhere",
            Self::NotUnneededLongEnough => "the node has not been unneeded for scaleDown.unneededSeconds yet",
            Self::ScaleDownDelayAfterAdd => "the pool grew less than scaleDown.delayAfterAddSeconds ago",
            Self::ScaleUpInProgress => "the pool grows in this decision",
            Self::ScaleDownInProgress => "the pool has more nodes than were asked for and shrinks already",
            Self::RolloutInProgress => "the nodes of the pool are being replaced",
            Self::NodeGroupMinSizeReached => "the pool would fall below its lower bound",
            Self::ScaleDownLimit => "the pool would shrink faster than behavior.scaleDown allows",
            Self::NodeGroupMaxDeletionCountReached => "scaleDown.maxNodes other nodes go first",
            Self::SpareForPendingPods => {
                "as many empty nodes stay as pods are pending that the pool could take"
            }
            Self::BudgetUsedByOthers => "the pods of nodes that go first use up a PodDisruptionBudget",
            Self::PlacesTakenByOthers => "the pods of nodes that go first take the places of the node's pods",
        }
    }

    /// Whether the node could go on its own merits: a bound, a limit, a change of its pool or another node that spares it
    /// is not one of them.
    pub const fn removable(self) -> bool {
        matches!(
            self,
            Self::Unneeded
                | Self::AboveMaxReplicas
                | Self::ScaleUpInProgress
                | Self::ScaleDownInProgress
                | Self::RolloutInProgress
                | Self::NodeGroupMinSizeReached
                | Self::ScaleDownLimit
                | Self::NodeGroupMaxDeletionCountReached
                | Self::SpareForPendingPods
                | Self::BudgetUsedByOthers
                | Self::PlacesTakenByOthers
        )
    }
}
