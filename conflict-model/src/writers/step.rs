//! What can happen next, and what it does.

use super::state::{Put, WriterOutcome, WriterPhase, WritersState, body};
use super::{WriterFlaw, WritersModel};
use crate::server::{Conflict, ModelEndpoint, Object, Reason, Request, RequestedChange};

/// One event. The number is the writer's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriterStep {
    /// It reads its cache, decides, and sends or ends.
    ReadCache(usize),
    /// It reads live, decides, and sends or ends.
    ReadLive(usize),
    /// Its request reaches the server and is executed or refused.
    Arrive(usize),
    /// The answer reaches the writer.
    Deliver(usize),
    /// The answer is lost.
    LoseAnswer(usize),
    /// The writer gives up on a request that is still in flight.
    TimeOut(usize),
    /// Its abandoned request reaches the server after all.
    ArriveLate(usize),
    /// Its abandoned request never arrives.
    NeverArrive(usize),
    /// The writer crashes and restarts.
    Crash(usize),
    /// The writer is cancelled.
    Cancel(usize),
    /// The writer's cache receives one more version.
    Advance(usize),
    /// The object is deleted.
    Delete,
    /// Another object of the same name is created.
    Recreate,
    /// Another writer writes to status.
    WriteStatus,
}

/// All events that can happen in `state`.
pub(super) fn possible(model: &WritersModel, state: &WritersState, steps: &mut Vec<WriterStep>) {
    for (w, writer) in state.writers.iter().enumerate().take(model.count) {
        match writer.phase {
            WriterPhase::Start => steps.extend([WriterStep::ReadCache(w), WriterStep::ReadLive(w)]),
            WriterPhase::Again if model.flaw == Some(WriterFlaw::CachedReread) => {
                steps.push(WriterStep::ReadCache(w));
            }
            WriterPhase::Again => steps.push(WriterStep::ReadLive(w)),
            WriterPhase::Sent(_) => {
                steps.push(WriterStep::Arrive(w));
                if state.left.lost > 0 && writer.abandoned.is_none() {
                    steps.push(WriterStep::TimeOut(w));
                }
            }
            WriterPhase::Answered(..) => {
                steps.push(WriterStep::Deliver(w));
                if state.left.lost > 0 {
                    steps.push(WriterStep::LoseAnswer(w));
                }
            }
            WriterPhase::Ended(_) => {}
        }
        if writer.abandoned.is_some() {
            steps.extend([WriterStep::ArriveLate(w), WriterStep::NeverArrive(w)]);
        }
        let runs = !matches!(writer.phase, WriterPhase::Ended(_));
        // One abandoned request is enough.
        let can_abandon = writer.abandoned.is_none() || !matches!(writer.phase, WriterPhase::Sent(_));
        if runs && can_abandon && state.left.crashes > 0 {
            steps.push(WriterStep::Crash(w));
        }
        if runs && can_abandon && state.left.cancels > 0 {
            steps.push(WriterStep::Cancel(w));
        }
        if state.lag[w] > 0 {
            steps.push(WriterStep::Advance(w));
        }
    }
    if state.server.object.is_none() {
        steps.push(WriterStep::Recreate);
        return;
    }
    if state.left.recreations > 0 {
        steps.push(WriterStep::Delete);
    }
    if state.left.status_writes > 0 {
        steps.push(WriterStep::WriteStatus);
    }
}

/// Executes `step`.
pub(super) fn take(model: &WritersModel, state: &mut WritersState, step: WriterStep) {
    match step {
        WriterStep::ReadCache(w) => {
            let seen = state.recent[usize::from(state.lag[w])];
            decide(model, state, w, seen);
        }
        WriterStep::ReadLive(w) => decide(model, state, w, state.server.object),
        WriterStep::Arrive(w) => {
            if let WriterPhase::Sent(put) = state.writers[w].phase {
                let reason = arrive(model, state, w, put);
                state.writers[w].phase = WriterPhase::Answered(put, reason);
            }
        }
        WriterStep::Deliver(w) => {
            if let WriterPhase::Answered(put, reason) = state.writers[w].phase {
                deliver(model, state, w, put, reason);
            }
        }
        WriterStep::LoseAnswer(w) => {
            state.left.lost -= 1;
            lost(model, state, w);
        }
        WriterStep::TimeOut(w) => {
            state.left.lost -= 1;
            abandon(state, w);
            lost(model, state, w);
        }
        WriterStep::ArriveLate(w) => {
            if let Some(put) = state.writers[w].abandoned.take() {
                arrive(model, state, w, put);
            }
        }
        WriterStep::NeverArrive(w) => state.writers[w].abandoned = None,
        WriterStep::Crash(w) => {
            state.left.crashes -= 1;
            abandon(state, w);
            let abandoned = state.writers[w].abandoned;
            state.writers[w] = super::ModelWriter { abandoned, ..super::ModelWriter::default() };
        }
        WriterStep::Cancel(w) => {
            state.left.cancels -= 1;
            cancel(model, state, w);
        }
        WriterStep::Advance(w) => state.lag[w] -= 1,
        WriterStep::Delete => {
            state.left.recreations -= 1;
            handle(model, state, &Request::Delete { version: None, uid: None });
        }
        WriterStep::Recreate => {
            handle(model, state, &Request::Create { body: body([0; super::WRITERS]) });
        }
        WriterStep::WriteStatus => {
            state.left.status_writes -= 1;
            let ready = i32::from(state.left.status_writes);
            let change = RequestedChange::Ready(Some(ready));
            let write = Request::Merge { on: ModelEndpoint::Status, version: None, uid: None, change };
            let moved = handle(model, state, &write).1;
            state.history.status_moved_generation |= moved != 0;
        }
    }
}

