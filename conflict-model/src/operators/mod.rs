//! A stateright model of both operators and a user on one pool: an Autoscaler that announces the nodes to remove and
//! then writes the count, its successor, a `NodePool` operator that reads both, and requests that are executed late.
//!
//! An Autoscaler may give up on a request, crash, or lose its lease while the request is in flight; the server may
//! execute it at any time after that, or never. The guards of each request are those that `shared_runtime::write` sends
//! with the strategy `guarded`; a [`Flaw`] removes one guard, and [`Flaw::Everything`] is an earlier implementation.
//!
//! Decisions are based on live reads: a stale cache is equivalent to a decision that takes long. Refused requests end
//! in a new decision, as in the operator.

mod flaw;
mod properties;
mod state;
mod step;

pub use flaw::Flaw;
pub use state::{Budget, DECISIONS, Decision, Phase, Sent, State};
pub use step::Step;

use stateright::{Model, Property};

/// The operators and the faults that may happen to them.
#[derive(Clone, Copy, Debug)]
pub struct Operators {
    /// How often each thing may happen.
    pub budget: Budget,
    /// The guard that is missing, if any.
    pub flaw: Option<Flaw>,
}

impl Operators {
    /// Whether the model lacks this guard.
    fn lacks(self, flaw: Flaw) -> bool {
        matches!(self.flaw, Some(made) if made == flaw || made == Flaw::Everything)
    }
}

impl Model for Operators {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(self.budget)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Step>) {
        step::possible(state, actions);
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut next = *last;
        step::take(*self, &mut next, step);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
