//! One budget as it stands at some time: how many nodes it allows, whether its window is open, and what is taken of it.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use k8s_openapi::jiff::{Timestamp, Zoned};

use super::words::{BudgetProblem, BudgetRefusal};
use crate::schedule::RecurringWindows;
use crate::v1alpha1::{DisruptionBudget, DisruptionEffect, DisruptionReason};

/// How many windows are looked at for the end of windows that follow each other without a gap.
const MOST_WINDOWS: usize = 100;

/// A budget at some time.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Its place in `spec.disruption.budgets`.
    pub(super) index: usize,
    /// What it is for, in the order of [`DisruptionReason::ALL`].
    pub(super) reasons: Vec<DisruptionReason>,
    pub(super) effect: DisruptionEffect,
    /// Nodes that are being disrupted for its reasons.
    pub(super) used: usize,
    /// Or why it cannot be followed.
    terms: Result<Terms, String>,
}

/// What a budget that can be followed says.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    /// How many nodes it allows at a time.
    pub(super) nodes: usize,
    /// What that is a percentage of, such as `10% of 8`.
    pub(super) share: Option<String>,
    /// `None` if it holds at all times.
    pub(super) windows: Option<RecurringWindows>,
    /// When it ends; for windows without a gap between them, the last one looked at. `None` while no window is open.
    pub(super) until: Option<Zoned>,
    /// When the next window begins.
    pub(super) begins: Option<Zoned>,
    /// When a window begins or ends next.
    pub(super) next: Option<Timestamp>,
}

impl Terms {
    /// Whether it holds now: always, or because a window is open.
    pub(super) fn is_active(&self) -> bool {
        self.windows.is_none() || self.until.is_some()
    }
}

impl Entry {
    /// Reads a budget of a pool in which percentages are of `pool_size` nodes.
    pub(super) fn read(index: usize, budget: &DisruptionBudget, pool_size: usize, now: Timestamp) -> Self {
        let reasons = DisruptionReason::ALL.into_iter().filter(|reason| budget.concerns(*reason)).collect();
        Self { index, reasons, effect: budget.effect, used: 0, terms: terms(budget, pool_size, now) }
    }

    pub(super) fn concerns(&self, reason: DisruptionReason) -> bool {
        self.reasons.contains(&reason)
    }

    pub(super) fn terms(&self) -> Option<&Terms> {
        self.terms.as_ref().ok()
    }

    /// Why it cannot be followed.
    pub(super) fn unreadable(&self) -> Option<BudgetProblem> {
        let why = self.terms.as_ref().err()?.clone();
        let Self { index, reasons, effect, .. } = self;
        Some(BudgetProblem::Unreadable { budget: *index, effect: *effect, reasons: reasons.clone(), why })
    }

    /// What it says as a Limit of 0 nodes.
    pub(super) fn forbids(&self, terms: &Terms) -> BudgetRefusal {
        BudgetRefusal::Forbidden {
            budget: self.index,
            reasons: self.reasons.clone(),
            until: terms.until.clone(),
        }
    }

    /// What it says when as many nodes are disrupted as it allows.
    pub(super) fn is_used_up(&self, terms: &Terms) -> BudgetRefusal {
        BudgetRefusal::UsedUp {
            budget: self.index,
            nodes: terms.nodes,
            share: terms.share.clone(),
            reasons: self.reasons.clone(),
            disrupted: self.used,
        }
    }

    /// How many nodes it lets go at all times, one at least; `None` where it holds in windows only. One that cannot be followed may be
    /// meant to hold always.
    pub(super) fn always(&self) -> Option<usize> {
        match &self.terms {
            Err(_) => Some(1),
            Ok(terms) => terms.windows.is_none().then(|| terms.nodes.max(1)),
        }
    }

    /// How many more nodes it allows now; `None` while it has no say.
    pub(super) fn left(&self) -> Option<usize> {
        match &self.terms {
            Err(_) => Some(0),
            Ok(terms) => terms.is_active().then(|| terms.nodes.saturating_sub(self.used)),
        }
    }
}

fn terms(budget: &DisruptionBudget, pool_size: usize, now: Timestamp) -> Result<Terms, String> {
    let nodes = budget.nodes_of(pool_size).ok_or_else(|| {
        let written = match &budget.nodes {
            IntOrString::Int(count) => count.to_string(),
            IntOrString::String(text) => format!("{text:?}"),
        };
        format!("nodes is {written}; write a number from 0 on, or a percentage from 0% to 100%")
    })?;
    let share = match &budget.nodes {
        IntOrString::Int(_) => None,
        IntOrString::String(percentage) => Some(format!("{percentage} of {pool_size}")),
    };
    let zone = budget.time_zone.as_deref();
    let windows = match (&budget.schedule, budget.duration_seconds) {
        (Some(schedule), Some(seconds)) => {
            let windows = RecurringWindows::parse(schedule, zone, seconds);
            Some(windows.map_err(|problem| problem.to_string())?.around(now))
        }
        (None, None) if zone.is_none() => None,
        _ => return Err("schedule and durationSeconds belong together, and timeZone to them".to_owned()),
    };
    if budget.effect == DisruptionEffect::AllowOnly {
        if windows.is_none() {
            return Err("AllowOnly needs windows: set schedule and durationSeconds".to_owned());
        }
        if nodes == 0 {
            return Err("AllowOnly with 0 nodes allows none in its windows either: raise nodes".to_owned());
        }
    }
    let Some(windows) = windows else {
        return Ok(Terms { nodes, share, windows: None, until: None, begins: None, next: None });
    };
    let local = |time: Timestamp| windows.local(time);
    let begins = windows.next_beginning(now);
    let next = windows.active(now).map(|window| window.ends).into_iter().chain(begins).min();
    let until = end(&windows, now).map(local);
    let begins = begins.map(local);
    Ok(Terms { nodes, share, until, begins, next, windows: Some(windows) })
}

/// The end of the window at `now` and of those that follow it without a gap.
fn end(windows: &RecurringWindows, now: Timestamp) -> Option<Timestamp> {
    let first = windows.active(now)?.ends;
    let following = |end: &Timestamp| windows.active(*end).map(|window| window.ends);
    std::iter::successors(Some(first), following).take(MOST_WINDOWS).last()
}
