//! Every order of events among two and three writers, and the mistakes that the model checker must find.

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

/// With its mistake the model breaks each of `properties`, without it none; prints the shortest counterexample.
fn breaks(model: WritersModel, properties: &[&'static str]) {
    let name = format!("{:?}", model.flaw.unwrap());
    let sound = explore(&format!("without {name}"), WritersModel { flaw: None, ..model });
    let depth = explore(&name, model).max_depth();
    report::breaks(&name, &sound, &model, depth + 1, properties);
}

#[test]
fn invariants_hold_for_two_writers_with_crashes_lost_answers_and_a_recreated_object() {
    let faults = Faults { lost: 1, crashes: 1, recreations: 1, status_writes: 1, ..NO_FAULTS };
    let checker = explore("crashes and a recreated object", WritersModel { faults, ..TWO });
    holds(&checker, &["a cancelled run that may have written"]);
    assert!(checker.unique_state_count() > 10_000);
}

#[test]
fn invariants_hold_for_two_writers_with_cancellation() {
    let faults = Faults { lost: 1, cancels: 1, status_writes: 2, ..NO_FAULTS };
    let checker = explore("cancellation", WritersModel { faults, ..TWO });
    holds(&checker, &["a run on a deleted object", "a write to a recreated object is refused"]);
    assert!(checker.unique_state_count() > 10_000);
}

#[test]
fn invariants_hold_for_three_writers() {
    let faults = Faults { lost: 1, status_writes: 1, ..NO_FAULTS };
    let checker = explore("three writers", WritersModel { faults, ..THREE });
    holds(
        &checker,
        &[
            "a run on a deleted object",
            "a write to a recreated object is refused",
            "a cancelled run that may have written",
        ],
    );
    assert!(checker.unique_state_count() > 50_000);
    let faults = Faults { recreations: 1, ..NO_FAULTS };
    let checker = explore("three writers and a recreated object", WritersModel { faults, ..THREE });
    // As many attempts as writers are enough, as the next test says.
    let unreachable = [
        "a conflict with the writer's own lost write",
        "a lost write is recognised",
        "an exhausted run",
        "a cancelled run that may have written",
    ];
    holds(&checker, &unreachable);
    assert!(checker.unique_state_count() > 5_000);
}

#[test]
fn without_faults_as_many_attempts_as_writers_suffice_and_one_fewer_does_not() {
    for model in [WritersModel { attempts: 2, ..TWO }, WritersModel { attempts: 3, ..THREE }] {
        let name = format!("{} writers, {} attempts", model.count, model.attempts);
        let enough = explore(&name, model);
        assert!(enough.discovery("an exhausted run").is_none());
        assert!(
            enough.discovery("a conflict").is_some() && enough.discovery("every token is stored").is_some()
        );
        let scarce = explore("one attempt fewer", WritersModel { attempts: model.attempts - 1, ..model });
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
            "I1 a stored effect is not lost",
            "I3 a PUT replaces the version it was based on",
            "every final state is correct",
        ],
    );
    // A custom resource refuses it, so nothing is lost, and nothing is written either.
    let refused =
        explore("NoVersion, refused", WritersModel { unconditional: Unconditional::Refused, ..flawed });
    assert!(refused.discovery("I1 a stored effect is not lost").is_none());
    assert!(refused.discovery("every token is stored").is_none());
    assert!(refused.discovery("every final state is correct").is_some());
}

#[test]
fn resending_the_first_decision_loses_updates_although_every_version_is_checked() {
    let flawed = WritersModel { flaw: Some(WriterFlaw::BlindSet), ..TWO };
    breaks(flawed, &["I1 a stored effect is not lost", "every final state is correct"]);
}

#[test]
fn a_retry_that_reads_the_cache_again_gets_the_same_conflict() {
    let flawed = WritersModel { flaw: Some(WriterFlaw::CachedReread), ..TWO };
    breaks(flawed, &["I5 a retry is based on a newer read", "an exhausted run"]);
}

#[test]
fn a_lost_answer_treated_as_a_failure_stores_the_effect_twice() {
    let faults = Faults { lost: 1, ..NO_FAULTS };
    let flawed = WritersModel { flaw: Some(WriterFlaw::BlindRepeat), faults, ..TWO };
    breaks(flawed, &["I2 an effect is stored at most once", "every final state is correct"]);
}

#[test]
fn a_run_that_does_not_compare_the_uid_writes_to_the_recreated_object() {
    let faults = Faults { recreations: 1, ..NO_FAULTS };
    let flawed = WritersModel { flaw: Some(WriterFlaw::AnyUid), faults, ..TWO };
    breaks(
        flawed,
        &["I6 an error that no retry resolves ends the run", "I9 a run writes to one object only"],
    );
}

#[test]
fn a_cancelled_run_that_reports_success_is_detected() {
    let faults = Faults { cancels: 1, ..NO_FAULTS };
    let flawed = WritersModel { flaw: Some(WriterFlaw::SuccessOnCancel), faults, ..TWO };
    breaks(flawed, &["I4 success means a stored write or a met goal", "I8 a cancelled run reports it"]);
}
