//! Every limit ends a run, and every delay stays in its window.

use proptest::prelude::*;

use super::*;

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
fn the_default_policy_waits_in_windows_that_grow_from_one_and_a_half_attempts() {
    let mut attempts = RetryPolicy::default().attempts();
    let (mut now, mut windows) = (Duration::ZERO, Vec::new());
    for _ in 0..15 {
        now += MS * 10;
        let Next::RetryAfter(delay) = attempts.next(now, Cause::Conflict, || 1.0) else { panic!("gave up") };
        now += delay;
        windows.push(delay.as_millis());
    }
    assert_eq!(windows[..5], [15, 25, 43, 73, 125]);
    assert_eq!(windows[14], 1000, "{windows:?}");
}

#[test]
fn the_window_follows_the_shortest_attempt_within_the_timers_resolution() {
    let mut attempts = RetryPolicy::default().attempts();
    let slow = attempts.next(MS * 100, Cause::Conflict, || 1.0);
    assert_eq!(slow, Next::RetryAfter(MS * 150));
    // The second attempt begins at 250 ms and is answered at once; one millisecond counts.
    let quick = attempts.next(MS * 250, Cause::Conflict, || 1.0);
    assert_eq!(quick, Next::RetryAfter(Duration::from_micros(2_550)));
    // A third that is slow again changes nothing: 1.5 · 1.7² of that millisecond.
    let slow = attempts.next(MS * 900, Cause::Conflict, || 1.0);
    assert_eq!(slow, Next::RetryAfter(Duration::from_micros(4_335)));
}

#[test]
fn the_deadline_ends_a_run_before_an_attempt_that_would_start_at_it() {
    let policy = RetryPolicy::client_go_default_backoff().with_deadline(Some(MS * 60));
    assert_eq!(run(&policy, 0.0), (vec![MS * 10], GiveUp::Deadline));
    let policy = RetryPolicy::client_go_default_backoff().with_deadline(Some(MS * 61));
    assert_eq!(run(&policy, 0.0), (vec![MS * 10, MS * 50], GiveUp::Deadline));
}

#[test]
fn the_smaller_of_steps_and_max_attempts_applies() {
    let two = NonZeroU32::new(2).unwrap();
    assert_eq!(run(&RetryPolicy::client_go_default_retry().with_max_attempts(two), 0.0).0.len(), 1);
    let many = NonZeroU32::new(50).unwrap();
    assert_eq!(run(&RetryPolicy::client_go_default_retry().with_max_attempts(many), 0.0).0.len(), 4);
    assert_eq!(run(&RetryPolicy::once(), 0.0), (vec![], GiveUp::Attempts));
}

#[test]
fn a_retry_after_is_kept_and_a_fault_doubles_its_window() {
    let mut attempts = RetryPolicy::default().attempts();
    let retry_after = Cause::RetryAfter(Duration::from_secs(1));
    assert_eq!(attempts.next(Duration::ZERO, retry_after, || 0.0), Next::RetryAfter(MS * 1000));
    assert_eq!(attempts.next(Duration::ZERO, retry_after, || 1.0), Next::RetryAfter(MS * 1100));
    for wanted in [50, 100, 200, 400, 800, 1600, 2000, 2000] {
        assert_eq!(attempts.next(Duration::ZERO, Cause::Fault, || 1.0), Next::RetryAfter(MS * wanted));
    }
    let too_long = Cause::RetryAfter(Duration::from_secs(30));
    assert_eq!(attempts.next(Duration::ZERO, too_long, || 0.0), Next::GiveUp(GiveUp::Deadline));
}

#[test]
fn faults_do_not_widen_the_window_of_conflicts() {
    let mut attempts = RetryPolicy::default().attempts();
    for _ in 0..5 {
        let _ = attempts.next(Duration::ZERO, Cause::Fault, || 0.0);
    }
    let first = attempts.next(Duration::ZERO, Cause::Conflict, || 1.0);
    assert_eq!(first, Next::RetryAfter(Duration::from_micros(1_500)));
}

proptest! {
    #[test]
    fn every_run_ends_within_its_bounds_for_any_random_source(
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
            let window = Duration::from_millis(1).mul_f64(1.5 * 1.7_f64.powi(i32::try_from(index).unwrap()));
            let window = window.min(MS * 128);
            // Each step rounds to nanoseconds.
            prop_assert!(delay <= window + Duration::from_nanos(99), "conflict {} waits {:?}", index + 1, delay);
        }
    }

    #[test]
    fn a_watching_writer_never_sends_from_the_refused_version_and_never_waits_forever(
        random in proptest::num::f64::ANY,
        took in 0_u64..500,
        deadline in 1_u64..20_000,
        looks in proptest::collection::vec((0_u64..2_000, any::<bool>()), 500),
    ) {
        let policy = RetryPolicy::default().with_deadline(Some(Duration::from_millis(deadline)));
        let mut attempts = policy.attempts().watched();
        let mut now = Duration::from_millis(took);
        if attempts.next(now, Cause::Conflict, || random) == Next::GiveUp(GiveUp::Deadline) {
            return Ok(());
        }
        let mut seen = false;
        for (micros, news) in looks {
            seen |= news;
            match attempts.wait_step(now, news) {
                WaitStep::Wait(rest) => {
                    prop_assert!(!rest.is_zero(), "a wait of nothing spins");
                    prop_assert!(rest <= Duration::from_secs(3));
                    // Either an event arrives first, or the whole rest passes.
                    now += if micros % 2 == 0 { rest } else { rest.min(Duration::from_micros(micros)) };
                }
                WaitStep::Send => {
                    prop_assert!(seen && now < Duration::from_millis(deadline));
                    return Ok(());
                }
                WaitStep::Read => {
                    prop_assert!(!seen && now < Duration::from_millis(deadline));
                    return Ok(());
                }
                WaitStep::GiveUp(reason) => {
                    prop_assert_eq!(reason, GiveUp::Deadline);
                    prop_assert!(now >= Duration::from_millis(deadline));
                    return Ok(());
                }
            }
        }
    }
}

