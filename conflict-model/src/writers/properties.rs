//! What must always hold, and what must be reachable for that to mean anything. The numbers are those of the table in
//! the crate's documentation.

use stateright::{Model as _, Property};

use super::WritersModel;
use super::state::{ModelWriter, Put, WriterOutcome, WriterPhase, WritersState};
use crate::server::{Conflict, Reason};

/// Every property. `always` must have no counterexample; each `sometimes` has an example where the faults allow it.
pub(super) fn all() -> Vec<Property<WritersModel>> {
    let mut all = hold_always();
    all.extend(are_reachable());
    all
}

fn hold_always() -> Vec<Property<WritersModel>> {
    vec![
        Property::always("I1 a stored effect is not lost", kept),
        Property::always("I2 an effect is stored at most once", |_, state: &WritersState| {
            state.server.object.is_none_or(|object| object.spec.tokens.iter().all(|times| *times <= 1))
        }),
        Property::always("I3 a PUT replaces the version it was based on", |_, state: &WritersState| {
            !state.history.forked
        }),
        Property::always(
            "I4 success means a stored write or a met goal",
            |model: &WritersModel, state: &WritersState| {
                let reported_truly =
                    |w, outcome: WriterOutcome| !outcome.is_met() || state.history.stored[w] != 0;
                ended(model, state).all(|(w, outcome)| reported_truly(w, outcome))
            },
        ),
        Property::always("I5 a retry is based on a newer read", |_, state: &WritersState| {
            state.writers.iter().all(|writer| sent(writer).is_none_or(|put| put.base > writer.refused))
        }),
        Property::always("I6 an error that no retry resolves ends the run", |_, state: &WritersState| {
            !state.history.retried_permanent_error
        }),
        Property::always("I7 attempts are bounded", |model: &WritersModel, state: &WritersState| {
            let bounded = |writer: &ModelWriter| match writer.phase {
                WriterPhase::Start
                | WriterPhase::Again
                | WriterPhase::Sent(_)
                | WriterPhase::Answered(..) => writer.failed < model.attempts,
                WriterPhase::Ended(_) => true,
            };
            state.writers.iter().all(bounded)
        }),
        Property::always("I8 a cancelled run reports it", |_, state: &WritersState| {
            !state.history.cancel_not_reported
        }),
        Property::always("I9 a run writes to one object only", |_, state: &WritersState| {
            let same = |writer: &ModelWriter| sent(writer).is_none_or(|put| Some(put.uid) == writer.uid);
            state.writers.iter().all(same)
        }),
        Property::always("I11 a status write never moves the generation", |_, state: &WritersState| {
            !state.history.status_moved_generation
        }),
        Property::always("I13 a report that nothing was written is true", nothing_written_is_true),
        Property::always("I14 no write is sent that would change nothing", |_, state: &WritersState| {
            state.writers.iter().filter_map(sent).all(|put| put.tokens != put.before)
        }),
        Property::always("every final state is correct", |model: &WritersModel, state: &WritersState| {
            let mut steps = Vec::new();
            model.actions(state, &mut steps);
            !steps.is_empty() || good_end(model, state)
        }),
    ]
}

