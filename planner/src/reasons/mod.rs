//! Every reason that the planner reports, with its machine-readable name and its sentence for users.
//!
//! Names that users of Cluster Autoscaler or the scheduler know are kept. Nothing is decided here.

mod rejection;

pub(crate) use rejection::Rejection;

/// Why a pool is planned to have its number of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PoolReason {
    /// Pending pods need more nodes.
    ScaleUp,
    /// Unneeded nodes are removed.
    ScaleDown,
    /// Fewer nodes than `spec.minReplicas` were requested.
    BelowMinReplicas,
    /// More nodes than `spec.maxReplicas` were requested.
    AboveMaxReplicas,
    /// `spec.replicas` is not set.
    ReplicasUnset,
    /// Pending pods need more nodes than `spec.maxReplicas` allows.
    MaxReplicasReached,
    /// As many nodes as are needed.
    DesiredWithinRange,
    /// A policy of `spec.behavior.scaleUp` allows fewer nodes for now.
    ScaleUpLimit,
    /// A policy of `spec.behavior.scaleDown` keeps more nodes for now.
    ScaleDownLimit,
    /// Fewer nodes were wanted within the stabilization window of `spec.behavior.scaleUp`.
    ScaleUpStabilized,
    /// More nodes were wanted within the stabilization window of `spec.behavior.scaleDown`.
    ScaleDownStabilized,
    /// Another writer's value is kept for now.
    ReplicasContested,
    /// Another writer's value is overwritten.
    ReplicasReclaimed,
    /// No autoscaler selects the pool.
    NotSelected,
    /// The autoscaler that selects the pool is off.
    AutoscalerOff,
    /// The autoscaler that selects the pool only recommends, and recommendations were not requested.
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

/// Why a node may be removed, or why not. Names are those of Cluster Autoscaler's unremovable reasons if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeReason {
    /// It is removed with this decision, or could be.
    Unneeded,
    /// It is removed because the pool has more nodes than its bounds allow.
    AboveMaxReplicas,
    /// It belongs to no planned pool.
    NotAutoscaled,
    /// It is already being removed.
    CurrentlyBeingDeleted,
    /// An annotation protects it from scale-down.
    ScaleDownDisabledAnnotation,
    /// Pending pods are planned onto it, or it is being cleared for one.
    NeededByPendingPods,
    /// It is not ready yet.
    NotStartedYet,
    /// Its allocatable resources, or the requests of its pods, cannot be read.
    UnexpectedError,
    /// Its utilization is above the threshold.
    NotUnderutilized,
    /// A pod on it must not be evicted.
    BlockedByPod,
    /// A pod on it has no place elsewhere.
    NoPlaceToMovePods,
    /// `scaleDown.unneededSeconds` have not passed.
    NotUnneededLongEnough,
    /// `scaleDown.delayAfterAddSeconds` have not passed.
    ScaleDownDelayAfterAdd,
    /// The pool scales up in this decision. The node itself could be removed.
    ScaleUpInProgress,
    /// The pool has more nodes than requested, and the `NodePool` operator has not chosen yet which of them to remove.
    /// The node itself could be removed.
    ScaleDownInProgress,
    /// The nodes of the pool are being replaced. The node itself could be removed.
    RolloutInProgress,
    /// A budget of the pool's `spec.disruption` allows no more scale-down now. The node itself could be removed.
    DisruptionBudget,
    /// The pool would fall below `spec.minReplicas`. The node itself could be removed.
    NodeGroupMinSizeReached,
    /// The pool would scale down faster than `behavior.scaleDown` allows. The node itself could be removed.
    ScaleDownLimit,
    /// `scaleDown.maxNodes` others are removed first. The node itself could be removed.
    NodeGroupMaxDeletionCountReached,
    /// Pending pods may still be bound to it, wherever this pass planned them. The node itself could be removed.
    SpareForPendingPods,
    /// Nodes that are removed first use up a `PodDisruptionBudget` of a pod on it. The node itself could be removed.
    BudgetUsedByOthers,
    /// Pods of nodes that are removed first take the places of its pods. The node itself could be removed.
    PlacesTakenByOthers,
}

impl NodeReason {
    /// The reason's name. A reason caused by other nodes that are removed first has the same name as if there had been
    /// no budget or place from the start.
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
            Self::DisruptionBudget => "DisruptionBudget",
            Self::NodeGroupMinSizeReached => "NodeGroupMinSizeReached",
            Self::ScaleDownLimit => "ScaleDownLimit",
            Self::NodeGroupMaxDeletionCountReached => "NodeGroupMaxDeletionCountReached",
        }
    }

    /// The reason in a sentence, for use without a more precise message.
    pub(crate) const fn sentence(self) -> &'static str {
        match self {
            Self::Unneeded => "nothing needs the node",
            Self::AboveMaxReplicas => "the pool has more nodes than its bounds allow",
            Self::NotAutoscaled => "the node belongs to no pool that an autoscaler plans now",
            Self::CurrentlyBeingDeleted => "the node leaves already, or a decision in force names it",
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
            Self::RolloutInProgress => {
                "no node goes until the pool's condition RollingOut is False for the present spec"
            }
            Self::DisruptionBudget => "a budget of the pool's spec.disruption allows no more now",
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

    /// Whether the node itself could be removed: a bound, a limit, a change of its pool or another node that is removed
    /// first does not count against it.
    pub const fn removable(self) -> bool {
        matches!(
            self,
            Self::Unneeded
                | Self::AboveMaxReplicas
                | Self::ScaleUpInProgress
                | Self::ScaleDownInProgress
                | Self::RolloutInProgress
                | Self::DisruptionBudget
                | Self::NodeGroupMinSizeReached
                | Self::ScaleDownLimit
                | Self::NodeGroupMaxDeletionCountReached
                | Self::SpareForPendingPods
                | Self::BudgetUsedByOthers
                | Self::PlacesTakenByOthers
        )
    }
}
