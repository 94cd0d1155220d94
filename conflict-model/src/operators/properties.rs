//! What must always hold, and what must be reachable for that to mean anything.

use stateright::Property;

use super::OperatorsModel;
use super::state::{History, OperatorsState};

/// Every property. `always` must have no counterexample; each `sometimes` has an example where the budget allows it.
pub(super) fn all() -> Vec<Property<OperatorsModel>> {
    vec![
        Property::always(
            "L1 no write of the user is undone by an earlier decision",
            |_, state: &OperatorsState| !state.history.user_write_undone,
        ),
        Property::always(
            "L2 a list is not replaced by that of a previous leader",
            |_, state: &OperatorsState| !state.history.list_replaced,
        ),
        Property::always(
            "L3 nodes are removed only by the list of the decision that wrote the count, or of one based on exactly this spec",
            |_, state: &OperatorsState| !state.history.list_of_another_decision,
        ),
        Property::always("L4 no node is removed that the list did not mean", |_, state: &OperatorsState| {
            !state.history.wrong_node
        }),
        Property::always(
            "L5 no other node is removed while one remains that the author of the count named, for it or based on exactly this spec",
            |_, state: &OperatorsState| !state.history.named_node_skipped,
        ),
        Property::sometimes("a list is used", |_, state: &OperatorsState| state.history.list_used),
        Property::sometimes("a list is used before its count is written", |_, state: &OperatorsState| {
            state.history.list_used_early
        }),
        Property::sometimes("nodes are removed without a list", |_, state: &OperatorsState| {
            state.history.removed_without_list
        }),
        Property::sometimes("a late request is refused", |_, state: &OperatorsState| {
            state.history.refused_late
        }),
        Property::sometimes("a late request does no harm", |_, state: &OperatorsState| {
            let History {
                executed_late,
                user_write_undone,
                list_replaced,
                list_of_another_decision,
                wrong_node,
                named_node_skipped,
                ..
            } = state.history;
            executed_late
                && !(user_write_undone
                    || list_replaced
                    || list_of_another_decision
                    || wrong_node
                    || named_node_skipped)
        }),
    ]
}
