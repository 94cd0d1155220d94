//! What can happen next, and what it does.

use super::state::{Outcome, Phase, Put, State, body};
use super::{Flaw, Writers};
use crate::server::{Change, Conflict, Endpoint, Object, Reason, Request};

/// One event. The number is the writer's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
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
    Straggle(usize),
    /// Its abandoned request never arrives.
    Vanish(usize),
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
pub(super) fn possible(model: &Writers, state: &State, steps: &mut Vec<Step>) {
    for (w, writer) in state.writers.iter().enumerate().take(model.count) {
        match writer.phase {
            Phase::Start => steps.extend([Step::ReadCache(w), Step::ReadLive(w)]),
            Phase::Again if model.flaw == Some(Flaw::CachedReread) => steps.push(Step::ReadCache(w)),
            Phase::Again => steps.push(Step::ReadLive(w)),
            Phase::Sent(_) => {
                steps.push(Step::Arrive(w));
                if state.left.lost > 0 && writer.adrift.is_none() {
                    steps.push(Step::TimeOut(w));
                }
            }
            Phase::Answered(..) => {
                steps.push(Step::Deliver(w));
                if state.left.lost > 0 {
                    steps.push(Step::LoseAnswer(w));
                }
            }
            Phase::Ended(_) => {}
        }
        if writer.adrift.is_some() {
            steps.extend([Step::Straggle(w), Step::Vanish(w)]);
        }
        let runs = !matches!(writer.phase, Phase::Ended(_));
        // One abandoned request is enough.
        let can_let_go = writer.adrift.is_none() || !matches!(writer.phase, Phase::Sent(_));
        if runs && can_let_go && state.left.crashes > 0 {
            steps.push(Step::Crash(w));
        }
        if runs && can_let_go && state.left.cancels > 0 {
            steps.push(Step::Cancel(w));
        }
        if state.lag[w] > 0 {
            steps.push(Step::Advance(w));
        }
    }
    if state.server.object.is_none() {
        steps.push(Step::Recreate);
        return;
    }
    if state.left.recreations > 0 {
        steps.push(Step::Delete);
    }
    if state.left.status_writes > 0 {
        steps.push(Step::WriteStatus);
    }
}

/// Executes `step`.
pub(super) fn take(model: &Writers, state: &mut State, step: Step) {
    match step {
        Step::ReadCache(w) => {
            let seen = state.recent[usize::from(state.lag[w])];
            decide(model, state, w, seen);
        }
        Step::ReadLive(w) => decide(model, state, w, state.server.object),
        Step::Arrive(w) => {
            if let Phase::Sent(put) = state.writers[w].phase {
                let reason = arrive(model, state, w, put);
                state.writers[w].phase = Phase::Answered(put, reason);
            }
        }
        Step::Deliver(w) => {
            if let Phase::Answered(put, reason) = state.writers[w].phase {
                deliver(model, state, w, put, reason);
            }
        }
        Step::LoseAnswer(w) => {
            state.left.lost -= 1;
            lost(model, state, w);
        }
        Step::TimeOut(w) => {
            state.left.lost -= 1;
            let_go(state, w);
            lost(model, state, w);
        }
        Step::Straggle(w) => {
            if let Some(put) = state.writers[w].adrift.take() {
                arrive(model, state, w, put);
            }
        }
        Step::Vanish(w) => state.writers[w].adrift = None,
        Step::Crash(w) => {
            state.left.crashes -= 1;
            let_go(state, w);
            let adrift = state.writers[w].adrift;
            state.writers[w] = super::Writer { adrift, ..super::Writer::default() };
        }
        Step::Cancel(w) => {
            state.left.cancels -= 1;
            cancel(model, state, w);
        }
        Step::Advance(w) => state.lag[w] -= 1,
        Step::Delete => {
            state.left.recreations -= 1;
            handle(model, state, &Request::Delete { version: None, uid: None });
        }
        Step::Recreate => {
            handle(model, state, &Request::Create { body: body([0; super::WRITERS]) });
        }
        Step::WriteStatus => {
            state.left.status_writes -= 1;
            let ready = i32::from(state.left.status_writes);
            let change = Change::Ready(Some(ready));
            let write = Request::Merge { on: Endpoint::Status, version: None, uid: None, change };
            let moved = handle(model, state, &write).1;
            state.truth.status_moved_generation |= moved != 0;
        }
    }
}

