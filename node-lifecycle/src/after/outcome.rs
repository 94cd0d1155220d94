//! The result of a plan, as data: the input of `status`. No write is made here.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use shared_crds::conditions::Reason;

use crate::{Blocker, DrainStep, NodeAction, Plan};

/// Polling interval of a drain. Pods are not watched, because only those of leaving nodes matter.
const DRAIN_POLL: SignedDuration = SignedDuration::from_secs(2);
/// Polling interval of a machine's deletion.
const MACHINE_POLL: SignedDuration = SignedDuration::from_secs(2);
/// Retry interval of a refused eviction, the same as in `kubectl drain`.
const BLOCKED_POLL: SignedDuration = SignedDuration::from_secs(5);
/// Polling interval of a Node that only finalizers of others keep: for how long they do is said in the status.
const FINALIZERS_POLL: SignedDuration = SignedDuration::from_secs(30);

/// What a drain waits for and may wait for long.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Blocked {
    /// The draining node.
    pub node: String,
    /// What keeps it.
    pub by: Blocker,
}

/// The kind of write that no retry can help. The first variant takes precedence in the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RejectedWrite {
    /// The creation of a node.
    Creation,
    /// A change of an existing object.
    Change,
    /// A change of machines, by their provider.
    Machine,
}

/// A write that the API server, or a provider, forbids or finds invalid: it stays so until the user changes something. Or a write
/// without an answer: that may recover by itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rejected {
    /// The kind of write.
    pub write: RejectedWrite,
    /// Machine-readable reason.
    pub reason: Reason,
    /// Human-readable message.
    pub message: String,
}

/// How much of a plan was carried out, from best to worst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Extent {
    /// All of it.
    #[default]
    Complete,
    /// The pass ran out of time; the rest is left for the next one.
    CutShort,
    /// Another writer changed an object first, so a part was not carried out.
    Conflict,
    /// A part failed.
    Failed,
}

/// The result of a plan. It contains only acknowledged writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Names of the nodes that were created.
    pub created: Vec<String>,
    /// Names of the Nodes that had registered themselves and were made nodes of the pool.
    pub joined: Vec<String>,
    /// Names of the nodes that were cordoned and whose drain started.
    pub cordoned: Vec<String>,
    /// Those of them that are drained because they are out of date.
    pub outdated: Vec<String>,
    /// Those of them that are drained because a user wants them replaced.
    pub asked: Vec<String>,
    /// Those of them that are drained because they are unhealthy.
    pub unhealthy: Vec<String>,
    /// Names of the nodes that were given labels, annotations and taints of a changed template.
    pub updated: Vec<String>,
    /// Names of the nodes that were uncordoned, which cancels their drain.
    pub uncordoned: Vec<String>,
    /// Names of the nodes whose drain took too long and was cancelled.
    pub given_back: Vec<String>,
    /// Names of the nodes that were deleted and whose finalizer was removed.
    pub removed: Vec<String>,
    /// Names of the nodes that were taken out of their pool, which is deleted, and keep running.
    pub released: Vec<String>,
    /// Names of the nodes that were deleted because they did not become Ready in time.
    pub replaced: Vec<String>,
    /// Names of the nodes that were deleted because their machine is gone.
    pub lost: Vec<String>,
    /// Names of the nodes that were deleted because they were unhealthy.
    pub repaired: Vec<String>,
    /// Names of the machines that were deleted because their Node did not come in time.
    pub timed_out: Vec<String>,
    /// Number of requests that were withdrawn from the provider.
    pub withdrawn: usize,
    /// Number of machines whose deletion was accepted and that are not gone yet.
    pub machines_ending: usize,
    /// Number of requests that the provider accepted.
    pub requested: usize,
    /// When the first of the machines requested in this pass is expected; `None` when the provider does not know.
    pub expected: Option<Timestamp>,
    /// Earliest time of the next request to the provider; `None` when there is no backoff.
    pub retry_at: Option<Timestamp>,
    /// Number of pods that were evicted.
    pub evicted: usize,
    /// Number of pods that were deleted after the drain timeout.
    pub deleted_pods: usize,
    /// Number of evictions that were refused.
    pub refused: usize,
    /// What keeps draining nodes, refusals included that are so recent that the eviction is not retried yet.
    pub blocked: Vec<Blocked>,
    /// A write that the API server will never accept. If there are several it is the least, so that a second pass
    /// reports the same.
    pub rejected: Option<Rejected>,
    /// The pool's finalizer was removed, so the pool is gone.
    pub finalizer_removed: bool,
    /// How much of the plan was carried out.
    pub extent: Extent,
    /// Some write was accepted that changed something. The deletion of a machine without a Node is none: its provider may
    /// accept it again and again.
    pub changed: bool,
}

