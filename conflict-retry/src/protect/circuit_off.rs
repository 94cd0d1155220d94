//! What stands in for the circuit breaker without the feature `circuit-breaker`: types without values, so that the code
//! that sends requests is the same with and without it, and costs nothing without it.

use super::throttled_by::ThrottledBy;
use crate::classify::Class;

/// There is none.
#[derive(Debug, Clone)]
pub(crate) enum CircuitBreaker {}

/// There is none.
pub(crate) enum Permit {}

/// There is none.
pub(crate) enum CircuitOpen {}

/// There is none.
#[derive(Clone, Copy)]
pub(crate) enum Transition {}

impl CircuitBreaker {
    pub(crate) fn admit(&self) -> Result<Permit, CircuitOpen> {
        match *self {}
    }
}

impl Permit {
    pub(crate) fn transition(&self) -> Option<Transition> {
        match *self {}
    }

    pub(crate) fn record(self, _answer: Option<&Class>) -> Option<Transition> {
        match self {}
    }
}

impl From<CircuitOpen> for ThrottledBy {
    fn from(open: CircuitOpen) -> Self {
        match open {}
    }
}
