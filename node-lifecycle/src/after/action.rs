//! What was done to one node or one machine: the action, and what came of it. What a step writes, and what an action means for
//! the counts, the metrics, the events and the log stands here and nowhere else, so that a new one is described in one place.
//! Nothing is decided here.

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use shared_crds::v1alpha1::DisruptionReason;

use super::event_reason::EventReason;
use crate::assess::node_states::ReplacementRequest;
use crate::plan::patches;
use crate::{Blocker, NodeAction, NodeStep};

impl NodeStep {
    /// The JSON patch of its Node that this step is, at `now`; `None` for a step that is no patch, or more than one write:
    /// the operator's `apply::node_step` carries those out.
    pub fn change(&self, now: Timestamp) -> Option<Value> {
        let node = &*self.member.node;
        match &self.action {
            NodeAction::Adopt => Some(patches::add_node_finalizer(node)),
            NodeAction::MarkReady => Some(patches::mark_ready(node, now)),
            NodeAction::Cordon => Some(patches::cordon(node, now, self.cause)),
            NodeAction::Update(of_template) => Some(of_template.clone()),
            NodeAction::Uncordon | NodeAction::Tidy => Some(patches::uncordon(node)),
            NodeAction::GiveBack => Some(patches::give_back(node, now)),
            NodeAction::Release => Some(patches::release(node)),
            NodeAction::Keep
            | NodeAction::Drain(_)
            | NodeAction::Remove
            | NodeAction::Replace
            | NodeAction::ReplaceLost
            | NodeAction::Repair
            | NodeAction::EndMachine
            | NodeAction::Wait => None,
        }
    }
}

/// What was done to a node, to its pods, or to a machine. Events tell of them in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AppliedAction {
    /// The node was created.
    Create,
    /// The Node had registered itself and was made a node of the pool.
    Join,
    /// The node was cordoned and its drain started: it is one too many.
    DrainSurplus,
    /// The same because it is out of date.
    DrainOutdated,
    /// The same because a user wants it replaced.
    DrainAsked,
    /// The same because it is unhealthy.
    DrainUnhealthy,
    /// The node was given labels, annotations and taints of a changed template.
    Update,
    /// The node was uncordoned, which cancels its drain.
    Uncordon,
    /// The drain of the node took too long and was cancelled.
    GiveBack,
    /// The node was deleted and its finalizer was removed.
    Remove,
    /// The node was taken out of its pool, which is deleted, and keeps running.
    Release,
    /// The node was deleted because it did not become Ready in time.
    Replace,
    /// The node was deleted because its machine is gone.
    ReplaceLost,
    /// The node was deleted because it was unhealthy.
    Repair,
    /// The request for the machine was withdrawn from the provider.
    Withdraw,
    /// The Node of the machine did not come in time, so its deletion was ordered.
    TimeOut,
    /// The machine was requested from the provider.
    Request,
    /// The deletion of the node's machine was ordered.
    EndMachine,
    /// The drain of the node went on.
    Drain,
    /// The eviction of one pod of the node was requested.
    Evict,
    /// One pod of the node was deleted after the drain timeout.
    DeletePod,
}

/// What came of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActionOutcome {
    /// It was acknowledged, and nothing of it is left to wait for.
    Done,
    /// The deletion of a machine was accepted, and it is not gone yet.
    Ending,
    /// It was refused.
    Refused,
    /// It waits for this, and may wait for long.
    Blocked(Blocker),
}

/// One action and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedEntry {
    /// Name of the node or machine.
    pub name: String,
    /// What was done to it.
    pub action: AppliedAction,
    /// What came of that.
    pub outcome: ActionOutcome,
}

/// What an event says of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToldAction {
    /// The reason of the event.
    pub reason: EventReason,
    /// The words before the names of the nodes.
    pub words: &'static str,
}

/// A number in the log line of a pass that changed something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoggedChange {
    /// Nodes were created.
    Created,
    /// Nodes were made nodes of the pool.
    Joined,
    /// Nodes were cordoned.
    Cordoned,
    /// Nodes were uncordoned.
    Uncordoned,
    /// Nodes were removed.
    Removed,
    /// Nodes were taken out of the pool and keep running.
    Released,
    /// Nodes and machines were deleted so that others take their place.
    Replaced,
    /// Nodes were given what changed in the template.
    Updated,
}

impl AppliedAction {
    /// What an acknowledged `step` is recorded as; `None` where it is not recorded, or not by its first write.
    pub fn of(step: &NodeStep) -> Option<Self> {
        match step.action {
            NodeAction::Cordon => Some(Self::of_cordon(step)),
            NodeAction::Update(_) => Some(Self::Update),
            NodeAction::Uncordon => Some(Self::Uncordon),
            NodeAction::GiveBack => Some(Self::GiveBack),
            NodeAction::Remove => Some(Self::Remove),
            NodeAction::Release => Some(Self::Release),
            NodeAction::Replace => Some(Self::Replace),
            NodeAction::ReplaceLost => Some(Self::ReplaceLost),
            NodeAction::Repair => Some(Self::Repair),
            NodeAction::Keep
            | NodeAction::Adopt
            | NodeAction::MarkReady
            | NodeAction::Tidy
            | NodeAction::Drain(_)
            | NodeAction::EndMachine
            | NodeAction::Wait => None,
        }
    }

