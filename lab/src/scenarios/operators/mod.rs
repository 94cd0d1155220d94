//! The real operators, as users install them: the chart, both processes, and the API server's audit log as evidence.

mod account;
mod contested;
mod dev_up;
mod machine_deployment;
mod many_controllers;
mod one_command;
mod one_operator;
mod pauses;
mod race;
mod strategies;
mod tandem;
mod two_operators;

use crate::scenario::Scenario;

/// All scenarios of this group.
pub(super) fn all() -> Vec<Scenario> {
    vec![
        two_operators::SCENARIO,
        race::SCENARIO,
        strategies::SCENARIO,
        many_controllers::SCENARIO,
        contested::SCENARIO,
        machine_deployment::SCENARIO,
        one_command::SCENARIO,
    ]
}
