//! Go's own test vectors, and bounds that hold for any backoff.

use proptest::prelude::*;

use super::*;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
const NS: Duration = Duration::from_nanos(1);

fn none() -> f64 {
    0.0
}

/// The delays of the first `n` steps without jitter.
fn steps(mut backoff: Backoff, n: usize) -> Vec<Duration> {
    (0..n).map(|_| backoff.step(none)).collect()
}

/// Go's `ExponentialBackoff` around a condition that never holds: attempts made, delays slept.
fn drain(mut backoff: Backoff) -> (u32, Vec<Duration>) {
    let (mut attempts, mut sleeps) = (0, Vec::new());
    while backoff.steps() > 0 {
        attempts += 1;
        if backoff.steps() == 1 {
            break;
        }
        sleeps.push(backoff.step(none));
    }
    (attempts, sleeps)
}

fn go(steps: i32, duration: Duration, factor: f64, jitter: f64, cap: Duration) -> Backoff {
    Backoff::go_compat(steps, duration, factor, jitter, cap)
}

#[test]
fn steps_follow_gos_table() {
    let zero = Duration::ZERO;
    let rows = [
        (go(0, zero, 0.0, 0.0, zero), vec![0, 0, 0, 0]),
        (go(-1, S, 0.0, 0.0, zero), vec![1, 1, 1]),
        (go(0, S, 0.0, 0.0, zero), vec![1, 1, 1]),
        (go(1, S, 0.0, 0.0, zero), vec![1, 1, 1]),
        (go(1, S, 1.0, 0.0, zero), vec![1, 1, 1]),
        (go(3, S, 2.0, 0.0, zero), vec![1, 2, 4]),
        (go(3, S, 2.0, 0.0, S * 3), vec![1, 2, 3]),
    ];
    for (backoff, wanted) in rows {
        let wanted: Vec<_> = wanted.into_iter().map(Duration::from_secs).collect();
        assert_eq!(steps(backoff, wanted.len()), wanted, "{backoff:?}");
    }
}

#[test]
fn jitter_lengthens_each_step_within_its_exact_range() {
    let rows = [
        (go(2, S, 2.0, 0.5, S * 3), vec![(1000, 1500), (2000, 3000), (3000, 4500)]),
        (
            go(6, S, 2.0, 4.0, Duration::ZERO),
            [1000, 2000, 4000, 8000, 16000, 32000].map(|base| (base, base * 5)).to_vec(),
        ),
    ];
    for (backoff, ranges) in rows {
        for random in [0.0, 0.25, 0.5, 0.75, 1.0 - f64::EPSILON] {
            let mut backoff = backoff;
            for (low, high) in &ranges {
                let delay = backoff.step(|| random);
                assert!(
                    MS * *low <= delay && delay < MS * *high,
                    "{delay:?} is not in [{low}, {high}) ms with {random}"
                );
            }
        }
    }
}

#[test]
fn loops_make_as_many_attempts_and_sleep_as_long_as_gos() {
    let ms = |values: &[u64]| values.iter().copied().map(Duration::from_millis).collect::<Vec<_>>();
    let zero = Duration::ZERO;
    let rows = [
        (DEFAULT_RETRY, 5, ms(&[10, 10, 10, 10])),
        (DEFAULT_BACKOFF, 4, ms(&[10, 50, 250])),
        (go(3, S, 2.0, 0.0, S * 3), 2, ms(&[1000, 2000])),
        (go(2, S, 2.0, 0.0, S * 3), 2, ms(&[1000])),
        (go(5, S * 5, 2.0, 0.0, S * 3), 1, ms(&[5000])),
        (go(10, MS * 10, 2.0, 0.0, MS * 100), 4, ms(&[10, 20, 40, 80])),
        (go(5, MS * 100, 0.0, 0.0, zero), 5, ms(&[100, 100, 100, 100])),
        (
            go(10, MS * 100, 1.5, 0.0, zero),
            10,
            [
                100_000_000,
                150_000_000,
                225_000_000,
                337_500_000,
                506_250_000,
                759_375_000,
                1_139_062_500,
                1_708_593_750,
                2_562_890_625,
            ]
            .map(Duration::from_nanos)
            .to_vec(),
        ),
        (go(1, S, 2.0, 0.0, zero), 1, vec![]),
        (go(0, S, 2.0, 0.0, zero), 0, vec![]),
        (go(4, NS, 1.5, 0.0, zero), 4, vec![NS, NS, NS]),
    ];
    for (backoff, attempts, sleeps) in rows {
        assert_eq!(drain(backoff), (attempts, sleeps), "{backoff:?}");
    }
}

