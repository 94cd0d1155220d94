//! The result of a plan, as data: the input of `status`. No write is made here.

use std::collections::BTreeMap;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use shared_crds::conditions::Reason;

pub use crate::after::action::{ActionOutcome, AppliedAction, AppliedEntry, LoggedChange, ToldAction};
pub use crate::after::event_reason::EventReason;
use crate::{Blocker, DrainStep, NodeAction, NodeStep, Plan};

/// Polling interval of a drain. Pods are not watched, because only those of leaving nodes matter.
const DRAIN_POLL: SignedDuration = SignedDuration::from_secs(2);
/// Polling interval of a machine's deletion.
const MACHINE_POLL: SignedDuration = SignedDuration::from_secs(2);
/// Retry interval of a refused eviction, the same as in `kubectl drain`.
const BLOCKED_POLL: SignedDuration = SignedDuration::from_secs(5);
/// Polling interval of a Node that only finalizers of others keep, for how long they do is said in the status, or that only waits for
/// a time, at which it is visited anyway.
const IDLE_POLL: SignedDuration = SignedDuration::from_secs(30);

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

/// The result of a plan. Of its writes it contains only acknowledged ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// What was done to nodes and machines, in the order of the answers. Counts, conditions, events and metrics are read from it.
    pub entries: Vec<AppliedEntry>,
    /// When the first of the machines requested in this pass is expected; `None` when the provider does not know.
    pub expected: Option<Timestamp>,
    /// Earliest time of the next request to the provider; `None` when there is no backoff.
    pub retry_at: Option<Timestamp>,
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

    /// The same `action`, acknowledged, for each of `names`.
    pub fn done<S: Into<String>>(action: AppliedAction, names: impl IntoIterator<Item = S>) -> Self {
        let mut all = Self::default();
        for name in names {
            all.record(name, action, ActionOutcome::Done);
        }
        all
    }

    /// Adds an entry about the node or machine `name`.
    pub fn record(&mut self, name: impl Into<String>, action: AppliedAction, outcome: ActionOutcome) {
        self.entries.push(AppliedEntry { name: name.into(), action, outcome });
    }

    /// Adds that `step` was acknowledged.
    pub fn record_step(&mut self, step: &NodeStep) {
        if let Some(action) = AppliedAction::of(step) {
            self.record(step.member.name(), action, ActionOutcome::Done);
        }
    }

    /// Adds what keeps a draining node.
    pub fn record_blocked(&mut self, blocked: Blocked) {
        self.record(blocked.node, AppliedAction::Drain, ActionOutcome::Blocked(blocked.by));
    }

    /// The names of the nodes and machines to which something was done that `is_it`.
    pub fn names(&self, is_it: impl Fn(AppliedAction) -> bool) -> impl Iterator<Item = &str> {
        let accepted = self.entries.iter().filter(|entry| entry.outcome.is_accepted());
        accepted.filter(move |entry| is_it(entry.action)).map(|entry| entry.name.as_str())
    }

    /// The nodes and machines that an acknowledged action was done to, by action.
    pub fn by_action(&self) -> BTreeMap<AppliedAction, Vec<&str>> {
        let mut all: BTreeMap<AppliedAction, Vec<&str>> = BTreeMap::new();
        for entry in self.entries.iter().filter(|entry| entry.outcome.is_accepted()) {
            all.entry(entry.action).or_default().push(&entry.name);
        }
        all
    }

    /// How often `action` was acknowledged.
    pub fn count(&self, action: AppliedAction) -> usize {
        self.names(|other| other == action).count()
    }

    /// Number of machines whose deletion was accepted and that are not gone yet.
    pub fn machines_ending(&self) -> usize {
        self.entries.iter().filter(|entry| entry.outcome == ActionOutcome::Ending).count()
    }

    /// Number of those that had no Node and were withdrawn.
    pub(crate) fn withdrawn_and_ending(&self) -> usize {
        let is_it = |entry: &&AppliedEntry| {
            entry.action == AppliedAction::Withdraw && entry.outcome == ActionOutcome::Ending
        };
        self.entries.iter().filter(is_it).count()
    }

    /// Number of evictions that were refused.
    pub fn refused(&self) -> usize {
        self.entries.iter().filter(|entry| entry.outcome == ActionOutcome::Refused).count()
    }

    /// What keeps draining nodes, each with its name, refusals included that are so recent that the eviction is not retried yet.
    pub fn blocked(&self) -> impl Iterator<Item = (&str, &Blocker)> {
        self.entries.iter().filter_map(|entry| match &entry.outcome {
            ActionOutcome::Blocked(by) => Some((entry.name.as_str(), by)),
            ActionOutcome::Done | ActionOutcome::Ending | ActionOutcome::Refused => None,
        })
    }

    /// Merges the result of another part of the plan.
    pub fn absorb(&mut self, other: Self) {
        let Self { entries, expected, retry_at, rejected, finalizer_removed, extent, changed } = other;
        self.entries.extend(entries);
        self.expected = self.expected.into_iter().chain(expected).min();
        self.retry_at = self.retry_at.into_iter().chain(retry_at).min();
        self.rejected = self.rejected.take().into_iter().chain(rejected).min();
        self.finalizer_removed |= finalizer_removed;
        self.extent = self.extent.max(extent);
        self.changed |= changed;
    }

    /// When to reconcile again after this result of `plan`; `None` when only an event can change anything.
    pub fn next_visit(&self, plan: &Plan, now: Timestamp) -> Option<Timestamp> {
        let is_slow = self.blocked().next().is_some() && self.count(AppliedAction::Evict) == 0;
        let poll = |step: &DrainStep| match step.only_waits_for() {
            // An event tells when they are gone, and the plan when load balancers have had their time.
            Some(Blocker::Finalizers(_) | Blocker::LoadBalancers) => IDLE_POLL,
            // The attachments of all nodes are listed for it.
            Some(Blocker::Volumes(_) | Blocker::Place) => BLOCKED_POLL,
            _ if is_slow => BLOCKED_POLL,
            _ => DRAIN_POLL,
        };
        let drains = plan.nodes.iter().filter_map(|step| match &step.action {
            NodeAction::Drain(step) => now.checked_add(poll(step)).ok(),
            _ => None,
        });
        let ending =
            (self.machines_ending() > 0).then(|| now.checked_add(MACHINE_POLL).unwrap_or(Timestamp::MAX));
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
