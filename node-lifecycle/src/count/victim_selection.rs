//! Which of the nodes that `sizing` has found to be candidates go now: as far as budgets allow, and the nodes and their pods do
//! not ask to be left alone.

use std::collections::{BTreeMap, BTreeSet};

use shared_crds::disruption::Account;
use shared_crds::protection;
use shared_crds::v1alpha1::{DisruptionReason, ProtectedNodes};

use crate::assess::membership::Member;
use crate::assess::node_states::NodeReadiness;
use crate::assess::outdated::OutdatedState;
use crate::assess::removal_protection::RemovalProtection;
use crate::count::deletion;
use crate::count::removal_order;
use crate::count::rollout::MayGo;
use crate::count::sizing::Sizing;
use crate::{Observed, ObservedPods};

/// Maximum number of nodes whose pods are listed in one pass to choose victims, one request each. Further ones are looked
/// at in the next pass.
const MAX_UNDECIDED: usize = 50;

/// Of how many nodes at least the pods are listed to make one more in their place, so that one that asks to be left alone costs no
/// pass of its own.
const LOOK_AHEAD: usize = 10;

/// The nodes that are drained because they are too many or out of date.
#[derive(Clone, Debug, Default)]
pub(crate) struct Victims {
    /// Why each of them is, by name.
    pub reasons: BTreeMap<String, DisruptionReason>,
    /// The nodes that would be removed and stay for now, by name, and why.
    pub held: Vec<(String, String)>,
    /// The same because of a budget of `spec.disruption`.
    pub refused: Vec<(String, String)>,
    /// The nodes that ask to be left alone, as far as their pods were listed in this pass, by name, and why.
    pub protected: Vec<(String, String)>,
    /// The nodes that are out of date and turned out in this pass not to ask for it, by name.
    pub unprotected: BTreeSet<String>,
    /// The nodes whose pods could not be listed in this pass although they were to be, by name.
    pub unread: BTreeSet<String>,
    /// There are nodes whose pods are to be listed in the next pass, because too few of the others may go.
    pub is_undecided: bool,
}

impl Sizing {
    /// The nodes to remove, as far as budgets allow. Which of the candidates these are may depend on their pods. Those of `asked` were to
    /// be listed.
    pub(crate) fn victims(
        &self,
        observed: &Observed,
        members: &[Member],
        pods: &ObservedPods,
        mut asked: BTreeSet<String>,
        account: &mut Account,
    ) -> Victims {
        let is_unread = |name: &&String| pods.of(name).is_none() && !pods.deferred.contains(*name);
        let unread = asked.iter().filter(is_unread).cloned().collect();
        asked.extend(self.undecided(observed, members, account));
        let mut selection = Selection {
            sizing: self,
            observed,
            pods,
            asked,
            account,
            rest: self.excess,
            may_go: self.rollout.may_go,
            victims: Victims { unread, ..Victims::default() },
        };
        selection.choose_named(members);
        selection.choose_candidates(members);
        selection.look_at_others(members);
        selection.victims
    }

