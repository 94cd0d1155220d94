//! Errors of a reconcile, and the short name under which the metrics count each.

use std::fmt;
use std::time::Duration;

use machine_providers::ProviderError;
use shared_crds::conditions::Reason;
use shared_runtime::error::{Categorised, chain, client_category};
use shared_runtime::metrics::MetricsError;
use shared_runtime::write::WriterError;

use crate::outcome::{Rejected, RejectedWrite};

/// A live read of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// A list of nodes.
    Nodes,
    /// A list of pods.
    Pods,
    /// A list of volume attachments.
    VolumeAttachments,
    /// One node.
    Node,
    /// The pool.
    Pool,
}

impl fmt::Display for Read {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nodes => "list nodes",
            Self::Pods => "list pods",
            Self::VolumeAttachments => "list volume attachments",
            Self::Node => "get a node",
            Self::Pool => "get the pool",
        })
    }
}

/// A write to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// The creation of a node.
    CreateNode,
    /// A patch of a node.
    PatchNode,
    /// The deletion of a node.
    DeleteNode,
    /// The removal of a node's finalizer.
    ReleaseNode,
    /// The eviction of a pod.
    EvictPod,
    /// The deletion of a pod.
    DeletePod,
    /// A change of the pool's finalizer.
    PoolFinalizer,
    /// Setting the pool's unset number of replicas.
    PoolReplicas,
    /// The pool's status.
    PoolStatus,
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CreateNode => "create a new node",
            Self::PatchNode => "patch a node",
            Self::DeleteNode => "delete a node",
            Self::ReleaseNode => "remove a node's finalizer",
            Self::EvictPod => "evict a pod",
            Self::DeletePod => "delete a pod",
            Self::PoolFinalizer => "change the pool's finalizer",
            Self::PoolReplicas => "set the pool's unset number of replicas",
            Self::PoolStatus => "write the pool's status",
        })
    }
}

/// A call to a provider about machines that exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MachineCall {
    /// The deletion of a machine that has no Node.
    Delete,
    /// The deletion of a node's machine.
    DeleteOfNode,
    /// A smaller number of machines.
    Shrink,
    /// The removal of the mark that a machine goes first.
    Unmark,
}

impl fmt::Display for MachineCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Delete => "delete a machine",
            Self::DeleteOfNode => "delete the machine of a node",
            Self::Shrink => "reduce the number of machines",
            Self::Unmark => "remove the deletion mark of a machine",
        })
    }
}

/// A reconcile failed. A conflict is not an error; see `shared_runtime::controller::Step`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A live read failed.
    #[error("cannot {what}")]
    Read {
        /// The read.
        what: Read,
        /// The client's error.
        source: kube::Error,
    },
    /// A live read timed out.
    #[error("cannot {what} within {:.1} s", limit.as_secs_f32())]
    ReadTimeout {
        /// The read.
        what: Read,
        /// The timeout.
        limit: Duration,
    },
    /// A write failed.
    #[error("cannot {what}")]
    Write {
        /// The write.
        what: Write,
        /// The writer's error.
        source: WriterError,
    },
    /// A call to the provider failed.
    #[error("cannot {what}")]
    Provider {
        /// The call.
        what: MachineCall,
        /// The provider's error.
        source: ProviderError,
    },
    /// A metric could not be registered.
    #[error("cannot register the metrics")]
    Metrics(#[from] MetricsError),
}

impl Error {
    /// What to report to the user: a write that a retry cannot help, or a creation that is never answered.
    pub(crate) fn rejection(&self) -> Option<Rejected> {
        let (what, source) = match self {
            Self::Write { what, source } => (*what, source),
            Self::Provider { what: _, source } => {
                let (write, reason) = (RejectedWrite::Machine, source.reason());
                return Some(Rejected { write, reason, message: chain(self) });
            }
            _ => return None,
        };
        let is_creation = what == Write::CreateNode;
        if is_creation && source.maybe_written() {
            let message = format!("{}; is an admission webhook for nodes slow or down?", chain(self));
            let (write, reason) = (RejectedWrite::Creation, Reason::WriteTimedOut);
            return Some(Rejected { write, reason, message });
        }
        let reason = if source.is_forbidden() {
            Reason::WriteForbidden
        } else if source.is_invalid() {
            Reason::WriteInvalid
        } else {
            return None;
        };
        let write = if is_creation { RejectedWrite::Creation } else { RejectedWrite::Change };
        Some(Rejected { write, reason, message: chain(self) })
    }
}

impl Categorised for Error {
    fn category(&self) -> &'static str {
        match self {
            Self::Read { source, .. } => client_category(source),
            Self::ReadTimeout { .. } => "timeout",
            Self::Write { source, .. } => source.category(),
            Self::Provider { .. } => "provider",
            Self::Metrics(_) => "metrics",
        }
    }
}
