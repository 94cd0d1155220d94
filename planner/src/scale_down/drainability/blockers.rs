//! What prevents the eviction of a pod, and the names of the rules.

use k8s_openapi::jiff::Timestamp;
use shared_crds::protection::PodProtection;

/// Why a pod blocks. Names are those of Cluster Autoscaler's `BlockingPodReason` if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum BlockingPodReason {
    /// It has no controller that would recreate it.
    NotReplicated,
    /// It runs in `kube-system`, and no `PodDisruptionBudget` covers it.
    UnmovableKubeSystemPod,
    /// Its annotation `cluster-autoscaler.kubernetes.io/safe-to-evict` forbids eviction, permanently or until the pod
    /// completes.
    NotSafeToEvictAnnotation,
    /// Its annotation `karpenter.sh/do-not-disrupt` forbids eviction.
    DoNotDisruptAnnotation,
    /// It keeps data on the node.
    LocalStorageRequested,
    /// Its `PodDisruptionBudget` allows no more disruptions, or two of them match it.
    NotEnoughPdb,
    /// It has a constraint that is not planned, so no place can be found for it.
    NotPlanned,
    /// Its requests or one of its selectors cannot be read, so no place can be found for it.
    UnexpectedError,
}

impl BlockingPodReason {
    /// The rule's name.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::NotReplicated => "NotReplicated",
            Self::UnmovableKubeSystemPod => "UnmovableKubeSystemPod",
            Self::NotSafeToEvictAnnotation => "NotSafeToEvictAnnotation",
            Self::DoNotDisruptAnnotation => "DoNotDisruptAnnotation",
            Self::LocalStorageRequested => "LocalStorageRequested",
            Self::NotEnoughPdb => "NotEnoughPdb",
            Self::NotPlanned => "NotPlanned",
            Self::UnexpectedError => "UnexpectedError",
        }
    }
}

/// What prevents the eviction of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Blocker {
    /// The rule.
    pub rule: BlockingPodReason,
    /// Why, as the end of a sentence about the pod.
    pub why: String,
    /// When it stops blocking, if that only takes time; `None` if time alone does not lift it.
    pub until: Option<Timestamp>,
}

impl Blocker {
    /// A blocker that time alone does not lift.
    pub(crate) fn lasting(rule: BlockingPodReason, why: impl Into<String>) -> Self {
        Self { rule, why: why.into(), until: None }
    }

    /// What the pod's annotations ask for.
    pub(super) fn asked(rule: BlockingPodReason, PodProtection { why, until }: PodProtection) -> Self {
        Self { rule, why, until }
    }
}
