//! Everything that the checker has to distinguish, and the additional facts that the properties are checked against.

use super::WritersModel;
use crate::server::{Body, Meta, ModelVersion, Object, Request, Server, Spec, TOKENS, Uid};

/// Maximum number of writers: each has a token of its own.
pub const WRITERS: usize = TOKENS;

/// Maximum number of versions that a cache can lag.
pub(super) const LAG: u8 = 2;

/// The complete state of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WritersState {
    /// The API server.
    pub server: Server,
    /// The last stored objects, the newest first.
    pub(super) recent: [Option<Object>; LAG as usize + 1],
    /// How many versions each writer's cache lags.
    pub(super) lag: [u8; WRITERS],
    /// The writers; unused places have ended.
    pub writers: [ModelWriter; WRITERS],
    /// Faults that may still happen.
    pub left: Faults,
    /// What really happened, which no writer can see.
    pub(super) history: History,
}

/// How often each fault may (still) happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// Answers that are lost, or requests that are abandoned while they are in flight.
    pub lost: u8,
    /// Writers that crash and restart without any memory.
    pub crashes: u8,
    /// Runs that are cancelled.
    pub cancels: u8,
    /// Deletions of the object, each followed by the creation of another one of the same name.
    pub recreations: u8,
    /// Writes to status by another writer.
    pub status_writes: u8,
}

/// One writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ModelWriter {
    /// The phase of its run.
    pub phase: WriterPhase,
    /// Attempts that failed.
    pub failed: u8,
    /// The UID of the object it writes to: that of its first read.
    pub uid: Option<Uid>,
    /// Whether an answer to a write of this run was lost.
    pub maybe_written: bool,
    /// The version that was refused last.
    pub refused: ModelVersion,
    /// The first decision; only [`super::WriterFlaw::BlindSet`] keeps it.
    pub(super) first: Option<[u8; TOKENS]>,
    /// An abandoned request that may still arrive.
    pub abandoned: Option<Put>,
}

/// The phase of a writer's run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WriterPhase {
    /// It has not read yet.
    #[default]
    Start,
    /// It must read again.
    Again,
    /// Its request is in flight.
    Sent(Put),
    /// The answer is in flight.
    Answered(Put, crate::server::Reason),
    /// The run has ended.
    Ended(WriterOutcome),
}

/// A PUT of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Put {
    /// The version it was decided from.
    pub base: ModelVersion,
    /// Whether it names that version.
    pub guarded: bool,
    /// The UID that it names.
    pub uid: Uid,
    /// The tokens that were read.
    pub before: [u8; TOKENS],
    /// The tokens to write.
    pub tokens: [u8; TOKENS],
}

/// How a run ended: the outcomes and errors of `conflict-retry`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriterOutcome {
    /// The write was acknowledged.
    Written,
    /// There was nothing to write.
    Unchanged,
    /// The goal was met by the write of a lost answer, or by another writer.
    AlreadyDone,
    /// The object does not exist, or another one of the same name has replaced it.
    Gone,
    /// The server rejected the request with an error that no retry resolves.
    Rejected,
    /// No attempt is left.
    Exhausted {
        /// Whether it may have been written nevertheless.
        maybe_written: bool,
    },
    /// The run was cancelled.
    Cancelled {
        /// Whether it may have been written nevertheless.
        maybe_written: bool,
    },
}

impl WriterOutcome {
    /// Whether the outcome reports that the goal is met.
    pub const fn is_met(self) -> bool {
        matches!(self, Self::Written | Self::Unchanged | Self::AlreadyDone)
    }
}

/// What really happened.
#[expect(clippy::struct_excessive_bools, reason = "four invariants, each broken or not")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct History {
    /// For each writer, the objects (one bit per UID) into which its token was stored.
    pub(super) stored: [u8; WRITERS],
    /// A PUT was stored on top of a version other than the one it was decided from.
    pub(super) forked: bool,
    /// A run continued after an error that no retry resolves.
    pub(super) retried_permanent_error: bool,
    /// A write to status moved the generation.
    pub(super) status_moved_generation: bool,
    /// A cancelled run reported another outcome.
    pub(super) cancel_not_reported: bool,
}

impl WritersState {
    /// One object, known to every cache; no writer has started.
    pub(super) fn new(model: &WritersModel) -> Self {
        let server = Server::new(model.unconditional).answer(&Request::Create { body: body([0; TOKENS]) }).0;
        let mut writers = [ModelWriter::default(); WRITERS];
        for writer in writers.iter_mut().skip(model.count) {
            // An unused place.
            writer.phase = WriterPhase::Ended(WriterOutcome::Unchanged);
        }
        Self {
            server,
            recent: [server.object; LAG as usize + 1],
            lag: [0; WRITERS],
            writers,
            left: model.faults,
            history: History::default(),
        }
    }

    /// Whether the object was deleted at least once.
    pub(super) fn was_deleted(&self, model: &WritersModel) -> bool {
        self.left.recreations < model.faults.recreations
    }

    /// The server stored something; every cache falls one version further behind.
    pub(super) fn stored(&mut self, model: &WritersModel) {
        self.recent.rotate_right(1);
        self.recent[0] = self.server.object;
        for lag in &mut self.lag {
            *lag = (*lag + 1).min(model.lag());
        }
    }

    /// Makes states equal that have the same future: a cache that no writer will read is equivalent to a fresh one.
    pub(super) fn canonicalize(&mut self, model: &WritersModel) {
        let crashes = self.left.crashes > 0;
        for (writer, lag) in self.writers.iter_mut().zip(&mut self.lag) {
            let ended = matches!(writer.phase, WriterPhase::Ended(_));
            let rereads = model.flaw == Some(super::WriterFlaw::CachedReread) || crashes;
            if ended || !(rereads || writer.phase == WriterPhase::Start) {
                *lag = 0;
            }
            if ended {
                writer.first = None;
                writer.failed = 0;
                writer.refused = 0;
                writer.uid = None;
            }
        }
        let oldest = usize::from(self.lag.into_iter().max().unwrap_or(0));
        let newest = self.recent[0];
        for unseen in self.recent.iter_mut().skip(oldest + 1) {
            *unseen = newest;
        }
    }
}

/// The object's content with these tokens.
pub(super) fn body(tokens: [u8; TOKENS]) -> Body {
    Body { meta: Meta::default(), spec: Spec { tokens, ..Spec::with_max(5) }, status: None }
}

impl Put {
    pub(super) fn request(&self) -> Request {
        Request::Put {
            on: crate::server::ModelEndpoint::Main,
            version: self.guarded.then_some(self.base),
            uid: Some(self.uid),
            body: body(self.tokens),
        }
    }
}
