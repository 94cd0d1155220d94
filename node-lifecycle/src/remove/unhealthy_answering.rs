//! A node that is to be repaired as `unhealthy` says, and whose kubelet answers: it is cordoned and drained, and a new one is made
//! at once. Its drain ends when it recovers, which `count::cancelled_drains` sees.

use super::question::Question;
use super::unhealthy;
use super::verdict::Verdict;
use crate::assess::membership::Member;

/// Whether the node is drained because it is unhealthy. One that leaves is drained already.
pub(crate) fn ask(question: &mut Question<'_>, member: &Member) -> Verdict {
    if member.stays() && !member.health.is_silent() {
        unhealthy::judge(question, member)
    } else {
        Verdict::No
    }
}
