//! Everything that the checker has to tell apart, and what it keeps beside it to judge by.

use crate::server::{Body, Meta, Request, Server, Spec, Status, Unconditional};

/// The most decisions that a run can have.
pub const DECISIONS: usize = 3;

/// The most nodes.
pub(super) const SLOTS: usize = 3;

/// The most requests that nobody waits for any more.
pub(super) const ADRIFT: usize = 2;

/// How often each thing may (still) happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Decisions of Autoscalers, at most [`DECISIONS`].
    pub decisions: u8,
    /// Requests that are given up on while they are on their way.
    pub lost: u8,
    /// Changes of the lease's holder.
    pub depositions: u8,
    /// Counts that the user writes.
    pub user_writes: u8,
    /// Other changes of the spec by the user.
    pub other_changes: u8,
    /// Nodes that somebody deletes.
    pub losses: u8,
}

/// The whole world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The API server, with the pool.
    pub server: Server,
    /// Who wrote the count last, as `managedFields` says.
    pub(super) count_by: Writer,
    /// The Autoscaler that leads: 0, then its successors.
    pub leader: u8,
    /// What it does.
    pub phase: Phase,
    /// Requests that nobody waits for any more, and that may still be carried out.
    pub adrift: [Option<Sent>; ADRIFT],
    /// What was decided so far; a decision is called by its place.
    pub decisions: [Option<Decision>; DECISIONS],
    /// The node in each slot, by its UID; 0 for none.
    pub(super) nodes: [u8; SLOTS],
    /// UIDs given so far.
    pub(super) uids: u8,
    /// What may still happen.
    pub left: Budget,
    /// What really happened, which nobody can see.
    pub(super) truth: Truth,
}

/// Who wrote the count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Writer {
    User,
    Autoscaler,
}

/// Where the leader is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Between two passes.
    #[default]
    Idle,
    /// This decision's list stands, and the count comes next.
    Announced(u8),
    /// A request is on its way.
    Waiting(Sent),
}

/// A request of an Autoscaler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sent {
    /// The Autoscaler.
    pub by: u8,
    /// The decision that it carries out; `None` for the removal of a list that is out of date.
    pub decision: Option<u8>,
    /// As it was sent.
    pub request: Request,
}

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Decision {
    /// The Autoscaler.
    pub by: u8,
    /// The count that it was made from.
    pub from: i32,
    /// The count to be.
    pub to: i32,
    /// The generation that it was made from.
    pub generation: i64,
    /// The list that stood.
    pub stood: Option<u8>,
    /// The slot that goes, if one does.
    pub slot: Option<u8>,
    /// The node that was in it.
    pub uid: u8,
    /// How many writes of the user it knows of.
    pub(super) knows: u8,
    /// How many other changes of the user it knows of.
    pub(super) saw: u8,
    /// The decision that had written the count that it was made from; `None` for the user's.
    pub(super) made_from: Option<u8>,
}

/// What really happened.
#[expect(clippy::struct_excessive_bools, reason = "promises, each broken or not, and what was possible")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Truth {
    /// The decision that wrote the count that is there; `None` for the user's.
    pub(super) count_of: Option<u8>,
    /// Counts that the user wrote.
    pub(super) user_wrote: u8,
    /// Other changes of the spec by the user.
    pub(super) user_changed: u8,
    /// A count of the user's was written over by what was decided before it.
    pub(super) undone: bool,
    /// A list was replaced by one of a predecessor.
    pub(super) replaced: bool,
    /// A node went by the list of a decision that neither wrote the count that is there nor was made from it and from
    /// the rest of the spec as it is.
    pub(super) foreign_list: bool,
    /// A node went that the list did not mean.
    pub(super) wrong_node: bool,
    /// A node went that no list named, and one stayed that the author of the count had named for it or for this spec.
    pub(super) passed_over: bool,
    /// A node went by a list.
    pub(super) followed: bool,
    /// A node went by a list whose count was not written yet.
    pub(super) ahead: bool,
    /// A node went without one.
    pub(super) chosen: bool,
    /// A late request was refused.
    pub(super) refused_late: bool,
    /// A late request was carried out.
    pub(super) carried_out_late: bool,
}

impl State {
    /// Three nodes, as the user wanted.
    pub(super) fn new(budget: Budget) -> Self {
        let spec = Spec { replicas: Some(3), ..Spec::with_max(5) };
        let body = Body { meta: Meta::default(), spec, status: None };
        let server = Server::new(Unconditional::Refused).answer(&Request::Create { body }).0;
        // A status is there from the start; how the first one comes is not at stake here.
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
            phase: Phase::Idle,
            adrift: [None; ADRIFT],
            decisions: [None; DECISIONS],
            nodes: [1, 2, 3],
            uids: 3,
            left: budget,
            truth: Truth::default(),
        }
    }

    /// The count that is wanted, the generation, and the list that is announced.
    pub(super) fn seen(&self) -> (i32, i64, Option<u8>) {
        self.server.object.map_or((0, 0, None), |object| {
            let list = object.status.and_then(|status| status.list);
            (object.spec.replicas.unwrap_or(0), object.generation, list)
        })
    }

    /// The nodes that there are.
    pub(super) fn count(&self) -> i32 {
        self.nodes.iter().map(|uid| i32::from(*uid != 0)).sum()
    }

    pub(super) fn decision(&self, which: u8) -> Option<Decision> {
        self.decisions.get(usize::from(which)).copied().flatten()
    }
}
