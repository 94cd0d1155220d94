//! Why a protection prevented a request.

/// The protection that prevented a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ThrottledBy {
    /// The circuit is open.
    #[cfg(feature = "circuit-breaker")]
    #[error(transparent)]
    CircuitBreaker(#[from] super::CircuitOpen),
    /// The policy's deadline passed while the request waited, in the queue or for the rate limiter.
    #[error("no permission to send within {0:?}; try again later, or allow more time")]
    WaitTimeout(std::time::Duration),
    /// Too many retries are running.
    #[error(transparent)]
    RetryBudget(#[from] super::BudgetExhausted),
}

impl ThrottledBy {
    /// A stable name for metric labels: lower case, with underscores.
    pub const fn label(&self) -> &'static str {
        match self {
            #[cfg(feature = "circuit-breaker")]
            Self::CircuitBreaker(_) => "circuit_open",
            Self::WaitTimeout(_) => "wait_timeout",
            Self::RetryBudget(_) => "retry_budget",
        }
    }
}
