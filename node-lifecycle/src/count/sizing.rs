//! How many nodes are missing or in excess, and what is done about it: uncordon draining nodes, request machines,
//! withdraw requests, choose victims.
//!
//! The invariant: staying nodes plus requests in flight never exceed the wanted number because of a decision made here,
//! apart from a node that `drain` gives back.
//! A node that cannot be read is treated as staying; an excess is computed from the readable nodes alone.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use shared_crds::disruption::Account;
use shared_crds::v1alpha1::{DisruptionReason, ProtectedNodes};
use shared_crds::{NodePool, protection};

use crate::assess::consent::Consent;
use crate::assess::contested::MachinesWriter;
use crate::assess::drain_limits::DrainLimits;
use crate::assess::health;
use crate::assess::membership::{Member, NodeReadiness, start_timeout};
use crate::assess::outdated::{self, Standard};
use crate::count::rollout::{Counts, MayGo, Rollout};
use crate::count::victims;
use crate::input::numbers::number;
use crate::input::slots::Slots;
use crate::input::supply::{Machine, MachineState};
use crate::{Observed, ObservedPods};

/// Maximum number of nodes whose pods are listed in one pass to choose victims, one request each. Further ones are looked
/// at in the next pass.
const MAX_UNDECIDED: usize = 50;

/// What to do about the number of nodes. Nodes and machines are given by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sizing {
    /// Number of nodes wanted.
    pub wanted: usize,
    /// Drains to cancel.
    pub uncordon: BTreeSet<String>,
    /// Machines to request from the provider.
    pub request: Vec<String>,
    /// Requests to withdraw.
    pub withdraw: Vec<String>,
    /// Running machines to register as Node.
    pub register: Vec<String>,
    /// Machines whose Node did not come in time, to delete.
    pub timed_out: Vec<String>,
    /// Some node is too many or out of date, whether or not it may go now.
    pub has_excess: bool,
    /// How far nodes that are out of date may be replaced.
    pub rollout: Rollout,
    /// Nodes to remove that the Autoscaler named.
    named: BTreeSet<String>,
    /// All that it named: where more may go, or others for another reason, they are the first of their kind.
    first: BTreeSet<String>,
    /// Number of nodes to remove besides the named ones.
    excess: usize,
    /// The nodes from which the excess is chosen; empty without an excess.
    candidates: BTreeSet<String>,
    /// What becomes of nodes that ask to be left alone; `None` where nobody is asked, because all nodes go.
    protected: Option<ProtectedNodes>,
}

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
    /// There are nodes whose pods are to be listed in the next pass, because too few of the others may go.
    pub is_undecided: bool,
}

impl Sizing {
    /// The nodes to remove, as far as budgets allow. Which of the candidates these are may depend on their pods.
    pub(crate) fn victims(
        &self,
        observed: &Observed,
        members: &[Member],
        pods: &ObservedPods,
        account: &mut Account,
    ) -> Victims {
        let asked = self.undecided(observed, members, account);
        let consent = |member: &Member| match self.protected {
            Some(_) => Consent::of(member, observed, &asked, pods),
            None => Consent::Free,
        };
        let waits = self.protected == Some(ProtectedNodes::Wait);
        let mut victims = Victims::default();
        let mut looked_at = |member: &Member| {
            let consent = consent(member);
            if let (Consent::Protected(why), true) = (&consent, asked.contains(member.name())) {
                victims.protected.push((member.name().to_owned(), why.clone()));
            }
            consent
        };
        let (mut rest, mut may_go) = (self.excess, self.rollout.may_go);
        // The Autoscaler chose the named ones: no other node goes in the place of one that stays.
        for member in members.iter().filter(|member| self.named.contains(member.name())) {
            let reason = DisruptionReason::ScaleDown;
            if let Some(refusal) = self.refusal(member, reason, account) {
                victims.refused.push((member.name().to_owned(), refusal));
                continue;
            }
            let consent = looked_at(member);
            victims.is_undecided |= waits && consent == Consent::NotAsked;
            if let Some(why) = consent.why_not().filter(|_| waits) {
                victims.held.push((member.name().to_owned(), why));
            } else {
                take(member, reason, account);
                may_go.take(self.rollout.outdated.get(member.name()).map(|outdated| outdated.state));
                victims.reasons.insert(member.name().to_owned(), reason);
            }
        }
        let candidates = members.iter().filter(|member| self.candidates.contains(member.name())).collect();
        let (mut others, mut refused, mut not_asked) = (Vec::new(), Vec::new(), 0);
        for member in victims::in_order(candidates, &pods.by_node, &self.rollout.outdated, &self.first) {
            let name = member.name().to_owned();
            let state = self.rollout.outdated.get(&name).map(|outdated| outdated.state);
            let Some(reason) = self.reason(&name, rest, may_go) else {
                looked_at(member);
                continue;
            };
            if let Some(refusal) = self.refusal(member, reason, account) {
                refused.push((name, refusal));
                continue;
            }
            let consent = looked_at(member);
            match consent.why_not() {
                None => {
                    rest = rest.saturating_sub(1);
                    may_go.take(state);
                    take(member, reason, account);
                    victims.reasons.insert(name, reason);
                }
                Some(_) if consent == Consent::NotAsked => not_asked += 1,
                Some(why) => others.push((member, why)),
            }
        }
        let left = rest.max(may_go.count());
        let is_undecided = left > 0 && not_asked > 0;
        victims.is_undecided |= is_undecided;
        let mut held = 0;
        if waits {
            held = others.len().min(left);
            let others = others.into_iter().take(left);
            victims.held.extend(others.map(|(member, why)| (member.name().to_owned(), why)));
        } else if !is_undecided {
            for (member, _) in others {
                let state = self.rollout.outdated.get(member.name()).map(|outdated| outdated.state);
                let Some(reason) = self.reason(member.name(), rest, may_go) else { continue };
                if let Some(refusal) = self.refusal(member, reason, account) {
                    refused.push((member.name().to_owned(), refusal));
                    continue;
                }
                rest = rest.saturating_sub(1);
                may_go.take(state);
                take(member, reason, account);
                victims.reasons.insert(member.name().to_owned(), reason);
            }
        }
        let left = rest.max(may_go.count()) - held;
        victims.refused.extend(refused.into_iter().take(left));
        victims
    }

