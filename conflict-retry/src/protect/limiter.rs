//! A token bucket with a fair queue in front of it. It paces requests; it does not decide whether a request should be
//! sent.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Cancelled, lock};

/// The slowest accepted rate: one an hour.
const MIN_PER_SECOND: f64 = 1.0 / 3600.0;
/// The fastest accepted rate. No API server answers that many; for "no limit", use no limiter.
const MAX_PER_SECOND: f64 = 1_000_000.0;
/// The largest accepted burst.
const MAX_BURST: u32 = 1_000_000;
const NANOS_PER_SECOND: f64 = 1e9;

/// How many requests a second, and how many at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    interval: Duration,
    burst: u32,
}

/// Why a [`Rate`] was rejected.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidRate {
    /// NaN, infinite, zero, negative, or out of range.
    #[error("the rate is {0} a second; give a number from 1/3600 (one an hour) to 1000000")]
    PerSecond(f64),
    /// Out of range; without a burst of at least one no request would ever pass.
    #[error("the burst is {0}; give a number from 1 to 1000000")]
    Burst(u32),
}

impl Rate {
    /// Allows `per_second` requests a second in the long run (from 1/3600 to 10⁶), and up to `burst` at once (from 1 to
    /// 10⁶).
    ///
    /// The time between two tokens is rounded up to whole nanoseconds, so the rate is never exceeded.
    pub fn new(per_second: f64, burst: u32) -> Result<Self, InvalidRate> {
        // NaN is in no range.
        if !(MIN_PER_SECOND..=MAX_PER_SECOND).contains(&per_second) {
            return Err(InvalidRate::PerSecond(per_second));
        }
        if !(1..=MAX_BURST).contains(&burst) {
            return Err(InvalidRate::Burst(burst));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 10³ and 3.6·10¹² by the check above, and whole"
        )]
        let nanos = (NANOS_PER_SECOND / per_second).ceil() as u64;
        Ok(Self { interval: Duration::from_nanos(nanos), burst })
    }

    /// 5 a second, 10 at once: client-go's `rest.DefaultQPS` and `rest.DefaultBurst`.
    pub const fn client_go() -> Self {
        Self { interval: Duration::from_millis(200), burst: 10 }
    }

    /// 10 a second, 100 at once: the bucket in client-go's `DefaultTypedControllerRateLimiter`.
    pub const fn workqueue() -> Self {
        Self { interval: Duration::from_millis(100), burst: 100 }
    }

    /// The time between two tokens.
    pub const fn interval(&self) -> Duration {
        self.interval
    }

    /// How many requests may pass at once after a pause.
    pub const fn burst(&self) -> u32 {
        self.burst
    }

    /// How long an empty bucket takes to fill.
    const fn capacity(&self) -> Duration {
        self.interval.saturating_mul(self.burst)
    }
}

impl Default for Rate {
    /// 10 a second, 20 at once: a common setting for controllers. Well above what one operator needs when idle, well
    /// below what makes an API server throttle.
    fn default() -> Self {
        Self { interval: Duration::from_millis(100), burst: 20 }
    }
}

/// The token bucket. Pure: `now` is the time since any fixed instant; if it goes backwards, it is treated as unchanged.
///
/// It counts the time owed for taken tokens, in whole nanoseconds, instead of the tokens. So nothing is lost to
/// rounding, and in any time span `t` at most `burst + t / interval` tokens are granted, exactly.
#[derive(Debug, Clone)]
pub struct TokenBucket {
    rate: Rate,
    owed: Duration,
    last: Duration,
}

impl TokenBucket {
    /// A full bucket.
    pub const fn new(rate: Rate) -> Self {
        Self { rate, owed: Duration::ZERO, last: Duration::ZERO }
    }

    /// Takes a token, or takes nothing and returns the time until there is one.
    pub fn try_take(&mut self, now: Duration) -> Result<(), Duration> {
        self.try_take_after(now, 0)
    }

    /// Like [`Self::try_take`], with `ahead` tokens reserved for other callers.
    fn try_take_after(&mut self, now: Duration, ahead: u32) -> Result<(), Duration> {
        self.advance(now);
        let wait = self.wait(ahead.saturating_add(1));
        if !wait.is_zero() {
            return Err(wait);
        }
        self.owed = self.owed.saturating_add(self.rate.interval);
        Ok(())
    }

    /// Takes a token, possibly a future one, and returns the time until it may be used: Go's `Reserve().Delay()`.
    pub fn reserve(&mut self, now: Duration) -> Duration {
        self.advance(now);
        let wait = self.wait(1);
        self.owed = self.owed.saturating_add(self.rate.interval);
        wait
    }

