//! All scenarios, in their recommended order.

mod conflict;
mod foo;
mod generation;
mod merging;
mod operators;
mod retry;
mod writes;

use crate::scenario::Scenario;

/// All scenarios.
pub fn all() -> Vec<Scenario> {
    let first = vec![conflict::SCENARIO, generation::SCENARIO];
    [first, writes::all(), foo::all(), retry::all(), merging::all(), operators::all()].concat()
}
