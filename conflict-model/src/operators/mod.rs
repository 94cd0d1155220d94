//! Both operators and a user on one pool, as a model for stateright: an Autoscaler that names the nodes that go and then
//! writes the count, its successor, a `NodePool` operator that reads both, and requests that are carried out late.
//!
//! An Autoscaler may give a request up, crash, or lose its lease while the request is on its way; the server may carry it
//! out at any time after that, or never. What each request is guarded by is what `shared_runtime::write` sends under the
//! strategy `guarded`; a [`Flaw`] takes one guard away, and [`Flaw::Everything`] is how it was once.
//!
//! Decisions are made from live reads: a lagging cache is a decision that takes long. Requests that are refused end in a
//! new decision, as they do in the operator.

mod flaw;
mod properties;
mod state;
mod step;

pub use flaw::Flaw;
pub use state::{Budget, DECISIONS, Decision, Phase, Sent, State};
pub use step::Step;

use stateright::{Model, Property};

/// The operators and what may befall them.
#[derive(Clone, Copy, Debug)]
pub struct Operators {
    /// How often each thing may happen.
    pub budget: Budget,
    /// The guard that is missing, if any.
    pub flaw: Option<Flaw>,
}

impl Operators {
    /// Whether the model makes this mistake.
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
