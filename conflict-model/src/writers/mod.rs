//! Writers that share one object, as a model for stateright: each puts its token into the object's spec the way
//! `conflict-retry`'s `update` does (`door/cycle.rs`), and everything that can come between does so in every order.
//!
//! A writer reads (from a cache that may lag, or live), decides, PUTs with the version it read, and after a conflict or
//! a lost answer reads *live* and decides *again*, a bounded number of times. A [`Flaw`] makes one mistake out of that,
//! for the properties to find.
//!
//! Reads that fail are left out: they change nothing, and only use up attempts.

mod flaw;
mod properties;
mod state;
mod step;

pub use flaw::Flaw;
pub use state::{Faults, Outcome, Phase, Put, State, WRITERS, Writer};
pub use step::Step;

use state::LAG;
use stateright::{Model, Property};

use crate::server::Unconditional;

/// Several writers and what may befall them.
#[derive(Clone, Copy, Debug)]
pub struct Writers {
    /// How many writers there are, at most [`WRITERS`].
    pub count: usize,
    /// Attempts each may make, at least 1.
    pub attempts: u8,
    /// How many versions a cache may lag, at most 2.
    pub lag: u8,
    /// How often each fault may happen.
    pub faults: Faults,
    /// What the kind's PUT without a version means.
    pub unconditional: Unconditional,
    /// The mistake that every writer makes, if any.
    pub flaw: Option<Flaw>,
}

impl Model for Writers {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(self)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Step>) {
        step::possible(self, state, actions);
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut next = *last;
        step::take(self, &mut next, step);
        next.forget_what_nobody_can_see(self);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}

impl Writers {
    /// The caches' bound, in versions.
    fn lag(&self) -> u8 {
        self.lag.min(LAG)
    }
}
