//! Calls that are not made because the provider is left alone, and what an answer means for the calls of other pools.

use k8s_openapi::jiff::Timestamp;
use node_lifecycle::keys::PoolKey;
use tokio::time::Instant;

use super::Provisioner;
use crate::ProviderError;
use crate::pauses::{AskedFor, PausedCall};
use crate::selected::Selected;

impl Provisioner {
    /// Why the provider is not called at `now`, and when to look again; `None` where it may be. One in this process is never left
    /// alone.
    pub(super) fn paused(
        &self,
        provider: Selected<'_>,
        asked: AskedFor,
        now: Timestamp,
    ) -> Option<PausedCall> {
        if provider.is_local() { None } else { self.pauses.check(provider.identity(), asked, now) }
    }

    /// Fails where a change is not to be asked for at `now`: then nothing was. The pool's requests wait as long as the provider asks,
    /// whichever pool it said that to.
    pub(super) fn may_ask_for_change(
        &self,
        key: &PoolKey,
        provider: Selected<'_>,
        now: Timestamp,
    ) -> Result<(), ProviderError> {
        let Some(paused) = self.paused(provider, AskedFor::Change, now) else { return Ok(()) };
        if paused.error.retry_after().is_some() {
            self.failures.not_before(key, paused.until);
        }
        Err(paused.into_error(now))
    }

    /// Records the answer to a change that was asked for at `now`, at the time `begun`, for this pool and for the others.
    pub(super) fn change_answered<T>(
        &self,
        key: &PoolKey,
        provider: Selected<'_>,
        answer: &Result<T, ProviderError>,
        now: Timestamp,
        begun: Instant,
    ) {
        let error = answer.as_ref().err();
        if let Some(after) = error.and_then(ProviderError::retry_after) {
            self.failures.not_before(key, now.checked_add(after).unwrap_or(now));
        }
        // A call that was not answered took long, and the pause comes after it.
        let ended = now.checked_add(begun.elapsed()).unwrap_or(now);
        self.pauses.answered(provider.identity(), AskedFor::Change, key, error, ended);
    }
}