    /// The nodes whose pods help to choose the victims, or may protect them, without those that are known to be protected, or
    /// kept by a budget. With them those whose pods say whether one more is made in their place, and those that were found protected
    /// some time ago; of these, those whose lists have failed come last.
    pub(crate) fn undecided(
        &self,
        observed: &Observed,
        members: &[Member],
        account: &Account,
    ) -> BTreeSet<String> {
        let has_room: Vec<DisruptionReason> =
            DisruptionReason::ALL.into_iter().filter(|reason| account.room(*reason) > 0).collect();
        let is_open = |member: &&Member| {
            let too_many = Some(DisruptionReason::ScaleDown).filter(|_| self.excess + self.named.len() > 0);
            let mut reasons = too_many.into_iter().chain(self.rollout.reason(member.name()));
            let is_in_no_budget = match &self.deletion {
                // Its pods say nothing: it goes at once.
                Some(_) if deletion::goes_at_once(member, None) => return false,
                Some(_) => false,
                None => member.readiness == NodeReadiness::Starting,
            };
            (is_in_no_budget || reasons.any(|reason| has_room.contains(&reason)))
                && protection::of_node(&member.node.metadata).is_none()
                && (!observed.protected.contains_key(member.name()) || observed.stale.contains(member.name()))
        };
        let with_name = |names: &BTreeSet<String>| -> Vec<&Member> {
            members.iter().filter(|member| names.contains(member.name())).filter(is_open).collect()
        };
        // Those of a pool that is deleted may be empty, and then wait for nothing.
        let is_listed = self.protected == ProtectedNodes::Wait || self.deletion.is_some();
        let named = if is_listed { with_name(&self.named) } else { Vec::new() };
        let candidates = with_name(&self.candidates);
        // Always the same first ones, also where their lists fail: what is said of them would change from pass to pass, and each
        // change of the status brings the next pass at once.
        let candidates =
            removal_order::in_order(candidates, &BTreeMap::new(), &self.rollout.outdated, &self.first);
        let room = MAX_UNDECIDED.saturating_sub(candidates.len());
        let all = named.into_iter().take(MAX_UNDECIDED).chain(candidates.into_iter().take(MAX_UNDECIDED));
        let stale = self.to_be_read_again(observed);
        let again = self.in_order_of_lists(observed, with_name(&stale));
        let others = self.to_be_surged(observed, members).into_iter().chain(again);
        let all = all.chain(others.take(room));
        all.map(|member| member.name().to_owned()).collect()
    }

    /// The first nodes in the order of removal in whose place one more would be made if their pods asked for nothing.
    fn to_be_surged<'a>(&self, observed: &Observed, members: &'a [Member]) -> Vec<&'a Member> {
        if self.surge_lacks == 0 {
            return Vec::new();
        }
        let unknown = members.iter().filter(|it| self.rollout.unknown.contains(it.name())).collect();
        let mut first = self.in_order_of_lists(observed, unknown);
        first.truncate(self.rollout.sure_lacks.max(LOOK_AHEAD));
        first
    }

    /// The nodes that a rollout leaves alone for what their pods asked for some time ago. If they were listed only when that is
    /// forgotten, the rollout would not know for a while whether it waits for them.
    fn to_be_read_again(&self, observed: &Observed) -> BTreeSet<String> {
        if !self.rollout.is_active || self.protected != ProtectedNodes::Wait {
            return BTreeSet::new();
        }
        let outdated = self.rollout.outdated.iter().filter(|(name, _)| observed.stale.contains(*name));
        // The others go whatever their pods ask for.
        let asked =
            outdated.filter(|(_, node)| !node.is_past_hard_age && node.state != OutdatedState::NeverReady);
        asked.map(|(name, _)| name.clone()).collect()
    }

    /// `nodes` in the order of removal, but those last whose lists have failed, so that they do not keep the others from being listed.
    fn in_order_of_lists<'a>(&self, observed: &Observed, nodes: Vec<&'a Member>) -> Vec<&'a Member> {
        let mut all = removal_order::in_order(nodes, &BTreeMap::new(), &self.rollout.outdated, &self.first);
        all.sort_by_key(|member| observed.failed_lists.iter().position(|name| name == member.name()));
        all
    }
}

/// A selection of victims that is being made.
struct Selection<'a> {
    sizing: &'a Sizing,
    observed: &'a Observed,
    pods: &'a ObservedPods,
    /// The nodes whose pods were to be listed.
    asked: BTreeSet<String>,
    /// How many nodes may be disrupted. Those that go are taken out of it.
    account: &'a mut Account,
    /// How many nodes are still too many, without those that the Autoscaler has named.
    rest: usize,
    /// How many of those that are out of date may still go.
    may_go: MayGo,
    victims: Victims,
}

