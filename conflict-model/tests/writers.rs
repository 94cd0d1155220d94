//! The model checker at work: every order of events among two and three writers, and the mistakes it must find.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

mod report;

use conflict_model::server::Unconditional;
use conflict_model::writers::{Faults, WriterFlaw, WritersModel};
use report::{explore, holds};
use stateright::Checker;

const NO_FAULTS: Faults = Faults { lost: 0, crashes: 0, cancels: 0, recreations: 0, status_writes: 0 };

const TWO: WritersModel = WritersModel {
    count: 2,
    attempts: 3,
    lag: 2,
    faults: NO_FAULTS,
    unconditional: Unconditional::Refused,
    flaw: None,
};

const THREE: WritersModel = WritersModel { count: 3, ..TWO };

/// With its mistake the model breaks each of `properties`, without it none; prints the shortest way there.
fn breaks(model: WritersModel, properties: &[&'static str]) {
    let name = format!("{:?}", model.flaw.unwrap());
    let sound = explore(&format!("without {name}"), WritersModel { flaw: None, ..model });
    let depth = explore(&name, model).max_depth();
    report::breaks(&name, &sound, &model, depth + 1, properties);
}

#[test]
fn two_writers_survive_crashes_lost_answers_and_a_namesake() {
    let faults = Faults { lost: 1, crashes: 1, recreations: 1, status_writes: 1, ..NO_FAULTS };
    let checker = explore("crashes and a namesake", WritersModel { faults, ..TWO });
    holds(&checker, &["a cancelled run that may have written"]);
    assert!(checker.unique_state_count() > 10_000);
}

#[test]
fn two_writers_survive_cancellation() {
    let faults = Faults { lost: 1, cancels: 1, status_writes: 2, ..NO_FAULTS };
    let checker = explore("cancellation", WritersModel { faults, ..TWO });
    holds(&checker, &["an object gone", "a namesake refused"]);
    assert!(checker.unique_state_count() > 10_000);
}

#[test]
fn three_writers_keep_every_promise() {
    let faults = Faults { lost: 1, status_writes: 1, ..NO_FAULTS };
    let checker = explore("three writers", WritersModel { faults, ..THREE });
    holds(&checker, &["an object gone", "a namesake refused", "a cancelled run that may have written"]);
    assert!(checker.unique_state_count() > 50_000);
    let faults = Faults { recreations: 1, ..NO_FAULTS };
    let checker = explore("three writers and a namesake", WritersModel { faults, ..THREE });
    // As many attempts as writers are enough, as the next test says.
    let unreachable = [
        "a conflict with oneself",
        "a lost write found again",
        "an exhausted run",
        "a cancelled run that may have written",
    ];
    holds(&checker, &unreachable);
    assert!(checker.unique_state_count() > 5_000);
}

#[test]
fn as_many_attempts_as_writers_are_enough_where_nothing_fails_and_one_less_is_not() {
    for model in [WritersModel { attempts: 2, ..TWO }, WritersModel { attempts: 3, ..THREE }] {
        let name = format!("{} writers, {} attempts", model.count, model.attempts);
        let enough = explore(&name, model);
        assert!(enough.discovery("an exhausted run").is_none());
        assert!(enough.discovery("a conflict").is_some() && enough.discovery("everybody's token").is_some());
        let scarce = explore("one less", WritersModel { attempts: model.attempts - 1, ..model });
        assert!(scarce.discovery("an exhausted run").is_some());
    }
}

#[test]
fn a_put_without_a_version_loses_updates_where_the_kind_allows_it() {
    let flawed =
        WritersModel { flaw: Some(WriterFlaw::NoVersion), unconditional: Unconditional::Allowed, ..TWO };
    breaks(
        flawed,
        &[
            "I1 what was stored stays",
            "I3 a PUT follows the version it was made from",
            "every end is a good one",
        ],
    );
    // A custom resource refuses it, so nothing is lost, and nothing is written either.
    let refused =
        explore("NoVersion, refused", WritersModel { unconditional: Unconditional::Refused, ..flawed });
    assert!(refused.discovery("I1 what was stored stays").is_none());
    assert!(refused.discovery("everybody's token").is_none());
    assert!(refused.discovery("every end is a good one").is_some());
}

#[test]
fn a_value_that_is_sent_again_loses_updates_although_every_version_is_checked() {
    let flawed = WritersModel { flaw: Some(WriterFlaw::BlindSet), ..TWO };
    breaks(flawed, &["I1 what was stored stays", "every end is a good one"]);
}

#[test]
fn a_retry_that_reads_the_cache_again_meets_the_same_conflict() {
    let flawed = WritersModel { flaw: Some(WriterFlaw::CachedReread), ..TWO };
    breaks(flawed, &["I5 a retry reads something newer", "an exhausted run"]);
}

#[test]
fn a_lost_answer_that_counts_as_a_failure_makes_the_effect_twice() {
    let faults = Faults { lost: 1, ..NO_FAULTS };
    let flawed = WritersModel { flaw: Some(WriterFlaw::BlindRepeat), faults, ..TWO };
    breaks(flawed, &["I2 an effect is there once at most", "every end is a good one"]);
}

#[test]
fn a_run_that_does_not_compare_the_uid_writes_to_the_namesake() {
    let faults = Faults { recreations: 1, ..NO_FAULTS };
    let flawed = WritersModel { flaw: Some(WriterFlaw::AnyUid), faults, ..TWO };
    breaks(flawed, &["I6 an error for good ends the run", "I9 a run writes to one object"]);
}

#[test]
fn a_cancelled_run_that_reports_success_is_caught() {
    let faults = Faults { cancels: 1, ..NO_FAULTS };
    let flawed = WritersModel { flaw: Some(WriterFlaw::SuccessOnCancel), faults, ..TWO };
    breaks(flawed, &["I4 success means a stored write or a goal met", "I8 a cancelled run says so"]);
}
