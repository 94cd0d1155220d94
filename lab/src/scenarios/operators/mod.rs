//! The real operators, as users get them: the chart, both processes, and the API server's audit log as the witness.

mod account;
mod contested;
mod many_controllers;
mod one_command;
mod race;
mod strategies;
mod tandem;
mod two_operators;

use crate::scenario::Scenario;

/// All of them.
pub(super) fn all() -> Vec<Scenario> {
    vec![
        two_operators::SCENARIO,
        race::SCENARIO,
        strategies::SCENARIO,
        many_controllers::SCENARIO,
        contested::SCENARIO,
        one_command::SCENARIO,
    ]
}
