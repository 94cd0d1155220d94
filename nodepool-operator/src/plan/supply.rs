//! The state of the provider's requests for the pool, as data: the planner's view of `provider`.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;
use shared_crds::conditions::Reason;

/// A requested machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    /// Name that its Node will have.
    pub name: String,
    /// State of the machine.
    pub state: MachineState,
}

/// State of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MachineState {
    /// It is being made; `until` is when the provider expects it.
    Starting {
        /// Expected time; `None` when the provider does not know.
        until: Option<Timestamp>,
    },
    /// It runs and is ready to register as Node.
    Running,
}

impl MachineState {
    /// Sort key: running machines first, unknown times last.
    pub(crate) fn ready_at(self) -> Timestamp {
        match self {
            Self::Running => Timestamp::MIN,
            Self::Starting { until } => until.unwrap_or(Timestamp::MAX),
        }
    }
}

/// Why nodes are not being made as requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProvisioningFailure {
    /// Machine-readable reason.
    pub reason: Reason,
    /// Human-readable message.
    pub message: String,
    /// No new request is sent to the provider before this time.
    pub retry_at: Timestamp,
}

/// The state of the provider's requests for one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Supply {
    /// Requests that have neither failed nor been fulfilled.
    pub machines: Vec<Machine>,
    /// Names of the pool's slots that foreign nodes occupy.
    pub taken: BTreeSet<String>,
    /// The last failure, until a node is made again; `None` without one.
    pub failure: Option<ProvisioningFailure>,
}

impl Supply {
    /// Whether a node may be requested from the provider at `now`.
    pub(crate) fn may_request(&self, now: Timestamp) -> bool {
        self.failure.as_ref().is_none_or(|failure| failure.retry_at <= now)
    }
}
