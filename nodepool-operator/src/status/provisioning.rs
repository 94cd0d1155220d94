//! Why the provider makes no nodes, and the condition about other writers of its number of machines.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use node_lifecycle::contested::MachinesContest;
use node_lifecycle::facts::Facts;
use node_lifecycle::numbers::nodes;
use shared_crds::NodePool;
use shared_crds::conditions::{ConditionType, Reason, Statement};
use shared_crds::v1alpha1::{OnContested, ProvisioningFailureStatus};

/// `status.provisioning.failure`, to be written to `fresh`: what is said by the condition `ProvisioningHealthy`, while it is `False`.
/// The time moves only when a failure begins.
pub(super) fn failure(
    fresh: &NodePool,
    healthy: &Statement,
    generation: Option<i64>,
    now: &Time,
) -> Option<ProvisioningFailureStatus> {
    if healthy.status != Some(false) {
        return None;
    }
    let provisioning = fresh.status.as_ref().and_then(|status| status.provisioning.as_ref());
    let before = provisioning.and_then(|provisioning| provisioning.failure.as_ref());
    Some(ProvisioningFailureStatus {
        reason: healthy.reason.as_str().to_owned(),
        message: healthy.written_message(),
        observed_generation: generation,
        since_time: before.map_or_else(|| now.clone(), |before| before.since_time.clone()),
    })
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
pub(super) fn set_by(contest: &MachinesContest) -> String {
    format!("{} has set the provider to {}", contest.writer(), machines(contest.record.machines))
}

/// `1 machine`, `2 machines`.
fn machines(count: i32) -> String {
    format!("{count} machine{}", if count == 1 { "" } else { "s" })
}
