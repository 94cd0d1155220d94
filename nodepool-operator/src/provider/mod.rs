//! The interface to machine providers: one trait, so that the rest of the operator knows no provider by name.
//!
//! A provider makes machines and reports their state. It does not decide how many, and it writes no Kubernetes object:
//! the planner and the writer turn a machine into a Node.

pub(crate) mod provisioner;
pub(crate) mod simulated;

use futures::future::BoxFuture;
use k8s_openapi::jiff::Timestamp;
use shared_crds::conditions::Reason;
use shared_crds::v1alpha1::ProviderSpec;

use crate::plan::PoolKey;

/// A request for one machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MachineRequest<'a> {
    /// The pool it is for.
    pub pool: &'a PoolKey,
    /// The name its Node will have.
    pub name: &'a str,
    /// The pool's `spec.provider`.
    pub spec: &'a ProviderSpec,
    /// Number of nodes and machines that the pool already has.
    pub existing: usize,
}

/// A provider did not make a machine. The text is for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProvisionError {
    /// The pool has reached its quota, this number of machines.
    #[error("the provider's quota of {0} nodes for this pool is used up")]
    Quota(i32),
    /// A machine did not start, for this reason.
    #[error("the provider could not start a machine for node {0}")]
    Failed(String),
    /// The spec names a provider that this version does not support.
    #[error("the pool names no provider that this version knows")]
    Unknown,
}

impl ProvisionError {
    /// The reason as conditions and metrics show it.
    pub(crate) const fn reason(&self) -> Reason {
        match self {
            Self::Quota(_) => Reason::QuotaExceeded,
            Self::Failed(_) => Reason::ProvisioningFailed,
            Self::Unknown => Reason::InvalidSpec,
        }
    }
}

/// State of a requested machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It is being made and expected at this time; `None` when the provider does not know.
    Starting(Option<Timestamp>),
    /// It runs.
    Running,
    /// It will never run.
    Failed(ProvisionError),
}

/// Makes machines. Every method may be called again with the same arguments: after a crash it is not known which calls
/// succeeded.
pub(crate) trait Provider: Send + Sync {
    /// Requests a machine. A request for a name that is already in flight changes nothing. Returns when the machine is
    /// expected; `None` when the provider does not know.
    fn request<'a>(
        &'a self,
        request: MachineRequest<'a>,
        now: Timestamp,
    ) -> BoxFuture<'a, Result<Option<Timestamp>, ProvisionError>>;

    /// Every machine of the pool that was requested and not dropped since, by node name.
    fn machines<'a>(&'a self, pool: &'a PoolKey, now: Timestamp) -> BoxFuture<'a, Vec<(String, Progress)>>;

    /// Drops the request for `name`: its Node exists, it failed, or the node is not wanted any more.
    fn drop_request<'a>(&'a self, pool: &'a PoolKey, name: &'a str) -> BoxFuture<'a, ()>;

    /// Drops all requests of a pool that is gone.
    fn drop_pool<'a>(&'a self, pool: &'a PoolKey) -> BoxFuture<'a, ()>;
}
