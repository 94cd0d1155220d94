//! Every scenario, in the order in which they are best seen.

mod conflict;
mod foo;
mod generation;
mod writes;

use crate::scenario::Scenario;

/// All of them.
pub fn all() -> Vec<Scenario> {
    [vec![conflict::SCENARIO, generation::SCENARIO], writes::all(), foo::all()].concat()
}
