//! A circuit breaker's decisions: when to stop asking a server that does not answer, and how to find out that it does
//! again. A conflict, or any other answer that shows a working server, never opens it.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::classify::Class;

/// Failures in a row that open the circuit. Our own choice: about what one default write would send in its first second of
/// faults, so that one lost connection or one restarting replica behind a load balancer does not open it.
const DEFAULT_FAILURES: NonZeroU32 = match NonZeroU32::new(5) {
    Some(failures) => failures,
    None => NonZeroU32::MIN,
};
/// How long the circuit stays open at first. Our own choice: a restarted API server is back after some seconds (3 s,
/// measured), and it is half of the default policy's deadline, so that an operation caught by the opening still sees the
/// probe's result.
const DEFAULT_OPEN_FOR: Duration = Duration::from_secs(5);
/// How long it stays open at most. Our own choice: a server that was away for long is noticed within a minute.
const DEFAULT_MAX_OPEN: Duration = Duration::from_secs(60);
/// What callers are told to wait while a probe is under way: nobody knows how long it takes. Our own choice.
const PROBE_WAIT: Duration = Duration::from_secs(1);

/// Whether an answer of this kind means that the server, or the way to it, is in trouble.
///
/// Only no answer at all ([`Class::Ambiguous`]) and "not now" ([`Class::Transient`]) do. Conflicts and every other 4xx
/// come from a server at work. So does a 429, on purpose: the server answers at once and sets the pace itself, and one full
/// priority level says nothing about the others (a lease must still be renewed); besides, an eviction that a disruption
/// budget holds back is a 429 too, and neither the class nor `Retry-After` tells the two apart. A 500 without a sign of
/// etcd is most often one broken webhook, no reason to stop writing everything else.
pub const fn counts_as_failure(class: &Class) -> bool {
    match class {
        Class::Ambiguous | Class::Transient { .. } => true,
        // No wildcard: a new class must be thought about.
        Class::Conflict
        | Class::FieldManager { .. }
        | Class::UidMismatch
        | Class::Deleted
        | Class::AlreadyExists
        | Class::NotFound
        | Class::NotServed
        | Class::TestFailed
        | Class::Invalid
        | Class::Forbidden
        | Class::Unauthorized
        | Class::Throttled { .. }
        | Class::Gone
        | Class::Other => false,
    }
}

/// When a circuit opens, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerSettings {
    failures: NonZeroU32,
    open_for: Duration,
    max_open: Duration,
}

/// Why [`BreakerSettings`] were refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidBreaker {
    /// It would be open from the start.
    #[error("the number of failures is 0; give at least 1")]
    Failures,
    /// It would never be open.
    #[error("the open time is zero; give at least a nanosecond, or use no breaker")]
    OpenFor,
    /// The first open time is longer than the longest.
    #[error(
        "the open time {open_for:?} is longer than the longest, {max_open:?}; swap them or raise the latter"
    )]
    MaxOpen {
        /// The first open time.
        open_for: Duration,
        /// The longest.
        max_open: Duration,
    },
}

impl BreakerSettings {
    /// Opens after `failures` failures in a row, for `open_for`; each probe that fails doubles that, up to `max_open`.
    ///
    /// Failures in a row rather than a share of failures: when a server is away, everything fails, and a share needs a
    /// window, which a quiet controller never fills.
    pub const fn new(failures: u32, open_for: Duration, max_open: Duration) -> Result<Self, InvalidBreaker> {
        let Some(failures) = NonZeroU32::new(failures) else {
            return Err(InvalidBreaker::Failures);
        };
        if open_for.is_zero() {
            return Err(InvalidBreaker::OpenFor);
        }
        if open_for.as_nanos() > max_open.as_nanos() {
            return Err(InvalidBreaker::MaxOpen { open_for, max_open });
        }
        Ok(Self { failures, open_for, max_open })
    }

    /// The `opened`-th open time in a row, counting from one.
    fn open_time(&self, opened: u32) -> Duration {
        self.open_for.saturating_mul(2_u32.saturating_pow(opened.saturating_sub(1))).min(self.max_open)
    }
}

impl Default for BreakerSettings {
    /// Opens after 5 failures in a row, for 5 s, doubling up to 60 s. There is no jitter: of each process only one probe
    /// goes out.
    fn default() -> Self {
        Self { failures: DEFAULT_FAILURES, open_for: DEFAULT_OPEN_FOR, max_open: DEFAULT_MAX_OPEN }
    }
}

/// What a breaker does with requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BreakerState {
    /// Lets all through.
    Closed,
    /// Lets none through until its time is over; the first request after that is the probe.
    Open,
    /// Lets one through, the probe, and decides by its result.
    HalfOpen,
}

