//! Machine providers: who makes the machines of a pool. The rest of the operator knows no provider by name: what depends on the
//! provider of a pool (whether its spec is valid, how a machine becomes a Node) is data that the provider returns.
//!
//! A provider makes machines and reports their state. It does not decide how many, and it writes no Node: the planner and the
//! writer turn a machine into one. There are two shapes:
//!
//! - a named provider, [`NamedProvider`], makes machines under names that the operator chooses: `simulated`, [`exec`], `karpenter`;
//! - a sized provider keeps a number of machines and names them itself: [`cluster_api`].
//!
//! A call fails with a [`ProviderError`]. [`provisioner`] calls the providers of both shapes, and remembers what failed. What
//! every provider has to do is in `contract_tests` and `sized_contract_tests`, which run against each of them, and in
//! `trouble_contract_tests`, which run against all of them.
//!
//! What a provider says is data of the crate `node-lifecycle`, which decides from it.

mod api_errors;
pub mod calls;
pub mod cluster_api;
#[cfg(test)]
mod contract_tests;
pub mod exec;
mod failures;
#[cfg(test)]
mod hands;
mod karpenter;
mod known_ids;
mod lists;
mod origin;
mod pauses;
pub mod provisioner;
mod selected;
mod simulated;
#[cfg(test)]
mod sized_contract_tests;
mod slot_failures;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod trouble_contract_tests;
mod unending;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::jiff::Timestamp;
use node_lifecycle::keys::PoolKey;
use node_lifecycle::supply::{Completeness, KnownAs, NodeSource, NodeTraits, ProviderDuties, Size};
use shared_crds::conditions::Reason;
use shared_crds::v1alpha1::{NodePoolSpec, ProviderSpec};

use self::pauses::MAX_RETRY_AFTER;

/// How long a call to a provider may take. The pool waits for it, and other pools do not.
const CALL_LIMIT: Duration = Duration::from_secs(30);

/// A request for one machine.
#[derive(Clone, Copy, Debug)]
pub struct MachineRequest<'a> {
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
pub enum ProviderError {
    /// There is no quota or no capacity left. Asked again after the backoff, and at once when the spec changes.
    #[error("the provider has no capacity left: {0}")]
    Quota(String),
    /// The spec asks for what the provider does not have. Nothing is requested until the spec changes.
    #[error("spec.provider is invalid: {0}")]
    Invalid(String),
    /// What the spec names does not exist, so there are no machines of it either. Asked again after the backoff.
    #[error("spec.provider is invalid: {0}")]
    Absent(String),
    /// The provider does not accept the operator's credentials. Asked again after the backoff: an administrator may renew them.
    #[error("the provider refuses the credentials of nodepool-operator: {0}")]
    Unauthorized(String),
    /// It failed and may succeed later. Asked again after the backoff.
    #[error("the provider failed: {0}")]
    Transient(String),
    /// There was no answer, so it is not known what the call did or which machines there are. Asked again after the
    /// backoff; until then nothing is concluded from what is missing.
    #[error("the provider does not answer: {0}")]
    Unreachable(String),
    /// It has more to do than it may at one time, so nothing was asked of it. Asked again after the backoff.
    #[error("the provider is busy: {0}")]
    Busy(String),
    /// It asks to be left alone for this long, and did nothing. Asked again after that, or after the backoff if that is longer. Made
    /// by [`Self::throttled`].
    #[error("the provider is busy: {0}")]
    Throttled(String, Duration),
    /// Another writer changed the provider's objects first, or this process no longer leads. That is no failure: the pass is
    /// repeated.
    #[error("another writer was first")]
    Conflict,
}

impl ProviderError {
    /// The provider asks to be left alone for so long, at most five minutes.
    pub fn throttled(message: String, retry_after: Duration) -> Self {
        Self::Throttled(message, retry_after.min(MAX_RETRY_AFTER))
    }

