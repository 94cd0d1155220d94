//! A retry budget: a few retries among many operations help, many retries prolong an outage. First attempts are never
//! refused.

use std::sync::{Arc, Mutex};

use super::lock;

/// Retries that are always allowed at once: the default of failsafe-go's retry budget.
const MIN_CONCURRENCY: u32 = 3;
/// Retries allowed per hundred running operations: also failsafe-go's default.
const MAX_PERCENT: u8 = 20;

/// How many retries may run at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetLimits {
    min_concurrency: u32,
    max_percent: u8,
}

/// Why [`BudgetLimits`] were rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidBudget {
    /// More than 100 percent: an operation has at most one running retry, so such a share would be no limit.
    #[error("the share is {0} percent; give at most 100")]
    Percent(u8),
    /// Neither a minimum nor a share: to allow no retries, set the policy to one attempt instead.
    #[error("the budget never allows a retry; give a share or a minimum, or a retry policy of one attempt")]
    Nothing,
}

impl BudgetLimits {
    /// At most `max_percent` retries per hundred running operations, rounded down, but always `min_concurrency`.
    pub const fn new(min_concurrency: u32, max_percent: u8) -> Result<Self, InvalidBudget> {
        if max_percent > 100 {
            return Err(InvalidBudget::Percent(max_percent));
        }
        if min_concurrency == 0 && max_percent == 0 {
            return Err(InvalidBudget::Nothing);
        }
        Ok(Self { min_concurrency, max_percent })
    }

    /// How many retries may run while `operations` operations are running.
    pub fn allowed(&self, operations: u32) -> u32 {
        let share = u64::from(operations) * u64::from(self.max_percent) / 100;
        // A share of at most 100 percent fits.
        u32::try_from(share).unwrap_or(operations).max(self.min_concurrency)
    }
}

impl Default for BudgetLimits {
    /// 20 percent of the running operations, at least 3.
    fn default() -> Self {
        Self { min_concurrency: MIN_CONCURRENCY, max_percent: MAX_PERCENT }
    }
}

/// Too many retries are running. The operation should fail with its last error and be requeued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{retries} retries are under way and {operations} operations allow {allowed}; queue this one again")]
#[non_exhaustive]
pub struct BudgetExhausted {
    /// Running operations, retrying or not.
    pub operations: u32,
    /// Running retries.
    pub retries: u32,
    /// How many retries would be allowed.
    pub allowed: u32,
}

/// Counts of running operations and retries. It trusts its caller; [`RetryBudget`] keeps the counts correct.
///
/// The limit is checked at every grant. When operations end while others retry, more retries may be running than a new
/// one would be allowed: none is aborted, and none is granted until enough have ended.
#[derive(Debug, Clone, Default)]
pub struct BudgetAccount {
    limits: BudgetLimits,
    operations: u32,
    retries: u32,
}

impl BudgetAccount {
    /// An account without running operations.
    pub const fn new(limits: BudgetLimits) -> Self {
        Self { limits, operations: 0, retries: 0 }
    }

    /// Records the start of an operation.
    pub fn begin(&mut self) {
        self.operations = self.operations.saturating_add(1);
    }

    /// Records the end of an operation.
    pub fn end(&mut self) {
        self.operations = self.operations.saturating_sub(1);
    }

    /// Records the start of a retry, or refuses it.
    pub fn begin_retry(&mut self) -> Result<(), BudgetExhausted> {
        let (operations, retries) = (self.operations, self.retries);
        let allowed = self.limits.allowed(operations);
        if retries >= allowed {
            return Err(BudgetExhausted { operations, retries, allowed });
        }
        self.retries = retries.saturating_add(1);
        Ok(())
    }

    /// Records the end of a retry.
    pub fn end_retry(&mut self) {
        self.retries = self.retries.saturating_sub(1);
    }

    /// Running operations.
    pub const fn operations(&self) -> u32 {
        self.operations
    }

    /// Running retries.
    pub const fn retries(&self) -> u32 {
        self.retries
    }
}

/// The retry budget of a process. Cheap to clone; clones share the counts.
#[derive(Debug, Clone, Default)]
pub struct RetryBudget {
    account: Arc<Mutex<BudgetAccount>>,
}

impl RetryBudget {
    /// A budget without running operations.
    pub fn new(limits: BudgetLimits) -> Self {
        Self { account: Arc::new(Mutex::new(BudgetAccount::new(limits))) }
    }

    /// Counts an operation while the returned value lives. It is never refused.
    #[must_use = "the operation counts only for as long as this lives"]
    pub fn operation(&self) -> BudgetedOperation {
        lock(&self.account).begin();
        BudgetedOperation { account: Arc::clone(&self.account) }
    }

    /// The current counts, for gauges.
    pub fn counts(&self) -> BudgetAccount {
        lock(&self.account).clone()
    }
}

/// A running operation; it ends when this is dropped.
#[derive(Debug)]
pub struct BudgetedOperation {
    account: Arc<Mutex<BudgetAccount>>,
}

impl BudgetedOperation {
    /// Counts a retry of this operation while the returned value lives, or refuses it.
    pub fn retry(&self) -> Result<BudgetedRetry, BudgetExhausted> {
        lock(&self.account).begin_retry()?;
        Ok(BudgetedRetry { account: Arc::clone(&self.account) })
    }
}

impl Drop for BudgetedOperation {
    fn drop(&mut self) {
        lock(&self.account).end();
    }
}

/// A running retry; it ends when this is dropped.
#[derive(Debug)]
#[must_use = "the retry counts only for as long as this lives"]
pub struct BudgetedRetry {
    account: Arc<Mutex<BudgetAccount>>,
}

impl Drop for BudgetedRetry {
    fn drop(&mut self) {
        lock(&self.account).end_retry();
    }
}

#[cfg(test)]
#[path = "budget_tests.rs"]
mod tests;
