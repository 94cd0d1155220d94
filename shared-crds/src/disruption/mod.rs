//! The one account for all voluntary work on a pool's nodes: how many more may be disrupted now, for which reason, and what
//! says so if none may. Both operators ask it. Pure: what is being disrupted and the time are arguments.
//!
//! - Every node that is being disrupted counts once, for its reason, in each budget that is for this reason; one whose reason is not
//!   known counts once in every budget. A node that is gone or given back counts no more. The account is made anew in every pass.
//! - Percentages are of the nodes that are there, and of the nodes wanted while fewer are there: see [`BudgetBase`].
//! - Of the active Limits, the least holds. Without a schedule a Limit is always active.
//! - If any `AllowOnly` budget is for a reason, nodes are disrupted for it only while a window of such a budget is open. Any
//!   open one that is not used up allows the next node: windows add up.
//! - A reason that no budget is for is not bounded here; the operators' own bounds hold all the same.
//! - What must not wait for ever is asked for with [`Account::take_urgent`]: it waits for no window, and no budget lets fewer than
//!   one such node go at a time.
//! - A Limit that cannot be followed holds its reasons, and an `AllowOnly` that cannot be followed opens no window: neither
//!   disrupts anything by mistake. [`Account::problems`] says which they are.
//!
//! Deleting a pool or a Node is the user's own decision: it is not asked for here. A pool that is deleted has a pace of its own.
//!
//! ```
//! use shared_crds::disruption::Account;
//! use shared_crds::v1alpha1::{DisruptionBudget, DisruptionReason::{Repair, Rollout}};
//!
//! let budgets: Vec<DisruptionBudget> = serde_json::from_str(r#"[{ "nodes": "20%", "reasons": ["Repair", "Rollout"] }]"#)?;
//! let mut account = Account::new(&budgets, 10, [Repair], "2026-03-28T12:00:00Z".parse()?);
//! assert!(account.take(Rollout).is_ok());
//! assert_eq!(
//!     account.take(Rollout).unwrap_err().to_string(),
//!     "spec.disruption.budgets[0] allows 2 nodes at a time (20% of 10) for Rollout and Repair, and 2 are being disrupted"
//! );
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

mod budget_base;
mod contradiction;
mod entry;
mod words;

use k8s_openapi::jiff::Timestamp;

pub use self::budget_base::BudgetBase;
use self::entry::{Entry, Terms};
pub use self::words::{BudgetProblem, BudgetRefusal};
use crate::v1alpha1::{DisruptionBudget, DisruptionEffect, DisruptionReason};

/// What the budgets of a pool allow at some time, and what is taken of it.
#[derive(Clone, Debug)]
pub struct Account {
    entries: Vec<Entry>,
    now: Timestamp,
}

impl Account {
    /// Opens the account of a pool at `now`. `pool_size` is the number of nodes that percentages are of, as
    /// [`BudgetBase::nodes`] says; `disrupted` has the reason of each node that is being disrupted already.
    pub fn new(
        budgets: &[DisruptionBudget],
        pool_size: usize,
        disrupted: impl IntoIterator<Item = DisruptionReason>,
        now: Timestamp,
    ) -> Self {
        let read = |(index, budget)| Entry::read(index, budget, pool_size, now);
        let mut account = Self { entries: budgets.iter().enumerate().map(read).collect(), now };
        disrupted.into_iter().for_each(|reason| account.charge(reason, 1));
        account
    }

    /// The account when `nodes` more nodes are being disrupted for `reason`, whatever the budgets allow.
    #[must_use]
    pub fn with(mut self, reason: DisruptionReason, nodes: usize) -> Self {
        self.charge(reason, nodes);
        self
    }

    /// The account when it is not known why `nodes` of those are disrupted that are charged for `counted_as`: they are charged to the
    /// budgets that are not for this reason, too, so that each counts once in every budget.
    #[must_use]
    pub fn with_unknown(mut self, counted_as: DisruptionReason, nodes: usize) -> Self {
        let others = self.entries.iter_mut().filter(|entry| !entry.concerns(counted_as));
        others.for_each(|entry| entry.used += nodes);
        self
    }

    /// How many more nodes may be disrupted for `reason`; `usize::MAX` if no budget bounds that now. So many calls of
    /// [`take`](Self::take) for the reason succeed.
    pub fn room(&self, reason: DisruptionReason) -> usize {
        let limits = self.limits(reason).filter_map(Entry::left).min();
        let windows = self.allow_only(reason).map(|entry| entry.left().unwrap_or(0)).max();
        limits.into_iter().chain(windows).min().unwrap_or(usize::MAX)
    }

    /// Takes one node for `reason` out of the account.
    ///
    /// # Errors
    ///
    /// The budget that allows none; nothing is taken.
    pub fn take(&mut self, reason: DisruptionReason) -> Result<(), BudgetRefusal> {
        if let Some(refusal) = self.refusal(reason) {
            return Err(refusal);
        }
        self.charge(reason, 1);
        Ok(())
    }

