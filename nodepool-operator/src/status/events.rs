//! The events of a pass: one for each kind of change, none for what is unchanged.
//!
//! Whether something lasting is new is read from the conditions, which nothing else is: they are what people have been told, and so
//! what need not be told again, also after a restart. Nothing but an event more or less depends on it.

use node_lifecycle::Stall;
use node_lifecycle::contested::MachinesContest;
use node_lifecycle::facts::Facts;
use node_lifecycle::outcome::{Applied, EventReason, Rejected};
use node_lifecycle::supply::ProvisioningFailure;
use shared_crds::NodePool;
use shared_crds::conditions::{ConditionType, Reason};

use super::{provisioning, unknown_on_delete};

/// An event to publish on the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PoolEvent {
    /// What the event is about.
    pub reason: EventReason,
    /// Human-readable message.
    pub note: String,
}

/// Number of names in one event; the rest is counted. The note of an event is limited to 1,024 characters.
const MAX_NAMES: usize = 8;

/// The events of a pass over `pool`. `failure` is a provider failure of this pass, not one that was known before;
/// `contest` says who set the provider's number of machines.
pub(crate) fn events(
    pool: &NodePool,
    applied: &Applied,
    failure: Option<&ProvisioningFailure>,
    contest: Option<&MachinesContest>,
) -> Vec<PoolEvent> {
    let mut events = Vec::new();
    for (action, nodes) in applied.by_action() {
        if let Some(told) = action.told() {
            events.push(PoolEvent { reason: told.reason, note: format!("{} {}", told.words, list(&nodes)) });
        }
    }
    if let Some(failure) = failure {
        events.push(PoolEvent { reason: EventReason::ProvisioningFailed, note: failure.message.clone() });
    }
    if let Some(contest) = contest.filter(|contest| contest.is_new) {
        let note = provisioning::set_by(contest);
        events.push(PoolEvent { reason: EventReason::MachinesContested, note });
    }
    if let Some((node, by)) = applied.blocked().min().filter(|_| !reports_block(pool)) {
        let note = format!("node {node} {by}");
        events.push(PoolEvent { reason: EventReason::DrainBlocked, note });
    }
    if let Some(rejected) = applied.rejected.as_ref().filter(|rejected| !reports_rejection(pool, rejected)) {
        events.push(PoolEvent { reason: EventReason::WriteRejected, note: rejected.message.clone() });
    }
    events
}

/// The event of a pool whose deletion waits for its user, unless the status already says so of the same value.
pub(crate) fn deletion_waits(pool: &NodePool, facts: &Facts) -> Option<PoolEvent> {
    let Stall { reason: _, message } = unknown_on_delete(facts)?;
    let mut conditions = pool.status.iter().flat_map(|status| &status.conditions);
    let is_said = conditions.any(|condition| {
        condition.reason == Reason::UnknownOnDelete.as_str() && condition.message == *message
    });
    (!is_said).then(|| PoolEvent { reason: EventReason::DeletionWaits, note: message.clone() })
}

/// Whether the status already reports this very rejection. A long message is truncated there.
fn reports_rejection(pool: &NodePool, rejected: &Rejected) -> bool {
    let conditions = pool.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|condition| {
        let types = [ConditionType::Stalled, ConditionType::ProvisioningHealthy];
        types.iter().any(|type_| condition.type_ == type_.as_str())
            && condition.reason == rejected.reason.as_str()
            && rejected.message.starts_with(&condition.message)
    })
}

/// Whether the status already reports a blocked drain.
fn reports_block(pool: &NodePool) -> bool {
    let conditions = pool.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|condition| condition.reason == Reason::DrainBlocked.as_str())
}

fn list(nodes: &[&str]) -> String {
    let shown = nodes.iter().take(MAX_NAMES).copied().collect::<Vec<_>>().join(", ");
    let count = nodes.len();
    let noun = if count == 1 { "node" } else { "nodes" };
    let more = if count > MAX_NAMES { ", …" } else { "" };
    format!("{count} {noun}: {shown}{more}")
}
