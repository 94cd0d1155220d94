//! The protections that an operation passes: its turn for the object, the budget of retries, the rate limiter, the circuit
//! breaker.

use tokio::time::Instant;

use super::OperationState;
use crate::classify::Class;
use crate::outcome::WriteError;
use crate::protect::{
    BudgetedOperation, BudgetedRetry, KeyGuard, Permit, Protection, RetryBudget, ThrottledBy,
};
use crate::writes::Writable;
use crate::writes::target::WriteTarget;

/// What an operation holds until it ends.
#[derive(Default)]
pub(super) struct Held {
    budgeted: Option<BudgetedOperation>,
    retry: Option<BudgetedRetry>,
    turn: Option<KeyGuard<String>>,
}

impl Held {
    /// Gives back the place of a retry that has ended.
    pub(super) fn end_retry(&mut self) {
        self.retry = None;
    }
}

impl OperationState<'_> {
    /// Waits for its turn to write `target`, if there is a queue, and joins what the budget counts.
    pub(super) async fn enter<K: Writable>(&mut self, target: WriteTarget<'_, K>) -> Result<(), WriteError> {
        let Protection { queue, budget, .. } = self.options.protection();
        // An object whose name the server generates has no key to queue by.
        if let Some(queue) = queue
            && target.is_named()
        {
            self.held.turn = Some(self.await_permission(queue.lock(target.key())).await?);
        }
        self.held.budgeted = budget.as_ref().map(RetryBudget::operation);
        Ok(())
    }

    pub(super) fn begin_retry(&mut self) -> Result<(), WriteError> {
        self.held.retry = match self.held.budgeted.as_ref().map(BudgetedOperation::retry).transpose() {
            Ok(retry) => retry,
            Err(exhausted) => return Err(self.throttled(exhausted.into())),
        };
        Ok(())
    }

    /// Waits for permission to send, until cancelled or past the deadline.
    pub(super) async fn await_permission<T>(
        &mut self,
        permission: impl Future<Output = T>,
    ) -> Result<T, WriteError> {
        let deadline = self.options.policy().deadline();
        let began = Instant::now();
        let waited = match deadline {
            None => self.until_cancelled(permission).await.map(Ok),
            Some(deadline) => {
                let left = deadline.saturating_sub(self.start.elapsed());
                self.until_cancelled(tokio::time::timeout(left, permission)).await
            }
        };
        self.queued = self.queued.saturating_add(began.elapsed());
        match (waited, deadline) {
            (Some(Ok(granted)), _) => Ok(granted),
            (Some(Err(_elapsed)), Some(deadline)) => Err(self.throttled(ThrottledBy::WaitTimeout(deadline))),
            _ => Err(self.cancelled()),
        }
    }

    pub(super) fn record_result(&self, permit: Option<Permit>, answer: Option<&Class>) {
        self.circuit(permit.and_then(|permit| permit.record(answer)));
    }
}