fn are_reachable() -> Vec<Property<WritersModel>> {
    vec![
        Property::sometimes("a conflict", |_, state: &WritersState| {
            any(state, |writer| answer(writer) == Some(STALE))
        }),
        Property::sometimes("a conflict with the writer's own lost write", |_, state: &WritersState| {
            (0..state.writers.len()).any(|w| {
                let writer = &state.writers[w];
                let own = state.server.object.is_some_and(|object| object.spec.tokens[w] > 0);
                writer.maybe_written && own && answer(writer) == Some(STALE)
            })
        }),
        Property::sometimes("a lost write is recognised", |_, state: &WritersState| {
            any(state, |writer| writer.phase == WriterPhase::Ended(WriterOutcome::AlreadyDone))
        }),
        Property::sometimes("an exhausted run", |_, state: &WritersState| {
            any(state, |writer| matches!(writer.phase, WriterPhase::Ended(WriterOutcome::Exhausted { .. })))
        }),
        Property::sometimes("a run on a deleted object", |_, state: &WritersState| {
            any(state, |writer| writer.phase == WriterPhase::Ended(WriterOutcome::Gone))
        }),
        Property::sometimes("a write to a recreated object is refused", |_, state: &WritersState| {
            any(state, |writer| answer(writer) == Some(Reason::Conflict(Conflict::Uid)))
        }),
        Property::sometimes("a cancelled run that may have written", |_, state: &WritersState| {
            any(state, |writer| {
                writer.phase == WriterPhase::Ended(WriterOutcome::Cancelled { maybe_written: true })
            })
        }),
        Property::sometimes("every token is stored", |model: &WritersModel, state: &WritersState| {
            state
                .server
                .object
                .is_some_and(|object| object.spec.tokens.iter().take(model.count).all(|times| *times == 1))
        }),
    ]
}

const STALE: Reason = Reason::Conflict(Conflict::Version);

fn any(state: &WritersState, holds: impl Fn(&ModelWriter) -> bool) -> bool {
    state.writers.iter().any(holds)
}

fn sent(writer: &ModelWriter) -> Option<Put> {
    match writer.phase {
        WriterPhase::Sent(put) => Some(put),
        WriterPhase::Start | WriterPhase::Again | WriterPhase::Answered(..) | WriterPhase::Ended(_) => None,
    }
}

fn answer(writer: &ModelWriter) -> Option<Reason> {
    match writer.phase {
        WriterPhase::Answered(_, reason) => Some(reason),
        WriterPhase::Start | WriterPhase::Again | WriterPhase::Sent(_) | WriterPhase::Ended(_) => None,
    }
}

/// The writers that have ended, with their outcomes.
fn ended<'a>(
    model: &WritersModel,
    state: &'a WritersState,
) -> impl Iterator<Item = (usize, WriterOutcome)> + 'a {
    state.writers.iter().take(model.count).enumerate().filter_map(|(w, writer)| match writer.phase {
        WriterPhase::Ended(outcome) => Some((w, outcome)),
        WriterPhase::Start | WriterPhase::Again | WriterPhase::Sent(_) | WriterPhase::Answered(..) => None,
    })
}

fn kept(model: &WritersModel, state: &WritersState) -> bool {
    let Some(object) = state.server.object else { return true };
    let in_it = |w: usize| state.history.stored[w] & (1 << (object.uid - 1)) != 0;
    (0..model.count).all(|w| !in_it(w) || object.spec.tokens[w] > 0)
}

/// For a writer that crashed, its run before the crash may have written.
fn nothing_written_is_true(model: &WritersModel, state: &WritersState) -> bool {
    let crashed = state.left.crashes < model.faults.crashes;
    let claims = |outcome| {
        matches!(
            outcome,
            WriterOutcome::Exhausted { maybe_written: false }
                | WriterOutcome::Cancelled { maybe_written: false }
        )
    };
    crashed || ended(model, state).all(|(w, outcome)| !claims(outcome) || state.history.stored[w] == 0)
}

/// Nothing is running, and every writer reported the true result.
fn good_end(model: &WritersModel, state: &WritersState) -> bool {
    let done = state
        .writers
        .iter()
        .all(|writer| matches!(writer.phase, WriterPhase::Ended(_)) && writer.abandoned.is_none());
    let deleted = state.was_deleted(model);
    let correct = ended(model, state).all(|(w, outcome)| match outcome {
        WriterOutcome::Written | WriterOutcome::Unchanged | WriterOutcome::AlreadyDone => {
            deleted || state.server.object.is_some_and(|object| object.spec.tokens[w] == 1)
        }
        WriterOutcome::Gone => deleted,
        WriterOutcome::Exhausted { .. } | WriterOutcome::Cancelled { .. } => true,
        WriterOutcome::Rejected => false,
    });
    done && correct
}
