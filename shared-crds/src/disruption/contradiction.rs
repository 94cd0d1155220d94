//! Budgets that together never allow what they speak of: windows that lie where other budgets forbid, and windows that
//! forbid at all times between them.

use std::collections::BTreeMap;

use k8s_openapi::jiff::{SignedDuration, Timestamp, Zoned};

use super::Account;
use super::entry::{Entry, Terms};
use super::words::BudgetProblem;
use crate::schedule::RecurringWindows;
use crate::v1alpha1::DisruptionReason;

/// How many beginnings and ends of windows are looked at: those of a hundred nights.
const MOST_CHANGES: i32 = 200;
/// How far ahead is looked, for windows that are years apart: past a leap day.
const FARTHEST: SignedDuration = SignedDuration::from_hours(5 * 366 * 24);
/// What lasts no longer is no contradiction: many short windows without a gap, in a week with other days.
const SHORTEST: SignedDuration = SignedDuration::from_hours(8 * 24);

/// The contradictions of an account, each with all its reasons.
pub(super) fn contradictions(account: &Account) -> impl Iterator<Item = BudgetProblem> {
    let mut found: BTreeMap<Vec<usize>, (Vec<DisruptionReason>, Option<Zoned>)> = BTreeMap::new();
    // Reasons that the same budgets are for have the same answer, and mostly they all are.
    let mut searched: BTreeMap<Vec<usize>, Option<(Vec<usize>, Option<Zoned>)>> = BTreeMap::new();
    for reason in DisruptionReason::ALL {
        let concerned = account.entries.iter().filter(|entry| entry.concerns(reason));
        let concerned = concerned.map(|entry| entry.index).collect();
        let answer = searched.entry(concerned).or_insert_with(|| contradiction(account, reason));
        if let Some((budgets, until)) = answer.clone() {
            found.entry(budgets).or_insert((Vec::new(), until)).0.push(reason);
        }
    }
    found.into_iter().map(|(budgets, (reasons, until))| BudgetProblem::Contradiction {
        budgets,
        reasons,
        until,
    })
}

/// The budgets that leave no moment for `reason`, and until when that is known; `None` for all time.
fn contradiction(account: &Account, reason: DisruptionReason) -> Option<(Vec<usize>, Option<Zoned>)> {
    let followed = |entry| Entry::terms(entry).map(|terms| (entry, terms));
    let allowing: Vec<(&Entry, &Terms)> = account.allow_only(reason).filter_map(followed).collect();
    let is_closed = allowing.is_empty() && account.allow_only(reason).next().is_some();
    let unreadable = || account.limits(reason).find_map(Entry::unreadable);
    if is_closed || unreadable().is_some() {
        // Said of the budgets that cannot be followed.
        return None;
    }
    let forbids = |(_, terms): &(&Entry, &Terms)| terms.nodes == 0;
    let forbidding: Vec<(&Entry, &Terms)> =
        account.limits(reason).filter_map(followed).filter(forbids).collect();
    let is_always = forbidding.iter().any(|(_, terms)| terms.windows.is_none());
    let budgets = |forbidding: &[(&Entry, &Terms)]| {
        let mut all: Vec<_> = allowing.iter().chain(forbidding).map(|(entry, _)| entry.index).collect();
        all.sort_unstable();
        all
    };
    if is_always {
        // Alone it is what the user says.
        let always: Vec<_> = forbidding.into_iter().filter(|(_, terms)| terms.windows.is_none()).collect();
        return (!allowing.is_empty()).then(|| (budgets(&always), None));
    }
    let (open, shut) = (windows(&allowing), windows(&forbidding));
    let until = none_before(&open, &shut, account.now)?;
    Some((budgets(&forbidding), Some(shut.first()?.local(until))))
}

fn windows<'a>(all: &[(&'a Entry, &'a Terms)]) -> Vec<&'a RecurringWindows> {
    all.iter().filter_map(|(_, terms)| terms.windows.as_ref()).collect()
}

/// A time before which there is no moment, from `now` on, that lies in a window of `open` (or anywhere, if there are none)
/// and in none of `shut`. `None` if there is one, or if it could be found only after very many windows.
fn none_before(open: &[&RecurringWindows], shut: &[&RecurringWindows], now: Timestamp) -> Option<Timestamp> {
    // Without any, nothing is ever closed. If nothing else has to open, each turn goes on by one of them at most.
    let longest = shut.iter().map(|windows| windows.duration()).max()?;
    if open.is_empty() && longest.saturating_mul(MOST_CHANGES) <= SHORTEST {
        return None;
    }
    let mut at = now;
    for _ in 0..MOST_CHANGES {
        let is_open = open.is_empty() || open.iter().any(|windows| windows.active(at).is_some());
        if is_open {
            // All that overlap end by then, or the next turn finds the one that does not.
            let ends = shut.iter().filter_map(|windows| windows.active(at)).map(|window| window.ends).max();
            at = ends?;
        } else {
            at = open.iter().filter_map(|windows| windows.next_beginning(at)).min()?;
        }
        if at.duration_since(now) > FARTHEST {
            break;
        }
    }
    (at.duration_since(now) > SHORTEST).then_some(at)
}