/// Decides only from the object in `seen`.
fn decide(model: &WritersModel, state: &mut WritersState, w: usize, seen: Option<Object>) {
    let writer = &mut state.writers[w];
    let Some(seen) = seen else {
        writer.phase = WriterPhase::Ended(WriterOutcome::Gone);
        return;
    };
    let meant = *writer.uid.get_or_insert(seen.uid);
    if meant != seen.uid && model.flaw != Some(WriterFlaw::AnyUid) {
        writer.phase = WriterPhase::Ended(WriterOutcome::Gone);
        return;
    }
    let repeats = model.flaw == Some(WriterFlaw::BlindRepeat) && writer.maybe_written;
    if seen.spec.tokens[w] > 0 && !repeats {
        let met = if writer.maybe_written { WriterOutcome::AlreadyDone } else { WriterOutcome::Unchanged };
        writer.phase = WriterPhase::Ended(met);
        return;
    }
    let mut tokens = seen.spec.tokens;
    tokens[w] += 1;
    if model.flaw == Some(WriterFlaw::BlindSet) {
        tokens = *writer.first.get_or_insert(tokens);
    }
    let guarded = model.flaw != Some(WriterFlaw::NoVersion);
    let before = seen.spec.tokens;
    writer.phase = WriterPhase::Sent(Put { base: seen.version, guarded, uid: seen.uid, before, tokens });
}

/// The server handles a PUT of writer `w`.
fn arrive(model: &WritersModel, state: &mut WritersState, w: usize, put: Put) -> Reason {
    let before = state.server.object;
    let (reason, _) = handle(model, state, &put.request());
    if let (Reason::Success, Some(before), Some(after)) = (reason, before, state.server.object) {
        state.history.forked |= before.version != put.base;
        if after.spec.tokens[w] > 0 {
            state.history.stored[w] |= 1 << (after.uid - 1);
        }
    }
    reason
}

/// The server handles any request: returns the reason, and by how much the generation moved.
fn handle(model: &WritersModel, state: &mut WritersState, request: &Request) -> (Reason, i64) {
    let (server, answer) = state.server.answer(request);
    state.server = server;
    if answer.moved {
        state.stored(model);
    }
    (answer.reason, answer.generation_delta)
}

fn deliver(model: &WritersModel, state: &mut WritersState, w: usize, put: Put, reason: Reason) {
    let writer = &mut state.writers[w];
    match reason {
        Reason::Success => writer.phase = WriterPhase::Ended(WriterOutcome::Written),
        Reason::Conflict(Conflict::Version) => {
            writer.refused = put.base;
            failed(model, state, w);
        }
        // A writer that checks only the code treats this like any other conflict.
        Reason::Conflict(Conflict::Uid) if model.flaw == Some(WriterFlaw::AnyUid) => {
            failed(model, state, w);
            state.history.retried_permanent_error |= state.writers[w].phase == WriterPhase::Again;
        }
        Reason::Conflict(Conflict::Uid) | Reason::NotFound => {
            writer.phase = WriterPhase::Ended(WriterOutcome::Gone);
        }
        Reason::Conflict(Conflict::FieldManager)
        | Reason::AlreadyExists
        | Reason::BadRequest
        | Reason::Invalid
        | Reason::InternalError => writer.phase = WriterPhase::Ended(WriterOutcome::Rejected),
    }
}

/// No answer came.
fn lost(model: &WritersModel, state: &mut WritersState, w: usize) {
    state.writers[w].maybe_written = true;
    failed(model, state, w);
}

/// Starts another attempt, if there is one left.
fn failed(model: &WritersModel, state: &mut WritersState, w: usize) {
    let writer = &mut state.writers[w];
    writer.failed += 1;
    writer.phase = if writer.failed >= model.attempts {
        WriterPhase::Ended(WriterOutcome::Exhausted { maybe_written: writer.maybe_written })
    } else {
        WriterPhase::Again
    };
}

/// Abandons the request in flight.
fn abandon(state: &mut WritersState, w: usize) {
    if let WriterPhase::Sent(put) = state.writers[w].phase {
        state.writers[w].abandoned = Some(put);
    }
}

fn cancel(model: &WritersModel, state: &mut WritersState, w: usize) {
    abandon(state, w);
    let writer = &mut state.writers[w];
    writer.maybe_written |= matches!(writer.phase, WriterPhase::Sent(_) | WriterPhase::Answered(..));
    let outcome = if model.flaw == Some(WriterFlaw::SuccessOnCancel) {
        WriterOutcome::Written
    } else {
        WriterOutcome::Cancelled { maybe_written: writer.maybe_written }
    };
    writer.phase = WriterPhase::Ended(outcome);
    state.history.cancel_not_reported |= !matches!(outcome, WriterOutcome::Cancelled { .. });
}