#[test]
fn the_presets_are_the_documented_ones() {
    assert_eq!(DEFAULT_RETRY, Backoff::new(5, MS * 10, 1.0, 0.1, Duration::ZERO).unwrap());
    assert_eq!(DEFAULT_BACKOFF, Backoff::new(4, MS * 10, 5.0, 0.1, Duration::ZERO).unwrap());
    assert_eq!(DEFAULT_RETRY.clone().step(|| 0.5), Duration::from_micros(10_500));
}

#[test]
fn invalid_values_are_refused_and_named() {
    let new = |steps, factor, jitter| Backoff::new(steps, MS, factor, jitter, Duration::ZERO).unwrap_err();
    assert_eq!(new(0, 1.0, 0.0), InvalidBackoff::NoSteps(0));
    assert_eq!(new(-3, 1.0, 0.0), InvalidBackoff::NoSteps(-3));
    assert!(matches!(new(1, f64::NAN, 0.0), InvalidBackoff::Factor(_)));
    assert!(matches!(new(1, f64::INFINITY, 0.0), InvalidBackoff::Factor(_)));
    assert!(matches!(new(1, -1.0, 0.0), InvalidBackoff::Factor(_)));
    assert!(matches!(new(1, 1.0, f64::NAN), InvalidBackoff::Jitter(_)));
    assert!(matches!(new(1, 1.0, -0.1), InvalidBackoff::Jitter(_)));
    assert!(matches!(Backoff::new(1, S, 1.0, 0.0, MS), Err(InvalidBackoff::AboveCap { .. })));
}

#[test]
fn a_product_too_large_for_go_saturates_instead_of_wrapping() {
    let mut backoff = go(100, GO_MAX, 10.0, 1.0, Duration::ZERO);
    assert_eq!(backoff.step(|| 0.9), GO_MAX);
    assert_eq!(backoff.step(|| 0.9), GO_MAX);
}

proptest! {
    #[test]
    fn a_step_is_never_shorter_than_its_base_nor_longer_than_its_jitter_allows(
        count in 1_i32..50, millis in 0_u64..10_000, factor in 0.0_f64..5.0, jitter in 0.0_f64..4.0,
        random in proptest::collection::vec(0.0_f64..1.0, 60),
    ) {
        let plain = Backoff::new(count, Duration::from_millis(millis), factor, 0.0, Duration::ZERO).unwrap();
        let jittered = Backoff::new(count, Duration::from_millis(millis), factor, jitter, Duration::ZERO).unwrap();
        let (mut plain, mut jittered) = (plain, jittered);
        for random in random {
            let (base, delay) = (plain.step(none), jittered.step(|| random));
            prop_assert!(delay >= base);
            prop_assert!(delay <= base.saturating_add(scale(base, jitter)).min(GO_MAX));
            prop_assert_eq!(plain.steps(), jittered.steps(), "jitter never feeds back");
        }
    }

    #[test]
    fn a_loop_never_makes_more_attempts_than_steps(
        count in -5_i32..60, millis in 0_u64..5_000, factor in 0.0_f64..5.0, cap in 0_u64..20_000,
    ) {
        let backoff = go(count, Duration::from_millis(millis), factor, 0.0, Duration::from_millis(cap));
        let (attempts, sleeps) = drain(backoff);
        prop_assert!(i64::from(attempts) <= i64::from(count.max(0)));
        prop_assert!(sleeps.len() <= attempts as usize);
    }
}
