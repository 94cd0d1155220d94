//! When to retry and when to stop: attempts *and* deadline *and* schedule *and* cancellation.
//!
//! Pure: the time since the start and randomness are arguments. Nothing here sleeps ([`crate::retry`] and the write
//! functions do), and nothing here knows more about a failure than its [`Cause`].

mod contention;

use std::num::NonZeroU32;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use self::contention::{Contention, Progress, Wait};
use crate::backoff::{Backoff, DEFAULT_BACKOFF, DEFAULT_RETRY, InvalidBackoff};

/// Attempts of the default policy. Our own limit: several times what a writer among fifty needs on average, and low
/// enough to end a livelock.
const DEFAULT_MAX_ATTEMPTS: NonZeroU32 = match NonZeroU32::new(64) {
    Some(attempts) => attempts,
    None => NonZeroU32::MIN,
};
/// Deadline of the default policy. Our own limit: twice the time that one write may take, so that a write whose answer was
/// lost can still be looked up; a reconcile that waits longer should be requeued instead.
const DEFAULT_DEADLINE: Duration = Duration::from_secs(30);
/// First window after a fault (503, lost answer). Our own choice: well above a round trip, well below what a user
/// notices.
const FAULT_BASE: Duration = Duration::from_millis(50);
/// Widest window after a fault: five of them fit into the default deadline.
const FAULT_CAP: Duration = Duration::from_secs(2);
/// Random share added to a `Retry-After` from the server, so that clients with the same delay do not return in the same
/// millisecond.
const RETRY_AFTER_SPREAD: f64 = 0.1;

/// How long to retry, and how fast.
#[derive(Debug, Clone)]
pub struct RetryPolicy {
    max_attempts: NonZeroU32,
    deadline: Option<Duration>,
    schedule: Schedule,
    cancel: CancellationToken,
}

/// How long to wait after a conflict.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Schedule {
    /// client-go's backoff arithmetic.
    Backoff(Backoff),
    /// A uniformly random wait in a window that fits the number of contenders: see [`contention`].
    Contention,
}

/// Why an attempt failed, as far as pacing is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// Another writer wrote first; the server is healthy.
    Conflict,
    /// The server stated how long to wait.
    RetryAfter(Duration),
    /// The server, or the connection to it, has a fault.
    Fault,
}

/// What to do after a failed attempt. Deliberately exhaustive: the caller that drives [`Attempts`] has to handle both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Wait this long, then try again.
    RetryAfter(Duration),
    /// Stop; the reason is the limit that was reached.
    GiveUp(GiveUp),
}

/// The limit that ended the attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GiveUp {
    /// The last allowed attempt has been made.
    Attempts,
    /// The next attempt would start at or after the deadline.
    Deadline,
}

impl Default for RetryPolicy {
    /// Our own policy for conflicts: up to 64 attempts in 30 s. After a conflict it waits a uniformly random time in a
    /// window of one and a half times the shortest attempt so far, 1.7 times as wide after each further conflict, at
    /// most 1 s. Reads from a watch-fed cache ([`Attempts::watched`]) allow wider windows.
    fn default() -> Self {
        Self {
            max_attempts: DEFAULT_MAX_ATTEMPTS,
            deadline: Some(DEFAULT_DEADLINE),
            schedule: Schedule::Contention,
            cancel: CancellationToken::new(),
        }
    }
}

impl RetryPolicy {
    /// client-go's `RetryOnConflict(retry.DefaultRetry, …)`: see [`DEFAULT_RETRY`]. No deadline.
    pub fn client_go_default_retry() -> Self {
        Self::of_steps(DEFAULT_RETRY)
    }

    /// client-go's `RetryOnConflict(retry.DefaultBackoff, …)`: see [`DEFAULT_BACKOFF`]. No deadline.
    pub fn client_go_default_backoff() -> Self {
        Self::of_steps(DEFAULT_BACKOFF)
    }

