//! Never more than burst and rate allow, first come first served, and a cancelled waiter delays no other.

use proptest::prelude::*;

use super::*;

const MS: Duration = Duration::from_millis(1);
const NS: Duration = Duration::from_nanos(1);

fn rate(per_second: f64, burst: u32) -> Rate {
    Rate::new(per_second, burst).unwrap()
}

fn paused() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

#[test]
fn presets_have_the_documented_values() {
    assert_eq!(Rate::default(), rate(10.0, 20));
    assert_eq!(Rate::client_go(), rate(5.0, 10));
    assert_eq!(Rate::workqueue(), rate(10.0, 100));
}

#[test]
fn rates_out_of_range_are_refused() {
    for absurd in
        [0.0, -0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e-9, 1e300, f64::MIN_POSITIVE]
    {
        assert!(matches!(Rate::new(absurd, 1), Err(InvalidRate::PerSecond(_))), "{absurd}");
    }
    assert_eq!(Rate::new(1.0, 0), Err(InvalidRate::Burst(0)));
    assert_eq!(Rate::new(1.0, u32::MAX), Err(InvalidRate::Burst(u32::MAX)));
    assert!(Rate::new(MIN_PER_SECOND, MAX_BURST).is_ok());
    assert!(Rate::new(MAX_PER_SECOND, 1).is_ok());
}

#[test]
fn a_rate_that_is_no_whole_number_of_nanoseconds_is_rounded_to_the_slower_side() {
    assert_eq!(rate(3.0, 1).interval(), Duration::from_nanos(333_333_334));
    assert_eq!(rate(10.0, 1).interval(), MS * 100);
}

#[test]
fn a_full_bucket_gives_its_burst_and_then_one_token_an_interval() {
    let mut bucket = TokenBucket::new(rate(10.0, 3));
    let at = Duration::from_secs(7);
    assert_eq!(bucket.available(at), 3);
    for _ in 0..3 {
        assert_eq!(bucket.try_take(at), Ok(()));
    }
    assert_eq!(bucket.available(at), 0);
    assert_eq!(bucket.try_take(at), Err(MS * 100));
    assert_eq!(bucket.try_take(at + MS * 99), Err(MS));
    assert_eq!(bucket.try_take(at + MS * 100), Ok(()));
    assert_eq!(bucket.try_take(at + MS * 100), Err(MS * 100));
    assert_eq!(bucket.available(at + MS * 100_000), 3);
}

#[test]
fn a_reservation_queues_up_behind_the_ones_before_it() {
    let mut bucket = TokenBucket::new(rate(10.0, 2));
    let waits: Vec<_> = (0..5).map(|_| bucket.reserve(Duration::ZERO)).collect();
    assert_eq!(waits, [0, 0, 100, 200, 300].map(Duration::from_millis));
    assert_eq!(bucket.try_take(Duration::ZERO), Err(MS * 400));
}

#[test]
fn a_clock_that_goes_backwards_counts_as_unchanged() {
    let mut bucket = TokenBucket::new(rate(10.0, 1));
    assert_eq!(bucket.try_take(MS * 1000), Ok(()));
    assert_eq!(bucket.try_take(MS * 10), Err(MS * 100));
    assert_eq!(bucket.try_take(MS * 1050), Err(MS * 50));
}

