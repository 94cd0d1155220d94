//! Protections that keep a writer from overloading a struggling API server: one queue per object, a retry budget, a rate
//! limit (feature `rate-limiter`) and a circuit breaker (feature `circuit-breaker`).
//!
//! Each exists twice: as a core that gets the time as an argument and does no I/O ([`BudgetAccount`], `TokenBucket`,
//! `Breaker`), and as a handle around it that is cheap to clone and shared by all tasks of a process ([`RetryBudget`],
//! `RateLimiter`, `CircuitBreaker`; [`KeyQueue`] needs no time, so it is a handle only). Everything that is held is
//! released on drop, so a cancelled caller leaves nothing behind.
//!
//! Set a [`Protection`] in the options of the write functions, and each write passes it. The order matters; callers
//! that use the protections directly must keep to it:
//!
//! 1. [`KeyQueue::lock`], for the whole operation: workers of one process do not compete for an object;
//! 2. [`RetryBudget::operation`], for the whole operation, and before each attempt but the first
//!    [`BudgetedOperation::retry`], held while that attempt runs (not while it waits to begin);
//! 3. `RateLimiter::take`, before each request;
//! 4. `CircuitBreaker::admit` last, right before the request: the only probe must not spend its time waiting.
//!
//! ```
//! use conflict_retry::protect::{KeyQueue, RetryBudget};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let (queue, budget) = (KeyQueue::default(), RetryBudget::default());
//!
//! let _turn = queue.lock("default/workers").await;
//! let _operation = budget.operation();
//! // … send the request …
//! # }
//! ```
//!
//! `workqueue` (feature `workqueue`) is client-go's arithmetic for the pace of *requeues*, for comparison and for work
//! queues.

#[cfg(feature = "circuit-breaker")]
mod breaker;
mod budget;
#[cfg(feature = "circuit-breaker")]
mod circuit;
#[cfg(not(feature = "circuit-breaker"))]
mod circuit_off;
#[cfg(feature = "rate-limiter")]
mod limiter;
#[cfg(not(feature = "rate-limiter"))]
mod limiter_off;
mod queue;
mod set;
mod throttled_by;
#[cfg(feature = "workqueue")]
pub mod workqueue;

#[cfg(feature = "circuit-breaker")]
pub use breaker::{
    Breaker, BreakerSettings, BreakerState, CircuitOpen, InvalidBreaker, Ticket, Transition,
    counts_as_failure,
};
pub use budget::{
    BudgetAccount, BudgetExhausted, BudgetLimits, BudgetedOperation, BudgetedRetry, InvalidBudget,
    RetryBudget,
};
#[cfg(feature = "circuit-breaker")]
pub use circuit::{CircuitBreaker, Permit};
#[cfg(not(feature = "circuit-breaker"))]
pub(crate) use circuit_off::{CircuitBreaker, Permit, Transition};
#[cfg(feature = "rate-limiter")]
pub use limiter::{InvalidRate, Rate, RateLimiter, TokenBucket};
#[cfg(not(feature = "rate-limiter"))]
pub(crate) use limiter_off::RateLimiter;
pub use queue::{KeyGuard, KeyQueue};
pub use set::Protection;
pub use throttled_by::ThrottledBy;

/// The caller's token was cancelled while it waited. Nothing was sent, and nothing is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cancelled while waiting; nothing was sent")]
pub struct Cancelled;

/// Locks a mutex whose holders never panic. If one does, its counts are still consistent, because each is changed by
/// one assignment.
fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
