//! A node whose machine is gone, or going, although the operator has not ended it: it is replaced, while few nodes of the pool
//! have failed. One whose machine another client is ending goes whatever the others are: that is decided.

use super::question::Question;
use super::verdict::Verdict;
use crate::assess::membership::Member;

/// Whether the node goes because its machine is lost.
pub(crate) fn ask(question: &mut Question<'_>, member: &Member) -> Verdict {
    if question.is_ended_elsewhere(member) {
        return Verdict::Go;
    }
    if question.observed.supply.removals_wait.is_some() || !member.is_lost() {
        return Verdict::No;
    }
    match &question.brake {
        Some(why) if !question.is_deleting() => question.held(why.clone()),
        _ => Verdict::Go,
    }
}