    /// Returns a token. A full bucket stays full.
    fn give_back(&mut self, now: Duration) {
        self.advance(now);
        self.owed = self.owed.saturating_sub(self.rate.interval);
    }

    /// Number of available tokens.
    pub fn available(&self, now: Duration) -> u32 {
        let mut then = self.clone();
        then.advance(now);
        let free = then.rate.capacity().saturating_sub(then.owed);
        // An interval is never zero.
        u32::try_from(free.as_nanos() / then.rate.interval.as_nanos()).unwrap_or(then.rate.burst)
    }

    fn advance(&mut self, now: Duration) {
        self.owed = self.owed.saturating_sub(now.saturating_sub(self.last));
        self.last = self.last.max(now);
    }

    /// How long until the last of `tokens` callers has a token, if they take theirs one by one.
    fn wait(&self, tokens: u32) -> Duration {
        self.owed
            .saturating_add(self.rate.interval.saturating_mul(tokens))
            .saturating_sub(self.rate.capacity())
    }
}

/// A [`TokenBucket`] for all tasks of a process: first come, first served. Cheap to clone; clones share the bucket.
///
/// A waiter takes its token only when it proceeds, so a cancelled waiter has nothing to return and delays no other
/// waiter.
///
/// ```
/// use conflict_retry::protect::{InvalidRate, Rate, RateLimiter};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), InvalidRate> {
/// let limiter = RateLimiter::new(Rate::new(10.0, 20)?);
/// limiter.acquire().await;
/// // … send the request …
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct RateLimiter {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    origin: Instant,
    /// Held by the first waiter in the queue. It is fair: waiters get it in the order in which they arrived.
    turn: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    bucket: TokenBucket,
    waiting: u32,
}

/// A place in the queue, released on drop.
struct Place<'a>(&'a Shared);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.waiting = state.waiting.saturating_sub(1);
    }
}

impl Default for RateLimiter {
    /// A limiter with [`Rate::default`].
    fn default() -> Self {
        Self::new(Rate::default())
    }
}

impl RateLimiter {
    /// A limiter with a full bucket.
    pub fn new(rate: Rate) -> Self {
        let state = Mutex::new(State { bucket: TokenBucket::new(rate), waiting: 0 });
        Self { shared: Arc::new(Shared { origin: Instant::now(), turn: tokio::sync::Mutex::new(()), state }) }
    }

    /// Waits for a token, and returns how long that took. Dropping the future gives up the place in the queue.
    pub async fn acquire(&self) -> Duration {
        let start = Instant::now();
        let _place = self.shared.enter();
        let _turn = self.shared.turn.lock().await;
        loop {
            let taken = self.shared.with_bucket(|state, now| state.bucket.try_take(now));
            match taken {
                Ok(()) => return start.elapsed(),
                Err(wait) => tokio::time::sleep(wait).await,
            }
        }
    }

    /// Like [`Self::acquire`], until `cancel` is cancelled; then no token is taken, even if there is one.
    pub async fn take(&self, cancel: &CancellationToken) -> Result<Duration, Cancelled> {
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(Cancelled),
            waited = self.acquire() => Ok(waited),
        }
    }

    /// Takes a token if there is one that no other caller waits for; otherwise returns the time until there would be
    /// one.
    pub fn try_take(&self) -> Result<(), Duration> {
        self.shared.with_bucket(|state, now| state.bucket.try_take_after(now, state.waiting))
    }

    /// Takes a token without waiting for it: the bucket owes it, and later callers wait longer.
    pub(crate) fn charge(&self) {
        self.shared.with_bucket(|state, now| state.bucket.reserve(now));
    }

    /// Returns a token that was taken and not used.
    pub(crate) fn give_back(&self) {
        self.shared.with_bucket(|state, now| state.bucket.give_back(now));
    }

    /// Number of callers waiting for a token, for a gauge.
    pub fn waiting(&self) -> u32 {
        lock(&self.shared.state).waiting
    }

    /// Number of available tokens.
    pub fn available(&self) -> u32 {
        self.shared.with_bucket(|state, now| state.bucket.available(now))
    }
}

impl Shared {
    fn enter(&self) -> Place<'_> {
        let mut state = lock(&self.state);
        state.waiting = state.waiting.saturating_add(1);
        Place(self)
    }

    /// The clock is read under the lock, so that the bucket never sees it go backwards.
    fn with_bucket<T>(&self, act: impl FnOnce(&mut State, Duration) -> T) -> T {
        let mut state = lock(&self.state);
        let now = self.origin.elapsed();
        act(&mut state, now)
    }
}

#[cfg(test)]
#[path = "limiter_tests.rs"]
mod tests;
