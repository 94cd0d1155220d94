//! Why a pool cannot take a pod, with a machine-readable name and a sentence for users.

use shared_crds::protection::POD_SCALE_UP_DELAY;

/// Why a pool cannot take a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// The pod's requests cannot be read.
    InvalidRequests(String),
    /// Two or more autoscalers select the pool; the names of all.
    AmbiguousSelector(String),
    /// The pool is being deleted.
    PoolDeleting,
    /// The pool is paused.
    PoolPaused,
    /// The pool's provider fails to create the requested nodes.
    InBackoff {
        /// The reason of the pool's condition.
        reason: String,
        /// The condition's message.
        message: String,
    },
    /// The API server rejects writes of the pool's replicas; its message.
    WriteRefused(String),
    /// The pool's template cannot be read.
    InvalidTemplate(String),
    /// A taint the pod does not tolerate, as `key=value:effect`.
    UntoleratedTaint(String),
    /// A label of the pod's node selector that the nodes lack, as `key=value`.
    NodeSelectorMismatch(String),
    /// No term of the pod's required node affinity matches.
    NodeAffinityMismatch,
    /// No pods that the pod's required affinity selects would be in the domain of the node.
    PodAffinityMismatch,
    /// Required anti-affinity, of this pod or of the other, excludes a pod in the domain of the node.
    PodAntiAffinityConflict,
    /// A spread constraint would be violated; its topology key.
    TopologySpreadConflict(String),
    /// The nodes lack a label that the pod's spread constraint or affinity uses; the key.
    TopologyKeyMissing(String),
    /// A host port is already in use, as `port/protocol`.
    HostPortConflict(String),
    /// A volume of the pod cannot be used on the nodes.
    VolumeNodeAffinityConflict,
    /// A claim of the pod does not exist; its name.
    ClaimNotFound(String),
    /// A claim of the pod is being deleted; its name.
    ClaimBeingDeleted(String),
    /// Only one pod may use a claim of the pod, and another pod uses it; its name.
    ClaimInUse(String),
    /// The volume of a claim of the pod no longer exists; the claim's name.
    ClaimLost(String),
    /// A claim with volume binding mode `Immediate` has no volume yet; its name.
    UnboundImmediateClaim(String),
    /// The volume that a claim of the pod is bound to does not exist; the volume's name.
    VolumeNotFound(String),
    /// The storage class of a claim of the pod does not exist; the class's name.
    StorageClassNotFound(String),
    /// There is no volume for a claim whose class provisions none; the claim's name.
    NoVolumeAvailable(String),
    /// The free volumes that a claim of the pod could use go to other pending pods; their storage class.
    VolumesUsedUp(String),
    /// The pod asks for something that this version does not plan with; what.
    NotPlanned(&'static str),
    /// The pod has a place on an existing node as far as this version can tell, and the scheduler says that nodes can
    /// attach no more volumes.
    VolumeLimits,
    /// The same where the scheduler says that nodes do not have enough free storage for a claim.
    FreeStorage,
    /// Not even an empty node has enough of a resource.
    Insufficient {
        /// The reason's name.
        reason: &'static str,
        /// Name of the resource.
        resource: String,
        /// The pod's request.
        asked: String,
        /// The amount on an empty node.
        offered: String,
        /// Whether the pool's nodes have shown that amount; otherwise it comes from the template alone.
        is_discovered: bool,
    },
    /// The pod's priority is below the cutoff of the pool's autoscaler.
    Expendable {
        /// The cutoff.
        cutoff: i32,
    },
    /// The pod is younger than its annotation `cluster-autoscaler.kubernetes.io/pod-scale-up-delay` asks it to be.
    ScaleUpDelayed,
    /// The pool is at its upper bound.
    MaxReplicasReached {
        /// The bound.
        max: usize,
        /// The schedules that set the bound, by name; empty if it is the pool's own.
        schedules: String,
    },
    /// The pool was not wanted to be that large throughout the stabilization window.
    ScaleUpStabilized {
        /// The number of nodes that it may scale up to.
        ceiling: usize,
    },
    /// Another writer has set the number of nodes, and it is kept.
    ReplicasContested {
        /// The other writer's number.
        ceiling: usize,
    },
    /// The pool may not scale up any further in this pass.
    ScaleUpLimit {
        /// The number of nodes that it may scale up to.
        ceiling: usize,
    },
}

impl Rejection {
    /// Whether the pool may well be able to take the pod and does not grow for it, because of the pod itself.
    pub(crate) const fn keeps_waiting(&self) -> bool {
        matches!(
            self,
            Self::Expendable { .. } | Self::ScaleUpDelayed | Self::VolumeLimits | Self::FreeStorage
        )
    }