/// A writer with a watch-fed cache whose first attempt took 10 ms and drew `share` of its window.
fn watching(share: f64) -> Attempts {
    let mut attempts = RetryPolicy::default().attempts().watched();
    assert_eq!(attempts.next(MS * 10, Cause::Conflict, || share), Next::RetryAfter((MS * 15).mul_f64(share)));
    attempts
}

#[test]
fn a_watching_writer_whose_wait_is_over_sends_as_soon_as_the_winners_version_is_known() {
    let mut attempts = watching(0.0);
    assert_eq!(attempts.wait_step(MS * 10, true), WaitStep::Send);
    let mut attempts = watching(0.0);
    assert!(
        matches!(attempts.wait_step(MS * 10, false), WaitStep::Wait(_)),
        "the winner's version is not known"
    );
    assert_eq!(attempts.wait_step(MS * 12, true), WaitStep::Send);
}

#[test]
fn after_three_attempt_durations_without_an_event_a_watching_writer_reads_live() {
    let mut attempts = watching(0.0);
    assert_eq!(attempts.wait_step(MS * 10, false), WaitStep::Wait(MS * 30));
    assert_eq!(attempts.wait_step(MS * 40, false), WaitStep::Read);
}

#[test]
fn versions_in_between_do_not_change_the_wait_of_a_watching_writer() {
    let mut attempts = watching(0.5);
    assert_eq!(attempts.wait_step(MS * 10, true), WaitStep::Wait(Duration::from_micros(7_500)));
    assert_eq!(attempts.wait_step(MS * 14, true), WaitStep::Wait(Duration::from_micros(3_500)));
    assert_eq!(attempts.wait_step(Duration::from_micros(17_600), false), WaitStep::Send);
}

#[test]
fn silence_halves_the_estimate_and_the_rest_of_the_wait() {
    let mut attempts = watching(0.0);
    assert_eq!(attempts.wait_step(MS * 10, true), WaitStep::Send);
    // The second conflict: an estimate of six contenders, a window of 60 ms, all of which is drawn.
    assert_eq!(attempts.next(MS * 20, Cause::Conflict, || 1.0), Next::RetryAfter(MS * 60));
    // Silence is checked after one and a half cycles.
    assert_eq!(attempts.wait_step(MS * 20, true), WaitStep::Wait(MS * 15));
    // A quarter of the window has passed, and the rest is now three quarters of 30 ms.
    assert_eq!(attempts.wait_step(MS * 35, false), WaitStep::Wait(MS * 15));
    // Half of that window has passed; a quarter of 15 ms is left.
    assert_eq!(attempts.wait_step(MS * 50, false), WaitStep::Wait(Duration::from_micros(3_750)));
    assert_eq!(attempts.wait_step(MS * 54, false), WaitStep::Send);
}

#[test]
fn a_late_watch_lengthens_the_cycle_because_no_writer_could_know_the_winners_version() {
    let mut attempts = watching(0.0);
    // The attempt began at 0 and was refused at 10 ms; the winner's version arrived only at 30 ms.
    assert_eq!(attempts.wait_step(MS * 30, true), WaitStep::Send);
    assert_eq!(attempts.next(MS * 70, Cause::Conflict, || 1.0), Next::RetryAfter(MS * 30 * 6));
}

#[test]
fn a_watching_writer_keeps_client_gos_delays_under_its_policy() {
    let mut attempts = RetryPolicy::client_go_default_retry().attempts().watched();
    assert_eq!(attempts.next(MS * 5, Cause::Conflict, || 0.0), Next::RetryAfter(MS * 10));
    assert!(matches!(attempts.wait_step(MS * 5, true), WaitStep::Wait(_)));
    assert_eq!(attempts.wait_step(MS * 15, false), WaitStep::Send);
}

#[test]
fn after_a_fault_a_watching_writer_waits_for_the_delay_and_reads() {
    let mut attempts = RetryPolicy::default().attempts().watched();
    assert_eq!(attempts.next(MS * 5, Cause::Fault, || 1.0), Next::RetryAfter(MS * 50));
    assert_eq!(attempts.wait_step(MS * 5, true), WaitStep::Wait(MS * 50));
    assert_eq!(attempts.wait_step(MS * 55, true), WaitStep::Read);
}

#[test]
fn at_the_deadline_a_waiting_writer_gives_up() {
    let policy = RetryPolicy::default().with_deadline(Some(MS * 20));
    let mut attempts = policy.attempts().watched();
    assert_eq!(attempts.next(MS * 10, Cause::Conflict, || 0.0), Next::RetryAfter(Duration::ZERO));
    assert_eq!(attempts.wait_step(MS * 12, false), WaitStep::Wait(MS * 8));
    assert_eq!(attempts.wait_step(MS * 20, true), WaitStep::GiveUp(GiveUp::Deadline));
}