    /// As many attempts as `backoff` has steps, with its delays. No deadline. A backoff without steps is rejected: Go
    /// then calls the operation zero times, and up to v0.36 reports success.
    pub fn from_backoff(backoff: Backoff) -> Result<Self, InvalidBackoff> {
        if backoff.steps() < 1 {
            return Err(InvalidBackoff::NoSteps(backoff.steps()));
        }
        Ok(Self::of_steps(backoff))
    }

    fn of_steps(backoff: Backoff) -> Self {
        Self {
            max_attempts: NonZeroU32::new(backoff.steps().unsigned_abs()).unwrap_or(NonZeroU32::MIN),
            deadline: None,
            schedule: Schedule::Backoff(backoff),
            cancel: CancellationToken::new(),
        }
    }

    /// Exactly one attempt, for a caller that requeues instead of retrying.
    #[must_use]
    pub fn once() -> Self {
        Self { max_attempts: NonZeroU32::MIN, ..Self::default() }
    }

    /// Sets the maximum number of attempts, including the first one.
    #[must_use]
    pub fn with_max_attempts(mut self, attempts: NonZeroU32) -> Self {
        self.max_attempts = attempts;
        self
    }

    /// Sets the time since the start from which no attempt starts; `None` means no such limit. A running attempt is
    /// never aborted by it, because aborting a write only makes its result unknown.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Option<Duration>) -> Self {
        self.deadline = deadline;
        self
    }

    /// Stops, during attempts and waits alike, as soon as `token` is cancelled.
    #[must_use]
    pub fn with_cancellation(mut self, token: CancellationToken) -> Self {
        self.cancel = token;
        self
    }

    /// The token that ends the attempts.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.cancel
    }

    /// The time after which no attempt starts; `None` means no limit.
    pub(crate) const fn deadline(&self) -> Option<Duration> {
        self.deadline
    }

    /// Whether the first attempt may start at all: a deadline of zero forbids it.
    pub(crate) fn may_start(&self) -> bool {
        self.deadline != Some(Duration::ZERO)
    }

    /// The state machine of one run under this policy, starting now.
    pub fn attempts(&self) -> Attempts {
        Attempts {
            max: self.max_attempts.get(),
            deadline: self.deadline,
            schedule: self.schedule,
            made: 0,
            faults: 0,
            began: Duration::ZERO,
            contention: Contention::live(),
            wait: None,
        }
    }
}

/// One run under a [`RetryPolicy`]: it receives each failed attempt and returns what to do next.
#[derive(Debug, Clone)]
pub struct Attempts {
    max: u32,
    deadline: Option<Duration>,
    schedule: Schedule,
    made: u32,
    faults: u32,
    /// When the current attempt began.
    began: Duration,
    contention: Contention,
    /// The wait after the last conflict, for callers of [`Attempts::wait_step`].
    wait: Option<Wait>,
}

/// What a writer with a watch-fed cache does while it waits after a conflict. Deliberately exhaustive, like [`Next`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitStep {
    /// Wait this long, or until the watch brings an event, then ask again.
    Wait(Duration),
    /// Decide from the newest known version, and send.
    Send,
    /// The watch does not bring the version that won: read live, decide and send.
    Read,
    /// Stop; the reason is the limit that was reached.
    GiveUp(GiveUp),
}

impl Attempts {
    /// For a writer whose reads come from a watch-fed cache: after a conflict it calls [`Attempts::wait_step`] instead of
    /// sleeping as long as [`Attempts::next`] returns. Because it sees the writes of other writers, it can start with
    /// wider windows and shorten them.
    #[must_use]
    pub fn watched(mut self) -> Self {
        self.contention = Contention::watched();
        self
    }

    /// Sets the start of the first attempt to `now` (time since the start): before that, the writer waited for
    /// permission to send.
    pub fn begin(&mut self, now: Duration) {
        self.began = now;
    }