    /// For how long the provider asks to be left alone; `None` when it does not.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Throttled(_, after) => Some(*after),
            _ => None,
        }
    }

    /// The short name under which the metrics count it.
    pub const fn category(&self) -> &'static str {
        match self {
            Self::Quota(_) => "quota",
            Self::Invalid(_) => "invalid",
            Self::Absent(_) => "absent",
            Self::Unauthorized(_) => "unauthorized",
            Self::Transient(_) => "transient",
            Self::Unreachable(_) => "unreachable",
            Self::Busy(_) => "busy",
            Self::Throttled(..) => "throttled",
            Self::Conflict => "conflict",
        }
    }

    /// The reason as conditions and metrics show it.
    pub const fn reason(&self) -> Reason {
        match self {
            Self::Quota(_) => Reason::QuotaExceeded,
            Self::Invalid(_) | Self::Absent(_) => Reason::InvalidSpec,
            Self::Unauthorized(_) => Reason::ProviderUnauthorized,
            Self::Transient(_) | Self::Busy(_) | Self::Throttled(..) | Self::Conflict => {
                Reason::ProvisioningFailed
            }
            Self::Unreachable(_) => Reason::ProviderUnreachable,
        }
    }

    /// Whether it may be about one machine only, so that another one may be had. All others concern the provider as a whole.
    pub const fn may_be_of_one_machine(&self) -> bool {
        match self {
            Self::Invalid(_) | Self::Transient(_) => true,
            Self::Quota(_)
            | Self::Absent(_)
            | Self::Unauthorized(_)
            | Self::Unreachable(_)
            | Self::Busy(_)
            | Self::Throttled(..)
            | Self::Conflict => false,
        }
    }
}

/// Why a machine did not come, or was given up, in its provider's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Explanation {
    /// There was no capacity or no quota for it.
    NoCapacity(String),
    /// Anything else.
    Other(String),
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::NoCapacity(words) | Self::Other(words)) = self;
        f.write_str(words)
    }
}

/// State of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
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
pub struct ListedMachine {
    /// The name it was requested under.
    pub name: String,
    /// State of the machine.
    pub progress: Progress,
    /// `spec.providerID` of the Node that it registers; `None` when the provider does not know it yet.
    pub provider_id: Option<String>,
    /// Hash of the template it was made from; `None` when the provider does not know it.
    pub template_hash: Option<String>,
    /// The provider says that it would make the machine from something else now, such as a newer image: it is replaced by a rollout.
    pub is_outdated: bool,
    /// The cluster it was made for; `None` when the provider does not know it.
    pub cluster: Option<String>,
    /// By what its Node could be known here.
    pub known_as: KnownAs,
}

/// The result of a deletion that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deletion {
    /// The machine is gone, or never was.
    Gone,
    /// It has begun. The machine is listed until it is gone, and a repeated deletion says when that is.
    Started,
    /// It has begun, and the provider that carries it out keeps the machine's Node until the machine is gone. Such a deletion waits for
    /// the Node, so nothing else may keep that.
    HandedOver,
}

/// Makes machines under names that the operator chooses. Every method may be called again with the same arguments:
/// after a crash it is not known which calls succeeded.
pub trait NamedProvider: Send + Sync {
    /// What `ProviderSpec::reference` returns for a spec that selects this provider.
    fn reference(&self) -> &str;

    /// How long a call may take.
    fn call_limit(&self) -> Duration {
        CALL_LIMIT
    }

    /// Whether it answers from the memory of this process, so that a list costs nothing: it is never kept, and never waited for.
    fn is_local(&self) -> bool {
        false
    }

    /// Whether its calls are counted against the rate that the operator keeps. An API server bounds its clients itself.
    fn has_call_rate(&self) -> bool {
        false
    }

    /// How the machines of a pool with this spec become Nodes. [`ProviderError::Invalid`] when the spec does not select this
    /// provider.
    fn node_source(&self, spec: &ProviderSpec) -> Result<NodeSource, ProviderError>;

    /// The spec of the pool, before its machines are listed: for a provider whose list depends on it.
    fn spec_is(&self, _: &PoolKey, _: &ProviderSpec) {}

    /// By the machine's name, the Nodes that differ from the pool's template. Only for machines whose Node the operator
    /// creates.
    fn traits(&self, _: &PoolKey) -> BTreeMap<String, NodeTraits> {
        BTreeMap::new()
    }

    /// Why a machine of the pool that was listed last does not start, in its provider's words; `None` when it does not
    /// says so.
    fn trouble(&self, _: &PoolKey) -> Option<String> {
        None
    }

