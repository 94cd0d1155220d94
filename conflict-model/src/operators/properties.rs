//! What must always hold, and what must be reachable for that to mean anything.

use stateright::Property;

use super::OperatorsModel;
use super::state::{OperatorsState, Truth};

/// Every property. `always` must have no counterexample; each `sometimes` has an example where the budget allows it.
pub(super) fn all() -> Vec<Property<OperatorsModel>> {
    vec![
        Property::always(
            "L1 no write of the user's is undone by what was decided before it",
            |_, state: &OperatorsState| !state.truth.undone,
        ),
        Property::always("L2 a list is not replaced by a predecessor's", |_, state: &OperatorsState| {
            !state.truth.replaced
        }),
        Property::always(
            "L3 nodes go by no list but that of the decision whose count is there, or of one made from this very spec",
            |_, state: &OperatorsState| !state.truth.foreign_list,
        ),
        Property::always("L4 no node goes that the list did not mean", |_, state: &OperatorsState| {
            !state.truth.wrong_node
        }),
        Property::always(
            "L5 no other node goes while one stays that the author of the count named, for it or from this very spec",
            |_, state: &OperatorsState| !state.truth.passed_over,
        ),
        Property::sometimes("a list is followed", |_, state: &OperatorsState| state.truth.followed),
        Property::sometimes("a list is followed before its count", |_, state: &OperatorsState| {
            state.truth.ahead
        }),
        Property::sometimes("nodes go without a list", |_, state: &OperatorsState| state.truth.chosen),
        Property::sometimes("a late request is refused", |_, state: &OperatorsState| {
            state.truth.refused_late
        }),
        Property::sometimes("a late request does no harm", |_, state: &OperatorsState| {
            let Truth { carried_out_late, undone, replaced, foreign_list, wrong_node, passed_over, .. } =
                state.truth;
            carried_out_late && !(undone || replaced || foreign_list || wrong_node || passed_over)
        }),
    ]
}