    fn of_cordon(step: &NodeStep) -> Self {
        let is_asked_by_user = step.member.replacement_request == ReplacementRequest::User;
        match step.cause {
            Some(DisruptionReason::Rollout) if is_asked_by_user => Self::DrainAsked,
            Some(DisruptionReason::Rollout | DisruptionReason::Expiry) => Self::DrainOutdated,
            Some(DisruptionReason::Repair) => Self::DrainUnhealthy,
            Some(DisruptionReason::ScaleDown) | None => Self::DrainSurplus,
        }
    }

    /// Whether the node was cordoned and its drain started.
    pub const fn starts_drain(self) -> bool {
        matches!(self, Self::DrainSurplus | Self::DrainOutdated | Self::DrainAsked | Self::DrainUnhealthy)
    }

    /// Whether the node does not count as a replica any more.
    pub(crate) const fn leaves(self) -> bool {
        self.starts_drain() || self.deletes() || matches!(self, Self::Release)
    }

    /// Whether the node counts as a replica again.
    pub(crate) const fn returns(self) -> bool {
        matches!(self, Self::Uncordon | Self::GiveBack)
    }

    /// Whether the node is no node of the pool any more.
    pub(crate) const fn ends(self) -> bool {
        matches!(self, Self::Remove | Self::Release)
    }

    /// Whether why the node leaves was noted on it.
    pub(crate) const fn notes_cause(self) -> bool {
        self.starts_drain() || matches!(self, Self::Repair)
    }

    /// Whether the node was deleted before its drain.
    pub(crate) const fn deletes(self) -> bool {
        matches!(self, Self::Replace | Self::ReplaceLost | Self::Repair)
    }

    /// The values of the label `action` under which the metrics count it. They are an interface: queries name them, so they
    /// stay although the actions have other names.
    pub const fn labels(self) -> &'static [&'static str] {
        match self {
            Self::Create => &["created"],
            Self::Join => &["joined"],
            Self::DrainSurplus | Self::DrainOutdated | Self::DrainAsked => &["drained"],
            Self::DrainUnhealthy => &["drained", "repaired"],
            Self::Uncordon => &["rescued"],
            Self::GiveBack => &["given_back"],
            Self::Remove => &["removed"],
            Self::Release => &["released"],
            Self::Replace | Self::ReplaceLost => &["replaced"],
            Self::Repair => &["repaired"],
            Self::Update
            | Self::Withdraw
            | Self::TimeOut
            | Self::Request
            | Self::EndMachine
            | Self::Drain
            | Self::Evict
            | Self::DeletePod => &[],
        }
    }

    /// What an event says of it; `None` where none does.
    pub const fn told(self) -> Option<ToldAction> {
        let (reason, words) = match self {
            Self::Create => (EventReason::ScaledUp, "created"),
            Self::Join => (EventReason::ScaledUp, "registered"),
            Self::DrainSurplus => (EventReason::ScalingDown, "draining"),
            Self::DrainOutdated => (EventReason::RollingOut, "out of date, so draining"),
            Self::DrainAsked => (EventReason::RollingOut, "to be replaced by annotation, so draining"),
            Self::DrainUnhealthy => (EventReason::NodeRepaired, "unhealthy, so draining"),
            Self::Uncordon => (EventReason::DrainCancelled, "cancelled the drain of"),
            Self::GiveBack => (EventReason::DrainGivenBack, "the drain took too long, so given back:"),
            Self::Remove => (EventReason::NodeRemoved, "removed"),
            Self::Release => (EventReason::NodesReleased, "released without a drain, and still running:"),
            Self::Replace => (EventReason::ProvisioningTimedOut, "not ready in time, so replaced:"),
            Self::ReplaceLost => (EventReason::MachineLost, "the machine is gone, so replaced:"),
            Self::Repair => (EventReason::NodeRepaired, "unhealthy, so replaced:"),
            Self::TimeOut => (EventReason::ProvisioningTimedOut, "not registered in time, so deleted:"),
            Self::Update
            | Self::Withdraw
            | Self::Request
            | Self::EndMachine
            | Self::Drain
            | Self::Evict
            | Self::DeletePod => return None,
        };
        Some(ToldAction { reason, words })
    }

    /// As what the log line of the pass counts it; `None` where it is no change of nodes.
    pub const fn logged_as(self) -> Option<LoggedChange> {
        match self {
            Self::Create => Some(LoggedChange::Created),
            Self::Join => Some(LoggedChange::Joined),
            Self::DrainSurplus | Self::DrainOutdated | Self::DrainAsked | Self::DrainUnhealthy => {
                Some(LoggedChange::Cordoned)
            }
            Self::Update => Some(LoggedChange::Updated),
            Self::Uncordon | Self::GiveBack => Some(LoggedChange::Uncordoned),
            Self::Remove => Some(LoggedChange::Removed),
            Self::Release => Some(LoggedChange::Released),
            Self::Replace | Self::ReplaceLost | Self::Repair | Self::TimeOut => Some(LoggedChange::Replaced),
            Self::Withdraw
            | Self::Request
            | Self::EndMachine
            | Self::Drain
            | Self::Evict
            | Self::DeletePod => None,
        }
    }
}

impl ActionOutcome {
    /// Whether the action was acknowledged.
    pub const fn is_accepted(&self) -> bool {
        matches!(self, Self::Done | Self::Ending)
    }
}
