//! What came of a plan, as data: the input of `status` and `events`.

use k8s_openapi::jiff::Timestamp;
use shared_crds::conditions::Reason;

use super::PodName;

/// An eviction that was refused, by a disruption budget as a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Blocked {
    /// The node that waits.
    pub node: String,
    /// The pod that stays.
    pub pod: PodName,
    /// The API server's words.
    pub message: String,
}

/// What a write that no repetition can help was about. The first variant is told first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RejectedWrite {
    /// A new node.
    Creation,
    /// Something that exists.
    Change,
}

/// A write that the API server forbids or finds invalid: it stays so until a person changes something. Or one that it does
/// not answer: that may mend itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rejected {
    /// What was to be written.
    pub write: RejectedWrite,
    /// For machines.
    pub reason: Reason,
    /// For people.
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
    /// Somebody else changed an object first, so a part was not carried out.
    Conflict,
    /// A part failed.
    Failed,
}

/// What came of a plan. Only acknowledged writes are in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Nodes that were created.
    pub created: Vec<String>,
    /// Nodes whose drain began.
    pub closed: Vec<String>,
    /// Nodes whose drain was called off.
    pub rescued: Vec<String>,
    /// Nodes that were deleted and let go.
    pub removed: Vec<String>,
    /// Nodes that were deleted because they did not become Ready in time.
    pub replaced: Vec<String>,
    /// Number of requests that the provider took.
    pub requested: usize,
    /// When the first of the machines that were asked for now is expected.
    pub expected: Option<Timestamp>,
    /// When the provider may be asked again.
    pub retry_at: Option<Timestamp>,
    /// Number of pods that were evicted.
    pub evicted: usize,
    /// Number of pods that were deleted when a drain timed out.
    pub deleted_pods: usize,
    /// Number of evictions that were refused.
    pub refused: usize,
    /// Pods that were refused, now or lately enough not to be asked for again yet.
    pub blocked: Vec<Blocked>,
    /// A write that the API server will never take. Of several the least, so that a second pass tells the same.
    pub rejected: Option<Rejected>,
    /// The pool's finalizer was removed, so the pool is gone.
    pub released: bool,
    /// How much of the plan was carried out.
    pub extent: Extent,
}

impl Applied {
    /// A rejection that stays so. A server that does not answer is asked again.
    pub fn lasting_rejection(&self) -> Option<&Rejected> {
        self.rejected.as_ref().filter(|rejected| rejected.reason != Reason::WriteTimedOut)
    }

    /// Adds what came of another part of the plan.
    pub fn absorb(&mut self, other: Self) {
        let Self {
            created,
            closed,
            rescued,
            removed,
            replaced,
            requested,
            expected,
            retry_at,
            evicted,
            deleted_pods,
            refused,
            blocked,
            rejected,
            released,
            extent,
        } = other;
        self.created.extend(created);
        self.closed.extend(closed);
        self.rescued.extend(rescued);
        self.removed.extend(removed);
        self.replaced.extend(replaced);
        self.requested += requested;
        self.expected = self.expected.into_iter().chain(expected).min();
        self.retry_at = self.retry_at.into_iter().chain(retry_at).min();
        self.evicted += evicted;
        self.deleted_pods += deleted_pods;
        self.refused += refused;
        self.blocked.extend(blocked);
        self.rejected = self.rejected.take().into_iter().chain(rejected).min();
        self.released |= released;
        self.extent = self.extent.max(extent);
    }

    /// Whether every part of the plan was carried out.
    pub const fn complete(&self) -> bool {
        matches!(self.extent, Extent::Complete)
    }
}