impl Applied {
    /// A rejection that is permanent; `None` for a server that does not answer, and for a provider, because they are
    /// asked again.
    pub fn lasting_rejection(&self) -> Option<&Rejected> {
        let is_lasting = |rejected: &&Rejected| {
            rejected.reason != Reason::WriteTimedOut && rejected.write != RejectedWrite::Machine
        };
        self.rejected.as_ref().filter(is_lasting)
    }

    /// The names of the nodes that do not count as replicas any more.
    pub(crate) fn left(&self) -> [&[String]; 5] {
        [&self.cordoned, &self.replaced, &self.lost, &self.repaired, &self.released]
    }

    /// Merges the result of another part of the plan.
    pub fn absorb(&mut self, other: Self) {
        let Self {
            created,
            joined,
            cordoned,
            outdated,
            asked,
            unhealthy,
            updated,
            uncordoned,
            given_back,
            removed,
            released,
            replaced,
            lost,
            repaired,
            timed_out,
            withdrawn,
            machines_ending,
            requested,
            expected,
            retry_at,
            evicted,
            deleted_pods,
            refused,
            blocked,
            rejected,
            finalizer_removed,
            extent,
            changed,
        } = other;
        self.created.extend(created);
        self.joined.extend(joined);
        self.cordoned.extend(cordoned);
        self.outdated.extend(outdated);
        self.asked.extend(asked);
        self.unhealthy.extend(unhealthy);
        self.updated.extend(updated);
        self.uncordoned.extend(uncordoned);
        self.given_back.extend(given_back);
        self.removed.extend(removed);
        self.released.extend(released);
        self.replaced.extend(replaced);
        self.lost.extend(lost);
        self.repaired.extend(repaired);
        self.timed_out.extend(timed_out);
        self.withdrawn += withdrawn;
        self.machines_ending += machines_ending;
        self.requested += requested;
        self.expected = self.expected.into_iter().chain(expected).min();
        self.retry_at = self.retry_at.into_iter().chain(retry_at).min();
        self.evicted += evicted;
        self.deleted_pods += deleted_pods;
        self.refused += refused;
        self.blocked.extend(blocked);
        self.rejected = self.rejected.take().into_iter().chain(rejected).min();
        self.finalizer_removed |= finalizer_removed;
        self.extent = self.extent.max(extent);
        self.changed |= changed;
    }

    /// When to reconcile again after this result of `plan`; `None` when only an event can change anything.
    pub fn next_visit(&self, plan: &Plan, now: Timestamp) -> Option<Timestamp> {
        let poll = |step: &DrainStep| match step.only_waits_for() {
            // An event tells when they are gone.
            Some(Blocker::Finalizers(_)) => FINALIZERS_POLL,
            // The attachments of all nodes are listed for it.
            Some(Blocker::Volumes(_) | Blocker::Place) => BLOCKED_POLL,
            _ if self.blocked.is_empty() || self.evicted > 0 => DRAIN_POLL,
            _ => BLOCKED_POLL,
        };
        let drains = plan.nodes.iter().filter_map(|step| match &step.action {
            NodeAction::Drain(step) => now.checked_add(poll(step)).ok(),
            _ => None,
        });
        let ending =
            (self.machines_ending > 0).then(|| now.checked_add(MACHINE_POLL).unwrap_or(Timestamp::MAX));
        plan.requeue_at
            .into_iter()
            .chain(drains)
            .chain(ending)
            .chain(self.expected)
            .chain(self.retry_at)
            .min()
    }

    /// Whether every part of the plan was carried out.
    pub const fn complete(&self) -> bool {
        matches!(self.extent, Extent::Complete)
    }
}
