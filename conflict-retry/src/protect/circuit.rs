//! The handle around a [`Breaker`]: it has a clock and a lock, and hands out permits that give themselves back.

use std::fmt;
use std::sync::{Arc, Mutex};

use tokio::time::Instant;

use super::breaker::{
    Breaker, BreakerSettings, BreakerState, CircuitOpen, Ticket, Transition, counts_as_failure,
};
use super::lock;
use crate::classify::Class;

/// Hears of every change of state: count and return.
type Listener = Box<dyn Fn(Transition) + Send + Sync>;

/// A [`Breaker`] for all tasks of a process: one per API server. Cheap to clone; clones share the circuit.
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
    /// [`BreakerSettings::default`], with nobody listening.
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

    /// A closed circuit that tells `listener` of every change of state, on the task that causes it and outside the lock. Two
    /// changes close together may be told in either order, so count with it and read [`Self::state`] for a gauge.
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

    /// What it does with requests.
    pub fn state(&self) -> BreakerState {
        lock(&self.shared.breaker).state()
    }

    /// Leave to send one request, at once. [`CircuitOpen::retry_after`] is fit for
    /// [`Cause::RetryAfter`](crate::policy::Cause::RetryAfter).
    pub fn admit(&self) -> Result<Permit, CircuitOpen> {
        let ticket = lock(&self.shared.breaker).admit(self.shared.origin.elapsed())?;
        // The permit comes first: a listener that panics must not take the place of the probe with it.
        let transition = ticket.transition();
        let permit = Permit { shared: Arc::clone(&self.shared), transition, ticket: Some(ticket) };
        self.shared.tell(transition);
        Ok(permit)
    }
}

impl Shared {
    fn tell(&self, transition: Option<Transition>) {
        if let (Some(listener), Some(transition)) = (&self.listener, transition) {
            listener(transition);
        }
    }
}

/// Leave to send one request. Settle it with the answer; dropped without one (its caller was cancelled), it has no say,
/// and the place of a probe is free again.
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
    /// The change of state that came with this permit: the open time was over, and this is the probe. The listener has heard
    /// of it.
    pub const fn transition(&self) -> Option<Transition> {
        self.transition
    }

    /// What the request ended with: `None` when it succeeded, else what its error means. Says which change of state that
    /// brought, if any; the listener has heard of it then.
    pub fn settle(mut self, answer: Option<&Class>) -> Option<Transition> {
        let failed = answer.is_some_and(counts_as_failure);
        let ticket = self.ticket.take()?;
        let transition = lock(&self.shared.breaker).settle(ticket, self.shared.origin.elapsed(), failed);
        self.shared.tell(transition);
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
