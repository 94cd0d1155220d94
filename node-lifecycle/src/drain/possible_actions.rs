//! The possible steps for a pool and its nodes, as data. Nothing is decided here.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use shared_crds::v1alpha1::DisruptionReason;

use crate::assess::membership::Member;
use crate::drain::blocker::Blocker;
use crate::input::supply::Absence;

/// The single step for a node in a pass.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeAction {
    /// No change.
    Keep,
    /// Add the finalizer: the node carries the pool's labels and has no finalizer of the operator yet.
    Adopt,
    /// Annotate the node as Ready: it is Ready for the first time, or shows that it was.
    MarkReady,
    /// Give it the labels, annotations and taints of a template that has changed, by this JSON patch.
    Update(Value),
    /// Cancel the drain and uncordon.
    Uncordon,
    /// The drain took too long: cancel it, and uncordon the node although it is one too many.
    GiveBack,
    /// Remove what is left of a drain that another client has cancelled, or that was given back and is not wanted again.
    Tidy,
    /// Cordon and start the drain.
    Cordon,
    /// Evict or delete its pods.
    Drain(DrainStep),
    /// No pod keeps the node any more: delete it and remove the finalizer.
    Remove,
    /// It did not become Ready in time: delete it. The finalizer then turns this into a normal drain.
    Replace,
    /// Its machine is gone, or going, behind the operator's back: delete it, as with [`Self::Replace`].
    ReplaceLost,
    /// It has been unhealthy for too long, and its kubelet is silent: delete it, as with [`Self::Replace`].
    Repair,
    /// It is being deleted, and its kubelet has not been heard of for long, or is silent and its machine is gone: end its machine,
    /// and when that is confirmed, say so to Kubernetes, which then deletes its pods and detaches its volumes.
    EndMachine,
    /// Its pool is deleted, and it outlives it: take it out of the pool with a drain undone, and remove the finalizer.
    Release,
    /// It is leaving and nothing can be done about it in this pass.
    Wait,
}

/// What happens to the pods of a draining node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DrainStep {
    /// Pods to evict.
    pub evict: Vec<Arc<Pod>>,
    /// Pods whose grace period is all that is left of the drain: to be deleted without regard to their
    /// `PodDisruptionBudget`s, each with that grace period.
    pub delete: Vec<Arc<Pod>>,
    /// What keeps the node and may keep it long, apart from refused evictions.
    pub blockers: Vec<Blocker>,
    /// What it waits for in the ordinary course, apart from pods that are ending.
    pub awaited: Option<Blocker>,
}

impl DrainStep {
    /// The step of a node that `by` keeps, in the ordinary course or longer.
    pub(crate) fn waits(by: Blocker, is_ordinary: bool) -> Self {
        let (blockers, awaited) = if is_ordinary { (Vec::new(), Some(by)) } else { (vec![by], None) };
        Self { blockers, awaited, ..Self::default() }
    }

    /// Whether the node waits for nothing but a place among those that are drained.
    pub fn waits_for_place(&self) -> bool {
        self.only_waits_for() == Some(&Blocker::Place)
    }

    /// What the step waits for, if it is one that only waits.
    pub fn only_waits_for(&self) -> Option<&Blocker> {
        let is_idle = self.evict.is_empty() && self.delete.is_empty();
        self.blockers.first().or(self.awaited.as_ref()).filter(|_| is_idle && self.blockers.len() < 2)
    }
}

impl NodeAction {
    /// Whether this step takes a counted node out of the count. Such steps are carried out first: otherwise a pass that is cut short
    /// would leave more nodes than wanted. For those that fail, see [`NodeStep::makes_room`].
    pub const fn removes_replica(&self) -> bool {
        matches!(self, Self::Cordon | Self::Replace | Self::ReplaceLost | Self::Repair)
    }

    /// Whether nothing new is done to the node: a drain that has begun evicts pods, and the budgets of those are asked each time. Pods
    /// are not deleted.
    pub const fn only_waits(&self) -> bool {
        match self {
            Self::Keep | Self::Wait => true,
            Self::Drain(step) => step.delete.is_empty(),
            Self::Adopt
            | Self::MarkReady
            | Self::Update(_)
            | Self::Uncordon
            | Self::GiveBack
            | Self::Tidy
            | Self::Cordon
            | Self::Remove
            | Self::Replace
            | Self::ReplaceLost
            | Self::Repair
            | Self::EndMachine
            | Self::Release => false,
        }
    }
}

/// A node and its step.
#[derive(Clone, Debug)]
pub struct NodeStep {
    /// The node, in the state it was decided from.
    pub member: Member,
    /// The step for the node.
    pub action: NodeAction,
    /// Why it begins to leave; `None` for every other step, and where another client has deleted the node or its pool.
    pub cause: Option<DisruptionReason>,
    /// Why it stays although a rule would remove it, as far as one says so; `None` for every other node.
    pub waits: Option<String>,
    /// What it means if its provider says that there is no machine of it.
    pub absence: Absence,
}

impl NodeStep {
    /// Whether others are uncordoned or made in its place in the same pass, so that there would be one too many if the step failed. A
    /// node that is too many or out of date goes when the others are there, and makes room for none.
    pub fn makes_room(&self) -> bool {
        let is_replaced = self.action != NodeAction::Cordon || self.cause == Some(DisruptionReason::Repair);
        self.member.stays() && self.action.removes_replica() && is_replaced
    }
}

/// What happens to the pool's finalizer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolStep {
    /// Nothing.
    #[default]
    Keep,
    /// Add it, before anything is made that would outlive the pool.
    AddFinalizer,
    /// Remove it: the pool is being deleted, and its last node is gone or released.
    RemoveFinalizer,
}
