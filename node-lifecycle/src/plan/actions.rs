//! The one step of each node.

use std::collections::BTreeSet;

use serde_json::Value;
use shared_crds::names;

use crate::assess::drain_limits::DrainLimits;
use crate::assess::membership::Member;
use crate::assess::node_states::RecordedCause;
use crate::count::sizing::Sizing;
use crate::drain;
use crate::plan::in_place::InPlace;
use crate::remove::{Ground, Removals};
use crate::{Blocker, DrainStep, NodeAction, Observed, ObservedPods};

/// What the step of a node is decided from.
#[derive(Debug)]
pub(crate) struct Actions<'a> {
    /// What was observed.
    pub observed: &'a Observed,
    /// The pods of some of the nodes.
    pub pods: &'a ObservedPods,
    /// How long drains may take.
    pub limits: DrainLimits,
    /// Which nodes go, and why.
    pub removals: &'a Removals,
    /// How many there should be.
    pub sizing: &'a Sizing,
    /// What of the template reaches existing nodes; `None` where the spec cannot be acted on.
    pub in_place: Option<&'a InPlace<'a>>,
    /// The machines that are being deleted, by name.
    pub going: BTreeSet<&'a str>,
}

impl Actions<'_> {
    /// The step of the node.
    pub(crate) fn of(&self, member: &Member) -> NodeAction {
        match self.removals.ground(member.name()) {
            Some(Ground::MachineLost) => NodeAction::ReplaceLost,
            Some(Ground::NeverReady) => NodeAction::Replace,
            Some(Ground::Unhealthy) => NodeAction::Repair,
            Some(Ground::UnhealthyAnswering | Ground::OutOfDate | Ground::Excess) => NodeAction::Cordon,
            None if self.sizing.uncordon.contains(member.name()) => NodeAction::Uncordon,
            None if member.stays() => self.of_staying(member),
            None => self.of_leaving(member),
        }
    }

    fn of_leaving(&self, member: &Member) -> NodeAction {
        match drain::leave(member, self.pods, self.limits, self.observed.now) {
            // Until its Node is deleted, the drain can be cancelled.
            NodeAction::Remove => wait(self.observed, member).unwrap_or(NodeAction::Remove),
            NodeAction::Drain(step) if is_ending(&self.going, member, &step) => NodeAction::Wait,
            action => action,
        }
    }

    fn of_staying(&self, member: &Member) -> NodeAction {
        // What is noted before a node is repaired stands until it is, or is well again, and so does that its drain for this was
        // given back.
        let is_unhealthy = member.health.is_unhealthy();
        if !member.has_finalizer {
            NodeAction::Adopt
        } else if member.cordon.has_drain_taint()
            // Without a list it is not known whether its provider still drains it.
            || (member.cause == RecordedCause::Stale && !is_unhealthy && !self.observed.supply.is_unknown)
            || (member.given_back.is_some() && !self.sizing.has_excess && !is_unhealthy)
        {
            NodeAction::Tidy
        } else if member.lacks_mark() {
            NodeAction::MarkReady
        } else {
            self.update(member).map_or(NodeAction::Keep, NodeAction::Update)
        }
    }

    fn update(&self, member: &Member) -> Option<Value> {
        self.in_place?.update(member, member.outdated.is_outdated())
    }
}

/// Whether nothing but finalizers keeps the node, and another client is ending its machine.
fn is_ending(going: &BTreeSet<&str>, member: &Member, step: &DrainStep) -> bool {
    let machine = names::machine_of(&member.node.metadata);
    matches!(step.only_waits_for(), Some(Blocker::Finalizers(_)))
        && machine.is_some_and(|machine| going.contains(machine))
}

/// The step of a node that has to wait with its deletion until its provider may remove a machine; `None` when it need not.
fn wait(observed: &Observed, member: &Member) -> Option<NodeAction> {
    let unlisted = || observed.unlisted(member).map(str::to_owned);
    let why = observed.supply.removals_wait.clone().or_else(unlisted)?;
    let is_deleted = member.leaving.is_some_and(|leaving| leaving.deleting);
    (!is_deleted).then(|| NodeAction::Drain(DrainStep::waits(Blocker::Provider(why), true)))
}
