//! A node that is one too many: first those that the Autoscaler has named, then those whose removal costs the least. How many
//! are too many, `count::sizing` says; which go first, `count::removal_order`.

use super::question::Question;
use super::verdict::Verdict;
use crate::assess::membership::Member;
use crate::assess::outdated::is_for_rollout;

/// Whether the node goes because there are too many.
pub(crate) fn ask(question: &mut Question<'_>, member: &Member) -> Verdict {
    let choice = &question.choice;
    match choice.of(member, |reason| !is_for_rollout(Some(reason))) {
        Verdict::No if !choice.outdated.contains(member.name()) => choice.kept(member),
        verdict => verdict,
    }
}