    /// Why the machine `name` did not come, or was given up, in its provider's words; `None` when it does not say
    /// so. Asked after a list that showed it without a Node, or did not show it.
    fn explain<'a>(&'a self, _: &'a PoolKey, _: &'a str) -> BoxFuture<'a, Option<Explanation>> {
        Box::pin(std::future::ready(None))
    }

    /// Creates a machine. One that exists under this name stays as it is. Returns when the machine is expected; `None`
    /// when the provider does not know. [`ProviderError::Unreachable`] when it is not known whether the machine was made.
    fn create<'a>(
        &'a self,
        request: MachineRequest<'a>,
        now: Timestamp,
    ) -> BoxFuture<'a, Result<Option<Timestamp>, ProviderError>>;

    /// What it means that a machine was not in the last list.
    fn completeness(&self, _: &PoolKey) -> Completeness {
        Completeness::Unknown
    }

    /// Every machine of the pool that was created and not deleted since. An empty list is no reason to delete anything.
    /// [`ProviderError::Absent`] when there can be none; after every other error it is not known which there are.
    fn list<'a>(
        &'a self,
        pool: &'a PoolKey,
        now: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<ListedMachine>, ProviderError>>;

    /// Deletes the machine `name`, or cancels its creation. After an error the machine may run, and the call is repeated.
    fn delete<'a>(
        &'a self,
        pool: &'a PoolKey,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Deletion, ProviderError>>;

    /// Forgets a pool that is gone, with its nodes.
    fn forget(&self, pool: &PoolKey);
}

/// The machines of a provider that keeps a number of them.
#[derive(Clone, Debug)]
pub(crate) struct SizedList {
    /// The number it keeps.
    pub size: Size,
    /// The field manager that wrote the number last; `None` where it is not recorded.
    pub size_writer: Option<String>,
    /// Capacity of one machine by resource name, as far as the provider says it.
    pub capacity: BTreeMap<String, Quantity>,
    /// Its machines, those that are promised and do not exist yet included, and whether each carries a mark by which it
    /// goes first although it need not.
    pub machines: Vec<(ListedMachine, bool)>,
    /// Why no machine may be removed now; `None` when one may.
    pub removals_wait: Option<String>,
    /// How it says that it replaces machines of an earlier template; `None` when it does not.
    pub rolling: Option<String>,
    /// What it does with machines by itself.
    pub duties: ProviderDuties,
    /// Whether the list is complete.
    pub completeness: Completeness,
}

/// Keeps a number of machines, and names them itself. Every change is made from a [`Size`] that was observed: if the
/// provider has another one by then, the result is [`ProviderError::Conflict`].
pub(crate) trait SizedProvider: Send + Sync {
    /// The name of the set of machines that `reference` means; `None` when it means another provider.
    fn deployment<'a>(&self, reference: &'a str) -> Option<&'a str>;

    /// The field of `spec.provider`.
    fn kind(&self) -> &'static str;

    /// How the machines of a pool with this spec become Nodes.
    fn node_source(&self, spec: &ProviderSpec) -> Result<NodeSource, ProviderError>;

    /// The machines.
    fn list<'a>(
        &'a self,
        pool: &'a PoolKey,
        name: &'a str,
    ) -> BoxFuture<'a, Result<SizedList, ProviderError>>;

    /// Asks for `by` more machines.
    fn grow<'a>(
        &'a self,
        pool: &'a PoolKey,
        name: &'a str,
        from: Size,
        by: i32,
    ) -> BoxFuture<'a, Result<(), ProviderError>>;

    /// Asks for as many machines less as it has of those in `without`, and for those to be the ones that go. They have no
    /// Nodes.
    fn shrink<'a>(
        &'a self,
        pool: &'a PoolKey,
        name: &'a str,
        from: Size,
        without: &'a [String],
    ) -> BoxFuture<'a, Result<(), ProviderError>>;

    /// Deletes one machine, whose Node is drained. May be repeated until it is gone.
    fn delete<'a>(
        &'a self,
        pool: &'a PoolKey,
        name: &'a str,
        machine: &'a str,
    ) -> BoxFuture<'a, Result<Deletion, ProviderError>>;

    /// Takes a mark off a machine that need not go.
    fn keep<'a>(&'a self, pool: &'a PoolKey, machine: &'a str) -> BoxFuture<'a, Result<(), ProviderError>>;
}