    /// Why a candidate would be drained while `rest` nodes are too many and so many of those that are out of date may go; `None`
    /// when it would not be.
    fn reason(&self, node: &str, rest: usize, may_go: MayGo) -> Option<DisruptionReason> {
        if rest > 0 {
            return Some(DisruptionReason::ScaleDown);
        }
        let outdated = self.rollout.outdated.get(node).filter(|outdated| may_go.has(outdated.state))?;
        Some(outdated.reason)
    }

    /// Why a budget keeps the node now; `None` when none does. Nothing is asked for a node that has never run pods, or when all go.
    fn refusal(&self, member: &Member, reason: DisruptionReason, account: &Account) -> Option<String> {
        let asks = self.protected.is_some() && member.readiness != NodeReadiness::Starting;
        let refusal = account.refusal(reason).filter(|_| asks)?;
        Some(format!("has to wait: {refusal}"))
    }

    /// The nodes whose pods help to choose the victims, or may protect them, without those that are known to be protected, or
    /// kept by a budget.
    pub(crate) fn undecided(
        &self,
        observed: &Observed,
        members: &[Member],
        account: &Account,
    ) -> BTreeSet<String> {
        let Some(policy) = self.protected else { return BTreeSet::new() };
        let has_room: Vec<DisruptionReason> =
            DisruptionReason::ALL.into_iter().filter(|reason| account.room(*reason) > 0).collect();
        let is_open = |member: &&Member| {
            let too_many = Some(DisruptionReason::ScaleDown).filter(|_| self.excess + self.named.len() > 0);
            let mut reasons = too_many.into_iter().chain(self.rollout.reason(member.name()));
            let is_free = member.readiness == NodeReadiness::Starting
                || reasons.any(|reason| has_room.contains(&reason));
            is_free
                && protection::of_node(&member.node.metadata).is_none()
                && !observed.protected.contains_key(member.name())
        };
        let with_name = |names: &BTreeSet<String>| -> Vec<&Member> {
            members.iter().filter(|member| names.contains(member.name())).filter(is_open).collect()
        };
        let named = if policy == ProtectedNodes::Wait { with_name(&self.named) } else { Vec::new() };
        let candidates = with_name(&self.candidates);
        let in_order = victims::in_order(candidates, &BTreeMap::new(), &self.rollout.outdated, &self.first);
        let all = named.into_iter().take(MAX_UNDECIDED).chain(in_order.into_iter().take(MAX_UNDECIDED));
        all.map(|member| member.name().to_owned()).collect()
    }
}

/// The number of nodes `pool` should have now. For an unset count that is the number of nodes that exist or are
/// requested. While another writer's number of machines is kept, it is that.
pub(crate) fn wanted(observed: &Observed, pool: &NodePool, members: &[Member]) -> usize {
    if pool.metadata.deletion_timestamp.is_some() {
        return 0;
    }
    let readable = members.iter().filter(|member| member.stays()).count();
    let machines = observed.in_flight().count() + observed.joining().len();
    let present = readable + observed.unread().count() + machines;
    let wanted = match MachinesWriter::of(pool, &observed.supply, observed.now).held() {
        Some(contest) => pool.spec.within_bounds(contest.record.machines),
        None => pool.spec.replicas_or(number(present)),
    };
    usize::try_from(wanted).unwrap_or_default()
}

