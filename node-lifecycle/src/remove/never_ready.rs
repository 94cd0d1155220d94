//! A node that was made for the pool and did not become Ready within `spec.provisioningTimeoutSeconds`: it is replaced, unless its
//! provider does that.

use super::question::Question;
use super::verdict::{Hold, Verdict};
use crate::assess::membership::{Member, start_timeout};
use crate::assess::node_states::ProviderDuty;

/// Whether the node goes because it has never started. It counts as such only after its pods were listed. Without the
/// finalizer its machine would be left when the Node goes, and become a Node again: it gets the finalizer first.
pub(crate) fn ask(question: &mut Question<'_>, member: &Member) -> Verdict {
    let Question { observed, pool, pods, .. } = question;
    if !member.has_timed_out(start_timeout(pool), observed.now) || !member.has_finalizer {
        return Verdict::No;
    }
    // The user bounds there how many are replaced at a time, which this rule does not know.
    if member.provider_duty != ProviderDuty::None {
        let why =
            format!("node {} has not started, and is left to its provider, which replaces it", member.name());
        return Verdict::Wait(Hold::Alone(why), None);
    }
    if let Some(why) = &observed.supply.removals_wait {
        return Verdict::Wait(Hold::Held(format!("has not started, and stays: {why}")), None);
    }
    if pods.of(member.name()).is_none() {
        return Verdict::Wait(
            Hold::Held("has not started, and its pods are not listed yet".to_owned()),
            None,
        );
    }
    Verdict::Go
}
