//! Go's own vectors (`default_rate_limiters_test.go`, client-go 0.37.2), exactly.

use proptest::prelude::*;

use super::*;

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// The next `n` waits of `item`, all at the same time.
fn waits(limiter: &mut impl ItemLimiter<&'static str>, item: &'static str, n: usize) -> Vec<Duration> {
    (0..n).map(|_| limiter.when(&item, Duration::ZERO)).collect()
}

#[test]
fn exponential_doubles_per_item_until_forgotten() {
    let mut limiter = ItemExponentialFailure::new(MS, S);
    assert_eq!(waits(&mut limiter, "one", 5), [1, 2, 4, 8, 16].map(Duration::from_millis));
    assert_eq!(limiter.requeues(&"one"), 5);
    assert_eq!(waits(&mut limiter, "two", 2), [MS, MS * 2]);
    assert_eq!(limiter.requeues(&"two"), 2);
    limiter.forget(&"one");
    assert_eq!(limiter.requeues(&"one"), 0);
    assert_eq!(waits(&mut limiter, "one", 1), [MS]);
    assert_eq!(limiter.requeues(&"two"), 2);
}

#[test]
fn exponential_stops_at_its_maximum_and_overflow_is_the_maximum() {
    let mut limiter = ItemExponentialFailure::default_item_based();
    assert_eq!(waits(&mut limiter, "one", 6)[5], MS * 32);
    assert_eq!(waits(&mut limiter, "overflow1", 1001)[1000], S * 1000);
    // The last wait below the maximum, and the first at it.
    assert_eq!(waits(&mut limiter, "edge", 21)[19..], [MS * 524_288, S * 1000]);

    let mut limiter = ItemExponentialFailure::new(MINUTE, HOUR * 1000);
    assert_eq!(waits(&mut limiter, "two", 3)[2], MINUTE * 4);
    assert_eq!(waits(&mut limiter, "overflow2", 1001)[1000], HOUR * 1000);
}

#[test]
fn fast_slow_is_fast_until_its_limit_and_slow_until_forgotten() {
    let mut limiter = ItemFastSlow::new(MS * 5, S * 10, 3);
    assert_eq!(waits(&mut limiter, "one", 5), [MS * 5, MS * 5, MS * 5, S * 10, S * 10]);
    assert_eq!(limiter.requeues(&"one"), 5);
    assert_eq!(waits(&mut limiter, "two", 2), [MS * 5, MS * 5]);
    assert_eq!(limiter.requeues(&"two"), 2);
    limiter.forget(&"one");
    assert_eq!(limiter.requeues(&"one"), 0);
    assert_eq!(waits(&mut limiter, "one", 1), [MS * 5]);
}

#[test]
fn max_of_calls_every_limiter_and_uses_the_longest_wait() {
    let mut limiter = MaxOf::new(vec![
        Box::new(ItemFastSlow::new(MS * 5, S * 3, 3)),
        Box::new(ItemExponentialFailure::new(MS, S)),
    ]);
    assert_eq!(waits(&mut limiter, "one", 5), [MS * 5, MS * 5, MS * 5, S * 3, S * 3]);
    assert_eq!(limiter.requeues(&"one"), 5);
    assert_eq!(waits(&mut limiter, "two", 2), [MS * 5, MS * 5]);
    assert_eq!(limiter.requeues(&"two"), 2);
    limiter.forget(&"one");
    assert_eq!(limiter.requeues(&"one"), 0);
    assert_eq!(waits(&mut limiter, "one", 1), [MS * 5]);
    // Here the second limiter wins in the end.
    let mut other = MaxOf::new(vec![
        Box::new(ItemFastSlow::new(MS * 5, MS * 7, 3)),
        Box::new(ItemExponentialFailure::new(MS, S)),
    ]);
    assert_eq!(waits(&mut other, "one", 5), [5, 5, 5, 8, 16].map(Duration::from_millis));
    assert_eq!(waits(&mut MaxOf::new(Vec::new()), "one", 1), [Duration::ZERO]);
}

#[test]
fn the_bucket_grants_its_burst_and_then_future_tokens() {
    let mut bucket = Bucket::new(Rate::workqueue());
    let all = waits(&mut bucket, "one", 103);
    assert!(all[..100].iter().all(Duration::is_zero));
    assert_eq!(all[100..], [MS * 100, MS * 200, MS * 300]);
    assert_eq!(ItemLimiter::<&str>::when(&mut bucket, &"two", MS * 250), MS * 150);
    assert_eq!(ItemLimiter::<&str>::requeues(&bucket, &"one"), 0);
}

#[test]
fn the_default_controller_limiter_is_slowed_by_item_first_and_by_all_items_after_a_hundred() {
    let mut limiter = MaxOf::default_controller();
    assert_eq!(waits(&mut limiter, "one", 4), [5, 10, 20, 40].map(Duration::from_millis));
    for _ in 0..96 {
        assert_eq!(limiter.when(&"other", Duration::ZERO).min(MS * 5), MS * 5);
        limiter.forget(&"other");
    }
    assert_eq!(waits(&mut limiter, "new", 1), [MS * 100], "the bucket is empty");
    assert_eq!(waits(&mut limiter, "one", 1), [MS * 200]);
    assert_eq!(waits(&mut limiter, "one", 30)[29], S * 1000);
}

#[test]
fn meaningless_settings_do_no_harm() {
    let mut zero = ItemExponentialFailure::new(Duration::ZERO, S);
    assert!(waits(&mut zero, "one", 2000).iter().all(Duration::is_zero));
    let mut huge = ItemExponentialFailure::new(Duration::MAX, Duration::MAX);
    assert_eq!(waits(&mut huge, "one", 200), [Duration::MAX; 200]);
    let mut above = ItemExponentialFailure::new(S * 2, S);
    assert_eq!(waits(&mut above, "one", 2), [S, S]);
    assert_eq!(waits(&mut ItemFastSlow::new(MS, S, 0), "one", 1), [S]);
}

/// Go's own arithmetic, in floats.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "that is what Go does"
)]
fn go_wait(base: u64, max: u64, failures: u32) -> Duration {
    let product = base as f64 * 2_f64.powf(f64::from(failures));
    Duration::from_nanos(if product > i64::MAX as f64 { max } else { (product as u64).min(max) })
}

proptest! {
    #[test]
    fn exponential_agrees_with_gos_floats(base in 1_u64..1 << 50, max in 0..i64::MAX.unsigned_abs(), failures in 0_u32..1100) {
        let mut limiter = ItemExponentialFailure::new(Duration::from_nanos(base), Duration::from_nanos(max));
        for before in 0..=failures {
            prop_assert_eq!(limiter.when(&"one", Duration::ZERO), go_wait(base, max, before));
        }
    }
}