/// The candidates that would go and are kept by something, in the order of removal.
#[derive(Default)]
struct Kept<'a> {
    /// Those that ask to be left alone or whose pods cannot be listed, and why.
    protected: Vec<(&'a Member, String)>,
    /// Those that a budget keeps, by name, and why.
    refused: Vec<(String, String)>,
    /// Number of those whose pods have not been listed yet.
    not_listed: usize,
}

impl Selection<'_> {
    /// Takes the nodes that the Autoscaler has named. It chose them: no other node goes in the place of one that stays.
    fn choose_named(&mut self, members: &[Member]) {
        let (sizing, waits) = (self.sizing, self.protected_nodes_wait());
        for member in members.iter().filter(|member| sizing.named.contains(member.name())) {
            let reason = DisruptionReason::ScaleDown;
            if let Some(refusal) = self.refusal(member, reason) {
                self.victims.refused.push((member.name().to_owned(), refusal));
                continue;
            }
            let protection = self.look_at(member);
            self.victims.is_undecided |= waits && protection == RemovalProtection::NotListed;
            if let Some(why) = protection.why_not().filter(|_| waits) {
                self.victims.held.push((member.name().to_owned(), why));
            } else {
                let outdated = sizing.rollout.outdated.get(member.name());
                self.may_go.take(outdated.map(|outdated| outdated.state));
                self.take(member, reason);
            }
        }
    }

    /// Takes so many of the candidates as are too many, or out of date and not needed any more.
    fn choose_candidates(&mut self, members: &[Member]) {
        let sizing = self.sizing;
        let candidates = members.iter().filter(|member| sizing.candidates.contains(member.name())).collect();
        let in_order =
            removal_order::in_order(candidates, &self.pods.by_node, &sizing.rollout.outdated, &sizing.first);
        let Kept { protected, mut refused, not_listed } = self.choose_unprotected(in_order);
        let left = self.left();
        let is_undecided = left > 0 && not_listed > 0;
        self.victims.is_undecided |= is_undecided;
        let mut held = 0;
        if self.protected_nodes_wait() {
            held = protected.len().min(left);
            let first = protected.into_iter().take(left);
            self.victims.held.extend(first.map(|(member, why)| (member.name().to_owned(), why)));
        } else if !is_undecided {
            refused.extend(self.choose_protected(&protected));
        }
        let left = self.left() - held;
        self.victims.refused.extend(refused.into_iter().take(left));
    }

    /// Takes in what the pods of those nodes show that are out of date, and in whose place one more may be made.
    fn look_at_others(&mut self, members: &[Member]) {
        let sizing = self.sizing;
        let rollout = &sizing.rollout;
        self.victims.is_undecided |= sizing.surge_lacks > 0;
        if !rollout.is_active {
            return;
        }
        let is_listed = |it: &&Member| {
            self.asked.contains(it.name())
                && rollout.outdated.contains_key(it.name())
                && self.pods.of(it.name()).is_some()
        };
        let is_noted = |name: &str| self.victims.protected.iter().any(|(other, _)| other == name);
        let others: Vec<&Member> =
            members.iter().filter(is_listed).filter(|it| !is_noted(it.name())).collect();
        for member in others {
            let is_free = self.look_at(member) == RemovalProtection::Unprotected;
            if is_free && !self.observed.unprotected.contains(member.name()) {
                self.victims.unprotected.insert(member.name().to_owned());
            }
        }
    }

    /// Takes those of the `candidates`, which are in the order of removal, that nothing keeps.
    fn choose_unprotected<'m>(&mut self, candidates: Vec<&'m Member>) -> Kept<'m> {
        let mut kept = Kept::default();
        for member in candidates {
            let Some(reason) = self.reason(member) else {
                self.look_at(member);
                continue;
            };
            if let Some(refusal) = self.refusal(member, reason) {
                kept.refused.push((member.name().to_owned(), refusal));
                continue;
            }
            let protection = self.look_at(member);
            match protection.why_not().filter(|_| !self.goes_at_once(member)) {
                None => self.take_candidate(member, reason),
                Some(_) if protection == RemovalProtection::NotListed => kept.not_listed += 1,
                Some(why) => kept.protected.push((member, why)),
            }
        }
        kept
    }

    /// Takes as many of the `protected` nodes as are still too many. Returns those that a budget keeps, and why.
    fn choose_protected(&mut self, protected: &[(&Member, String)]) -> Vec<(String, String)> {
        let mut refused = Vec::new();
        for (member, _) in protected {
            let Some(reason) = self.reason(member) else { continue };
            if let Some(refusal) = self.refusal(member, reason) {
                refused.push((member.name().to_owned(), refusal));
                continue;
            }
            self.take_candidate(member, reason);
        }
        refused
    }

    /// How many of the candidates should still go.
    fn left(&self) -> usize {
        self.rest.max(self.may_go.count())
    }

    /// Whether nodes that ask to be left alone stay as long as they do.
    fn protected_nodes_wait(&self) -> bool {
        self.sizing.protected == ProtectedNodes::Wait
    }

    /// Whether the node asks to be left alone, which is recorded if its pods were to be listed and were.
    fn look_at(&mut self, member: &Member) -> RemovalProtection {
        let protection = RemovalProtection::of(member, self.observed, &self.asked, self.pods);
        let is_new = self.asked.contains(member.name()) && self.pods.of(member.name()).is_some();
        if let (RemovalProtection::Protected(why), true) = (&protection, is_new) {
            self.victims.protected.push((member.name().to_owned(), why.clone()));
        }
        protection
    }

    /// Why a candidate would be drained now; `None` when it would not be.
    fn reason(&self, member: &Member) -> Option<DisruptionReason> {
        if self.rest > 0 {
            return Some(DisruptionReason::ScaleDown);
        }
        let outdated = self.sizing.rollout.outdated.get(member.name());
        outdated.filter(|outdated| self.may_go.has(outdated.state)).map(|outdated| outdated.reason)
    }

    /// Why a budget keeps the node now, or the pace of a deletion; `None` when none does, as for a node that has never run pods. One
    /// past its hard age waits for no window.
    fn refusal(&self, member: &Member, reason: DisruptionReason) -> Option<String> {
        if let Some(pace) = &self.sizing.deletion {
            let waits = self.account.room(reason) == 0 && !self.goes_at_once(member);
            return waits.then(|| pace.to_string());
        }
        let asks = member.readiness != NodeReadiness::Starting;
        let refusal = if member.outdated.is_past_hard_age() {
            self.account.urgent_refusal(reason)
        } else {
            self.account.refusal(reason)
        };
        let refusal = refusal.filter(|_| asks)?;
        Some(format!("has to wait: {refusal}"))
    }

    /// Whether the node belongs to a pool that is deleted, and its going disturbs no pod.
    fn goes_at_once(&self, member: &Member) -> bool {
        self.sizing.deletion.is_some() && deletion::goes_at_once(member, self.pods.of(member.name()))
    }

    /// The candidate goes, where [`Self::refusal`] has found nothing against it.
    fn take_candidate(&mut self, member: &Member, reason: DisruptionReason) {
        let outdated = self.sizing.rollout.outdated.get(member.name());
        self.rest = self.rest.saturating_sub(1);
        self.may_go.take(outdated.map(|outdated| outdated.state));
        self.take(member, reason);
    }

    /// The node goes, where [`Self::refusal`] has found nothing against it.
    fn take(&mut self, member: &Member, reason: DisruptionReason) {
        let is_counted = match self.sizing.deletion {
            Some(_) => member.readiness == NodeReadiness::Ready,
            None => member.readiness != NodeReadiness::Starting,
        };
        if is_counted {
            // Of a pool that is deleted more may go than the account has: those that disturb no pod.
            let _ = if member.outdated.is_past_hard_age() {
                self.account.take_urgent(reason)
            } else {
                self.account.take(reason)
            };
        }
        self.victims.reasons.insert(member.name().to_owned(), reason);
    }
}