/// Notes that the node goes, where [`Sizing::refusal`] has found nothing against it.
fn take(member: &Member, reason: DisruptionReason, account: &mut Account) {
    if member.readiness != NodeReadiness::Starting {
        // A pool that is deleted asks nobody.
        let _ = account.take(reason);
    }
}

/// Decides on the number of nodes. The nodes in `replaced` do not count as replicas any more, and are in the `account`. Of those in
/// `protected` it is known that they ask to be left alone, and why.
pub(crate) fn size(
    observed: &Observed,
    pool: &NodePool,
    members: &[Member],
    replaced: &BTreeSet<String>,
    account: &Account,
    protected: &BTreeMap<String, String>,
) -> Sizing {
    let counts = |member: &&Member| member.stays() && !replaced.contains(member.name());
    let mut staying: Vec<&Member> = members.iter().filter(counts).collect();
    // Those that may have a live Node are neither withdrawn nor given up, and nothing goes or comes in their place.
    let (live, machines): (Vec<&Machine>, Vec<&Machine>) =
        observed.in_flight().partition(|machine| observed.may_be_live(machine));
    let (timed_out, mut machines): (Vec<&Machine>, Vec<&Machine>) =
        machines.into_iter().partition(|machine| has_timed_out(observed, pool, machine));
    let timed_out = timed_out.into_iter().map(|machine| machine.name.clone()).collect();
    let mut sizing = Sizing {
        wanted: wanted(observed, pool, members),
        timed_out,
        protected: pool.metadata.deletion_timestamp.is_none().then(|| {
            pool.spec.drain.as_ref().map_or_else(ProtectedNodes::default, |drain| drain.protected_nodes)
        }),
        ..Sizing::default()
    };

    // Their machines cannot be withdrawn any more.
    let joining = observed.joining().len();
    let others = machines.len() + live.len() + joining;
    let resting = resting(pool, staying.iter().copied(), observed.now);
    let named = victims::named(pool, &staying);
    let is_in_force = pool.scale_down_in_force().is_some();
    let counts = Counts { wanted: sizing.wanted, others, named: if is_in_force { named.len() } else { 0 } };
    sizing.rollout = Rollout::of(observed, pool, members, (&staying, &resting), counts, account, protected);
    let is_rolling = sizing.rollout.is_active && !sizing.rollout.outdated.is_empty();
    let most = sizing.wanted + sizing.rollout.surge;
    let excess = (staying.len() + others).saturating_sub(most);
    let may_remove = !observed.may_be_hidden && observed.supply.removals_wait.is_none();
    let excess = if observed.supply.removals_wait.is_none() { excess } else { 0 };
    let is_rested = |member: &&&Member| resting.iter().all(|(resting, _)| *resting != member.name());
    sizing.first = named.iter().map(|member| member.name().to_owned()).collect();
    let mut named: Vec<&Member> = named.iter().filter(is_rested).copied().collect();
    named.sort_by_key(|member| !sizing.rollout.outdated.contains_key(member.name()));
    // Nodes named for the next count may still be needed: machines that are not nodes yet are withdrawn before them.
    let now_due = if is_in_force { excess } else { 0 };
    let machines_too_many = excess - named.len().min(now_due);
    let machines_too_many = if may_remove { machines_too_many } else { 0 };
    sizing.withdraw = withdraw(&mut machines, machines_too_many);
    sizing.has_excess = excess > sizing.withdraw.len() || is_rolling;
    // Nodes whose drain was just called off keep their place in the excess: no other node is drained instead.
    let excess = (excess - sizing.withdraw.len()).saturating_sub(resting.len());
    sizing.named = named.into_iter().take(excess).map(|member| member.name().to_owned()).collect();
    // A node that is about to join cannot be a victim yet. No other one goes in its place: the choice is made among all of
    // them as soon as it is a member.
    sizing.excess = (excess - sizing.named.len()).saturating_sub(joining + live.len());
    staying.retain(|member| !sizing.named.contains(member.name()));
    if observed.supply.removals_wait.is_some() {
        sizing.rollout.may_go = MayGo::default();
    }
    if sizing.excess + sizing.rollout.may_go.count() > 0 {
        let may_be_replaced = |name: &str| {
            let outdated = sizing.rollout.outdated.get(name);
            outdated.is_some_and(|outdated| sizing.rollout.may_go.has(outdated.state))
        };
        let is_candidate = |member: &&&Member| sizing.excess > 0 || may_be_replaced(member.name());
        let candidates = staying.iter().filter(is_rested).filter(is_candidate);
        sizing.candidates = candidates.map(|member| member.name().to_owned()).collect();
    }

    // Victims may have to wait, so they are there.
    let present = staying.len() + machines.len() + live.len() + joining + observed.unread().count();
    let missing = most.saturating_sub(present);
    let (current, outdated) = drains_to_cancel(observed, pool, members);
    let current = current.into_iter().take(missing);
    sizing.uncordon = current.map(|member| member.name().to_owned()).collect();
    // One that is out of date is better than none, and no use in the place of one that is replaced.
    let short = sizing.wanted.saturating_sub(present + sizing.uncordon.len() + sizing.rollout.draining);
    sizing.uncordon.extend(outdated.into_iter().take(short).map(|member| member.name().to_owned()));
    let missing = missing - sizing.uncordon.len();
    let missing = sizing.rollout.may_request(missing, sizing.wanted, present);
    // Further machines would have their Nodes elsewhere, too.
    let are_all_elsewhere =
        members.is_empty() && observed.joining().is_empty() && observed.elsewhere().next().is_some();
    if observed.supply.may_request(observed.now) && !are_all_elsewhere {
        let slots = Slots::of(&observed.cluster, &observed.key);
        sizing.request = slots.lowest_free(&observed.occupied(), missing);
    }
    sizing.register = machines
        .iter()
        .chain(&live)
        .filter(|machine| matches!(machine.state, MachineState::Running))
        .map(|machine| machine.name.clone())
        .collect();
    sizing
}

