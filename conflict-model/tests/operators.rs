//! Both operators, a user and late requests in every order: the invariants hold, and each guard is needed.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

mod report;

use conflict_model::operators::{Budget, OperatorFlaw, OperatorsModel};
use report::{explore, holds};
use stateright::Checker;

const UNDONE: &str = "L1 no write of the user is undone by an earlier decision";
const REPLACED: &str = "L2 a list is not replaced by that of a previous leader";
const FOREIGN: &str = "L3 nodes are removed only by the list of the decision that wrote the count, or of one based on exactly this spec";
const WRONG: &str = "L4 no node is removed that the list did not mean";
const PASSED_OVER: &str = "L5 no other node is removed while one remains that the author of the count named, for it or based on exactly this spec";

const NOTHING: Budget =
    Budget { decisions: 2, lost: 0, depositions: 0, user_writes: 0, other_changes: 0, losses: 0 };

/// Without the guard the model breaks each of `properties`, with it none; prints the shortest counterexample.
fn breaks(budget: Budget, flaw: OperatorFlaw, properties: &[&'static str]) {
    let sound = explore(&format!("without {flaw:?}"), OperatorsModel { budget, flaw: None });
    let flawed = OperatorsModel { budget, flaw: Some(flaw) };
    report::breaks(&format!("{flaw:?}"), &sound, &flawed, 20, properties);
}

#[test]
fn late_requests_undo_no_user_write_and_remove_no_wrong_node() {
    let budget = Budget { lost: 1, depositions: 1, user_writes: 2, ..NOTHING };
    let checker = explore("a user, a second leader and late requests", OperatorsModel { budget, flaw: None });
    holds(&checker, &[]);
    assert!(checker.unique_state_count() > 10_000);
}

#[test]
fn invariants_hold_when_the_spec_changes_and_a_node_is_lost() {
    let budget = Budget { depositions: 1, user_writes: 1, other_changes: 1, losses: 1, ..NOTHING };
    let checker = explore("a changed spec and a lost node", OperatorsModel { budget, flaw: None });
    holds(&checker, &[]);
    assert!(checker.unique_state_count() > 10_000);
}

#[test]
fn invariants_hold_for_three_decisions_of_two_leaders() {
    let budget = Budget { decisions: 3, lost: 1, depositions: 1, user_writes: 1, ..NOTHING };
    let checker = explore("three decisions", OperatorsModel { budget, flaw: None });
    holds(&checker, &[]);
    assert!(checker.unique_state_count() > 50_000);
}

#[test]
fn without_any_guard_every_invariant_is_broken() {
    let budget = Budget { depositions: 1, user_writes: 2, losses: 1, ..NOTHING };
    breaks(budget, OperatorFlaw::Everything, &[UNDONE, REPLACED, FOREIGN, WRONG]);
}

#[test]
fn a_count_guarded_by_its_value_is_written_late_when_the_value_returns() {
    breaks(Budget { decisions: 1, lost: 1, user_writes: 2, ..NOTHING }, OperatorFlaw::CountGuard, &[UNDONE]);
}

#[test]
fn a_late_forced_apply_replaces_the_list_of_the_next_leader() {
    breaks(Budget { lost: 1, depositions: 1, ..NOTHING }, OperatorFlaw::ForcedApply, &[REPLACED]);
}

#[test]
fn a_count_written_without_a_test_of_its_list_is_paired_with_another_list() {
    breaks(Budget { depositions: 1, ..NOTHING }, OperatorFlaw::UnpairedCount, &[FOREIGN]);
}

#[test]
fn a_leftover_list_is_used_for_the_users_count() {
    breaks(Budget { decisions: 1, lost: 1, user_writes: 1, ..NOTHING }, OperatorFlaw::AnyWriter, &[FOREIGN]);
}

#[test]
fn a_list_of_slots_names_a_later_node_in_the_same_slot() {
    breaks(Budget { decisions: 1, losses: 1, ..NOTHING }, OperatorFlaw::SlotNames, &[WRONG]);
}

#[test]
fn a_list_is_ignored_before_its_count_is_written_if_only_its_own_count_is_checked() {
    breaks(NOTHING, OperatorFlaw::OwnCountOnly, &[PASSED_OVER]);
}

#[test]
fn a_list_is_used_before_its_count_is_written_although_the_spec_has_changed() {
    breaks(Budget { other_changes: 1, ..NOTHING }, OperatorFlaw::AnySpec, &[FOREIGN]);
}
