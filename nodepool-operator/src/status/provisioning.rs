//! What is remembered about a pool's provider, and the condition about other writers of its number of machines.

use shared_crds::NodePool;
use shared_crds::conditions::{ConditionType, Reason, Statement};
use shared_crds::v1alpha1::{OnContested, ProvisioningStatus};

use super::facts::Facts;
use crate::plan::contested::Contest;
use crate::plan::numbers::{nodes, number};

/// `status.provisioning`; `None` where there is nothing to remember.
pub(super) fn remembered(pool: &NodePool, facts: &Facts) -> Option<ProvisioningStatus> {
    let before = || Some(pool.status.as_ref()?.provisioning.as_ref()?.capacity.clone());
    let status = ProvisioningStatus {
        // A list that fails takes nothing back.
        capacity: if facts.is_unknown { before().unwrap_or_default() } else { facts.capacity.clone() },
        machines: facts.machines.written.or_else(|| asked_for(pool, facts)),
        contested: facts.machines.contest.as_ref().map(|contest| contest.record.clone()),
        ..facts.provisioning.clone()
    };
    (status != ProvisioningStatus::default()).then_some(status)
}

/// The number of machines that a provider was asked for which keeps no number. Machines that were not asked for, and a list
/// that could not be read, do not change it.
fn asked_for(pool: &NodePool, facts: &Facts) -> Option<i32> {
    let before = || pool.status.as_ref()?.provisioning.as_ref()?.machines;
    let is_known = facts.stalled.is_none() && !facts.is_unknown && facts.unreadable.is_empty();
    if is_known { Some(number(facts.staying + facts.in_flight)) } else { before() }
}

/// Whether another writer has set the number of machines, and what the pool does about it.
pub(super) fn machines_contested(pool: &NodePool, facts: &Facts) -> Statement {
    let say = |status: bool, reason, message| {
        Statement::new(ConditionType::MachinesContested, status, reason, message)
    };
    let Some(contest) = &facts.machines.contest else {
        let message = match facts.machines.written {
            Some(count) => format!("the provider keeps {}, as the operator asked it to", machines(count)),
            None => "the provider keeps no number of machines".to_owned(),
        };
        return say(false, Reason::NotContested, message);
    };
    let (what, until) = (set_by(contest), contest.until());
    match contest.response {
        OnContested::Yield => {
            let kept = nodes(facts.wanted);
            let own = nodes(usize::try_from(pool.spec.effective_replicas()).unwrap_or_default());
            let message = format!(
                "{what}: the pool keeps {kept} until {until}, or until a user sets the pool's own replicas; then {own}"
            );
            say(true, Reason::Yielded, message)
        }
        OnContested::Reclaim => {
            let message = format!(
                "{what}: overruled, the pool runs {}; scale the pool instead, with kubectl scale nodepools.tandem.dev",
                nodes(facts.wanted)
            );
            say(true, Reason::Reclaimed, message)
        }
    }
}

/// What another writer has done.
pub(super) fn set_by(contest: &Contest) -> String {
    format!("{} has set the provider to {}", contest.writer(), machines(contest.record.machines))
}

/// `1 machine`, `2 machines`.
fn machines(count: i32) -> String {
    format!("{count} machine{}", if count == 1 { "" } else { "s" })
}
