//! Why a rollout takes no node now: a budget, such as one whose window is closed, nodes that ask to be left alone, or drains that do not
//! get on.

use std::collections::BTreeMap;

use shared_crds::NodePool;
use shared_crds::conditions::Reason;
use shared_crds::disruption::{Account, BudgetRefusal};
use shared_crds::v1alpha1::DisruptionReason;

use crate::Observed;
use crate::assess::membership::Member;
use crate::assess::outdated::{OutdatedCriteria, OutdatedNode, OutdatedState, is_for_rollout};
use crate::count::rollout::{is_stuck, may_go, may_go_now};
use crate::count::rollout_bounds::{RolloutBounds, RolloutCounts};

/// Why no node that is out of date may go now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutWait {
    /// Machine-readable reason.
    pub reason: Reason,
    /// The budget, the node that asks to be left alone, or the one whose drain does not get on, in words for the user.
    pub why: String,
}

/// Why none of the staying `outdated` nodes may go now, where [`super::rollout::may_go_now`] finds none; `None` where there are none.
pub(crate) fn waits(
    outdated: &BTreeMap<String, OutdatedNode>,
    account: &Account,
    protected: &BTreeMap<String, String>,
) -> Option<RolloutWait> {
    let open = outdated.iter().find(|(name, _)| !protected.contains_key(*name));
    if let Some((_, node)) = open {
        let why = refusal(account, *node)?.to_string();
        return Some(RolloutWait { reason: Reason::WaitsForBudget, why });
    }
    let (first, _) = outdated.first_key_value()?;
    let more = match outdated.len() - 1 {
        0 => String::new(),
        1 => ", and 1 more node asks to be left alone".to_owned(),
        more => format!(", and {more} more nodes ask to be left alone"),
    };
    let why = format!("node {first} {}{more}", protected.get(first)?);
    Some(RolloutWait { reason: Reason::WaitsForProtected, why })
}

/// The nodes among which a rollout looks for one that may go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RolloutNodes<'a> {
    /// Number of nodes wanted.
    pub wanted: usize,
    /// Those that stay.
    pub staying: &'a [&'a Member],
    /// Those that leave, and why.
    pub leaving: &'a [(&'a Member, Option<DisruptionReason>)],
    /// Of those that stay, the ones that are not drained again for a while, by name.
    pub given_back: &'a [String],
    /// Number of machines and Nodes that are about to be nodes of the pool.
    pub coming: usize,
}

impl<'a> RolloutNodes<'a> {
    /// Those that are drained because they were out of date.
    pub(crate) fn drained(self) -> Vec<&'a Member> {
        let drained = self.leaving.iter().filter(|(_, cause)| is_for_rollout(*cause));
        drained.map(|(member, _)| *member).collect()
    }

    /// The counts, where nothing is about to come.
    fn counts(self, observed: &Observed) -> RolloutCounts {
        let is_too_many = |cause: Option<DisruptionReason>| cause == Some(DisruptionReason::ScaleDown);
        let too_many = self.leaving.iter().filter(|(_, cause)| is_too_many(*cause));
        RolloutCounts {
            wanted: self.wanted,
            staying: self.staying.len(),
            others: 0,
            draining: self.drained().len(),
            stuck: too_many.filter(|(member, _)| is_stuck(observed, member)).count(),
        }
    }

    /// Which node keeps the place of another one, in words for the user, where no drain for the rollout gets on; `None` when none does.
    fn keeps_a_place(self, outdated: &BTreeMap<String, OutdatedNode>) -> Option<String> {
        let more = |count: usize| match count - 1 {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        let drained = self.drained();
        if let Some(first) = drained.iter().map(|member| member.name()).min() {
            return Some(format!("the drain of node {first}{} does not get on", more(drained.len())));
        }
        let resting: Vec<&String> = self.given_back.iter().filter(|it| outdated.contains_key(*it)).collect();
        let first = resting.iter().min()?;
        let why = "was given back, because its drain took longer than spec.drain.timeoutSeconds";
        Some(format!("node {first}{} {why}", more(resting.len())))
    }
}

/// Which drain the staying `outdated` nodes wait for where none for the rollout gets on: the nodes that are being drained, or have been
/// given back, keep the places of the others. `None` where one may go nevertheless, where nothing is drained, and while something else may
/// change that: a node that is made or starts, or one that may still be made. Where nothing is drained, a provider that makes no nodes is
/// what holds the rollout up.
pub(crate) fn waits_for_drain(
    observed: &Observed,
    pool: &NodePool,
    nodes: RolloutNodes<'_>,
    outdated: &BTreeMap<String, OutdatedNode>,
    account: &Account,
    protected: &BTreeMap<String, String>,
) -> Option<RolloutWait> {
    let why = nodes.keeps_a_place(outdated)?;
    // A failure between two attempts is no other state than during one, and it is the failure that has to be mended.
    if observed.supply.failure.is_some() && nodes.drained().is_empty() {
        return None;
    }
    if outdated.is_empty() {
        // New nodes are no part of it any more.
        let why = format!("{why}, and no other node is out of date");
        return Some(RolloutWait { reason: Reason::WaitsForDrain, why });
    }
    let criteria = OutdatedCriteria::of(pool, observed.now);
    let is_current = |member: &&Member| !outdated.contains_key(member.name());
    let current: Vec<&Member> = nodes.staying.iter().copied().filter(is_current).collect();
    if nodes.coming > 0 || current.iter().any(|member| !criteria.is_available(member)) {
        return None;
    }
    let bounds = RolloutBounds::of(observed, pool, &criteria.spec, nodes.counts(observed));
    let surge = bounds.most_surge.min(may_go_now(outdated, account, protected));
    let present = nodes.staying.len() + observed.unread().count();
    let is_drained = |cause: Option<DisruptionReason>| cause.is_some_and(|it| it != DisruptionReason::Repair);
    let leaving = nodes.leaving.iter().filter(|(_, cause)| is_drained(*cause)).count();
    let can_make = present < nodes.wanted + surge && present + leaving < nodes.wanted + bounds.most_surge;
    let rests = |name: &str| nodes.given_back.iter().any(|other| other == name);
    let least = nodes.wanted.saturating_sub(bounds.unavailable);
    let may_go = may_go(&criteria, outdated, current.into_iter(), rests, least);
    let goes = |(name, node): (&String, &OutdatedNode)| {
        let is_let_go = node.state == OutdatedState::NeverReady || refusal(account, *node).is_none();
        may_go.has(node.state) && !rests(name) && !protected.contains_key(name) && is_let_go
    };
    let can_go = outdated.iter().any(goes);
    let why = format!("{why}, and no other node may go meanwhile");
    (!can_make && !can_go).then_some(RolloutWait { reason: Reason::WaitsForDrain, why })
}

/// The budget that keeps the node now; `None` when none does.
fn refusal(account: &Account, node: OutdatedNode) -> Option<BudgetRefusal> {
    if node.is_past_hard_age { account.urgent_refusal(node.reason) } else { account.refusal(node.reason) }
}