    /// What allows no more nodes for `reason`; `None` if there is [`room`](Self::room). Of several budgets, the one that holds
    /// for longest as far as is known: first what a person has to change, then windows, then what is used up.
    pub fn refusal(&self, reason: DisruptionReason) -> Option<BudgetRefusal> {
        if self.room(reason) > 0 {
            return None;
        }
        let terms = |entry| Entry::terms(entry).map(|terms| (entry, terms));
        let limits: Vec<(&Entry, &Terms)> = self.limits(reason).filter_map(terms).collect();
        let windows: Vec<(&Entry, &Terms)> = self.allow_only(reason).filter_map(terms).collect();
        let forbidding = || limits.iter().filter(|(_, terms)| terms.nodes == 0);

        let unreadable = || self.limits(reason).find_map(Entry::unreadable).map(BudgetRefusal::from);
        let always = || forbidding().find(|(_, terms)| terms.windows.is_none());
        let no_windows = || {
            let unreadable = self.allow_only(reason).find_map(Entry::unreadable).map(BudgetRefusal::from);
            unreadable.filter(|_| windows.is_empty())
        };
        let closed = || {
            let is_closed = !windows.is_empty() && windows.iter().all(|(_, terms)| !terms.is_active());
            is_closed.then(|| BudgetRefusal::Closed {
                budgets: windows.iter().map(|(entry, _)| entry.index).collect(),
                reason,
                begins: windows.iter().filter_map(|(_, terms)| terms.begins.clone()).min(),
            })
        };
        let now = || forbidding().find(|(_, terms)| terms.is_active());
        let used_up = || {
            let active = limits.iter().filter(|(entry, _)| entry.left() == Some(0));
            let least = active.min_by_key(|(_, terms)| terms.nodes);
            least.or_else(|| {
                windows.iter().filter(|(_, terms)| terms.is_active()).max_by_key(|(_, t)| t.nodes)
            })
        };

        unreadable()
            .or_else(|| always().map(|(entry, terms)| entry.forbids(terms)))
            .or_else(no_windows)
            .or_else(closed)
            .or_else(|| now().map(|(entry, terms)| entry.forbids(terms)))
            .or_else(|| used_up().map(|(entry, terms)| entry.is_used_up(terms)))
    }

    /// [`take`](Self::take) for a node that must not wait for ever.
    ///
    /// # Errors
    ///
    /// What [`urgent_refusal`](Self::urgent_refusal) says; nothing is taken.
    pub fn take_urgent(&mut self, reason: DisruptionReason) -> Result<(), BudgetRefusal> {
        if let Some(refusal) = self.urgent_refusal(reason) {
            return Err(refusal);
        }
        self.charge(reason, 1);
        Ok(())
    }

    /// What lets no node go now that must not wait for ever: a Limit that holds at all times, and for whose reasons as many nodes are
    /// disrupted as it allows, or one where it allows none or cannot be followed. Windows of either effect have no say. Such a
    /// refusal ends when a drain does.
    pub fn urgent_refusal(&self, reason: DisruptionReason) -> Option<BudgetRefusal> {
        let always = self.limits(reason).filter_map(|entry| Some((entry.always()?, entry)));
        let used_up = always.filter(|(nodes, entry)| entry.used >= *nodes);
        let (_, entry) = used_up.min_by_key(|(nodes, _)| *nodes)?;
        let unreadable = entry.unreadable().map(BudgetRefusal::from);
        unreadable.or_else(|| {
            let terms = entry.terms()?;
            Some(if terms.nodes == 0 { entry.forbids(terms) } else { entry.is_used_up(terms) })
        })
    }

    /// When a window of any budget begins or ends next: until then, and while as many nodes are disrupted, every answer stays
    /// the same. `None` if no budget has windows.
    pub fn next(&self) -> Option<Timestamp> {
        self.entries.iter().filter_map(Entry::terms).filter_map(|terms| terms.next).min()
    }

    /// What a person should change: budgets that cannot be followed, and budgets that together never allow what they speak
    /// of. At most one for each budget and one for each reason. A Limit of 0 nodes at all times is not among them: it says
    /// what it does.
    pub fn problems(&self) -> Vec<BudgetProblem> {
        let unreadable = self.entries.iter().filter_map(Entry::unreadable);
        unreadable.chain(contradiction::contradictions(self)).collect()
    }

    fn charge(&mut self, reason: DisruptionReason, nodes: usize) {
        self.entries.iter_mut().filter(|entry| entry.concerns(reason)).for_each(|entry| entry.used += nodes);
    }

    fn of(&self, effect: DisruptionEffect, reason: DisruptionReason) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.effect == effect && entry.concerns(reason))
    }

    fn limits(&self, reason: DisruptionReason) -> impl Iterator<Item = &Entry> {
        self.of(DisruptionEffect::Limit, reason)
    }

    fn allow_only(&self, reason: DisruptionReason) -> impl Iterator<Item = &Entry> {
        self.of(DisruptionEffect::AllowOnly, reason)
    }
}

#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod tests;