/// Until when a node is not drained again; `None` when it may be, as every node of a pool that is being deleted.
fn rests_until(pool: &NodePool, member: &Member, now: Timestamp) -> Option<Timestamp> {
    member.rests_until(DrainLimits::of(pool), now).filter(|_| pool.metadata.deletion_timestamp.is_none())
}

/// The nodes of the pool that are not drained again now, by name, with the time from which they may be.
pub(crate) fn resting<'a>(
    pool: &NodePool,
    members: impl IntoIterator<Item = &'a Member>,
    now: Timestamp,
) -> Vec<(&'a str, Timestamp)> {
    members.into_iter().filter_map(|it| Some((it.name(), rests_until(pool, it, now)?))).collect()
}

/// Whether the machine's Node should have come by now, as measured by this process alone: no object records since when
/// there is a machine.
fn has_timed_out(observed: &Observed, pool: &NodePool, machine: &Machine) -> bool {
    let waited = observed.machine_times.of_machine(&machine.name);
    let may_remove = !observed.may_be_hidden && observed.supply.removals_wait.is_none();
    may_remove && start_timeout(pool).is_some_and(|timeout| waited >= timeout)
}

/// Removes up to `count` requests from `machines`: those that would take longest first.
fn withdraw(machines: &mut Vec<&Machine>, count: usize) -> Vec<String> {
    machines.sort_by(|a, b| (a.state.ready_at(), &a.name).cmp(&(b.state.ready_at(), &b.name)));
    let keep = machines.len().saturating_sub(count);
    machines.split_off(keep).into_iter().map(|machine| machine.name.clone()).collect()
}

/// Nodes whose drain can be cancelled, best first: healthy ones, then those whose drain started last, because most of
/// their pods are still there. A deleted Node cannot be brought back, and one that is replaced would only be drained again.
/// Those that are out of date and were drained because they were too many come second.
fn drains_to_cancel<'a>(
    observed: &Observed,
    pool: &NodePool,
    members: &'a [Member],
) -> (Vec<&'a Member>, Vec<&'a Member>) {
    let (sick, standard) = (health::unhealthy(pool, members), Standard::of(pool, observed.now));
    let leaving = members.iter().filter(|member| member.leaving.is_some_and(|leaving| !leaving.deleting));
    let mut nodes: Vec<&Member> = leaving.collect();
    nodes.sort_by_key(|member| {
        let started = member.leaving.and_then(|leaving| leaving.drain_started);
        let is_healthy = member.readiness == NodeReadiness::Ready && !sick.contains(member.name());
        (!is_healthy, std::cmp::Reverse(started), member.name())
    });
    let (outdated, current): (Vec<&Member>, Vec<&Member>) =
        nodes.into_iter().partition(|member| standard.replaces(member));
    (current, outdated.into_iter().filter(|member| !outdated::is_for_rollout(member.cause)).collect())
}
