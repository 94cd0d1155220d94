//! A stateright model of writers that share one object: each adds its token to the object's spec the way
//! `conflict-retry`'s `update` does (`writes/write_loop/mod.rs`), with all events in between in every order.
//!
//! A writer reads (from a possibly stale cache, or live), decides, PUTs with the version it read, and after a conflict
//! or a lost answer reads *live* and decides *again*, a bounded number of times. A [`WriterFlaw`] introduces one mistake,
//! which the properties must find.
//!
//! Failing reads are not modelled: they change nothing, and only use up attempts.

mod flaw;
mod properties;
mod state;
mod step;

pub use flaw::WriterFlaw;
pub use state::{Faults, ModelWriter, Put, WRITERS, WriterOutcome, WriterPhase, WritersState};
pub use step::WriterStep;

use state::LAG;
use stateright::{Model, Property};

use crate::server::Unconditional;

/// Several writers and the faults that may happen to them.
#[derive(Clone, Copy, Debug)]
pub struct WritersModel {
    /// Number of writers, at most [`WRITERS`].
    pub count: usize,
    /// Attempts of each writer, at least 1.
    pub attempts: u8,
    /// How many versions a cache may lag, at most 2.
    pub lag: u8,
    /// How often each fault may happen.
    pub faults: Faults,
    /// What a PUT without a version means for the kind.
    pub unconditional: Unconditional,
    /// The mistake that every writer makes; `None` when there is none.
    pub flaw: Option<WriterFlaw>,
}

impl Model for WritersModel {
    type State = WritersState;
    type Action = WriterStep;

    fn init_states(&self) -> Vec<WritersState> {
        vec![WritersState::new(self)]
    }

    fn actions(&self, state: &WritersState, actions: &mut Vec<WriterStep>) {
        step::possible(self, state, actions);
    }

    fn next_state(&self, last: &WritersState, step: WriterStep) -> Option<WritersState> {
        let mut next = *last;
        step::take(self, &mut next, step);
        next.canonicalize(self);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}

impl WritersModel {
    /// The maximum lag of the caches, in versions.
    fn lag(&self) -> u8 {
        self.lag.min(LAG)
    }
}
