//! What must always hold, and what must be reachable for that to mean anything.

use stateright::Property;

use super::Operators;
use super::state::{State, Truth};

/// Every property. `always` must have no counterexample; each `sometimes` has an example where the budget allows it.
pub(super) fn all() -> Vec<Property<Operators>> {
    vec![
        Property::always(
            "L1 no write of the user's is undone by what was decided before it",
            |_, state: &State| !state.truth.undone,
        ),
        Property::always("L2 a list is not replaced by a predecessor's", |_, state: &State| {
            !state.truth.replaced
        }),
        Property::always(
            "L3 nodes go by no list but that of the decision whose count is there, or of one made from this very spec",
            |_, state: &State| !state.truth.foreign_list,
        ),
        Property::always("L4 no node goes that the list did not mean", |_, state: &State| {
            !state.truth.wrong_node
        }),
        Property::always(
            "L5 no other node goes while one stays that the author of the count named, for it or from this very spec",
            |_, state: &State| !state.truth.passed_over,
        ),
        Property::sometimes("a list is followed", |_, state: &State| state.truth.followed),
        Property::sometimes("a list is followed before its count", |_, state: &State| state.truth.ahead),
        Property::sometimes("nodes go without a list", |_, state: &State| state.truth.chosen),
        Property::sometimes("a late request is refused", |_, state: &State| state.truth.refused_late),
        Property::sometimes("a late request does no harm", |_, state: &State| {
            let Truth { carried_out_late, undone, replaced, foreign_list, wrong_node, passed_over, .. } =
                state.truth;
            carried_out_late && !(undone || replaced || foreign_list || wrong_node || passed_over)
        }),
    ]
}
