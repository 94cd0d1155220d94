//! The events of a pass: one line for each kind of thing that changed, none for what stays as it was.

use shared_crds::NodePool;
use shared_crds::conditions::{ConditionType, Reason};

use super::supply::Trouble;
use super::{Applied, Rejected};

/// What an event is about. The shell knows how each is spelled on the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nodes were created.
    ScaledUp,
    /// Nodes began to leave.
    ScalingDown,
    /// Nodes are gone.
    NodeRemoved,
    /// Drains were called off.
    DrainCancelled,
    /// Evictions are refused, which holds a drain up.
    DrainBlocked,
    /// The provider did not make a node.
    ProvisioningFailed,
    /// Nodes did not become Ready in time.
    ProvisioningTimedOut,
    /// The API server will not take a write.
    WriteRejected,
}

/// An event to publish on the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// What it is about.
    pub kind: Kind,
    /// For people.
    pub text: String,
}

/// Names in one note; the rest is counted. Event notes end at 1,024 characters.
const MAX_NAMES: usize = 8;

/// The events of a pass over `pool`. `trouble` is a failure that the provider met in this pass, not one known before.
pub fn notes(pool: &NodePool, applied: &Applied, trouble: Option<&Trouble>) -> Vec<Note> {
    let mut notes = Vec::new();
    let mut tell = |kind, what: &str, nodes: &[String]| {
        if !nodes.is_empty() {
            notes.push(Note { kind, text: format!("{what} {}", list(nodes)) });
        }
    };
    tell(Kind::ScaledUp, "created", &applied.created);
    tell(Kind::ScalingDown, "draining", &applied.closed);
    tell(Kind::DrainCancelled, "called off the drain of", &applied.rescued);
    tell(Kind::NodeRemoved, "removed", &applied.removed);
    tell(Kind::ProvisioningTimedOut, "not ready in time, so replaced:", &applied.replaced);
    if let Some(trouble) = trouble {
        notes.push(Note { kind: Kind::ProvisioningFailed, text: trouble.message.clone() });
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

/// Whether the status already tells of this very rejection. A long message is cut there.
fn knows_of_rejection(pool: &NodePool, rejected: &Rejected) -> bool {
    let conditions = pool.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|condition| {
        let tells = [ConditionType::Stalled, ConditionType::ProvisioningHealthy];
        tells.iter().any(|type_| condition.type_ == type_.as_str())
            && condition.reason == rejected.reason.as_str()
            && rejected.message.starts_with(&condition.message)
    })
}

/// Whether the status already says that a drain is blocked.
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
