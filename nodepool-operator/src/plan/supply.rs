//! What the node provider is doing for the pool, as data: the planner's view of `provider`.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;
use shared_crds::conditions::Reason;

/// A machine that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Name that its Node will have.
    pub name: String,
    /// How far it has come.
    pub state: MachineState,
}

/// How far a machine has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineState {
    /// It is being made; `until` is when the provider expects it, where it knows.
    Starting {
        /// Expected time.
        until: Option<Timestamp>,
    },
    /// It runs and wants to register as Node.
    Running,
}

impl MachineState {
    /// For sorting: running machines first, unknown times last.
    pub fn ready_at(self) -> Timestamp {
        match self {
            Self::Running => Timestamp::MIN,
            Self::Starting { until } => until.unwrap_or(Timestamp::MAX),
        }
    }
}

/// Why nodes are not being made as asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// For machines.
    pub reason: Reason,
    /// For people.
    pub message: String,
    /// The provider is not asked again before this time.
    pub retry_at: Timestamp,
}

/// What the provider is doing for one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Supply {
    /// Requests that are neither failed nor fulfilled.
    pub machines: Vec<Machine>,
    /// Names of the pool's slots that nodes of somebody else hold.
    pub taken: BTreeSet<String>,
    /// The last failure, until a node is made again.
    pub trouble: Option<Trouble>,
}

impl Supply {
    /// Whether the provider may be asked for nodes at `now`.
    pub fn may_ask(&self, now: Timestamp) -> bool {
        self.trouble.as_ref().is_none_or(|trouble| trouble.retry_at <= now)
    }
}
