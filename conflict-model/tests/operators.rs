//! Both operators, a user and late requests in every order: what they promise holds, and each guard is needed.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

mod report;

use conflict_model::operators::{Budget, OperatorFlaw, OperatorsModel};
use report::{explore, holds};
use stateright::Checker;

const UNDONE: &str = "L1 no write of the user's is undone by what was decided before it";
const REPLACED: &str = "L2 a list is not replaced by a predecessor's";
const FOREIGN: &str = "L3 nodes go by no list but that of the decision whose count is there, or of one made from this very spec";
const WRONG: &str = "L4 no node goes that the list did not mean";
const PASSED_OVER: &str =
    "L5 no other node goes while one stays that the author of the count named, for it or from this very spec";

const NOTHING: Budget =
    Budget { decisions: 2, lost: 0, depositions: 0, user_writes: 0, other_changes: 0, losses: 0 };

/// Without the guard the model breaks each of `properties`, with it none; prints the shortest way there.
fn breaks(budget: Budget, flaw: OperatorFlaw, properties: &[&'static str]) {
    let sound = explore(&format!("without {flaw:?}"), OperatorsModel { budget, flaw: None });
    let flawed = OperatorsModel { budget, flaw: Some(flaw) };
    report::breaks(&format!("{flaw:?}"), &sound, &flawed, 20, properties);
}

#[test]
fn a_late_request_undoes_nothing_and_removes_no_node_that_was_not_meant() {
    let budget = Budget { lost: 1, depositions: 1, user_writes: 2, ..NOTHING };
    let checker = explore("a user, a successor and late requests", OperatorsModel { budget, flaw: None });
    holds(&checker, &[]);
    assert!(checker.unique_state_count() > 10_000);
}

#[test]
fn a_changed_spec_and_a_lost_node_keep_every_promise() {
    let budget = Budget { depositions: 1, user_writes: 1, other_changes: 1, losses: 1, ..NOTHING };
    let checker = explore("a changed spec and a lost node", OperatorsModel { budget, flaw: None });
    holds(&checker, &[]);
    assert!(checker.unique_state_count() > 10_000);
}

#[test]
fn three_decisions_of_two_leaders_keep_every_promise() {
    let budget = Budget { decisions: 3, lost: 1, depositions: 1, user_writes: 1, ..NOTHING };
    let checker = explore("three decisions", OperatorsModel { budget, flaw: None });
    holds(&checker, &[]);
    assert!(checker.unique_state_count() > 50_000);
}

#[test]
fn as_it_was_once_every_promise_is_broken() {
    let budget = Budget { depositions: 1, user_writes: 2, losses: 1, ..NOTHING };
    breaks(budget, OperatorFlaw::Everything, &[UNDONE, REPLACED, FOREIGN, WRONG]);
}

#[test]
fn a_count_that_is_guarded_by_its_value_lands_when_the_value_comes_back() {
    breaks(Budget { decisions: 1, lost: 1, user_writes: 2, ..NOTHING }, OperatorFlaw::CountGuard, &[UNDONE]);
}

#[test]
fn a_forced_apply_that_comes_late_replaces_the_successors_list() {
    breaks(Budget { lost: 1, depositions: 1, ..NOTHING }, OperatorFlaw::ForcedApply, &[REPLACED]);
}

#[test]
fn a_count_that_does_not_ask_for_its_list_meets_another_one() {
    breaks(Budget { depositions: 1, ..NOTHING }, OperatorFlaw::UnpairedCount, &[FOREIGN]);
}

#[test]
fn a_list_that_was_left_behind_is_taken_for_the_users_count() {
    breaks(Budget { decisions: 1, lost: 1, user_writes: 1, ..NOTHING }, OperatorFlaw::AnyWriter, &[FOREIGN]);
}

#[test]
fn a_list_of_slots_names_a_node_that_came_later() {
    breaks(Budget { decisions: 1, losses: 1, ..NOTHING }, OperatorFlaw::SlotNames, &[WRONG]);
}

#[test]
fn a_list_whose_count_is_slow_is_passed_over_where_only_its_own_count_is_looked_at() {
    breaks(NOTHING, OperatorFlaw::OwnCountOnly, &[PASSED_OVER]);
}

#[test]
fn a_list_whose_count_is_slow_is_followed_although_the_user_has_changed_the_spec_since() {
    breaks(Budget { other_changes: 1, ..NOTHING }, OperatorFlaw::AnySpec, &[FOREIGN]);
}
