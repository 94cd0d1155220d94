//! The handle around a [`Breaker`]: it has a clock and a lock, and issues permits that return themselves when dropped.

use std::fmt;
use std::sync::{Arc, Mutex};

use tokio::time::Instant;

use super::breaker::{
    Breaker, BreakerSettings, BreakerState, CircuitOpen, Ticket, Transition, counts_as_failure,
};
use super::lock;
use crate::classify::Class;

/// Receives every change of state; it must be quick.
type Listener = Box<dyn Fn(Transition) + Send + Sync>;

/// A [`Breaker`] for all tasks of a process: use one per API server. Cheap to clone; clones share the circuit.
///
/// ```
/// use conflict_retry::protect::{CircuitBreaker, CircuitOpen};
///
/// # fn main() -> Result<(), CircuitOpen> {
/// let breaker = CircuitBreaker::default();
/// let permit = breaker.admit()?;
/// // … send the request; `None` stands for an answer without an error …
/// permit.record(None);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct CircuitBreaker {
    shared: Arc<Shared>,
}

struct Shared {
    origin: Instant,
    breaker: Mutex<Breaker>,
    listener: Option<Listener>,
}

impl Default for CircuitBreaker {
    /// [`BreakerSettings::default`], without a listener.
    fn default() -> Self {
        Self::build(BreakerSettings::default(), None)
    }
}

impl fmt::Debug for CircuitBreaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CircuitBreaker")
            .field("breaker", &*lock(&self.shared.breaker))
            .finish_non_exhaustive()
    }
}

impl CircuitBreaker {
    /// A closed circuit.
    pub fn new(settings: BreakerSettings) -> Self {
        Self::build(settings, None)
    }

    /// A closed circuit that reports every change of state to `listener`, on the task that causes it and outside the
    /// lock. Two changes in quick succession may be reported in either order, so use the listener for counters and
    /// [`Self::state`] for a gauge.
    pub fn with_listener(
        settings: BreakerSettings,
        listener: impl Fn(Transition) + Send + Sync + 'static,
    ) -> Self {
        Self::build(settings, Some(Box::new(listener)))
    }

    fn build(settings: BreakerSettings, listener: Option<Listener>) -> Self {
        let breaker = Mutex::new(Breaker::new(settings));
        Self { shared: Arc::new(Shared { origin: Instant::now(), breaker, listener }) }
    }

    /// The current state.
    pub fn state(&self) -> BreakerState {
        lock(&self.shared.breaker).state()
    }

    /// Returns permission to send one request, without waiting. [`CircuitOpen::retry_after`] is suitable for
    /// [`Cause::RetryAfter`](crate::policy::Cause::RetryAfter).
    pub fn admit(&self) -> Result<Permit, CircuitOpen> {
        let ticket = lock(&self.shared.breaker).admit(self.shared.origin.elapsed())?;
        // The permit is created first: a listener that panics must not leave the probe's place taken.
        let transition = ticket.transition();
        let permit = Permit { shared: Arc::clone(&self.shared), transition, ticket: Some(ticket) };
        self.shared.report(transition);
        Ok(permit)
    }
}

impl Shared {
    fn report(&self, transition: Option<Transition>) {
        if let (Some(listener), Some(transition)) = (&self.listener, transition) {
            listener(transition);
        }
    }
}

/// Permission to send one request. Settle it with the answer; if it is dropped without one (its caller was cancelled),
/// it has no effect, and another probe may be sent.
#[must_use = "settle the permit with what the server answered"]
pub struct Permit {
    shared: Arc<Shared>,
    transition: Option<Transition>,
    ticket: Option<Ticket>,
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}

impl Permit {
    /// The change of state that came with this permit, when the open time was over and this is the probe; `None`
    /// otherwise. The listener has already received it.
    pub const fn transition(&self) -> Option<Transition> {
        self.transition
    }

    /// Records the result of the request: `None` when it succeeded, otherwise the class of its error. Returns the
    /// resulting change of state, if any; the listener has already received it.
    pub fn record(mut self, answer: Option<&Class>) -> Option<Transition> {
        let failed = answer.is_some_and(counts_as_failure);
        let ticket = self.ticket.take()?;
        let transition = lock(&self.shared.breaker).record(ticket, self.shared.origin.elapsed(), failed);
        self.shared.report(transition);
        transition
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            lock(&self.shared.breaker).abandon(ticket);
        }
    }
}

#[cfg(test)]
#[path = "circuit_tests.rs"]
mod tests;
