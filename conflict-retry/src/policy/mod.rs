//! When to try again and when to stop: attempts *and* deadline *and* schedule *and* cancellation.
//!
//! Pure: time since the start and randomness are arguments. Nothing here sleeps ([`crate::retry`] and the front door do),
//! and nothing here knows what failed beyond its [`Cause`].

mod contention;

use std::num::NonZeroU32;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use self::contention::{Contention, Progress, Wait};
use crate::backoff::{Backoff, DEFAULT_BACKOFF, DEFAULT_RETRY, InvalidBackoff};

/// Attempts of the default policy. Our own bound: several times what a writer among fifty needs on average, and low
/// enough to end a livelock.
const DEFAULT_MAX_ATTEMPTS: NonZeroU32 = match NonZeroU32::new(64) {
    Some(attempts) => attempts,
    None => NonZeroU32::MIN,
};
/// Deadline of the default policy. Our own bound: a reconcile that waits longer had better be queued again.
const DEFAULT_DEADLINE: Duration = Duration::from_secs(10);
/// First window after a fault (503, lost answer). Our own choice: well above a round trip, well below a person's notice.
const FAULT_BASE: Duration = Duration::from_millis(50);
/// Widest window after a fault: five of them fit into the default deadline.
const FAULT_CAP: Duration = Duration::from_secs(2);
/// Share of a server-given `Retry-After` that is added at random, so that clients told the same second do not return in
/// the same millisecond.
const RETRY_AFTER_SPREAD: f64 = 0.1;

/// How long to keep trying, and how fast.
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
    /// client-go's arithmetic.
    Backoff(Backoff),
    /// Uniformly within a window that fits the crowd: see [`contention`].
    Contention,
}

/// What an attempt failed of, as far as pacing is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// Somebody else wrote first; the server is healthy.
    Conflict,
    /// The server said how long to stay away.
    RetryAfter(Duration),
    /// The server or the way to it is in trouble.
    Fault,
}

/// What to do after a failed attempt. Complete on purpose: whoever drives [`Attempts`] has to do one or the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Wait that long, then try again.
    RetryAfter(Duration),
    /// Stop, and say why.
    GiveUp(GiveUp),
}

/// Which bound ended the attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GiveUp {
    /// The last allowed attempt has been made.
    Attempts,
    /// The next attempt would start at or after the deadline.
    Deadline,
}

impl Default for RetryPolicy {
    /// Our own policy for conflicts: up to 64 attempts in 10 s. After a conflict it waits uniformly within a window of one
    /// and a half times the shortest attempt so far, 1.7 times as wide after each further conflict, at most 1 s. Reads fed
    /// by a watch ([`Attempts::fed`]) allow more.
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

    /// As many attempts as `backoff` has steps, with its delays. No deadline. A backoff without steps is refused: Go
    /// calls the operation zero times then, and up to v0.36 reports success.
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

    /// Exactly one attempt: what a caller wants who requeues instead.
    #[must_use]
    pub fn once() -> Self {
        Self { max_attempts: NonZeroU32::MIN, ..Self::default() }
    }

    /// At most this many attempts, the first one included.
    #[must_use]
    pub fn with_max_attempts(mut self, attempts: NonZeroU32) -> Self {
        self.max_attempts = attempts;
        self
    }

    /// No attempt starts at or after this time since the start; `None` means no such bound. An attempt under way is never
    /// cut off by it, because cutting a write off only makes its outcome unknown.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Option<Duration>) -> Self {
        self.deadline = deadline;
        self
    }

    /// Stops, attempts and waits alike, as soon as `token` is cancelled.
    #[must_use]
    pub fn with_cancellation(mut self, token: CancellationToken) -> Self {
        self.cancel = token;
        self
    }

    /// The token that ends the attempts.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.cancel
    }

    /// The time after which no attempt starts.
    pub(crate) const fn deadline(&self) -> Option<Duration> {
        self.deadline
    }

    /// Whether the first attempt may start at all: a deadline of zero forbids it.
    pub(crate) fn may_start(&self) -> bool {
        self.deadline != Some(Duration::ZERO)
    }

    /// The state machine of one run under this policy, which begins now.
    pub fn attempts(&self) -> Attempts {
        Attempts {
            max: self.max_attempts.get(),
            deadline: self.deadline,
            schedule: self.schedule,
            made: 0,
            faults: 0,
            began: Duration::ZERO,
            contention: Contention::blind(),
            wait: None,
        }
    }
}

