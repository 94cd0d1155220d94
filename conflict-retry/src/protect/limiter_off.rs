//! What stands in for the rate limiter without the feature `rate-limiter`: a type without values, so that the code that
//! sends requests is the same with and without it, and costs nothing without it.

use std::future::Ready;
use std::time::Duration;

/// There is none.
#[derive(Debug, Clone)]
pub(crate) enum RateLimiter {}

impl RateLimiter {
    pub(crate) fn acquire(&self) -> Ready<Duration> {
        match *self {}
    }

    pub(crate) fn try_take(&self) -> Result<(), Duration> {
        match *self {}
    }

    pub(crate) fn charge(&self) {
        match *self {}
    }

    pub(crate) fn give_back(&self) {
        match *self {}
    }
}
