//! The interface to machine providers, so that the rest of the operator knows no provider by name: what depends on the
//! provider of a pool (whether its spec is valid, how a machine becomes a Node) is data that the provider returns.
//!
//! A provider makes machines under names that the operator chooses, and reports their state. It does not decide how
//! many, and it writes no Node: the planner and the writer turn a machine into one.

#[cfg(test)]
mod contract_tests;
pub(crate) mod exec;
mod failures;
pub(crate) mod karpenter;
mod known_ids;
pub(crate) mod provisioner;
mod simulated;

use futures::future::BoxFuture;
use k8s_openapi::jiff::Timestamp;
use shared_crds::conditions::Reason;
use shared_crds::v1alpha1::{NodePoolSpec, ProviderSpec};

use crate::plan::PoolKey;
use crate::plan::supply::NodeSource;

/// A request for one machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MachineRequest<'a> {
    /// The pool it is for.
    pub pool: &'a PoolKey,
    /// The name its Node will have, which is also the key of the request.
    pub name: &'a str,
    /// The pool's spec.
    pub spec: &'a NodePoolSpec,
    /// Number of nodes and machines that the pool already has.
    pub existing: usize,
}

/// A call to a provider failed, or a machine was not made. The text is for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProviderError {
    /// There is no quota or no capacity left. Asked again after the backoff, and at once when the spec changes.
    #[error("the provider has no capacity left: {0}")]
    Quota(String),
    /// The spec asks for what the provider does not have. Nothing is requested until the spec changes.
    #[error("spec.provider is invalid: {0}")]
    Invalid(String),
    /// The provider does not accept the operator's credentials. Asked again after the backoff: somebody may renew them.
    #[error("the provider refuses the credentials of nodepool-operator: {0}")]
    Unauthorized(String),
    /// It failed and may succeed later. Asked again after the backoff.
    #[error("the provider failed: {0}")]
    Transient(String),
    /// There was no answer, so it is not known what the call did or which machines there are. Asked again after the
    /// backoff; until then nothing is concluded from what is missing.
    #[error("the provider does not answer: {0}")]
    Unreachable(String),
}

impl ProviderError {
    /// The reason as conditions and metrics show it.
    pub(crate) const fn reason(&self) -> Reason {
        match self {
            Self::Quota(_) => Reason::QuotaExceeded,
            Self::Invalid(_) => Reason::InvalidSpec,
            Self::Unauthorized(_) => Reason::ProviderUnauthorized,
            Self::Transient(_) => Reason::ProvisioningFailed,
            Self::Unreachable(_) => Reason::ProviderUnreachable,
        }
    }
}

/// State of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It is being made and expected at this time; `None` when the provider does not know.
    Starting(Option<Timestamp>),
    /// It runs.
    Running,
    /// It will never run.
    Failed(ProviderError),
    /// It is being deleted.
    Deleting,
}

/// A machine of a pool, as its provider lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedMachine {
    /// The name it was requested under.
    pub name: String,
    /// State of the machine.
    pub progress: Progress,
    /// `spec.providerID` of the Node that it registers; `None` when the provider does not know it yet.
    pub provider_id: Option<String>,
}

/// The result of a deletion that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Deletion {
    /// The machine is gone, or never was.
    Gone,
    /// It has begun. The machine is listed until it is gone, and a repeated deletion says when that is.
    Started,
    /// It has begun, and whoever carries it out keeps the machine's Node until the machine is gone. Such a deletion waits for
    /// the Node, so nothing else may keep that.
    HandedOver,
}

/// Makes machines under names that the operator chooses. Every method may be called again with the same arguments:
/// after a crash it is not known which calls succeeded.
pub(crate) trait NamedProvider: Send + Sync {
    /// What `ProviderSpec::reference` returns for a spec that selects this provider.
    fn reference(&self) -> &str;

    /// How the machines of a pool with this spec become Nodes.
    fn node_source(&self, spec: &ProviderSpec) -> Result<NodeSource, ProviderError>;

    /// Creates a machine. One that exists under this name stays as it is. Returns when the machine is expected; `None`
    /// when the provider does not know.
    fn create<'a>(
        &'a self,
        request: MachineRequest<'a>,
        now: Timestamp,
    ) -> BoxFuture<'a, Result<Option<Timestamp>, ProviderError>>;

    /// Every machine of the pool that was created and not deleted since. An empty list is no reason to delete anything.
    fn list<'a>(
        &'a self,
        pool: &'a PoolKey,
        now: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<ListedMachine>, ProviderError>>;

    /// Deletes the machine `name`, or cancels its creation.
    fn delete<'a>(
        &'a self,
        pool: &'a PoolKey,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Deletion, ProviderError>>;

    /// Forgets a pool that is gone, with its nodes.
    fn forget(&self, pool: &PoolKey);
}