/// One run under a [`RetryPolicy`]: told of each failed attempt, it answers what to do next.
#[derive(Debug, Clone)]
pub struct Attempts {
    max: u32,
    deadline: Option<Duration>,
    schedule: Schedule,
    made: u32,
    faults: u32,
    /// When the attempt under way began.
    began: Duration,
    contention: Contention,
    /// The wait after the last conflict, for those who ask for their turn.
    wait: Option<Wait>,
}

/// What a writer does that is fed by a watch and waits after a conflict. Complete on purpose, as [`Next`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Wait that long, or until the watch brings something, then ask again.
    Wait(Duration),
    /// Decide from the newest version known, and send.
    Send,
    /// The watch does not bring the version that won: read live, decide and send.
    Read,
    /// Stop, and say why.
    GiveUp(GiveUp),
}

impl Attempts {
    /// For a writer whose reads are fed by a watch: after a conflict it asks for its [`Attempts::turn`] instead of sleeping
    /// as [`Attempts::next`] says. Knowing what others write, it can start with wider windows and cut them short.
    #[must_use]
    pub fn fed(mut self) -> Self {
        self.contention = Contention::fed();
        self
    }

    /// The first attempt begins only now (time since the start): what came before was waiting for leave to make it.
    pub fn begin(&mut self, now: Duration) {
        self.began = now;
    }

    /// The attempt under way was kept from being sent for so long: that is no part of its own duration.
    pub fn held(&mut self, waited: Duration) {
        self.began = self.began.saturating_add(waited);
    }

    /// How many attempts have failed so far.
    pub const fn made(&self) -> u32 {
        self.made
    }

    /// Records an attempt that failed of `cause` at `now` (time since the start). `random` is asked at most once and
    /// answers uniformly in `[0, 1)`. There is never a wait after the last attempt.
    ///
    /// What lies between the end of the last wait and `now` counts as the duration of the attempt.
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
            Cause::RetryAfter(told) => {
                told.saturating_add(told.min(FAULT_CAP).mul_f64(RETRY_AFTER_SPREAD * unit(random())))
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

    /// Whether it is this writer's turn again at `now` (time since the start), after [`Attempts::next`] has answered a
    /// conflict with a delay. `news` says whether the watch has brought a version, since the last time this was asked, that
    /// is newer than the one that was refused; whatever arrives in the meantime costs nothing.
    ///
    /// Nothing is ever sent from the version that was refused. After any other failure there is nothing to wait for but
    /// the delay, and the answer is [`Turn::Read`].
    pub fn turn(&mut self, now: Duration, news: bool) -> Turn {
        if let Some(deadline) = self.deadline
            && now >= deadline
        {
            return Turn::GiveUp(GiveUp::Deadline);
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
                return Turn::Wait(rest.min(end));
            }
            Progress::Over | Progress::Late => self.began = now,
        }
        if progress == Progress::Over { Turn::Send } else { Turn::Read }
    }

    fn after_conflict(&mut self, now: Duration, random: impl FnOnce() -> f64) -> Option<Duration> {
        match &mut self.schedule {
            Schedule::Backoff(backoff) => {
                let delay = backoff.step(random);
                // Go would sleep once more and then stop without an attempt; the sleep is what we leave out.
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

/// A random number forced into `[0, 1]`, so that a broken source cannot make a duration panic.
fn unit(random: f64) -> f64 {
    if random.is_nan() { 0.0 } else { random.clamp(0.0, 1.0) }
}

#[cfg(test)]
mod tests;
