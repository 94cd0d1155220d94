//! What the rules look at.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::SignedDuration;
use shared_crds::disruption::Account;
use shared_crds::v1alpha1::DisruptionReason;
use shared_crds::{NodePool, names};

use super::verdict::{Hold, Verdict};
use crate::assess::membership::Member;
use crate::{Observed, ObservedPods};

/// Polling interval while no node is replaced for a reason that may end without an event of this pool.
const HELD_POLL: SignedDuration = SignedDuration::from_secs(30);

/// What the rules look at, beside the node.
#[derive(Debug)]
pub(crate) struct Question<'a> {
    /// What was observed.
    pub observed: &'a Observed,
    /// The pool.
    pub pool: &'a NodePool,
    /// The pods of some of the nodes.
    pub pods: &'a ObservedPods,
    /// The machines that are being deleted, by name.
    pub going: BTreeSet<&'a str>,
    /// Why no node is replaced for its state; `None` where one may be.
    pub brake: Option<String>,
    /// New nodes can be made from the spec.
    pub can_make: bool,
    /// How many nodes may be disrupted. Those that go are taken out of it.
    pub account: &'a mut Account,
    /// What was chosen by number; nothing before the nodes were counted.
    pub choice: Choice,
}

/// Which nodes the count has chosen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choice {
    /// Those that go, and why.
    pub reasons: BTreeMap<String, DisruptionReason>,
    /// Those that would go and stay for now, and why.
    pub kept: BTreeMap<String, String>,
    /// Those that are out of date, whether or not they go.
    pub outdated: BTreeSet<String>,
}

impl Question<'_> {
    /// Whether the node stays although another client is ending its machine. That is decided, so no bound holds it.
    pub(crate) fn is_ended_elsewhere(&self, member: &Member) -> bool {
        let machine = names::machine_of(&member.node.metadata);
        member.stays() && member.has_finalizer && machine.is_some_and(|machine| self.going.contains(machine))
    }

    /// Whether the pool is being deleted: all nodes go, and none is replaced.
    pub(crate) fn is_deleting(&self) -> bool {
        self.pool.metadata.deletion_timestamp.is_some()
    }

    /// The node stays for this reason, which may end without an event.
    pub(crate) fn held(&self, why: String) -> Verdict {
        Verdict::Wait(Hold::Held(why), self.observed.now.checked_add(HELD_POLL).ok())
    }
}

impl Choice {
    /// What the count says of the node, where it is one for the rule: `is_it` says so of its reason. One without the
    /// finalizer gets that first.
    pub(crate) fn of(&self, member: &Member, is_it: impl Fn(DisruptionReason) -> bool) -> Verdict {
        match self.reasons.get(member.name()) {
            Some(reason) if is_it(*reason) && member.has_finalizer => Verdict::Go,
            _ => Verdict::No,
        }
    }

    /// Why the node stays, of those that the count would take.
    pub(crate) fn kept(&self, member: &Member) -> Verdict {
        let why = self.kept.get(member.name());
        why.map_or(Verdict::No, |why| Verdict::Wait(Hold::Held(why.clone()), None))
    }
}