proptest! {
    #[test]
    fn no_span_holds_more_grants_than_burst_and_rate_allow(
        per_second in 0.001_f64..2000.0,
        burst in 1_u32..40,
        steps in prop::collection::vec((0_u64..3_000_000_000, 1_usize..5), 1..120),
    ) {
        let mut bucket = TokenBucket::new(rate(per_second, burst));
        let (mut now, mut grants) = (Duration::ZERO, Vec::new());
        for (nanos, tries) in steps {
            now += Duration::from_nanos(nanos);
            for _ in 0..tries {
                match bucket.try_take(now) {
                    Ok(()) => grants.push(now),
                    Err(wait) => {
                        // The wait is neither too long nor too short, to the nanosecond.
                        prop_assert_eq!(bucket.clone().try_take(now + wait), Ok(()));
                        let early = (now + wait).saturating_sub(NS);
                        prop_assert_eq!(bucket.clone().try_take(early), Err(NS));
                    }
                }
            }
        }
        for (first, from) in grants.iter().enumerate() {
            for (last, to) in grants.iter().enumerate().skip(first) {
                let count = f64::from(u32::try_from(last - first + 1).unwrap());
                let allowed = f64::from(burst) + to.saturating_sub(*from).as_secs_f64() * per_second;
                prop_assert!(count <= allowed + 1e-6, "{from:?}..{to:?}");
            }
        }
    }

    #[test]
    fn no_time_makes_it_panic(
        times in prop::collection::vec((any::<u64>(), 0_u32..1_000_000_000), 1..50),
        per_second in MIN_PER_SECOND..MAX_PER_SECOND,
        burst in 1_u32..=MAX_BURST,
    ) {
        let mut bucket = TokenBucket::new(rate(per_second, burst));
        for (seconds, nanos) in times {
            let now = Duration::new(seconds, nanos);
            let _ = bucket.try_take(now);
            bucket.reserve(now);
            prop_assert!(bucket.available(now) <= burst);
        }
        let _ = bucket.try_take(Duration::MAX);
    }

    /// Tasks arrive at random times, some are cancelled at random times: the others proceed in the order in which they
    /// arrived, each at the earliest time that the bucket allows, as if the cancelled ones had never existed.
    #[test]
    fn waiters_proceed_in_order_as_early_as_possible_whichever_are_cancelled(
        interval in 1_u64..200,
        burst in 1_u32..4,
        tasks in prop::collection::vec((0_u64..1500, prop::option::of(0_u64..800)), 1..25),
    ) {
        // Whole milliseconds, the resolution of tokio's timers.
        let rate = Rate { interval: Duration::from_millis(interval), burst };
        let (arrived, granted, left) = paused().block_on(async {
            let limiter = RateLimiter::new(rate);
            let origin = limiter.shared.origin;
            let arrived = Arc::new(Mutex::new(Vec::new()));
            let granted = Arc::new(Mutex::new(Vec::new()));
            let running: Vec<_> = tasks.into_iter().enumerate().map(|(id, (start, cancel))| {
                let (limiter, arrived, granted) = (limiter.clone(), Arc::clone(&arrived), Arc::clone(&granted));
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(start)).await;
                    let token = CancellationToken::new();
                    if let Some(after) = cancel {
                        let token = token.clone();
                        tokio::spawn(async move {
                            tokio::time::sleep(Duration::from_millis(after)).await;
                            token.cancel();
                        });
                    }
                    arrived.lock().unwrap().push((id, origin.elapsed()));
                    if limiter.take(&token).await.is_ok() {
                        granted.lock().unwrap().push((id, origin.elapsed()));
                    }
                    cancel.is_none()
                })
            }).collect();
            let mut patient = Vec::new();
            for task in running {
                patient.push(task.await.unwrap());
            }
            assert_eq!(limiter.waiting(), 0);
            let granted = granted.lock().unwrap().clone();
            for (id, patient) in patient.into_iter().enumerate() {
                assert!(!patient || granted.iter().any(|(who, _)| *who == id), "{id} never went");
            }
            let left = (origin.elapsed(), limiter.available());
            (arrived.lock().unwrap().clone(), granted, left)
        });
        // A fresh bucket that gets only the grants agrees with each of them and ends in the same state.
        let mut bucket = TokenBucket::new(rate);
        let mut last = (0, Duration::ZERO);
        for (id, at) in granted {
            let position = arrived.iter().position(|(who, _)| *who == id).unwrap();
            prop_assert!(position >= last.0, "{id} overtook");
            let asked = arrived[position].1.max(last.1);
            let wait = bucket.clone().try_take(asked).err().unwrap_or_default();
            prop_assert_eq!(at, asked + wait);
            prop_assert_eq!(bucket.try_take(at), Ok(()));
            last = (position, at);
        }
        prop_assert_eq!(bucket.available(left.0), left.1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_burst_passes_at_once_and_the_rest_at_the_rate() {
    let limiter = RateLimiter::default();
    let start = Instant::now();
    for _ in 0..20 {
        assert_eq!(limiter.acquire().await, Duration::ZERO);
    }
    for _ in 0..10 {
        assert_eq!(limiter.acquire().await, MS * 100);
    }
    assert_eq!(start.elapsed(), MS * 1000);
}

#[tokio::test(start_paused = true)]
async fn clones_share_the_bucket() {
    let limiter = RateLimiter::new(rate(10.0, 1));
    assert_eq!(limiter.clone().try_take(), Ok(()));
    assert_eq!(limiter.try_take(), Err(MS * 100));
}

#[tokio::test(start_paused = true)]
async fn try_take_does_not_overtake_waiters() {
    let limiter = RateLimiter::new(rate(10.0, 1));
    limiter.acquire().await;
    let waiter = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire().await }
    });
    tokio::task::yield_now().await;
    assert_eq!(limiter.waiting(), 1);
    // The clock moves exactly to the time of the token, and the waiter has not been polled yet.
    tokio::time::advance(MS * 100).await;
    let blunt = limiter.try_take();
    assert_eq!(waiter.await.unwrap(), MS * 100);
    assert!(blunt.is_err(), "the token belonged to the waiter");
    assert_eq!(limiter.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_wait_takes_no_token_even_when_one_is_available() {
    let limiter = RateLimiter::default();
    let cancel = CancellationToken::new();
    cancel.cancel();
    assert_eq!(limiter.take(&cancel).await, Err(Cancelled));
    assert_eq!((limiter.available(), limiter.waiting()), (20, 0));
}

#[test]
fn the_handle_can_be_shared_and_printed() {
    fn shared<T: Send + Sync + Clone + std::fmt::Debug + 'static>() {}
    shared::<RateLimiter>();
}