impl BreakerState {
    /// A stable name for labels.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// A change of state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Transition {
    /// Before.
    pub from: BreakerState,
    /// After; never the same.
    pub to: BreakerState,
}

/// The circuit is open; nothing was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the API server has not been answering; nothing was sent, try again in {retry_after:?}")]
#[non_exhaustive]
pub struct CircuitOpen {
    /// How long to stay away. While a probe is under way this is a guess.
    pub retry_after: Duration,
}

/// The leave to send one request. It must be handed back, by [`Breaker::settle`] or [`Breaker::abandon`]; the handle
/// ([`super::CircuitBreaker`]) sees to that.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a ticket that is not handed back keeps the only place of the probe"]
pub struct Ticket {
    epoch: u64,
    transition: Option<Transition>,
}

impl Ticket {
    /// The change of state that came with this ticket: the open time was over, and this is the probe.
    pub const fn transition(&self) -> Option<Transition> {
        self.transition
    }
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    Closed { failures: u32 },
    Open { until: Duration, opened: u32 },
    HalfOpen { probing: bool, opened: u32 },
}

/// The state machine. Pure: `now` is the time since any fixed instant.
#[derive(Debug)]
pub struct Breaker {
    settings: BreakerSettings,
    phase: Phase,
    /// Moves with every change of state, so that a request from before it has no say after it.
    epoch: u64,
}

impl Breaker {
    /// A closed circuit.
    pub const fn new(settings: BreakerSettings) -> Self {
        Self { settings, phase: Phase::Closed { failures: 0 }, epoch: 0 }
    }

    /// What it does with requests. An open circuit stays `Open`, also when its time is over, until somebody asks.
    pub const fn state(&self) -> BreakerState {
        match self.phase {
            Phase::Closed { .. } => BreakerState::Closed,
            Phase::Open { .. } => BreakerState::Open,
            Phase::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    /// Whether a request may be sent.
    pub fn admit(&mut self, now: Duration) -> Result<Ticket, CircuitOpen> {
        match self.phase {
            Phase::Closed { .. } => Ok(Ticket { epoch: self.epoch, transition: None }),
            Phase::Open { until, .. } if now < until => {
                Err(CircuitOpen { retry_after: until.saturating_sub(now) })
            }
            Phase::HalfOpen { probing: true, .. } => {
                Err(CircuitOpen { retry_after: PROBE_WAIT.min(self.settings.open_for) })
            }
            Phase::Open { opened, .. } => {
                let transition = self.enter(Phase::HalfOpen { probing: true, opened });
                Ok(Ticket { epoch: self.epoch, transition: Some(transition) })
            }
            Phase::HalfOpen { probing: false, opened } => {
                self.phase = Phase::HalfOpen { probing: true, opened };
                Ok(Ticket { epoch: self.epoch, transition: None })
            }
        }
    }

    /// Takes the result of a request. One that was admitted before the last change of state changes nothing.
    #[expect(clippy::needless_pass_by_value, reason = "a ticket is good for one result")]
    pub fn settle(&mut self, ticket: Ticket, now: Duration, failed: bool) -> Option<Transition> {
        if ticket.epoch != self.epoch {
            return None;
        }
        match self.phase {
            Phase::Closed { failures } => {
                let failures = if failed { failures.saturating_add(1) } else { 0 };
                if failures >= self.settings.failures.get() {
                    return Some(self.open(now, 1));
                }
                self.phase = Phase::Closed { failures };
                None
            }
            Phase::HalfOpen { opened, .. } if failed => Some(self.open(now, opened.saturating_add(1))),
            Phase::HalfOpen { .. } => Some(self.enter(Phase::Closed { failures: 0 })),
            // No ticket is given out in this state.
            Phase::Open { .. } => None,
        }
    }

    /// Takes a ticket back whose request has no result, because its caller went away. A probe makes place for another.
    #[expect(clippy::needless_pass_by_value, reason = "a ticket is good for one result")]
    pub fn abandon(&mut self, ticket: Ticket) {
        if ticket.epoch == self.epoch
            && let Phase::HalfOpen { probing, .. } = &mut self.phase
        {
            *probing = false;
        }
    }

    fn open(&mut self, now: Duration, opened: u32) -> Transition {
        let until = now.saturating_add(self.settings.open_time(opened));
        self.enter(Phase::Open { until, opened })
    }

    fn enter(&mut self, phase: Phase) -> Transition {
        let from = self.state();
        self.phase = phase;
        self.epoch = self.epoch.wrapping_add(1);
        Transition { from, to: self.state() }
    }
}

#[cfg(test)]
#[path = "breaker_tests.rs"]
mod tests;
