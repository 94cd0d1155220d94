//! Why: every reason the planner gives, with the name machines read and the sentence people read.
//!
//! Names that Cluster Autoscaler or the scheduler users know are kept. No decision is taken here.

/// Why a pool cannot take a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The pod's requests cannot be read.
    InvalidRequests(String),
    /// Two autoscalers select the pool; the names of all.
    AmbiguousSelector(String),
    /// The pool is being deleted.
    PoolDeleting,
    /// The pool is paused.
    PoolPaused,
    /// The pool's template cannot be read.
    InvalidTemplate(String),
    /// A taint the pod does not tolerate, as `key=value:effect`.
    UntoleratedTaint(String),
    /// A label of the pod's node selector that the nodes lack, as `key=value`.
    NodeSelectorMismatch(String),
    /// No term of the pod's required node affinity matches.
    NodeAffinityMismatch,
    /// Not even an empty node has enough of a resource.
    Insufficient {
        /// Reason name.
        reason: &'static str,
        /// Name of the resource.
        resource: String,
        /// What the pod asks for.
        asked: String,
        /// What an empty node offers.
        offered: String,
    },
    /// The pool may not grow any further.
    MaxReplicasReached {
        /// The bound.
        max: usize,
    },
}

impl Rejection {
    /// The reason's name.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::InvalidRequests(_) => "InvalidRequests",
            Self::AmbiguousSelector(_) => "AmbiguousSelector",
            Self::PoolDeleting => "PoolDeleting",
            Self::PoolPaused => "PoolPaused",
            Self::InvalidTemplate(_) => "InvalidTemplate",
            Self::UntoleratedTaint(_) => "UntoleratedTaint",
            Self::NodeSelectorMismatch(_) => "NodeSelectorMismatch",
            Self::NodeAffinityMismatch => "NodeAffinityMismatch",
            Self::Insufficient { reason, .. } => reason,
            Self::MaxReplicasReached { .. } => "MaxReplicasReached",
        }
    }

    /// The reason in a sentence.
    pub fn message(&self) -> String {
        match self {
            Self::InvalidRequests(problem) => format!("the pod's requests cannot be read: {problem}"),
            Self::AmbiguousSelector(names) => {
                format!("more than one NodePoolAutoscaler selects the pool ({names}), so none scales it")
            }
            Self::PoolDeleting => "the pool is being deleted".to_owned(),
            Self::PoolPaused => "the pool is paused (spec.paused)".to_owned(),
            Self::InvalidTemplate(problem) => format!("the pool's template cannot be read: {problem}"),
            Self::UntoleratedTaint(taint) => {
                format!("the pod does not tolerate the taint {taint} of the pool's nodes")
            }
            Self::NodeSelectorMismatch(label) => {
                format!("the pod's nodeSelector asks for {label}, which the pool's nodes do not have")
            }
            Self::NodeAffinityMismatch => {
                "no term of the pod's required node affinity matches the pool's nodes".to_owned()
            }
            Self::Insufficient { resource, asked, offered, .. } => {
                format!("the pod asks for {asked} of {resource}; an empty node of the pool offers {offered}")
            }
            Self::MaxReplicasReached { max } => {
                format!("the pool would need more than spec.maxReplicas ({max}) nodes")
            }
        }
    }
}

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
    /// It is not ready yet.
    NotStartedYet,
    /// Pods run on it that need a node.
    HasPods,
    /// Pods that are pending now are planned onto it.
    NeededByPendingPods,
    /// `scaleDown.unneededSeconds` have not passed.
    NotUnneededLongEnough,
    /// `scaleDown.delayAfterAddSeconds` have not passed.
    ScaleDownDelayAfterAdd,
    /// The pool grows in this decision. The node itself could go.
    ScaleUpInProgress,
    /// The pool has more nodes than were asked for, and the `NodePool` operator has yet to say which of them go.
    /// The node itself could go.
    ScaleDownInProgress,
    /// The pool would fall below `spec.minReplicas`. The node itself could go.
    NodeGroupMinSizeReached,
    /// `scaleDown.maxNodes` others go first. The node itself could go.
    NodeGroupMaxDeletionCountReached,
}

impl NodeReason {
    /// The reason's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unneeded => "Unneeded",
            Self::AboveMaxReplicas => "AboveMaxReplicas",
            Self::NotAutoscaled => "NotAutoscaled",
            Self::CurrentlyBeingDeleted => "CurrentlyBeingDeleted",
            Self::ScaleDownDisabledAnnotation => "ScaleDownDisabledAnnotation",
            Self::NotStartedYet => "NotStartedYet",
            Self::HasPods => "HasPods",
            Self::NeededByPendingPods => "NeededByPendingPods",
            Self::NotUnneededLongEnough => "NotUnneededLongEnough",
            Self::ScaleDownDelayAfterAdd => "ScaleDownDelayAfterAdd",
            Self::ScaleUpInProgress => "ScaleUpInProgress",
            Self::ScaleDownInProgress => "ScaleDownInProgress",
            Self::NodeGroupMinSizeReached => "NodeGroupMinSizeReached",
            Self::NodeGroupMaxDeletionCountReached => "NodeGroupMaxDeletionCountReached",
        }
    }

    /// Whether the node could go on its own merits: a bound, a limit or a change of its pool that spares it is not one of
    /// them.
    pub const fn removable(self) -> bool {
        matches!(
            self,
            Self::Unneeded
                | Self::AboveMaxReplicas
                | Self::ScaleUpInProgress
                | Self::ScaleDownInProgress
                | Self::NodeGroupMinSizeReached
                | Self::NodeGroupMaxDeletionCountReached
        )
    }
}
