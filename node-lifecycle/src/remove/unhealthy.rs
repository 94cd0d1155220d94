//! A node that was made for the pool, has been Ready, and has had a condition of `spec.repair` for as long as that says: it is
//! replaced, while few nodes have failed, new ones can be made, and the budgets allow, unless a user keeps it. So is one that is
//! being drained, where its kubelet is silent: nothing ends its pods then, and their budgets may wait for them for ever.

use k8s_openapi::jiff::Timestamp;
use shared_crds::names;
use shared_crds::v1alpha1::DisruptionReason;

use super::question::Question;
use super::verdict::{Hold, Verdict};
use crate::assess::drain_limits::DrainLimits;
use crate::assess::health;
use crate::assess::membership::Member;
use crate::assess::node_states::{NodeReadiness, ProviderDuty};

/// Whether the node goes at once, because it is unhealthy and its kubelet is silent. One whose kubelet answers can recover, and is
/// drained: see `unhealthy_answering`.
pub(crate) fn ask(question: &mut Question<'_>, member: &Member) -> Verdict {
    if member.health.is_silent() { judge(question, member) } else { Verdict::No }
}

/// Whether the node is to be repaired. What becomes of one that has lost its machine is decided elsewhere.
pub(super) fn judge(question: &mut Question<'_>, member: &Member) -> Verdict {
    let (observed, pool) = (question.observed, question.pool);
    let is_replaced = observed.supply.removals_wait.is_none() && !question.is_deleting();
    let is_lost = member.is_lost() || question.is_ended_elsewhere(member);
    let was_made = member.readiness != NodeReadiness::Starting && health::has_machine(member);
    // What has been deleted cannot be deleted again.
    let is_deleted = member.leaving.is_some_and(|leaving| leaving.deleting);
    let is_drained_by_provider = member.provider_duty == ProviderDuty::Drains;
    if !is_replaced || is_lost || !was_made || is_deleted || is_drained_by_provider {
        return Verdict::No;
    }
    let conditions = health::of_repair(pool, member);
    let Some(condition) = health::unhealthy_condition(observed, &conditions, &member.node) else {
        return Verdict::No;
    };
    if member.provider_duty == ProviderDuty::Repairs {
        let why = format!("unhealthy node {} is left to its provider, which replaces it", member.name());
        return Verdict::Wait(Hold::Alone(why), None);
    }
    if member.skips_repair {
        let skips = names::SKIP_REPAIR_ANNOTATION;
        let why = format!("unhealthy node {} is not replaced: it has the annotation {skips}", member.name());
        return Verdict::Wait(Hold::Alone(why), None);
    }
    if condition.due > observed.now {
        let why = condition.to_string();
        let hold = if member.stays() {
            Hold::NotDue { since: condition.since, why }
        } else {
            Hold::Alone(format!("node {} {why}", member.name()))
        };
        return Verdict::Wait(hold, Some(condition.due));
    }
    if let Some(end) = rests_until(question, member) {
        let why = format!(
            "unhealthy node {} is not drained again yet: its last drain took too long",
            member.name()
        );
        return Verdict::Wait(Hold::Alone(why), Some(end));
    }
    if let Some(why) = &question.brake {
        return question.held(why.clone());
    }
    // It goes whether or not another one comes, and is in the account for the reason that it leaves for.
    if !member.stays() {
        return Verdict::Go;
    }
    if !question.can_make || !observed.supply.may_request(observed.now) {
        return question.held("unhealthy nodes are not replaced while no new nodes can be made".to_owned());
    }
    match question.account.take(DisruptionReason::Repair) {
        Ok(()) => Verdict::Go,
        Err(refusal) => {
            let why = format!("unhealthy node {} has to wait: {refusal}", member.name());
            Verdict::Wait(Hold::Held(why), question.account.next())
        }
    }
}

/// Until when the node is not drained again, as after every drain that was given back. A silent one is not drained.
fn rests_until(question: &Question<'_>, member: &Member) -> Option<Timestamp> {
    let rests = member.rests_until(DrainLimits::of(question.pool), question.observed.now);
    rests.filter(|_| !member.health.is_silent())
}
