//! What must always hold, and what must be reachable for that to mean anything. The numbers are those of the table in
//! the crate's documentation.

use stateright::{Model as _, Property};

use super::Writers;
use super::state::{Outcome, Phase, Put, State, Writer};
use crate::server::{Conflict, Reason};

/// Every property. `always` must have no counterexample; each `sometimes` has an example where the faults allow it.
pub(super) fn all() -> Vec<Property<Writers>> {
    vec![
        Property::always("I1 what was stored stays", kept),
        Property::always("I2 an effect is there once at most", |_, state: &State| {
            state.server.object.is_none_or(|object| object.spec.tokens.iter().all(|times| *times <= 1))
        }),
        Property::always("I3 a PUT follows the version it was made from", |_, state: &State| {
            !state.truth.forked
        }),
        Property::always(
            "I4 success means a stored write or a goal met",
            |model: &Writers, state: &State| {
                let honest = |w, outcome: Outcome| !outcome.is_met() || state.truth.stored[w] != 0;
                ended(model, state).all(|(w, outcome)| honest(w, outcome))
            },
        ),
        Property::always("I5 a retry reads something newer", |_, state: &State| {
            state.writers.iter().all(|writer| sent(writer).is_none_or(|put| put.base > writer.refused))
        }),
        Property::always("I6 an error for good ends the run", |_, state: &State| {
            !state.truth.retried_for_good
        }),
        Property::always("I7 attempts are bounded", |model: &Writers, state: &State| {
            let bounded = |writer: &Writer| match writer.phase {
                Phase::Start | Phase::Again | Phase::Sent(_) | Phase::Answered(..) => {
                    writer.failed < model.attempts
                }
                Phase::Ended(_) => true,
            };
            state.writers.iter().all(bounded)
        }),
        Property::always("I8 a cancelled run says so", |_, state: &State| !state.truth.denied_cancel),
        Property::always("I9 a run writes to one object", |_, state: &State| {
            let same = |writer: &Writer| sent(writer).is_none_or(|put| Some(put.uid) == writer.uid);
            state.writers.iter().all(same)
        }),
        Property::always("I11 status never moves the generation", |_, state: &State| {
            !state.truth.status_moved_generation
        }),
        Property::always("I13 nothing written is true where it is said", nothing_written_is_true),
        Property::always("I14 nothing is sent that changes nothing", |_, state: &State| {
            state.writers.iter().filter_map(sent).all(|put| put.tokens != put.before)
        }),
        Property::always("every end is a good one", |model: &Writers, state: &State| {
            let mut steps = Vec::new();
            model.actions(state, &mut steps);
            !steps.is_empty() || good_end(model, state)
        }),
        Property::sometimes("a conflict", |_, state: &State| {
            any(state, |writer| answer(writer) == Some(STALE))
        }),
        Property::sometimes("a conflict with oneself", |_, state: &State| {
            (0..state.writers.len()).any(|w| {
                let writer = &state.writers[w];
                let own = state.server.object.is_some_and(|object| object.spec.tokens[w] > 0);
                writer.maybe_written && own && answer(writer) == Some(STALE)
            })
        }),
        Property::sometimes("a lost write found again", |_, state: &State| {
            any(state, |writer| writer.phase == Phase::Ended(Outcome::AlreadyDone))
        }),
        Property::sometimes("an exhausted run", |_, state: &State| {
            any(state, |writer| matches!(writer.phase, Phase::Ended(Outcome::Exhausted { .. })))
        }),
        Property::sometimes("an object gone", |_, state: &State| {
            any(state, |writer| writer.phase == Phase::Ended(Outcome::Gone))
        }),
        Property::sometimes("a namesake refused", |_, state: &State| {
            any(state, |writer| answer(writer) == Some(Reason::Conflict(Conflict::Uid)))
        }),
        Property::sometimes("a cancelled run that may have written", |_, state: &State| {
            any(state, |writer| writer.phase == Phase::Ended(Outcome::Cancelled { maybe_written: true }))
        }),
        Property::sometimes("everybody's token", |model: &Writers, state: &State| {
            state
                .server
                .object
                .is_some_and(|object| object.spec.tokens.iter().take(model.count).all(|times| *times == 1))
        }),
    ]
}

const STALE: Reason = Reason::Conflict(Conflict::Version);

fn any(state: &State, holds: impl Fn(&Writer) -> bool) -> bool {
    state.writers.iter().any(holds)
}

fn sent(writer: &Writer) -> Option<Put> {
    match writer.phase {
        Phase::Sent(put) => Some(put),
        Phase::Start | Phase::Again | Phase::Answered(..) | Phase::Ended(_) => None,
    }
}

fn answer(writer: &Writer) -> Option<Reason> {
    match writer.phase {
        Phase::Answered(_, reason) => Some(reason),
        Phase::Start | Phase::Again | Phase::Sent(_) | Phase::Ended(_) => None,
    }
}

/// The writers that have ended, with their outcomes.
fn ended<'a>(model: &Writers, state: &'a State) -> impl Iterator<Item = (usize, Outcome)> + 'a {
    state.writers.iter().take(model.count).enumerate().filter_map(|(w, writer)| match writer.phase {
        Phase::Ended(outcome) => Some((w, outcome)),
        Phase::Start | Phase::Again | Phase::Sent(_) | Phase::Answered(..) => None,
    })
}

fn kept(model: &Writers, state: &State) -> bool {
    let Some(object) = state.server.object else { return true };
    let in_it = |w: usize| state.truth.stored[w] & (1 << (object.uid - 1)) != 0;
    (0..model.count).all(|w| !in_it(w) || object.spec.tokens[w] > 0)
}

/// For a writer that crashed, its run before the crash may have written.
fn nothing_written_is_true(model: &Writers, state: &State) -> bool {
    let crashed = state.left.crashes < model.faults.crashes;
    let claims = |outcome| {
        matches!(
            outcome,
            Outcome::Exhausted { maybe_written: false } | Outcome::Cancelled { maybe_written: false }
        )
    };
    crashed || ended(model, state).all(|(w, outcome)| !claims(outcome) || state.truth.stored[w] == 0)
}

/// Nothing is running, and every writer reported the true result.
fn good_end(model: &Writers, state: &State) -> bool {
    let done =
        state.writers.iter().all(|writer| matches!(writer.phase, Phase::Ended(_)) && writer.adrift.is_none());
    let deleted = state.was_deleted(model);
    let told = ended(model, state).all(|(w, outcome)| match outcome {
        Outcome::Written | Outcome::Unchanged | Outcome::AlreadyDone => {
            deleted || state.server.object.is_some_and(|object| object.spec.tokens[w] == 1)
        }
        Outcome::Gone => deleted,
        Outcome::Exhausted { .. } | Outcome::Cancelled { .. } => true,
        Outcome::Rejected => false,
    });
    done && told
}
