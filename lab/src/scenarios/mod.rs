//! Every scenario, in the order in which they are best seen.

mod conflict;
mod foo;
mod generation;
mod merging;
mod operators;
mod writes;

use crate::scenario::Scenario;

/// All of them.
pub fn all() -> Vec<Scenario> {
    let first = vec![conflict::SCENARIO, generation::SCENARIO];
    [first, writes::all(), foo::all(), merging::all(), operators::all()].concat()
}
