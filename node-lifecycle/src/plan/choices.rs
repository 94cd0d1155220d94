//! Which nodes go, and how many there should be. Those that have failed are taken out first: the others are counted without
//! them.

use shared_crds::NodePool;
use shared_crds::disruption::Account;

use crate::assess::membership::Member;
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
    let asked = sizing.undecided(observed, members, &account);
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
    // Only in the place of a node that turns out not to ask to be left alone one more is made.
    let has_learned =
        sizing.rollout.is_active && sizing.rollout.outdated.keys().any(|it| pods.of(it).is_some());
    // Otherwise the number of nodes is what it was before the pods were read.
    let sizing = if replaced.is_empty() && !has_learned {
        sizing
    } else {
        sizing::size(observed, pool, members, &replaced, question.account, pods)
    };
    let victims = sizing.victims(observed, members, pods, asked, question.account);
    question.choice = Choice {
        reasons: victims.reasons.clone(),
        kept: victims.held.iter().chain(&victims.refused).cloned().collect(),
        outdated: sizing.rollout.outdated.keys().cloned().collect(),
    };
    removals.ask(&remove::BY_NUMBER, &mut question, members);
    Choices { removals, sizing, account, victims }
}
