//! A node that was made from another template, or is too old, and that the rollout can miss now. How many it can,
//! `count::rollout` says; which go first, `count::removal_order`.

use super::question::Question;
use super::verdict::Verdict;
use crate::assess::membership::Member;
use crate::assess::outdated::is_for_rollout;

/// Whether the node goes because it is out of date.
pub(crate) fn ask(question: &mut Question<'_>, member: &Member) -> Verdict {
    let choice = &question.choice;
    match choice.of(member, |reason| is_for_rollout(Some(reason))) {
        Verdict::No if choice.outdated.contains(member.name()) => choice.kept(member),
        verdict => verdict,
    }
}
