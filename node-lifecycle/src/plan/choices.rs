//! Which nodes go, and how many there should be. Those that have failed are taken out first: the others are counted without
//! them.

use shared_crds::NodePool;
use shared_crds::disruption::Account;

use crate::assess::membership::Member;
use crate::assess::removal_protection;
use crate::count::disruption_account;
use crate::count::sizing::{self, Sizing};
use crate::count::victim_selection::Victims;
use crate::remove::{self, Choice, Question, Removals};
use crate::{Observed, ObservedPods};

/// What is decided about the nodes of a pool together.
#[derive(Debug)]
pub(crate) struct Choices {
    /// Which nodes go, and why.
    pub removals: Removals,
    /// How many there should be.
    pub sizing: Sizing,
    /// What is left for disruptions after that.
    pub account: Account,
    /// Which go by number, and which would.
    pub victims: Victims,
}

/// Decides with the `sizing` of a pool in which no node has failed. `can_make` says that new nodes can be made.
pub(crate) fn choose(
    observed: &Observed,
    pool: &NodePool,
    members: &[Member],
    sizing: Sizing,
    pods: &ObservedPods,
    can_make: bool,
) -> Choices {
    let mut account = disruption_account::account(observed, pool, members, sizing.wanted);
    let mut question = Question {
        observed,
        pool,
        pods,
        going: observed.going(),
        brake: remove::brake(observed, pool, members, sizing.wanted),
        can_make: can_make && sizing.unasked.is_none(),
        account: &mut account,
        choice: Choice::default(),
    };
    let mut removals = Removals::default();
    removals.ask(&remove::FAILED, &mut question, members);
    let replaced = removals.names();
    let staying = || members.iter().filter(|member| member.stays());
    let known = removal_protection::protected(observed, pool, staying(), &ObservedPods::default());
    let protected = removal_protection::protected(observed, pool, staying(), pods);
    // For a node that turns out to ask to be left alone, none is made.
    let is_as_known = !sizing.rollout.is_active || known.keys().eq(protected.keys());
    // Without such nodes the number of nodes is what it was before the pods were read.
    let sizing = if replaced.is_empty() && is_as_known {
        sizing
    } else {
        sizing::size(observed, pool, members, &replaced, question.account, &protected)
    };
    let victims = sizing.victims(observed, members, pods, question.account);
    question.choice = Choice {
        reasons: victims.reasons.clone(),
        kept: victims.held.iter().chain(&victims.refused).cloned().collect(),
        outdated: sizing.rollout.outdated.keys().cloned().collect(),
    };
    removals.ask(&remove::BY_NUMBER, &mut question, members);
    Choices { removals, sizing, account, victims }
}
