//! Everything that the checker has to distinguish, and the additional facts that the properties are checked against.

use crate::server::{Body, Meta, Request, Server, Spec, Status, Unconditional};

/// Maximum number of decisions in a run.
pub const DECISIONS: usize = 3;

/// Maximum number of nodes.
pub(super) const SLOTS: usize = 3;

/// Maximum number of abandoned requests.
pub(super) const ABANDONED: usize = 2;

/// How often each event may (still) happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Decisions of Autoscalers, at most [`DECISIONS`].
    pub decisions: u8,
    /// Requests that are abandoned while they are in flight.
    pub lost: u8,
    /// Changes of the lease holder.
    pub depositions: u8,
    /// Counts that the user writes.
    pub user_writes: u8,
    /// Other changes of the spec by the user.
    pub other_changes: u8,
    /// Nodes that are deleted by neither operator.
    pub losses: u8,
}

/// The complete state of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OperatorsState {
    /// The API server, with the pool.
    pub server: Server,
    /// The last writer of the count, as in `managedFields`.
    pub(super) count_by: Writer,
    /// The leading Autoscaler: 0, then its successors.
    pub leader: u8,
    /// What the leader is doing.
    pub phase: OperatorPhase,
    /// Abandoned requests that may still be executed.
    pub abandoned: [Option<Sent>; ABANDONED],
    /// The decisions so far; a decision is identified by its index.
    pub decisions: [Option<ModelDecision>; DECISIONS],
    /// The node in each slot, by its UID; 0 for none.
    pub(super) nodes: [u8; SLOTS],
    /// Number of UIDs assigned so far.
    pub(super) uids: u8,
    /// What may still happen.
    pub left: Budget,
    /// What really happened, which no operator can see.
    pub(super) history: History,
}

/// The writer of the count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Writer {
    User,
    Autoscaler,
}

/// What the leader is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OperatorPhase {
    /// Between two passes.
    #[default]
    Idle,
    /// This decision's list is announced, and the count comes next.
    Announced(u8),
    /// A request is in flight.
    Waiting(Sent),
}

/// A request of an Autoscaler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sent {
    /// The Autoscaler that sent it.
    pub by: u8,
    /// The decision that it executes; `None` for the removal of an outdated list.
    pub decision: Option<u8>,
    /// The request as it was sent.
    pub request: Request,
}

/// A decision of an Autoscaler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ModelDecision {
    /// The Autoscaler that decided.
    pub by: u8,
    /// The count that it was based on.
    pub from: i32,
    /// The wanted count.
    pub to: i32,
    /// The generation that it was based on.
    pub generation: i64,
    /// The list that was announced at that time.
    pub announced: Option<u8>,
    /// The slot whose node is removed; `None` when no node is.
    pub slot: Option<u8>,
    /// The UID of the node in that slot.
    pub uid: u8,
    /// How many counts written by the user it includes.
    pub(super) user_writes_seen: u8,
    /// How many other changes by the user it includes.
    pub(super) user_changes_seen: u8,
    /// The decision that had written the count that it was based on; `None` for a count written by the user.
    pub(super) made_from: Option<u8>,
}

/// What really happened.
#[expect(clippy::struct_excessive_bools, reason = "invariants, each broken or not, and what was reached")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct History {
    /// The decision that wrote the current count; `None` for a count written by the user.
    pub(super) count_of: Option<u8>,
    /// Number of counts that the user wrote.
    pub(super) user_writes: u8,
    /// Number of other changes of the spec by the user.
    pub(super) user_changes: u8,
    /// A count written by the user was overwritten by an earlier decision.
    pub(super) user_write_undone: bool,
    /// A list was replaced by one of a previous leader.
    pub(super) list_replaced: bool,
    /// A node was removed by the list of a decision that neither wrote the current count nor was based on it and on the
    /// rest of the current spec.
    pub(super) list_of_another_decision: bool,
    /// A node was removed that the list did not mean.
    pub(super) wrong_node: bool,
    /// A node was removed that no list named, while a node stayed that the author of the count had named for it or for
    /// this spec.
    pub(super) named_node_skipped: bool,
    /// A node was removed by a list.
    pub(super) list_used: bool,
    /// A node was removed by a list whose count was not written yet.
    pub(super) list_used_early: bool,
    /// A node was removed without a list.
    pub(super) removed_without_list: bool,
    /// A late request was refused.
    pub(super) refused_late: bool,
    /// A late request was executed.
    pub(super) executed_late: bool,
}

impl OperatorsState {
    /// Three nodes, as the user wanted.
    pub(super) fn new(budget: Budget) -> Self {
        let spec = Spec { replicas: Some(3), ..Spec::with_max(5) };
        let body = Body { meta: Meta::default(), spec, status: None };
        let server = Server::new(Unconditional::Refused).answer(&Request::Create { body }).0;
        // A status exists from the start; how the first one is written is not modelled here.
        let report = Request::Apply {
            manager: crate::server::Manager::Beta,
            force: true,
            version: None,
            uid: None,
            status: Status { ready: Some(3), ..Status::default() },
        };
        Self {
            server: server.answer(&report).0,
            count_by: Writer::User,
            leader: 0,
            phase: OperatorPhase::Idle,
            abandoned: [None; ABANDONED],
            decisions: [None; DECISIONS],
            nodes: [1, 2, 3],
            uids: 3,
            left: budget,
            history: History::default(),
        }
    }

    /// The wanted count, the generation, and the announced list.
    pub(super) fn seen(&self) -> (i32, i64, Option<u8>) {
        self.server.object.map_or((0, 0, None), |object| {
            let list = object.status.and_then(|status| status.list);
            (object.spec.replicas.unwrap_or(0), object.generation, list)
        })
    }

    /// The number of existing nodes.
    pub(super) fn count(&self) -> i32 {
        self.nodes.iter().map(|uid| i32::from(*uid != 0)).sum()
    }

    pub(super) fn decision(&self, which: u8) -> Option<ModelDecision> {
        self.decisions.get(usize::from(which)).copied().flatten()
    }
}
