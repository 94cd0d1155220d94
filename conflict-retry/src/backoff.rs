//! Growing delays: the arithmetic of client-go's `wait.Backoff`, exact to the nanosecond.
//!
//! Pure: no clock, no sleep, no own source of randomness. [`crate::classify`] decides which failures are worth a retry,
//! [`crate::policy`] decides when to stop.

use std::time::Duration;

/// client-go's `retry.DefaultRetry`: five attempts, 10 ms apart, with up to 10 % random jitter.
///
/// Source: `k8s.io/client-go/util/retry/util.go`. The delay does not grow (factor 1.0), so the four sleeps add up to
/// 40–44 ms.
pub const DEFAULT_RETRY: Backoff = Backoff::go_compat(5, Duration::from_millis(10), 1.0, 0.1, Duration::ZERO);

/// client-go's `retry.DefaultBackoff`: four attempts with 10, 50 and 250 ms between them, with up to 10 % random
/// jitter.
///
/// Source: `k8s.io/client-go/util/retry/util.go`.
pub const DEFAULT_BACKOFF: Backoff =
    Backoff::go_compat(4, Duration::from_millis(10), 5.0, 0.1, Duration::ZERO);

/// The longest duration Go can hold: `math.MaxInt64` nanoseconds, about 292 years.
const GO_MAX: Duration = Duration::from_nanos(i64::MAX.unsigned_abs());

/// A growing delay with an attempt budget, step by step the same as Go's `wait.Backoff`.
///
/// `steps` counts *attempts*, not retries. Jitter only lengthens a delay (`[d, d·(1+jitter))`) and never affects the
/// next delay. Three properties of Go's implementation are kept on purpose, because comparison runs need them:
///
/// 1. when the next delay would exceed the cap, the step budget drops to zero, but one more (useless) delay is
///    returned;
/// 2. a first delay above the cap is returned unchanged;
/// 3. with a step budget of zero, the last delay is returned forever.
///
/// [`crate::RetryPolicy`] does not sleep the useless delay of item 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    steps: i32,
    duration: Duration,
    factor: f64,
    jitter: f64,
    cap: Duration,
}

/// Why a [`Backoff`] was rejected.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidBackoff {
    /// Zero or fewer steps. Without a step there is no attempt, and a loop that never calls its operation must not look
    /// like a success.
    #[error("the number of steps is {0}; give at least 1, the first attempt")]
    NoSteps(i32),
    /// The factor is NaN, infinite or negative.
    #[error("the factor is {0}; give a finite number of at least 0")]
    Factor(f64),
    /// The jitter is NaN, infinite or negative.
    #[error("the jitter is {0}; give a finite number of at least 0")]
    Jitter(f64),
    /// The first delay is longer than the cap. Go would sleep it uncapped.
    #[error(
        "the first delay {duration:?} is longer than the cap {cap:?}; raise the cap or shorten the delay"
    )]
    AboveCap {
        /// The first delay.
        duration: Duration,
        /// The cap on each delay.
        cap: Duration,
    },
}

impl Backoff {
    /// A validated backoff: `steps` attempts, first delay `duration`, multiplied by `factor` after each step (0 means
    /// no growth), lengthened by a random share of up to `jitter` times the delay, capped at `cap` (zero means no cap).
    pub fn new(
        steps: i32,
        duration: Duration,
        factor: f64,
        jitter: f64,
        cap: Duration,
    ) -> Result<Self, InvalidBackoff> {
        if steps < 1 {
            return Err(InvalidBackoff::NoSteps(steps));
        }
        if !factor.is_finite() || factor < 0.0 {
            return Err(InvalidBackoff::Factor(factor));
        }
        if !jitter.is_finite() || jitter < 0.0 {
            return Err(InvalidBackoff::Jitter(jitter));
        }
        if !cap.is_zero() && duration > cap {
            return Err(InvalidBackoff::AboveCap { duration, cap });
        }
        Ok(Self::go_compat(steps, duration, factor, jitter, cap))
    }

    /// Go's struct literal: accepts any value, including invalid ones that Go accepts (no steps; a negative jitter,
    /// which means none). Products beyond Go's longest duration saturate instead of wrapping; NaN counts as zero.
    pub const fn go_compat(steps: i32, duration: Duration, factor: f64, jitter: f64, cap: Duration) -> Self {
        Self { steps, duration, factor, jitter, cap }
    }

    /// Attempts left, including the next one; zero or less means none.
    pub const fn steps(&self) -> i32 {
        self.steps
    }

    /// Returns the delay after the attempt just made and advances to the next step. `random` is called at most once and
    /// returns a uniform value in `[0, 1)`.
    pub fn step(&mut self, random: impl FnOnce() -> f64) -> Duration {
        let now = self.duration;
        if self.steps < 1 {
            self.steps = 0;
            return lengthen(now, self.jitter, random);
        }
        self.steps -= 1;
        // Go compares the float with exactly zero, which means "the field was not set".
        if self.factor.abs() > 0.0 || self.factor.is_nan() {
            self.duration = scale(now, self.factor);
            if !self.cap.is_zero() && self.duration > self.cap {
                self.duration = self.cap;
                self.steps = 0;
            }
        }
        lengthen(now, self.jitter, random)
    }
}

/// `duration · (1 + random · jitter)`, in Go's order of operations; a jitter of zero or less adds nothing.
fn lengthen(duration: Duration, jitter: f64, random: impl FnOnce() -> f64) -> Duration {
    if jitter > 0.0 {
        duration.saturating_add(scale(duration, random() * jitter)).min(GO_MAX)
    } else {
        duration
    }
}

/// `duration · factor`, truncated to whole nanoseconds like Go's conversion from a float.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "Go computes in float64 and truncates; a float that does not fit saturates, NaN and negatives give 0"
)]
fn scale(duration: Duration, factor: f64) -> Duration {
    let nanos = duration.as_nanos() as f64 * factor;
    Duration::from_nanos(nanos as u64).min(GO_MAX)
}

#[cfg(test)]
#[path = "backoff_tests.rs"]
mod tests;
