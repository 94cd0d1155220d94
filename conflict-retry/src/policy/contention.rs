//! How long a writer among several stays away after a conflict: a window as wide as the others need.
//!
//! However many attempts overlap, exactly one of them succeeds, so a crowd never stops; it only wastes requests. With `n`
//! contenders whose attempts take one *cycle* (from sending until the others have heard of it), a start drawn uniformly
//! from a window of `n` cycles costs each success about two attempts and two cycles. The cycle is measured from one's own
//! attempts, so that slow servers and long ways need no settings. The number of contenders is guessed: few at first, more
//! with each conflict, and, where a watch tells, half as many whenever nobody has written for a
//! while.
//!
//! Pure: time and randomness are arguments. The figures behind the constants are in `docs/adr/0009`.

use std::time::Duration;

/// How the guess at the number of contenders starts and grows.
#[derive(Debug, Clone, Copy)]
struct Growth {
    first: f64,
    factor: f64,
}

/// With live reads only nothing corrects a guess that is too high, so it grows slowly. A cycle is a read and a write here.
const BLIND: Growth = Growth { first: 1.5, factor: 1.7 };
/// With a watch, silence corrects it.
const FED: Growth = Growth { first: 1.5, factor: 4.0 };
/// Highest guess. Our own bound; no object of a cluster has more writers at once.
const MOST: f64 = 128.0;
/// How many cycles nobody has to write for the guess to be halved.
const SILENCE: f64 = 1.5;
/// What remains of the guess then.
const AFTER_SILENCE: f64 = 0.5;
/// Shortest cycle: the resolution of timers.
const SHORTEST: Duration = Duration::from_millis(1);
/// Widest window: a tenth of the default deadline.
const WIDEST: Duration = Duration::from_secs(1);
/// How long the watch may take to bring the version that won, in durations of the attempt that lost …
const PATIENCE: u32 = 3;
/// … and at least. Our own bound: a live read costs about as much as waiting this long.
const LEAST_PATIENCE: Duration = Duration::from_millis(10);

/// A writer's view of the crowd around one object, during one operation.
#[derive(Debug, Clone)]
pub(super) struct Contention {
    growth: Growth,
    contenders: Option<f64>,
    /// The shortest cycle measured (a longer one is a busy server's or a busy machine's, and both pass), and what it was
    /// before the last conflict.
    cycle: Option<Duration>,
    before: Option<Duration>,
}

/// The wait after one conflict of a writer that is fed by a watch.
#[derive(Debug, Clone)]
pub(super) struct Wait {
    /// When the attempt that lost began, and how long it took.
    began: Duration,
    took: Duration,
    /// Share of the window that is still to be waited for; `None` when the time is fixed.
    left: Option<f64>,
    /// The fixed time.
    until: Duration,
    /// When it was looked at last.
    looked: Duration,
    /// How long nobody has written.
    silent: Duration,
    /// Whether the version that won has been seen.
    seen: bool,
}

/// What a wait has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    Wait(Duration),
    Over,
    Late,
}

impl Contention {
    pub(super) fn blind() -> Self {
        Self { growth: BLIND, contenders: None, cycle: None, before: None }
    }

    pub(super) fn fed() -> Self {
        Self { growth: FED, ..Self::blind() }
    }

    /// Takes in a conflict of an attempt that took `took`, and answers the window to wait in.
    pub(super) fn conflict(&mut self, took: Duration) -> Duration {
        self.before = self.cycle;
        self.measured(took);
        self.contenders = Some(match self.contenders {
            None => self.growth.first,
            Some(contenders) => (contenders.max(self.growth.first) * self.growth.factor).min(MOST),
        });
        self.window()
    }

    /// The window for the present guess.
    fn window(&self) -> Duration {
        let contenders = self.contenders.unwrap_or(self.growth.first);
        self.one_cycle().mul_f64(contenders).min(WIDEST)
    }

    fn one_cycle(&self) -> Duration {
        self.cycle.unwrap_or(SHORTEST).clamp(SHORTEST, WIDEST)
    }

    /// Takes `cycle` for the last conflict's measurement.
    fn measured(&mut self, cycle: Duration) {
        self.cycle = Some(self.before.map_or(cycle, |before| before.min(cycle)));
    }
}

impl Wait {
    /// A wait for `share` (0 to 1) of the window.
    pub(super) fn within(share: f64, began: Duration, now: Duration) -> Self {
        Self { left: Some(share), ..Self::until(now, began, now) }
    }

    /// A wait for a fixed time.
    pub(super) fn until(until: Duration, began: Duration, now: Duration) -> Self {
        let took = now.saturating_sub(began);
        Self { began, took, left: None, until, looked: now, silent: Duration::ZERO, seen: false }
    }

    /// Looks again at `now`; `news` says whether the watch has brought a version since the last look that is newer than
    /// the one refused.
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
                // Until now nobody could know of the write that won: that is the time in which attempts overlap.
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
        // From the version that was refused nothing may be sent again.
        let more = LEAST_PATIENCE.max(self.took.saturating_mul(PATIENCE));
        let patience = self.began.saturating_add(self.took).saturating_add(more);
        match patience.saturating_sub(now) {
            Duration::ZERO => Progress::Late,
            rest => Progress::Wait(rest),
        }
    }
}
