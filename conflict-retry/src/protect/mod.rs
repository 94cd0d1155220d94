//! What keeps a writer from making a bad hour worse: a rate limit, a circuit breaker, a retry budget, and one queue per
//! object.
//!
//! Each exists twice: as a core that is told the time and does no I/O ([`TokenBucket`], [`Breaker`], [`Ledger`]), and as a
//! handle around it that is cheap to clone and to be shared by every task of a process ([`RateLimiter`],
//! [`CircuitBreaker`], [`RetryBudget`]; [`KeyQueue`] needs no time, so it is a handle only). Everything held is given back
//! by dropping it, so that a cancelled caller leaves nothing behind.
//!
//! Give a [`Protection`] to the options of the front door's writes and they pass what is in it. The order matters; whoever
//! passes them by hand keeps to it:
//!
//! 1. [`KeyQueue::lock`], for the whole operation: workers of one process do not fight each other over an object;
//! 2. [`RetryBudget::operation`], for the whole operation, and before each attempt but the first [`Operation::retry`], held
//!    while that attempt runs (not while it waits to begin);
//! 3. [`RateLimiter::take`], before each request;
//! 4. [`CircuitBreaker::admit`] last, right before the request: a place as the only probe must not be spent on waiting.
//!
//! ```
//! use conflict_retry::protect::{CircuitBreaker, KeyQueue, RateLimiter, RetryBudget};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (queue, budget) = (KeyQueue::default(), RetryBudget::default());
//! let (limiter, breaker) = (RateLimiter::default(), CircuitBreaker::default());
//!
//! let _turn = queue.lock("default/workers").await;
//! let _operation = budget.operation();
//! limiter.acquire().await;
//! let permit = breaker.admit()?;
//! // … send the request; `None` stands for an answer without an error …
//! permit.settle(None);
//! # Ok(()) }
//! ```
//!
//! [`workqueue`] is client-go's arithmetic for the pace of *requeues*, for comparison and for work queues.

mod breaker;
mod budget;
mod circuit;
mod limiter;
mod queue;
mod set;
pub mod workqueue;

pub use breaker::{
    Breaker, BreakerSettings, BreakerState, CircuitOpen, InvalidBreaker, Ticket, Transition,
    counts_as_failure,
};
pub use budget::{BudgetExhausted, BudgetLimits, InvalidBudget, Ledger, Operation, Retry, RetryBudget};
pub use circuit::{CircuitBreaker, Permit};
pub use limiter::{InvalidRate, Rate, RateLimiter, TokenBucket};
pub use queue::{KeyQueue, Turn};
pub use set::{Held, Protection};

/// The caller's token was cancelled while it waited. Nothing was sent, and nothing is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cancelled while waiting; nothing was sent")]
pub struct Cancelled;

/// Locks a mutex whose holders never panic; should one do so all the same, its counts are still whole, because each is
/// changed by one assignment.
fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