/// Decides only from the object in `seen`.
fn decide(model: &Writers, state: &mut State, w: usize, seen: Option<Object>) {
    let writer = &mut state.writers[w];
    let Some(seen) = seen else {
        writer.phase = Phase::Ended(Outcome::Gone);
        return;
    };
    let meant = *writer.uid.get_or_insert(seen.uid);
    if meant != seen.uid && model.flaw != Some(Flaw::AnyUid) {
        writer.phase = Phase::Ended(Outcome::Gone);
        return;
    }
    let repeats = model.flaw == Some(Flaw::BlindRepeat) && writer.maybe_written;
    if seen.spec.tokens[w] > 0 && !repeats {
        let met = if writer.maybe_written { Outcome::AlreadyDone } else { Outcome::Unchanged };
        writer.phase = Phase::Ended(met);
        return;
    }
    let mut tokens = seen.spec.tokens;
    tokens[w] += 1;
    if model.flaw == Some(Flaw::BlindSet) {
        tokens = *writer.first.get_or_insert(tokens);
    }
    let guarded = model.flaw != Some(Flaw::NoVersion);
    let before = seen.spec.tokens;
    writer.phase = Phase::Sent(Put { base: seen.version, guarded, uid: seen.uid, before, tokens });
}

/// The server handles a PUT of writer `w`.
fn arrive(model: &Writers, state: &mut State, w: usize, put: Put) -> Reason {
    let before = state.server.object;
    let (reason, _) = handle(model, state, &put.request());
    if let (Reason::Success, Some(before), Some(after)) = (reason, before, state.server.object) {
        state.truth.forked |= before.version != put.base;
        if after.spec.tokens[w] > 0 {
            state.truth.stored[w] |= 1 << (after.uid - 1);
        }
    }
    reason
}

/// The server handles any request: returns the reason, and by how much the generation moved.
fn handle(model: &Writers, state: &mut State, request: &Request) -> (Reason, i64) {
    let (server, answer) = state.server.answer(request);
    state.server = server;
    if answer.moved {
        state.stored(model);
    }
    (answer.reason, answer.generation_delta)
}

fn deliver(model: &Writers, state: &mut State, w: usize, put: Put, reason: Reason) {
    let writer = &mut state.writers[w];
    match reason {
        Reason::Success => writer.phase = Phase::Ended(Outcome::Written),
        Reason::Conflict(Conflict::Version) => {
            writer.refused = put.base;
            failed(model, state, w);
        }
        // A writer that checks only the code treats this like any other conflict.
        Reason::Conflict(Conflict::Uid) if model.flaw == Some(Flaw::AnyUid) => {
            failed(model, state, w);
            state.truth.retried_for_good |= state.writers[w].phase == Phase::Again;
        }
        Reason::Conflict(Conflict::Uid) | Reason::NotFound => {
            writer.phase = Phase::Ended(Outcome::Gone);
        }
        Reason::Conflict(Conflict::FieldManager)
        | Reason::AlreadyExists
        | Reason::BadRequest
        | Reason::Invalid
        | Reason::InternalError => writer.phase = Phase::Ended(Outcome::Rejected),
    }
}

/// No answer came.
fn lost(model: &Writers, state: &mut State, w: usize) {
    state.writers[w].maybe_written = true;
    failed(model, state, w);
}

/// Starts another attempt, if there is one left.
fn failed(model: &Writers, state: &mut State, w: usize) {
    let writer = &mut state.writers[w];
    writer.failed += 1;
    writer.phase = if writer.failed >= model.attempts {
        Phase::Ended(Outcome::Exhausted { maybe_written: writer.maybe_written })
    } else {
        Phase::Again
    };
}

/// Abandons the request in flight.
fn let_go(state: &mut State, w: usize) {
    if let Phase::Sent(put) = state.writers[w].phase {
        state.writers[w].adrift = Some(put);
    }
}

fn cancel(model: &Writers, state: &mut State, w: usize) {
    let_go(state, w);
    let writer = &mut state.writers[w];
    writer.maybe_written |= matches!(writer.phase, Phase::Sent(_) | Phase::Answered(..));
    let outcome = if model.flaw == Some(Flaw::SuccessOnCancel) {
        Outcome::Written
    } else {
        Outcome::Cancelled { maybe_written: writer.maybe_written }
    };
    writer.phase = Phase::Ended(outcome);
    state.truth.denied_cancel |= !matches!(outcome, Outcome::Cancelled { .. });
}
