//! The state machine: what opens it, which request is the probe, and which answers count.

use proptest::prelude::*;

use super::*;

const S: Duration = Duration::from_secs(1);

fn settings() -> BreakerSettings {
    BreakerSettings::new(3, S * 5, S * 12).unwrap()
}

fn admitted(breaker: &mut Breaker, now: Duration) -> Ticket {
    breaker.admit(now).unwrap()
}

fn failing(breaker: &mut Breaker, now: Duration) -> Option<Transition> {
    let ticket = admitted(breaker, now);
    breaker.record(ticket, now, true)
}

/// A breaker that opened at `now`.
fn opened(now: Duration) -> Breaker {
    let mut breaker = Breaker::new(settings());
    for _ in 0..3 {
        failing(&mut breaker, now);
    }
    assert_eq!(breaker.state(), BreakerState::Open);
    breaker
}

#[test]
fn only_missing_answers_and_transient_errors_are_failures() {
    let retry_after = Some(S);
    let table = [
        (Class::Conflict, false),
        (Class::FieldManager { conflicts: Vec::new() }, false),
        (Class::UidMismatch, false),
        (Class::Deleted, false),
        (Class::AlreadyExists, false),
        (Class::NotFound, false),
        (Class::NotServed, false),
        (Class::TestFailed, false),
        (Class::Invalid, false),
        (Class::Forbidden, false),
        (Class::NamespaceTerminating, false),
        (Class::Unauthorized, false),
        (Class::Throttled { retry_after: None }, false),
        (Class::Throttled { retry_after }, false),
        (Class::Transient { retry_after: None }, true),
        (Class::Transient { retry_after }, true),
        (Class::Ambiguous, true),
        (Class::StorageFull, false),
        (Class::TooLarge, false),
        (Class::Undecodable, false),
        (Class::Gone, false),
        (Class::Other, false),
    ];
    for (class, failure) in table {
        assert_eq!(counts_as_failure(&class), failure, "{}", class.label());
    }
}

#[test]
fn invalid_settings_are_refused() {
    assert_eq!(BreakerSettings::new(0, S, S), Err(InvalidBreaker::Failures));
    assert_eq!(BreakerSettings::new(1, Duration::ZERO, S), Err(InvalidBreaker::OpenFor));
    let swapped = BreakerSettings::new(1, S * 2, S);
    assert_eq!(swapped, Err(InvalidBreaker::MaxOpen { open_for: S * 2, max_open: S }));
    assert_eq!(BreakerSettings::new(5, S * 5, S * 60), Ok(BreakerSettings::default()));
}

#[test]
fn consecutive_failures_open_the_circuit_and_an_answer_in_between_resets_them() {
    let mut breaker = Breaker::new(settings());
    assert_eq!(failing(&mut breaker, S), None);
    assert_eq!(failing(&mut breaker, S), None);
    let ticket = admitted(&mut breaker, S);
    assert_eq!(breaker.record(ticket, S, false), None);
    assert_eq!(failing(&mut breaker, S), None);
    assert_eq!(failing(&mut breaker, S), None);
    let opening = Transition { from: BreakerState::Closed, to: BreakerState::Open };
    assert_eq!(failing(&mut breaker, S), Some(opening));
    assert_eq!(breaker.admit(S), Err(CircuitOpen { retry_after: S * 5 }));
    assert_eq!(breaker.admit(S * 4), Err(CircuitOpen { retry_after: S * 2 }));
}

#[test]
fn after_the_open_time_one_probe_is_admitted_and_its_success_closes_the_circuit() {
    let mut breaker = opened(S);
    let probe = admitted(&mut breaker, S * 6);
    let half = Transition { from: BreakerState::Open, to: BreakerState::HalfOpen };
    assert_eq!(probe.transition(), Some(half));
    assert_eq!(breaker.admit(S * 6), Err(CircuitOpen { retry_after: PROBE_WAIT }));
    assert_eq!(breaker.admit(S * 600), Err(CircuitOpen { retry_after: PROBE_WAIT }));
    let closing = Transition { from: BreakerState::HalfOpen, to: BreakerState::Closed };
    assert_eq!(breaker.record(probe, S * 7, false), Some(closing));
    // It starts over: three failures are needed again.
    assert_eq!(failing(&mut breaker, S * 7), None);
    assert_eq!(failing(&mut breaker, S * 7), None);
    assert!(failing(&mut breaker, S * 7).is_some());
}

#[test]
fn each_failed_probe_doubles_the_open_time_up_to_its_cap() {
    let mut breaker = opened(Duration::ZERO);
    let mut now = Duration::ZERO;
    for open in [5, 10, 12, 12] {
        assert_eq!(breaker.admit(now).unwrap_err().retry_after, S * open);
        now += S * open;
        let reopening = Transition { from: BreakerState::HalfOpen, to: BreakerState::Open };
        assert_eq!(failing(&mut breaker, now), Some(reopening));
    }
    now += S * 12;
    let probe = admitted(&mut breaker, now);
    breaker.record(probe, now, false);
    for _ in 0..3 {
        failing(&mut breaker, now);
    }
    assert_eq!(
        breaker.admit(now).unwrap_err().retry_after,
        S * 5,
        "a closed circuit forgets how long it was open"
    );
}

