//! How long one of several writers waits after a conflict: the window is as wide as the other writers need.
//!
//! However many attempts overlap, exactly one of them succeeds, so contention never blocks all writers; it only wastes
//! requests. With `n` contenders whose attempts take one *cycle* (from sending until the others have seen the write), a
//! start drawn uniformly from a window of `n` cycles costs each success about two attempts and two cycles. The cycle is
//! measured from the writer's own attempts, so slow servers and high latency need no settings. The number of contenders
//! is estimated: few at first, more with each conflict, and, with a watch, half as many whenever no writer has written
//! for a while.
//!
//! The constants were measured, bursts of 2 to 50 writers on one API server: with them a success fed by a watch costs 1.5 to
//! 5.3 requests, and with live reads 3 to 9. A watched guess that was counted down by one with each foreign version began
//! too low and cost twice the requests at fifty writers. The mean attempt as the cycle saved a quarter of the requests there, but
//! let single requests that stall raise the p99 by up to 80 %; the shortest attempt does not stall. Without a bound on the wait
//! for a slow watch (15 ms behind, fifty writers) the p99 was 0.9 s; with it, 0.6 s to 0.8 s.
//!
//! Pure: time and randomness are arguments.

use std::time::Duration;

/// How the estimated number of contenders starts and grows.
#[derive(Debug, Clone, Copy)]
struct Growth {
    first: f64,
    factor: f64,
}

/// With live reads nothing corrects an estimate that is too high, so it grows slowly. A cycle is a read and a write
/// here.
const LIVE: Growth = Growth { first: 1.5, factor: 1.7 };
/// With a watch, silence corrects the estimate.
const WATCHED: Growth = Growth { first: 1.5, factor: 4.0 };
/// Highest estimate. Our own limit; no object of a cluster has more writers at once.
const MOST: f64 = 128.0;
/// The number of cycles without any write after which the estimate is halved.
const SILENCE: f64 = 1.5;
/// The factor applied to the estimate then.
const AFTER_SILENCE: f64 = 0.5;
/// Shortest cycle: the resolution of timers.
const SHORTEST: Duration = Duration::from_millis(1);
/// Widest window: a tenth of the default deadline.
const WIDEST: Duration = Duration::from_secs(1);
/// How long the watch may take to bring the version that won, in durations of the attempt that lost …
const PATIENCE: u32 = 3;
/// … and its minimum. Our own limit: a live read costs about as much as waiting this long.
const LEAST_PATIENCE: Duration = Duration::from_millis(10);

/// A writer's estimate of the contention on one object, during one operation.
#[derive(Debug, Clone)]
pub(super) struct Contention {
    growth: Growth,
    contenders: Option<f64>,
    /// The shortest cycle measured (longer ones come from a busy server or machine, which is temporary), and its value
    /// before the last conflict.
    cycle: Option<Duration>,
    before: Option<Duration>,
}

/// The wait after one conflict, for a writer with a watch-fed cache.
#[derive(Debug, Clone)]
pub(super) struct Wait {
    /// When the attempt that lost began, and how long it took.
    began: Duration,
    took: Duration,
    /// Share of the window that is still to be waited for; `None` when the wait has a fixed end.
    left: Option<f64>,
    /// The fixed end.
    until: Duration,
    /// When [`Wait::look`] was last called.
    looked: Duration,
    /// How long no writer has written.
    silent: Duration,
    /// Whether the version that won has been seen.
    seen: bool,
}

/// The state of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    Wait(Duration),
    Over,
    Late,
}

impl Contention {
    pub(super) fn live() -> Self {
        Self { growth: LIVE, contenders: None, cycle: None, before: None }
    }

    pub(super) fn watched() -> Self {
        Self { growth: WATCHED, ..Self::live() }
    }

    /// Records a conflict of an attempt that took `took`, and returns the window to wait in.
    pub(super) fn conflict(&mut self, took: Duration) -> Duration {
        self.before = self.cycle;
        self.measured(took);
        self.contenders = Some(match self.contenders {
            None => self.growth.first,
            Some(contenders) => (contenders.max(self.growth.first) * self.growth.factor).min(MOST),
        });
        self.window()
    }

    /// The window for the current estimate.
    fn window(&self) -> Duration {
        let contenders = self.contenders.unwrap_or(self.growth.first);
        self.one_cycle().mul_f64(contenders).min(WIDEST)
    }

    fn one_cycle(&self) -> Duration {
        self.cycle.unwrap_or(SHORTEST).clamp(SHORTEST, WIDEST)
    }

    /// Replaces the last conflict's measurement by `cycle`.
    fn measured(&mut self, cycle: Duration) {
        self.cycle = Some(self.before.map_or(cycle, |before| before.min(cycle)));
    }
}

impl Wait {
    /// A wait for `share` (0 to 1) of the window.
    pub(super) fn within(share: f64, began: Duration, now: Duration) -> Self {
        Self { left: Some(share), ..Self::until(now, began, now) }
    }

    /// A wait until a fixed time.
    pub(super) fn until(until: Duration, began: Duration, now: Duration) -> Self {
        let took = now.saturating_sub(began);
        Self { began, took, left: None, until, looked: now, silent: Duration::ZERO, seen: false }
    }

    /// Updates the wait at `now`; `news` tells whether, since the last call, the watch has brought a version newer than
    /// the refused one.
    pub(super) fn look(&mut self, contention: &mut Contention, now: Duration, news: bool) -> Progress {
        let passed = now.saturating_sub(self.looked);
        self.looked = self.looked.max(now);
        let window = contention.window();
        self.left = self.left.map(|left| left - passed.as_secs_f64() / window.as_secs_f64());
        self.silent = self.silent.saturating_add(passed);
        if news {
            self.silent = Duration::ZERO;
            if !self.seen {
                self.seen = true;
                // Until now no writer could know of the write that won: that is the time in which attempts overlap.
                contention.measured(self.took.max(now.saturating_sub(self.began)));
            }
        }
        let silence = contention.one_cycle().mul_f64(SILENCE);
        if self.silent >= silence {
            self.silent = Duration::ZERO;
            contention.contenders = contention.contenders.map(|guess| (guess * AFTER_SILENCE).max(1.0));
        }
        let rest = match self.left {
            Some(left) => contention.window().mul_f64(left.clamp(0.0, 1.0)),
            None => self.until.saturating_sub(now),
        };
        if !rest.is_zero() {
            return Progress::Wait(rest.min(silence.saturating_sub(self.silent)));
        }
        if self.seen {
            return Progress::Over;
        }
        // Nothing may be sent again from the refused version.
        let more = LEAST_PATIENCE.max(self.took.saturating_mul(PATIENCE));
        let patience = self.began.saturating_add(self.took).saturating_add(more);
        match patience.saturating_sub(now) {
            Duration::ZERO => Progress::Late,
            rest => Progress::Wait(rest),
        }
    }
}