    /// The reason's name.
    pub(crate) const fn reason(&self) -> &'static str {
        match self {
            Self::InvalidRequests(_) => "InvalidRequests",
            Self::AmbiguousSelector(_) => "AmbiguousSelector",
            Self::PoolDeleting => "PoolDeleting",
            Self::PoolPaused => "PoolPaused",
            Self::InBackoff { .. } => "InBackoff",
            Self::WriteRefused(_) => "WriteRefused",
            Self::InvalidTemplate(_) => "InvalidTemplate",
            Self::UntoleratedTaint(_) => "UntoleratedTaint",
            Self::NodeSelectorMismatch(_) => "NodeSelectorMismatch",
            Self::NodeAffinityMismatch => "NodeAffinityMismatch",
            Self::PodAffinityMismatch => "PodAffinityMismatch",
            Self::PodAntiAffinityConflict => "PodAntiAffinityConflict",
            Self::TopologySpreadConflict(_) => "TopologySpreadConflict",
            Self::TopologyKeyMissing(_) => "TopologyKeyMissing",
            Self::HostPortConflict(_) => "HostPortConflict",
            Self::VolumeNodeAffinityConflict => "VolumeNodeAffinityConflict",
            Self::ClaimNotFound(_) => "ClaimNotFound",
            Self::ClaimBeingDeleted(_) => "ClaimBeingDeleted",
            Self::ClaimInUse(_) => "ClaimInUse",
            Self::ClaimLost(_) => "ClaimLost",
            Self::UnboundImmediateClaim(_) => "UnboundImmediateClaim",
            Self::VolumeNotFound(_) => "VolumeNotFound",
            Self::StorageClassNotFound(_) => "StorageClassNotFound",
            Self::NoVolumeAvailable(_) | Self::VolumesUsedUp(_) => "NoVolumeAvailable",
            Self::NotPlanned(_) => "NotPlanned",
            Self::VolumeLimits => "VolumeLimitsNotPlanned",
            Self::FreeStorage => "FreeStorageNotPlanned",
            Self::Insufficient { reason, .. } => reason,
            Self::Expendable { .. } => "Expendable",
            Self::ScaleUpDelayed => "ScaleUpDelayed",
            Self::MaxReplicasReached { .. } => "MaxReplicasReached",
            Self::ScaleUpStabilized { .. } => "ScaleUpStabilized",
            Self::ReplicasContested { .. } => "ReplicasContested",
            Self::ScaleUpLimit { .. } => "ScaleUpLimit",
        }
    }

    /// The reason in a sentence.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::InvalidRequests(problem) => format!("the pod's requests cannot be read: {problem}"),
            Self::AmbiguousSelector(names) => {
                format!("more than one NodePoolAutoscaler selects the pool ({names}), so none scales it")
            }
            Self::PoolDeleting => "the pool is being deleted".to_owned(),
            Self::PoolPaused => "the pool is paused (spec.paused)".to_owned(),
            Self::InBackoff { reason, message } => {
                format!("the pool's provider fails ({reason}: {message}), so other pools are used for now")
            }
            Self::WriteRefused(problem) => {
                format!("the pool cannot be made larger ({problem}), so other pools are used for now")
            }
            Self::InvalidTemplate(problem) => format!("the pool's template cannot be read: {problem}"),
            Self::UntoleratedTaint(taint) => {
                format!("the pod does not tolerate the taint {taint} of the pool's template")
            }
            Self::NodeSelectorMismatch(label) => {
                format!("the pod's nodeSelector asks for {label}, which a new node of the pool does not have")
            }
            Self::NodeAffinityMismatch => {
                "no term of the pod's required node affinity matches a new node of the pool".to_owned()
            }
            Self::PodAffinityMismatch => {
                "no pod that the pod's required affinity asks for is where the pool's nodes are".to_owned()
            }
            Self::PodAntiAffinityConflict => {
                "the pod's required anti-affinity keeps it away from where the pool's nodes are".to_owned()
            }
            Self::TopologySpreadConflict(key) => {
                format!("on the pool's nodes the pod would break its spread over {key}")
            }
            Self::TopologyKeyMissing(key) => {
                format!(
                    "a new node of the pool does not have the label {key}, which the pod's placing depends on"
                )
            }
            Self::HostPortConflict(port) => {
                format!("the host port {port} is taken on every node of the pool, also on a new one")
            }
            Self::NotPlanned(_) | Self::VolumeLimits | Self::FreeStorage => self.message_of_unplanned(),
            Self::Insufficient { reason: _, resource, asked, offered, is_discovered } => {
                let offers = if *is_discovered {
                    "the pool's nodes, when empty, offer"
                } else {
                    "an empty node of the pool's template offers"
                };
                format!("the pod asks for {asked} of {resource}; {offers} {offered}")
            }
            Self::VolumeNodeAffinityConflict
            | Self::ClaimNotFound(_)
            | Self::ClaimBeingDeleted(_)
            | Self::ClaimInUse(_)
            | Self::ClaimLost(_)
            | Self::UnboundImmediateClaim(_)
            | Self::VolumeNotFound(_)
            | Self::StorageClassNotFound(_)
            | Self::NoVolumeAvailable(_)
            | Self::VolumesUsedUp(_) => self.message_of_storage(),
            Self::Expendable { .. }
            | Self::ScaleUpDelayed
            | Self::MaxReplicasReached { .. }
            | Self::ScaleUpStabilized { .. }
            | Self::ReplicasContested { .. }
            | Self::ScaleUpLimit { .. } => self.message_of_limit(),
        }
    }

    /// The sentence where the reason is something that is not planned with; elsewhere the reason's name.
    fn message_of_unplanned(&self) -> String {
        match self {
            Self::NotPlanned(what) => {
                format!(
                    "the pod has {what}, which this version does not plan with: it would promise what it cannot know"
                )
            }
            Self::VolumeLimits => {
                "the scheduler says that nodes exceed their max volume count, and this version does not plan with volume \
                 limits: without them the pod fits an existing node, so no pool grows for it"
                    .to_owned()
            }
            Self::FreeStorage => {
                "the scheduler says that nodes do not have enough free storage for a claim of the pod, and this version does \
                 not plan with free storage: without it the pod fits an existing node, so no pool grows for it"
                    .to_owned()
            }
            _ => self.reason().to_owned(),
        }
    }

    /// The sentence where the pod's storage is the reason; elsewhere the reason's name.
    fn message_of_storage(&self) -> String {
        match self {
            Self::VolumeNodeAffinityConflict => {
                "a volume of the pod cannot be used where the pool's nodes are".to_owned()
            }
            Self::ClaimNotFound(claim) => format!("the PersistentVolumeClaim {claim} does not exist"),
            Self::ClaimBeingDeleted(claim) => format!("the PersistentVolumeClaim {claim} is being deleted"),
            Self::ClaimInUse(claim) => {
                format!(
                    "the PersistentVolumeClaim {claim} may be used by one pod only, and another one uses it"
                )
            }
            Self::ClaimLost(claim) => format!("the PersistentVolumeClaim {claim} has lost its volume"),
            Self::UnboundImmediateClaim(claim) => {
                format!("the PersistentVolumeClaim {claim} waits for its volume, and new nodes bring it none")
            }
            Self::VolumeNotFound(volume) => format!("the PersistentVolume {volume} does not exist"),
            Self::StorageClassNotFound(class) => format!("the StorageClass {class} does not exist"),
            Self::NoVolumeAvailable(claim) => {
                format!(
                    "no PersistentVolume is free for the PersistentVolumeClaim {claim}, and its class makes none"
                )
            }
            Self::VolumesUsedUp(class) => {
                format!(
                    "the free PersistentVolumes of StorageClass {class} that the pod could use go to other pods"
                )
            }
            _ => self.reason().to_owned(),
        }
    }

    /// The sentence where how far the pool may grow is the reason; elsewhere the reason's name.
    fn message_of_limit(&self) -> String {
        match self {
            Self::Expendable { cutoff } => {
                format!(
                    "the pod's priority is below spec.expendablePodsPriorityCutoff ({cutoff}) of the pool's NodePoolAutoscaler"
                )
            }
            Self::ScaleUpDelayed => {
                format!("the pod is younger than its annotation {POD_SCALE_UP_DELAY} asks it to be")
            }
            Self::MaxReplicasReached { max, schedules } if schedules.is_empty() => {
                format!("the pool would need more than spec.maxReplicas ({max}) nodes")
            }
            Self::MaxReplicasReached { max, schedules } => {
                format!("the pool would need more than {max} nodes, the bound that schedule {schedules} sets")
            }
            Self::ScaleUpStabilized { ceiling } => {
                format!("no more than {ceiling} nodes were wanted all through the window of behavior.scaleUp")
            }
            Self::ReplicasContested { ceiling } => {
                format!("another writer has set the pool to {ceiling} nodes, which is kept for a while")
            }
            Self::ScaleUpLimit { ceiling } => {
                format!("behavior.scaleUp allows the pool no more than {ceiling} nodes for now")
            }
            _ => self.reason().to_owned(),
        }
    }
}
