//! What keeps a draining node, in words.

use crate::input::pod_name::PodName;

/// What keeps a draining node. The least is the one that is reported.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Blocker {
    /// A pod that stays, and why: the API server's answer to its eviction, usually about a `PodDisruptionBudget`, or what
    /// the pod asks for.
    Pod(PodName, String),
    /// A terminating pod whose grace period is over.
    Overdue(PodName),
    /// Volumes that are attached although no pod of the node uses them.
    Volumes(Vec<String>),
    /// A machine whose end its provider has not confirmed.
    Machine,
    /// Finalizers of others on a Node that is being deleted.
    Finalizers(Vec<String>),
    /// The provider, which may remove no machine now, and why.
    Provider(String),
    /// The provider, which is deleting its machine, and drains it by its own rules.
    LeftToProvider,
    /// External load balancers, which take a while until they send nothing more to the node.
    LoadBalancers,
    /// Nothing but that as many other nodes are being drained as may be at a time.
    Place,
    /// These objects could not be listed.
    Unread(&'static str),
}

impl std::fmt::Display for Blocker {
    /// As the end of a sentence about the node.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pod(pod, why) => write!(f, "waits for pod {pod}: {why}"),
            Self::Overdue(pod) => write!(f, "waits for pod {pod} to end: its grace period is over"),
            Self::Volumes(volumes) => {
                let first = volumes.iter().min().map(String::as_str).unwrap_or_default();
                let more = match volumes.len() {
                    0 | 1 => String::new(),
                    count => format!(" and {} more", count - 1),
                };
                write!(f, "waits for volume {first}{more} to be detached")
            }
            Self::Machine => f.write_str("waits for its machine to end"),
            Self::Finalizers(names) => {
                write!(
                    f,
                    "waits for the finalizer {}: the controller that set it has to remove it",
                    names.join(", ")
                )
            }
            Self::Provider(why) => write!(f, "waits: {why}"),
            Self::LeftToProvider => {
                f.write_str("waits: its provider is deleting its machine, and drains it by its own rules")
            }
            Self::LoadBalancers => f.write_str(
                "waits until external load balancers have let it go (spec.drain.loadBalancerDrainSeconds)",
            ),
            Self::Place => f.write_str("waits for its turn: enough other nodes are being drained"),
            Self::Unread(what) => write!(f, "waits, because its {what} cannot be listed"),
        }
    }
}
