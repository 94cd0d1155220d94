//! Every bound ends a run, and every delay stays in its window.

use super::*;
use proptest::prelude::*;

const MS: Duration = Duration::from_millis(1);

/// The delays of a run of conflicts, drawing `random` each time, and why it ended.
fn run(policy: &RetryPolicy, random: f64) -> (Vec<Duration>, GiveUp) {
    let mut attempts = policy.attempts();
    let (mut now, mut delays) = (Duration::ZERO, Vec::new());
    loop {
        match attempts.next(now, Cause::Conflict, || random) {
            Next::RetryAfter(delay) => {
                now += delay;
                delays.push(delay);
            }
            Next::GiveUp(reason) => return (delays, reason),
        }
    }
}

fn of(backoff: Backoff) -> RetryPolicy {
    RetryPolicy::from_backoff(backoff).unwrap()
}

#[test]
fn the_client_go_presets_sleep_as_client_go_does() {
    assert_eq!(run(&RetryPolicy::client_go_default_retry(), 0.0), (vec![MS * 10; 4], GiveUp::Attempts));
    assert_eq!(
        run(&RetryPolicy::client_go_default_backoff(), 0.0),
        (vec![MS * 10, MS * 50, MS * 250], GiveUp::Attempts)
    );
}

#[test]
fn a_capped_backoff_makes_gos_attempts_without_gos_useless_last_sleep() {
    let seconds = |values: &[u64]| values.iter().copied().map(Duration::from_secs).collect::<Vec<_>>();
    let second = Duration::from_secs(1);
    let two_attempts = of(Backoff::go_compat(3, second, 2.0, 0.0, second * 3));
    assert_eq!(run(&two_attempts, 0.0), (seconds(&[1]), GiveUp::Attempts));
    let one_attempt = of(Backoff::go_compat(5, second * 5, 2.0, 0.0, second * 3));
    assert_eq!(run(&one_attempt, 0.0), (seconds(&[]), GiveUp::Attempts));
}

#[test]
fn a_backoff_without_steps_is_refused_because_it_would_never_call_the_operation() {
    let none = Backoff::go_compat(0, MS, 1.0, 0.0, Duration::ZERO);
    assert_eq!(RetryPolicy::from_backoff(none).unwrap_err(), InvalidBackoff::NoSteps(0));
}

#[test]
fn the_default_policy_waits_not_at_all_then_up_to_a_window_that_grows() {
    let (delays, reason) = run(&RetryPolicy::default().with_deadline(None), 1.0);
    assert_eq!(reason, GiveUp::Attempts);
    assert_eq!(delays.len(), 63);
    assert_eq!(delays[..4], [Duration::ZERO, MS * 8, MS * 12, MS * 16]);
    assert_eq!(delays[62], MS * 200);
}

#[test]
fn the_deadline_ends_a_run_before_an_attempt_that_would_start_at_it() {
    let policy = RetryPolicy::client_go_default_backoff().with_deadline(Some(MS * 60));
    assert_eq!(run(&policy, 0.0), (vec![MS * 10], GiveUp::Deadline));
    let policy = RetryPolicy::client_go_default_backoff().with_deadline(Some(MS * 61));
    assert_eq!(run(&policy, 0.0), (vec![MS * 10, MS * 50], GiveUp::Deadline));
}

#[test]
fn whichever_of_steps_and_max_attempts_is_smaller_counts() {
    let two = NonZeroU32::new(2).unwrap();
    assert_eq!(run(&RetryPolicy::client_go_default_retry().with_max_attempts(two), 0.0).0.len(), 1);
    let many = NonZeroU32::new(50).unwrap();
    assert_eq!(run(&RetryPolicy::client_go_default_retry().with_max_attempts(many), 0.0).0.len(), 4);
    assert_eq!(run(&RetryPolicy::once(), 0.0), (vec![], GiveUp::Attempts));
}

#[test]
fn a_told_delay_is_kept_and_a_fault_doubles_its_window() {
    let mut attempts = RetryPolicy::default().attempts();
    let told = Cause::RetryAfter(Duration::from_secs(1));
    assert_eq!(attempts.next(Duration::ZERO, told, || 0.0), Next::RetryAfter(MS * 1000));
    assert_eq!(attempts.next(Duration::ZERO, told, || 1.0), Next::RetryAfter(MS * 1100));
    for wanted in [50, 100, 200, 400, 800, 1600, 2000, 2000] {
        assert_eq!(attempts.next(Duration::ZERO, Cause::Fault, || 1.0), Next::RetryAfter(MS * wanted));
    }
    let too_long = Cause::RetryAfter(Duration::from_secs(10));
    assert_eq!(attempts.next(Duration::ZERO, too_long, || 0.0), Next::GiveUp(GiveUp::Deadline));
}

#[test]
fn faults_do_not_widen_the_window_of_conflicts() {
    let mut attempts = RetryPolicy::default().attempts();
    for _ in 0..5 {
        let _ = attempts.next(Duration::ZERO, Cause::Fault, || 0.0);
    }
    assert_eq!(attempts.next(Duration::ZERO, Cause::Conflict, || 1.0), Next::RetryAfter(Duration::ZERO));
}

proptest! {
    #[test]
    fn every_run_ends_within_its_bounds_whatever_the_random_source_says(
        max in 1_u32..100, deadline in 0_u64..20_000, random in proptest::num::f64::ANY,
        causes in proptest::collection::vec(0_u8..3, 200),
    ) {
        let policy = RetryPolicy::default()
            .with_max_attempts(NonZeroU32::new(max).unwrap())
            .with_deadline(Some(Duration::from_millis(deadline)));
        let mut attempts = policy.attempts();
        let mut now = Duration::ZERO;
        for cause in causes {
            let cause = match cause {
                0 => Cause::Conflict,
                1 => Cause::Fault,
                _ => Cause::RetryAfter(Duration::from_secs(1)),
            };
            match attempts.next(now, cause, || random) {
                Next::RetryAfter(delay) => now += delay,
                Next::GiveUp(_) => return Ok(()),
            }
            prop_assert!(attempts.made() < max);
            prop_assert!(now < Duration::from_millis(deadline));
        }
        prop_assert!(max >= 200, "200 failures must exhaust fewer attempts");
    }

    #[test]
    fn a_conflicts_delay_stays_in_its_window(random in 0.0_f64..1.0) {
        for (index, delay) in run(&RetryPolicy::default(), random).0.into_iter().enumerate() {
            let window = (MS * 4 * u32::try_from(index + 1).unwrap()).min(MS * 200);
            let fits = if index == 0 { delay.is_zero() } else { delay < window };
            prop_assert!(fits, "conflict {} waits {:?}", index + 1, delay);
        }
    }
}
