//! The pauses that a retry makes after 409s: as its policy draws them, and by the clock.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use conflict_retry::backoff::Backoff;
use conflict_retry::policy::RetryPolicy;
use conflict_retry::{AttemptEvent, Observer};
use tokio::time::Instant;

use crate::context::ScenarioContext;

/// The first pause. Chance lengthens it by up to a half.
const PAUSE: Duration = Duration::from_millis(20);

/// A policy that begins with that pause, and doubles it after each further conflict.
pub(super) fn policy() -> Result<RetryPolicy> {
    Ok(RetryPolicy::from_backoff(Backoff::new(5, PAUSE, 2.0, 0.5, Duration::ZERO)?)?)
}

/// The pauses of one writer.
#[derive(Default)]
pub(super) struct Pauses {
    drawn: Mutex<Vec<Duration>>,
    measured: Mutex<Vec<Duration>>,
    refused: Mutex<Option<Instant>>,
}

impl Pauses {
    /// A request is sent at `now`.
    pub(super) fn sends(&self, now: Instant) {
        if let Some(refused) = lock(&self.refused).take() {
            lock(&self.measured).push(now - refused);
        }
    }

    /// A request is answered 409 at `now`.
    pub(super) fn refused(&self, now: Instant) {
        *lock(&self.refused) = Some(now);
    }

    /// Checks that a pause followed each of `conflicts`, that it was made, and that chance had a part in it.
    pub(super) fn check(&self, ctx: &ScenarioContext, conflicts: usize) {
        let (drawn, measured) = (lock(&self.drawn).clone(), lock(&self.measured).clone());
        ctx.live_quote(&format!("pauses drawn: {drawn:?}\nby the clock: {measured:?}"));
        ctx.check(
            "a pause of 20 to 30 ms followed each 409",
            drawn.len() == conflicts && drawn.iter().all(|pause| (PAUSE..=PAUSE * 3 / 2).contains(pause)),
        );
        ctx.check(
            "by the clock none was shorter than it was drawn",
            measured.len() == drawn.len() && measured.iter().zip(&drawn).all(|(took, pause)| took >= pause),
        );
        let different: BTreeSet<Duration> = drawn.iter().copied().collect();
        ctx.check(
            "and no two are equally long, so that two losers do not meet again",
            different.len() == drawn.len(),
        );
    }
}

impl Observer for Pauses {
    fn attempt(&self, event: &AttemptEvent<'_>) {
        lock(&self.drawn).extend(event.delay);
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
