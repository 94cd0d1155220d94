//! A retry budget: few retries among many operations help, many make an outage longer. First attempts are never refused.

use std::sync::{Arc, Mutex};

use super::lock;

/// Retries that are always allowed at once: what failsafe-go's retry budget starts with.
const MIN_CONCURRENCY: u32 = 3;
/// Retries allowed per hundred operations under way: likewise.
const MAX_PERCENT: u8 = 20;

/// How many retries may be under way at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetLimits {
    min_concurrency: u32,
    max_percent: u8,
}

/// Why [`BudgetLimits`] were refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidBudget {
    /// An operation has at most one retry under way, so that more than all is no limit.
    #[error("the share is {0} percent; give at most 100")]
    Percent(u8),
    /// Neither a floor nor a share: whoever wants no retry sets the policy to one attempt.
    #[error("the budget never allows a retry; give a share or a minimum, or a retry policy of one attempt")]
    Nothing,
}

impl BudgetLimits {
    /// At most `max_percent` retries per hundred operations under way, rounded down, but always `min_concurrency`.
    pub const fn new(min_concurrency: u32, max_percent: u8) -> Result<Self, InvalidBudget> {
        if max_percent > 100 {
            return Err(InvalidBudget::Percent(max_percent));
        }
        if min_concurrency == 0 && max_percent == 0 {
            return Err(InvalidBudget::Nothing);
        }
        Ok(Self { min_concurrency, max_percent })
    }

    /// How many retries may be under way with that many operations.
    pub fn allowed(&self, operations: u32) -> u32 {
        let share = u64::from(operations) * u64::from(self.max_percent) / 100;
        // A share of at most all fits.
        u32::try_from(share).unwrap_or(operations).max(self.min_concurrency)
    }
}

impl Default for BudgetLimits {
    /// A fifth of the operations under way, at least 3.
    fn default() -> Self {
        Self { min_concurrency: MIN_CONCURRENCY, max_percent: MAX_PERCENT }
    }
}

/// There are too many retries already. The operation should fail with what it has, and be queued again later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{retries} retries are under way and {operations} operations allow {allowed}; queue this one again")]
#[non_exhaustive]
pub struct BudgetExhausted {
    /// Operations under way, retrying or not.
    pub operations: u32,
    /// Retries under way.
    pub retries: u32,
    /// How many would be allowed.
    pub allowed: u32,
}

/// What is under way. Pure counts; [`RetryBudget`] keeps them honest.
///
/// The bound is held at every grant. When operations end while others retry, retries may outnumber what a new one would
/// be allowed: none is cut off, and none is granted until enough have ended.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    limits: BudgetLimits,
    operations: u32,
    retries: u32,
}

impl Ledger {
    /// Nothing under way.
    pub const fn new(limits: BudgetLimits) -> Self {
        Self { limits, operations: 0, retries: 0 }
    }

    /// An operation begins.
    pub fn begin(&mut self) {
        self.operations = self.operations.saturating_add(1);
    }

    /// An operation ends.
    pub fn end(&mut self) {
        self.operations = self.operations.saturating_sub(1);
    }

    /// A retry begins, if it may.
    pub fn begin_retry(&mut self) -> Result<(), BudgetExhausted> {
        let (operations, retries) = (self.operations, self.retries);
        let allowed = self.limits.allowed(operations);
        if retries >= allowed {
            return Err(BudgetExhausted { operations, retries, allowed });
        }
        self.retries = retries.saturating_add(1);
        Ok(())
    }

    /// A retry ends.
    pub fn end_retry(&mut self) {
        self.retries = self.retries.saturating_sub(1);
    }

    /// Operations under way.
    pub const fn operations(&self) -> u32 {
        self.operations
    }

    /// Retries under way.
    pub const fn retries(&self) -> u32 {
        self.retries
    }
}

/// The retry budget of a process. Cheap to clone; clones share the counts.
#[derive(Debug, Clone, Default)]
pub struct RetryBudget {
    ledger: Arc<Mutex<Ledger>>,
}

impl RetryBudget {
    /// A budget with nothing under way.
    pub fn new(limits: BudgetLimits) -> Self {
        Self { ledger: Arc::new(Mutex::new(Ledger::new(limits))) }
    }

    /// Counts an operation for as long as the answer lives. It is never refused.
    #[must_use = "the operation counts only for as long as this lives"]
    pub fn operation(&self) -> Operation {
        lock(&self.ledger).begin();
        Operation { ledger: Arc::clone(&self.ledger) }
    }

    /// The counts of this moment, for gauges.
    pub fn counts(&self) -> Ledger {
        lock(&self.ledger).clone()
    }
}

/// An operation under way; it ends when this is dropped.
#[derive(Debug)]
pub struct Operation {
    ledger: Arc<Mutex<Ledger>>,
}

impl Operation {
    /// Counts a retry of this operation for as long as the answer lives, or refuses it.
    pub fn retry(&self) -> Result<Retry, BudgetExhausted> {
        lock(&self.ledger).begin_retry()?;
        Ok(Retry { ledger: Arc::clone(&self.ledger) })
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        lock(&self.ledger).end();
    }
}

/// A retry under way; it ends when this is dropped.
#[derive(Debug)]
#[must_use = "the retry counts only for as long as this lives"]
pub struct Retry {
    ledger: Arc<Mutex<Ledger>>,
}

impl Drop for Retry {
    fn drop(&mut self) {
        lock(&self.ledger).end_retry();
    }
}

#[cfg(test)]
#[path = "budget_tests.rs"]
mod tests;
