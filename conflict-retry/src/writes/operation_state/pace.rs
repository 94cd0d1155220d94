//! How the requests of an operation pass the rate limiter. A wait between a read and the write that follows would make the
//! copy old, and turn the limiter into a source of conflicts. So the wait comes before the read, and a copy that was there
//! before the wait is replaced after it.

use super::OperationState;
use crate::operation::Verb;
use crate::outcome::WriteError;

/// What the next request owes the rate limiter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Pace {
    /// It waits for a token.
    #[default]
    Waits,
    /// It has a token already.
    Paid,
    /// If it is a write, it is sent at once, and the bucket goes into debt by a token: later requests wait longer. There is
    /// at most one such token for each running operation.
    AfterRead,
}

impl OperationState<'_> {
    /// Passes the limiter, if there is one: a read waits for its token, and the write after it does not.
    pub(super) async fn pass_limiter(&mut self, verb: Verb) -> Result<(), WriteError> {
        let Some(limiter) = &self.options.protection().limiter else {
            return Ok(());
        };
        match std::mem::take(&mut self.pace) {
            Pace::Paid => {}
            Pace::AfterRead if verb.is_write() => limiter.charge(),
            Pace::AfterRead | Pace::Waits => self.await_token().await?,
        }
        if !verb.is_write() {
            self.pace = Pace::AfterRead;
        }
        Ok(())
    }

    /// Takes the token of a write that was decided from a copy, and returns whether that took a wait. Then
    /// the copy may be old, and the write should be decided again.
    pub(in crate::writes) async fn waited_to_write(&mut self) -> Result<bool, WriteError> {
        let Some(limiter) = &self.options.protection().limiter else {
            return Ok(false);
        };
        if self.pace != Pace::Waits {
            return Ok(false);
        }
        let waits = limiter.try_take().is_err();
        if waits {
            self.await_token().await?;
        }
        self.pace = Pace::Paid;
        Ok(waits)
    }

    /// Gives back a token that no request was sent for: after the wait there was nothing left to do.
    pub(super) fn give_back(&self) {
        if let (Pace::Paid, Some(limiter)) = (self.pace, &self.options.protection().limiter) {
            limiter.give_back();
        }
    }

    async fn await_token(&mut self) -> Result<(), WriteError> {
        if let Some(limiter) = &self.options.protection().limiter {
            let queued = self.queued;
            self.await_permission(limiter.acquire()).await?;
            self.attempts.throttled(self.queued.saturating_sub(queued));
        }
        Ok(())
    }
}
