//! Loops around a write: attempts, pauses, retried errors, and protection against overload.

mod attempt_log;
mod circuit_breaker;
mod client_go;
mod contest;
mod custom_backoff;
mod default_retry;
mod excerpt;
mod hand_rolled;
mod knobs;
mod logged;
mod metrics;
mod mistakes;
mod naive_breaker;
mod naive_loop;
mod race;
mod rate_limiter;
mod schedule;
mod scrape;
mod transient;
mod unreachable;
mod whole_sync;

use crate::scenario::Scenario;

/// From the loop without a pause to the mistakes that remain.
pub(super) fn all() -> Vec<Scenario> {
    vec![
        naive_loop::SCENARIO,
        hand_rolled::SCENARIO,
        default_retry::SCENARIO,
        custom_backoff::SCENARIO,
        transient::SCENARIO,
        whole_sync::SCENARIO,
        rate_limiter::SCENARIO,
        circuit_breaker::SCENARIO,
        metrics::SCENARIO,
        mistakes::SCENARIO,
    ]
}