    /// The client's own rate limiter delayed the current attempt for `waited`, which is not part of its duration.
    pub fn throttled(&mut self, waited: Duration) {
        self.began = self.began.saturating_add(waited);
    }

    /// Number of attempts that have failed so far.
    pub const fn made(&self) -> u32 {
        self.made
    }

    /// Records an attempt that failed because of `cause` at `now` (time since the start). `random` is called at most
    /// once and returns a uniform value in `[0, 1)`. There is never a wait after the last attempt.
    ///
    /// The time between the end of the last wait and `now` counts as the duration of the attempt.
    pub fn next(&mut self, now: Duration, cause: Cause, random: impl FnOnce() -> f64) -> Next {
        self.made = self.made.saturating_add(1);
        self.wait = None;
        if self.made >= self.max {
            return Next::GiveUp(GiveUp::Attempts);
        }
        let delay = match cause {
            Cause::Conflict => match self.after_conflict(now, random) {
                Some(delay) => delay,
                None => return Next::GiveUp(GiveUp::Attempts),
            },
            Cause::RetryAfter(delay) => {
                delay.saturating_add(delay.min(FAULT_CAP).mul_f64(RETRY_AFTER_SPREAD * unit(random())))
            }
            Cause::Fault => {
                self.faults = self.faults.saturating_add(1);
                let doubled = 2_u32.saturating_pow(self.faults - 1);
                FAULT_BASE.saturating_mul(doubled).min(FAULT_CAP).mul_f64(unit(random()))
            }
        };
        self.began = now.saturating_add(delay);
        match self.deadline {
            Some(deadline) if self.began >= deadline => Next::GiveUp(GiveUp::Deadline),
            _ => Next::RetryAfter(delay),
        }
    }

    /// What to do at `now` (time since the start), after [`Attempts::next`] has returned a delay for a conflict. `news`
    /// tells whether, since the last call, the watch has brought a version newer than the refused one; events that
    /// arrive in between cost nothing.
    ///
    /// Nothing is ever sent from the refused version. After any other failure only the delay matters, and the result is
    /// then [`WaitStep::Read`].
    pub fn wait_step(&mut self, now: Duration, news: bool) -> WaitStep {
        if let Some(deadline) = self.deadline
            && now >= deadline
        {
            return WaitStep::GiveUp(GiveUp::Deadline);
        }
        let progress = match &mut self.wait {
            Some(wait) => wait.look(&mut self.contention, now, news),
            None => match self.began.saturating_sub(now) {
                Duration::ZERO => Progress::Late,
                rest => Progress::Wait(rest),
            },
        };
        match progress {
            Progress::Wait(rest) => {
                let end = self.deadline.map_or(rest, |deadline| deadline.saturating_sub(now));
                return WaitStep::Wait(rest.min(end));
            }
            Progress::Over | Progress::Late => self.began = now,
        }
        if progress == Progress::Over { WaitStep::Send } else { WaitStep::Read }
    }

    fn after_conflict(&mut self, now: Duration, random: impl FnOnce() -> f64) -> Option<Duration> {
        match &mut self.schedule {
            Schedule::Backoff(backoff) => {
                let delay = backoff.step(random);
                // Go would sleep once more and then stop without an attempt; this sleep is omitted here.
                if backoff.steps() < 1 {
                    return None;
                }
                self.wait = Some(Wait::until(now.saturating_add(delay), self.began, now));
                Some(delay)
            }
            Schedule::Contention => {
                let window = self.contention.conflict(now.saturating_sub(self.began));
                let share = unit(random());
                self.wait = Some(Wait::within(share, self.began, now));
                Some(window.mul_f64(share))
            }
        }
    }
}

/// A random number forced into `[0, 1]`, so that a broken random source cannot make a duration panic.
fn unit(random: f64) -> f64 {
    if random.is_nan() { 0.0 } else { random.clamp(0.0, 1.0) }
}

#[cfg(test)]
mod tests;
