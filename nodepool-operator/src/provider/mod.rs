//! Who makes machines, behind one trait, so that the rest of the operator knows no provider by name.
//!
//! A provider makes machines and says what became of them. It does not decide how many, and it writes no Kubernetes
//! object: how a machine becomes a Node is the planner's and the write door's business.

pub mod procurement;
pub mod simulated;

use futures::future::BoxFuture;
use k8s_openapi::jiff::Timestamp;
use shared_crds::conditions::Reason;
use shared_crds::v1alpha1::ProviderSpec;

use crate::plan::PoolKey;

/// A request for one machine.
#[derive(Clone, Copy, Debug)]
pub struct Order<'a> {
    /// The pool it is for.
    pub pool: &'a PoolKey,
    /// The name its Node will have.
    pub name: &'a str,
    /// The pool's `spec.provider`.
    pub spec: &'a ProviderSpec,
    /// Nodes and machines that the pool has already.
    pub existing: usize,
}

/// A provider did not make a machine. The text is for the pool's owner.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The pool has as many machines as it may have.
    #[error("the provider's quota of {0} nodes for this pool is used up")]
    Quota(i32),
    /// A machine did not come up.
    #[error("the provider could not start a machine for node {0}")]
    Failed(String),
    /// The spec names a provider that is not known here.
    #[error("the pool names no provider that this version knows")]
    Unknown,
}

impl Refusal {
    /// The reason as conditions and metrics show it.
    pub const fn reason(&self) -> Reason {
        match self {
            Self::Quota(_) => Reason::QuotaExceeded,
            Self::Failed(_) => Reason::ProvisioningFailed,
            Self::Unknown => Reason::InvalidSpec,
        }
    }
}

/// What has become of a machine that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is being made and expected at this time, where the provider knows one.
    Starting(Option<Timestamp>),
    /// It runs.
    Running,
    /// It will never run.
    Failed(Refusal),
}

/// Makes machines. Every method may be called again with the same arguments: after a crash nothing says which calls
/// went through.
pub trait Provider: Send + Sync {
    /// Asks for a machine. A request for a name that is in flight already changes nothing. The answer is when the
    /// machine is expected, where the provider knows.
    fn request<'a>(
        &'a self,
        order: Order<'a>,
        now: Timestamp,
    ) -> BoxFuture<'a, Result<Option<Timestamp>, Refusal>>;

    /// Every machine of the pool that was asked for and not dropped since, by node name.
    fn machines<'a>(&'a self, pool: &'a PoolKey, now: Timestamp) -> BoxFuture<'a, Vec<(String, Progress)>>;

    /// The request for `name` is no longer of interest: its Node exists, it failed, or the node is not wanted any more.
    fn drop_request<'a>(&'a self, pool: &'a PoolKey, name: &'a str) -> BoxFuture<'a, ()>;

    /// The pool is gone.
    fn drop_pool<'a>(&'a self, pool: &'a PoolKey) -> BoxFuture<'a, ()>;
}
