//! The events of a pass: one for each kind of change, none for what is unchanged.
//!
//! Whether something lasting is new is read from the conditions, which nothing else is: they are what people have been told, and so
//! what need not be told again, also after a restart. Nothing but an event more or less depends on it.

use node_lifecycle::Stall;
use node_lifecycle::contested::MachinesContest;
use node_lifecycle::facts::Facts;
use node_lifecycle::outcome::{Applied, AppliedAction, Rejected};
use node_lifecycle::supply::ProvisioningFailure;
use shared_crds::conditions::{ConditionType, Reason};
use shared_crds::{NodePool, api_names};

use super::{provisioning, unknown_on_delete};

api_names! {
    /// What an event on a pool is about. `report` adds the type and the action.
    pub(crate) EventReason {
        /// Nodes were created, or machines registered themselves as nodes of the pool.
        ScaledUp,
        /// Nodes were cordoned for removal: there are more than asked for.
        ScalingDown,
        /// Nodes were cordoned for removal because they are out of date, or have the annotation `tandem.dev/replace`.
        RollingOut,
        /// Nodes were drained and removed.
        NodeRemoved,
        /// The pool is deleted with the annotation `tandem.dev/on-delete: Orphan`: nodes were taken out of it, and keep running.
        NodesReleased,
        /// The annotation `tandem.dev/on-delete` has an unknown value, so the deletion of the pool waits.
        DeletionWaits,
        /// Nodes that were to go are kept and uncordoned: they are needed again, or healthy again.
        DrainCancelled,
        /// Drains took longer than `spec.drain.timeoutSeconds` and were cancelled.
        DrainGivenBack,
        /// Something blocks a drain, most often a refused eviction. Once, until it is resolved.
        DrainBlocked,
        /// The provider did not make a node; the note is what it said.
        ProvisioningFailed,
        /// Machines went without the operator, so their nodes are replaced.
        MachineLost,
        /// Nodes were unhealthy for as long as `spec.repair` allows, and are replaced, or drained while their kubelets answer.
        NodeRepaired,
        /// Nodes did not register or become Ready in `provisioningTimeoutSeconds`, and are replaced.
        ProvisioningTimedOut,
        /// The API server, or the provider, does not accept a write.
        WriteRejected,
        /// Another writer has set the provider's number of machines.
        MachinesContested,
    }
}

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

/// The actions of which an event tells, in the order of the events, and the words before the names.
const TOLD: &[(AppliedAction, EventReason, &str)] = &[
    (AppliedAction::Create, EventReason::ScaledUp, "created"),
    (AppliedAction::Join, EventReason::ScaledUp, "registered"),
    (AppliedAction::DrainSurplus, EventReason::ScalingDown, "draining"),
    (AppliedAction::DrainOutdated, EventReason::RollingOut, "out of date, so draining"),
    (AppliedAction::DrainAsked, EventReason::RollingOut, "to be replaced by annotation, so draining"),
    (AppliedAction::Uncordon, EventReason::DrainCancelled, "cancelled the drain of"),
    (AppliedAction::GiveBack, EventReason::DrainGivenBack, "the drain took too long, so given back:"),
    (AppliedAction::Remove, EventReason::NodeRemoved, "removed"),
    (AppliedAction::Release, EventReason::NodesReleased, "released without a drain, and still running:"),
    (AppliedAction::Replace, EventReason::ProvisioningTimedOut, "not ready in time, so replaced:"),
    (AppliedAction::TimeOut, EventReason::ProvisioningTimedOut, "not registered in time, so deleted:"),
    (AppliedAction::DrainUnhealthy, EventReason::NodeRepaired, "unhealthy, so draining"),
    (AppliedAction::Repair, EventReason::NodeRepaired, "unhealthy, so replaced:"),
    (AppliedAction::ReplaceLost, EventReason::MachineLost, "the machine is gone, so replaced:"),
];

/// The events of a pass over `pool`. `failure` is a provider failure of this pass, not one that was known before;
/// `contest` says who set the provider's number of machines.
pub(crate) fn events(
    pool: &NodePool,
    applied: &Applied,
    failure: Option<&ProvisioningFailure>,
    contest: Option<&MachinesContest>,
) -> Vec<PoolEvent> {
    let mut events = Vec::new();
    for (action, reason, what) in TOLD {
        let nodes: Vec<&str> = applied.names(|other| other == *action).collect();
        if !nodes.is_empty() {
            events.push(PoolEvent { reason: *reason, note: format!("{what} {}", list(&nodes)) });
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
