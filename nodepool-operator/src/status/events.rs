//! The events of a pass: one for each kind of change, none for what is unchanged.

use shared_crds::NodePool;
use shared_crds::conditions::{ConditionType, Reason};

use crate::outcome::{Applied, Rejected};
use crate::plan::supply::ProvisioningFailure;

/// What an event is about. `report` maps it to the spelling of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nodes were created.
    ScaledUp,
    /// Nodes were cordoned for removal.
    ScalingDown,
    /// Nodes were removed.
    NodeRemoved,
    /// Drains were cancelled.
    DrainCancelled,
    /// Evictions are refused, which blocks a drain.
    DrainBlocked,
    /// The provider did not make a node.
    ProvisioningFailed,
    /// Nodes did not become Ready in time.
    ProvisioningTimedOut,
    /// The API server does not accept a write.
    WriteRejected,
}

/// An event to publish on the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    /// What the event is about.
    pub kind: Kind,
    /// Human-readable message.
    pub text: String,
}

/// Number of names in one event; the rest is counted. The note of an event is limited to 1,024 characters.
const MAX_NAMES: usize = 8;

/// The events of a pass over `pool`. `failure` is a provider failure of this pass, not one that was known before.
pub(crate) fn notes(pool: &NodePool, applied: &Applied, failure: Option<&ProvisioningFailure>) -> Vec<Note> {
    let mut notes = Vec::new();
    let mut tell = |kind, what: &str, nodes: &[String]| {
        if !nodes.is_empty() {
            notes.push(Note { kind, text: format!("{what} {}", list(nodes)) });
        }
    };
    tell(Kind::ScaledUp, "created", &applied.created);
    tell(Kind::ScalingDown, "draining", &applied.cordoned);
    tell(Kind::DrainCancelled, "called off the drain of", &applied.uncordoned);
    tell(Kind::NodeRemoved, "removed", &applied.removed);
    tell(Kind::ProvisioningTimedOut, "not ready in time, so replaced:", &applied.replaced);
    if let Some(failure) = failure {
        notes.push(Note { kind: Kind::ProvisioningFailed, text: failure.message.clone() });
    }
    if let Some(blocked) = applied.blocked.iter().min().filter(|_| !knows_of_block(pool)) {
        let text = format!("node {} waits for pod {}: {}", blocked.node, blocked.pod, blocked.message);
        notes.push(Note { kind: Kind::DrainBlocked, text });
    }
    if let Some(rejected) = applied.rejected.as_ref().filter(|rejected| !knows_of_rejection(pool, rejected)) {
        notes.push(Note { kind: Kind::WriteRejected, text: rejected.message.clone() });
    }
    notes
}

/// Whether the status already reports this very rejection. A long message is truncated there.
fn knows_of_rejection(pool: &NodePool, rejected: &Rejected) -> bool {
    let conditions = pool.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|condition| {
        let tells = [ConditionType::Stalled, ConditionType::ProvisioningHealthy];
        tells.iter().any(|type_| condition.type_ == type_.as_str())
            && condition.reason == rejected.reason.as_str()
            && rejected.message.starts_with(&condition.message)
    })
}

/// Whether the status already reports a blocked drain.
fn knows_of_block(pool: &NodePool) -> bool {
    let conditions = pool.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|condition| condition.reason == Reason::DrainBlocked.as_str())
}

fn list(nodes: &[String]) -> String {
    let shown = nodes.iter().take(MAX_NAMES).cloned().collect::<Vec<_>>().join(", ");
    let count = nodes.len();
    let noun = if count == 1 { "node" } else { "nodes" };
    let more = if count > MAX_NAMES { ", …" } else { "" };
    format!("{count} {noun}: {shown}{more}")
}
