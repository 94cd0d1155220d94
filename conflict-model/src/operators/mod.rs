//! A stateright model of both operators and a user on one pool: an Autoscaler that announces the nodes to remove and
//! then writes the count, its successor, a `NodePool` operator that reads both, and requests that are executed late.
//!
//! An Autoscaler may give up on a request, crash, or lose its lease while the request is in flight; the server may
//! execute it at any time after that, or never. The guards of each request are those that `shared_runtime::write` sends
//! with the strategy `guarded`; a [`OperatorFlaw`] removes one guard, and [`OperatorFlaw::Everything`] is an earlier
//! implementation.
//!
//! Decisions are based on live reads: a stale cache is equivalent to a decision that takes long. Refused requests end
//! in a new decision, as in the operator.

mod flaw;
mod properties;
mod state;
mod step;

pub use flaw::OperatorFlaw;
pub use state::{Budget, DECISIONS, ModelDecision, OperatorPhase, OperatorsState, Sent};
pub use step::OperatorStep;

use stateright::{Model, Property};

/// The operators and the faults that may happen to them.
#[derive(Clone, Copy, Debug)]
pub struct OperatorsModel {
    /// How often each thing may happen.
    pub budget: Budget,
    /// The guard that is missing, if any.
    pub flaw: Option<OperatorFlaw>,
}

impl OperatorsModel {
    /// Whether the model lacks this guard.
    fn lacks(self, flaw: OperatorFlaw) -> bool {
        matches!(self.flaw, Some(made) if made == flaw || made == OperatorFlaw::Everything)
    }
}

impl Model for OperatorsModel {
    type State = OperatorsState;
    type Action = OperatorStep;

    fn init_states(&self) -> Vec<OperatorsState> {
        vec![OperatorsState::new(self.budget)]
    }

    fn actions(&self, state: &OperatorsState, actions: &mut Vec<OperatorStep>) {
        step::possible(state, actions);
    }

    fn next_state(&self, last: &OperatorsState, step: OperatorStep) -> Option<OperatorsState> {
        let mut next = *last;
        step::take(*self, &mut next, step);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
