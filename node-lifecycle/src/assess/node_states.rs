//! The states of a node: one enum for each question that has several answers.
//! A `Member` has one of each, but that of its kubelet, which a `Leaving` one has.

use shared_crds::v1alpha1::DisruptionReason;

/// The readiness of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeReadiness {
    /// It has not been Ready yet.
    Starting,
    /// It is Ready.
    Ready,
    /// It was Ready and is not now.
    NotReady,
}

/// How well a node is, however short a time ago that has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeHealth {
    /// No condition of `spec.repair` holds for it, and Kubernetes does not say that its kubelet is silent.
    Healthy,
    /// Kubernetes says that its kubelet does not report any more, which is no condition of `spec.repair`.
    OnlySilent,
    /// A condition of `spec.repair` holds for it, and Kubernetes does not say that its kubelet is silent.
    Unhealthy,
    /// A condition of `spec.repair` holds for it, and its kubelet does not report any more.
    UnhealthyAndSilent,
}

impl NodeHealth {
    pub(crate) const fn of(is_unhealthy: bool, is_silent: bool) -> Self {
        match (is_unhealthy, is_silent) {
            (false, false) => Self::Healthy,
            (false, true) => Self::OnlySilent,
            (true, false) => Self::Unhealthy,
            (true, true) => Self::UnhealthyAndSilent,
        }
    }

    /// Whether a condition of `spec.repair` holds for the node.
    pub const fn is_unhealthy(self) -> bool {
        matches!(self, Self::Unhealthy | Self::UnhealthyAndSilent)
    }

    /// Whether Kubernetes says that the node's kubelet does not report any more.
    pub const fn is_silent(self) -> bool {
        matches!(self, Self::OnlySilent | Self::UnhealthyAndSilent)
    }
}

/// Whether a node is closed to new pods, and whether it has the taint of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cordon {
    /// It is schedulable.
    Open,
    /// It is schedulable and has the taint of a drain: another client has uncordoned it.
    OnlyTainted,
    /// It is unschedulable without the taint, as other clients cordon.
    Cordoned,
    /// It is unschedulable and has the taint, as a drain leaves it.
    CordonedAndTainted,
}

impl Cordon {
    pub(crate) const fn of(is_unschedulable: bool, has_drain_taint: bool) -> Self {
        match (is_unschedulable, has_drain_taint) {
            (false, false) => Self::Open,
            (false, true) => Self::OnlyTainted,
            (true, false) => Self::Cordoned,
            (true, true) => Self::CordonedAndTainted,
        }
    }

    /// Whether `spec.unschedulable` is set.
    pub const fn is_unschedulable(self) -> bool {
        matches!(self, Self::Cordoned | Self::CordonedAndTainted)
    }

    /// Whether the node has the taint of a drain.
    pub const fn has_drain_taint(self) -> bool {
        matches!(self, Self::OnlyTainted | Self::CordonedAndTainted)
    }
}

/// Whether a kubelet will confirm the end of a leaving node's pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KubeletState {
    /// It may.
    MayAnswer,
    /// None will: it has been silent for long, or is silent and its machine is gone.
    Unreachable,
    /// Its machine is off: nothing runs on it, whatever its pods say.
    OutOfService,
}

/// What the annotations of a node say about why it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedCause {
    /// Nothing, or nothing that this version knows.
    None,
    /// It leaves, for this reason.
    Leaves(DisruptionReason),
    /// It stays, and has an annotation of one that leaves.
    Stale,
}

impl RecordedCause {
    /// Why the node leaves; `None` where another client deleted it, and for one that stays.
    pub const fn reason(self) -> Option<DisruptionReason> {
        match self {
            Self::None | Self::Stale => None,
            Self::Leaves(reason) => Some(reason),
        }
    }
}

/// What the provider of a node does with it by itself, and the operator leaves to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderDuty {
    /// Nothing.
    None,
    /// It replaces its machine when that is unhealthy.
    Repairs,
    /// It is ending its machine, and drains the node by its own rules: the node leaves, and nothing is done to it.
    Drains,
}

/// What asks that a node is replaced, whatever its template and its age are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplacementRequest {
    /// Nothing.
    None,
    /// Its provider, which would make its machine from something else now.
    Provider,
    /// A user, by an annotation, whatever its provider says.
    User,
}

/// Whether a node is out of date, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outdatedness {
    /// It is not.
    Current,
    /// It is, for this reason.
    Outdated(DisruptionReason),
    /// It is, and older than `spec.rollout.hardMaxAgeSeconds`, so that nothing that asks to be left alone keeps it.
    PastHardAge(DisruptionReason),
}

impl Outdatedness {
    /// Why the node is out of date; `None` when it is not.
    pub const fn reason(self) -> Option<DisruptionReason> {
        match self {
            Self::Current => None,
            Self::Outdated(reason) | Self::PastHardAge(reason) => Some(reason),
        }
    }

    /// Whether the node is out of date.
    pub const fn is_outdated(self) -> bool {
        !matches!(self, Self::Current)
    }

    /// Whether it is so old that nothing that asks to be left alone keeps it.
    pub const fn is_past_hard_age(self) -> bool {
        matches!(self, Self::PastHardAge(_))
    }
}
