//! The decisions of a circuit breaker: when to stop sending requests to a server that does not answer, and how to find
//! out that it answers again. A conflict, or any other answer of a working server, never opens it.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::classify::Class;

/// Consecutive failures that open the circuit. Our own choice: about what one default write sends in its first second
/// of faults, so that one lost connection or one restarting replica behind a load balancer does not open it.
const DEFAULT_FAILURES: NonZeroU32 = match NonZeroU32::new(5) {
    Some(failures) => failures,
    None => NonZeroU32::MIN,
};
/// How long the circuit stays open at first. Our own choice: a restarted API server is back after some seconds (3 s,
/// measured), and it is half of the default policy's deadline, so an operation that meets the opening circuit still
/// sees the probe's result.
const DEFAULT_OPEN_FOR: Duration = Duration::from_secs(5);
/// Maximum time the circuit stays open. Our own choice: the return of a server after a long outage is noticed within a
/// minute.
const DEFAULT_MAX_OPEN: Duration = Duration::from_secs(60);
/// The wait returned to callers while a probe is running: its duration is unknown. Our own choice.
const PROBE_WAIT: Duration = Duration::from_secs(1);

/// Whether an answer of this class means that the server, or the connection to it, has a fault.
///
/// Only a missing answer ([`Class::Ambiguous`]) and "not now" ([`Class::Transient`]) do. Conflicts and every other 4xx
/// come from a working server. So does a 429, on purpose: the server answers at once and sets the pace itself, and one
/// full priority level tells nothing about the others (a lease must still be renewed). An eviction blocked by a
/// `PodDisruptionBudget` is a 429 too, and neither the class nor `Retry-After` distinguishes the two. A full etcd does
/// not count: it serves reads and deletions, which make room.
///
/// One broken webhook is no reason to stop all other writes, and neither is a lost race for a `ResourceQuota`. Both are
/// [`Class::Transient`], but the write functions record them as answers of a working server. A caller that records
/// answers itself can do so with [`RequestFailure::is_admission_fault`](crate::RequestFailure::is_admission_fault).
pub const fn counts_as_failure(class: &Class) -> bool {
    match class {
        Class::Ambiguous | Class::Transient { .. } => true,
        // No wildcard: a new class needs an explicit decision.
        Class::Conflict
        | Class::FieldManager { .. }
        | Class::UidMismatch
        | Class::Deleted
        | Class::AlreadyExists
        | Class::NotFound
        | Class::NamespaceNotFound
        | Class::NotServed
        | Class::TestFailed
        | Class::Invalid
        | Class::Forbidden
        | Class::NamespaceTerminating
        | Class::Unauthorized
        | Class::Throttled { .. }
        | Class::StorageFull
        | Class::TooLarge
        | Class::Undecodable
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

/// Why [`BreakerSettings`] were rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidBreaker {
    /// Zero failures: the circuit would be open from the start.
    #[error("the number of failures is 0; give at least 1")]
    Failures,
    /// An open time of zero: the circuit would never be open.
    #[error("the open time is zero; give at least a nanosecond, or use no breaker")]
    OpenFor,
    /// The first open time is longer than the maximum.
    #[error(
        "the open time {open_for:?} is longer than the longest, {max_open:?}; swap them or raise the latter"
    )]
    MaxOpen {
        /// The first open time.
        open_for: Duration,
        /// The maximum open time.
        max_open: Duration,
    },
}

impl BreakerSettings {
    /// Opens after `failures` consecutive failures, for `open_for`; each failed probe doubles that time, up to
    /// `max_open`.
    ///
    /// Consecutive failures rather than a failure rate: when a server is down, everything fails, and a rate needs a
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

    /// The open time of the `opened`-th opening in a row, counting from one.
    fn open_time(&self, opened: u32) -> Duration {
        self.open_for.saturating_mul(2_u32.saturating_pow(opened.saturating_sub(1))).min(self.max_open)
    }
}

impl Default for BreakerSettings {
    /// Opens after 5 consecutive failures, for 5 s, doubling up to 60 s. There is no jitter: each process sends only
    /// one probe.
    fn default() -> Self {
        Self { failures: DEFAULT_FAILURES, open_for: DEFAULT_OPEN_FOR, max_open: DEFAULT_MAX_OPEN }
    }
}

/// What a breaker does with requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BreakerState {
    /// Admits all requests.
    Closed,
    /// Admits no request until the open time is over; the first request after that is the probe.
    Open,
    /// Admits one request, the probe, and decides by its result.
    HalfOpen,
}

impl BreakerState {
    /// A stable name for metric labels: lower case, with underscores.
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
    /// The state before.
    pub from: BreakerState,
    /// The state after; always different from `from`.
    pub to: BreakerState,
}

/// The circuit is open; nothing was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the API server has not been answering; nothing was sent, try again in {retry_after:?}")]
#[non_exhaustive]
pub struct CircuitOpen {
    /// How long to wait before the next request. While a probe is running this is an estimate.
    pub retry_after: Duration,
}

/// The permission to send one request. It must be returned by [`Breaker::record`] or [`Breaker::abandon`]; the handle
/// ([`super::CircuitBreaker`]) does that.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a ticket that is not handed back keeps the only place of the probe"]
pub struct Ticket {
    epoch: u64,
    transition: Option<Transition>,
}

impl Ticket {
    /// The change of state that came with this ticket, when the open time was over and this is the probe; `None`
    /// otherwise.
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
    /// Changes with every change of state, so that the result of an earlier request is ignored after it.
    epoch: u64,
}

impl Breaker {
    /// A closed circuit.
    pub const fn new(settings: BreakerSettings) -> Self {
        Self { settings, phase: Phase::Closed { failures: 0 }, epoch: 0 }
    }

    /// The current state. An open circuit stays `Open`, even when its time is over, until the next request.
    pub const fn state(&self) -> BreakerState {
        match self.phase {
            Phase::Closed { .. } => BreakerState::Closed,
            Phase::Open { .. } => BreakerState::Open,
            Phase::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    /// Admits a request, or returns how long to wait.
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

    /// Records the result of a request. A request that was admitted before the last change of state changes nothing.
    #[expect(clippy::needless_pass_by_value, reason = "a ticket is good for one result")]
    pub fn record(&mut self, ticket: Ticket, now: Duration, failed: bool) -> Option<Transition> {
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
            // No ticket is issued in this state.
            Phase::Open { .. } => None,
        }
    }

    /// Takes back a ticket whose request has no result, because its caller was dropped. If it was the probe, another
    /// may be sent.
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