#[test]
fn an_abandoned_probe_allows_another_and_changes_no_state() {
    let mut breaker = opened(S);
    let probe = admitted(&mut breaker, S * 6);
    breaker.abandon(probe);
    assert_eq!(breaker.state(), BreakerState::HalfOpen);
    let second = admitted(&mut breaker, S * 6);
    assert_eq!(second.transition(), None);
    assert!(breaker.admit(S * 6).is_err());
}

#[test]
fn the_result_of_a_request_from_before_a_change_is_ignored() {
    let mut breaker = Breaker::new(settings());
    let early: Vec<_> = (0..6).map(|_| admitted(&mut breaker, S)).collect();
    let mut early = early.into_iter();
    for _ in 0..3 {
        breaker.record(early.next().unwrap(), S, true);
    }
    assert_eq!(breaker.state(), BreakerState::Open);
    assert_eq!(breaker.record(early.next().unwrap(), S, false), None);
    assert_eq!(breaker.state(), BreakerState::Open, "a late success does not close it");
    let probe = admitted(&mut breaker, S * 6);
    assert_eq!(breaker.record(early.next().unwrap(), S * 6, true), None);
    assert_eq!(breaker.state(), BreakerState::HalfOpen, "a late failure is not the probe's");
    breaker.abandon(early.next().unwrap());
    assert!(breaker.admit(S * 6).is_err(), "nor does a late cancellation free the probe's place");
    breaker.record(probe, S * 6, false);
    assert_eq!(breaker.state(), BreakerState::Closed);
}

#[test]
fn extreme_durations_saturate() {
    let forever = BreakerSettings::new(1, Duration::MAX, Duration::MAX).unwrap();
    let mut breaker = Breaker::new(forever);
    let late = Duration::MAX.saturating_sub(S);
    failing(&mut breaker, late);
    assert_eq!(breaker.admit(late).unwrap_err().retry_after, S);
    for opened in [0, 1, 2, 100, u32::MAX] {
        assert_eq!(forever.open_time(opened), Duration::MAX);
        assert!(BreakerSettings::default().open_time(opened) <= DEFAULT_MAX_OPEN);
    }
}

#[derive(Debug, Clone)]
enum Step {
    Pass(u64),
    Admit,
    Settle(prop::sample::Index, bool),
    Abandon(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (0_u64..8).prop_map(Step::Pass),
        4 => Just(Step::Admit),
        4 => (any::<prop::sample::Index>(), prop::bool::weighted(0.7)).prop_map(|(who, failed)| Step::Settle(who, failed)),
        1 => any::<prop::sample::Index>().prop_map(Step::Abandon),
    ]
}

proptest! {
    /// Whatever the order of requests and answers: never two probes, never a request through an open circuit before its
    /// time, and no state in which no request will ever be admitted again.
    #[test]
    fn there_are_never_two_probes_and_the_circuit_never_gets_stuck(steps in prop::collection::vec(step(), 1..200)) {
        let mut breaker = Breaker::new(settings());
        let mut now = Duration::ZERO;
        // Tickets in use, and which of them were issued while the circuit was not closed.
        let mut under_way: Vec<(Ticket, bool)> = Vec::new();
        let mut opened_at = None;
        for step in steps {
            let before = breaker.state();
            match step {
                Step::Pass(seconds) => now += S * u32::try_from(seconds).unwrap(),
                Step::Admit => match breaker.admit(now) {
                    Ok(ticket) => {
                        if let (BreakerState::Open, Some(at)) = (before, opened_at) {
                            prop_assert!(now >= at + S * 5);
                        }
                        under_way.push((ticket, before != BreakerState::Closed));
                    }
                    Err(open) => {
                        prop_assert!(before != BreakerState::Closed);
                        prop_assert!(!open.retry_after.is_zero() && open.retry_after <= S * 12);
                    }
                },
                Step::Settle(who, failed) if !under_way.is_empty() => {
                    let (ticket, probe) = under_way.swap_remove(who.index(under_way.len()));
                    let change = breaker.record(ticket, now, failed);
                    prop_assert_eq!(change.is_some(), before != breaker.state());
                    if let Some(change) = change {
                        prop_assert_eq!((change.from, change.to), (before, breaker.state()));
                        prop_assert!(probe || before == BreakerState::Closed);
                    }
                    if breaker.state() == BreakerState::Open && before != BreakerState::Open {
                        opened_at = Some(now);
                    }
                }
                Step::Abandon(who) if !under_way.is_empty() => {
                    let (ticket, _) = under_way.swap_remove(who.index(under_way.len()));
                    breaker.abandon(ticket);
                    prop_assert_eq!(before, breaker.state());
                }
                Step::Settle(..) | Step::Abandon(_) => {}
            }
            let probes = under_way.iter().filter(|(_, probe)| *probe).count();
            prop_assert!(probes <= 1);
            prop_assert!(probes == 0 || breaker.state() == BreakerState::HalfOpen);
        }
        for (ticket, _) in under_way {
            breaker.abandon(ticket);
        }
        prop_assert!(breaker.admit(now + S * 12).is_ok());
    }
}
