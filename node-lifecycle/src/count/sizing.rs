//! How many nodes are missing or in excess, and what is done about it: uncordon draining nodes (which ones, `cancelled_drains`
//! says), request machines, withdraw requests, and among which nodes victims are chosen.
//!
//! The invariant: staying nodes plus requests in flight never exceed the wanted number because of a decision made here,
//! apart from a node that `drain` gives back, and one that has recovered while it was drained to be repaired.
//! A node that cannot be read is treated as staying; an excess is computed from the readable nodes alone.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;
use shared_crds::NodePool;
use shared_crds::disruption::Account;
use shared_crds::v1alpha1::ProtectedNodes;

use crate::assess::contested::MachinesWriter;
use crate::assess::drain_limits::DrainLimits;
use crate::assess::membership::Member;
use crate::assess::removal_protection;
use crate::count::cancelled_drains::{self, MissingNodes};
use crate::count::deletion::DeletionPace;
use crate::count::disruption_account;
use crate::count::machines_without_node::{MachinesWithoutNode, withdraw};
use crate::count::removal_order;
use crate::count::rollout::{Counts, MayGo, MissingMachines, Refusals, Rollout};
use crate::count::unasked::unasked;
use crate::input::numbers::number;
use crate::input::slots::Slots;
use crate::input::supply::MachineState;
use crate::{Observed, ObservedPods};

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
    /// Some of them are of an earlier template: others are requested when these are gone.
    pub is_superseding: bool,
    /// Machines whose Node did not come in time, to delete.
    pub timed_out: Vec<String>,
    /// Some node is too many or out of date, whether or not it may go now.
    pub has_excess: bool,
    /// The number of machines that the provider was not asked for, where there are so many that no more are requested and none
    /// without a Node is removed; `None` where there are not.
    pub unasked: Option<usize>,
    /// How far nodes that are out of date may be replaced.
    pub rollout: Rollout,
    /// Nodes to remove that the Autoscaler named.
    pub(super) named: BTreeSet<String>,
    /// All that it named: where more may go, or others for another reason, they are the first of their kind.
    pub(super) first: BTreeSet<String>,
    /// Number of nodes to remove besides the named ones.
    pub(super) excess: usize,
    /// How many nodes more for a rollout would be made if no pod asked to be left alone on nodes whose pods are not known.
    pub(super) surge_lacks: usize,
    /// The nodes from which the excess is chosen; empty without an excess.
    pub(super) candidates: BTreeSet<String>,
    /// What becomes of nodes that ask to be left alone.
    pub(super) protected: ProtectedNodes,
    /// How many nodes leave at a time because the pool is deleted; `None` for one that is not.
    pub(super) deletion: Option<DeletionPace>,
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

/// Decides on the number of nodes. The nodes in `replaced` do not count as replicas any more, and are in the `account`. Which nodes ask
/// to be left alone is known as far as their `pods` are, or were a moment ago.
pub(crate) fn size(
    observed: &Observed,
    pool: &NodePool,
    members: &[Member],
    replaced: &BTreeSet<String>,
    account: &Account,
    pods: &ObservedPods,
) -> Sizing {
    let counts = |member: &&Member| member.stays() && !replaced.contains(member.name());
    let staying: Vec<&Member> = members.iter().filter(counts).collect();
    let wanted = wanted(observed, pool, members);
    let unasked = unasked(observed, pool, members, wanted);
    // Which of them are the pool's is not known, so none of them stands for a node, comes or goes.
    let machines = if unasked.is_some() {
        MachinesWithoutNode::default()
    } else {
        MachinesWithoutNode::of(observed, pool)
    };
    let mut sizing = Sizing {
        wanted,
        unasked,
        timed_out: machines.timed_out.iter().map(|machine| machine.name.clone()).collect(),
        protected: protected_nodes(pool),
        deletion: disruption_account::deletion_pace(observed, pool, members),
        ..Sizing::default()
    };
    let resting = resting(pool, staying.iter().copied(), observed.now);
    let named = removal_order::named(pool, &staying);
    let is_in_force = pool.scale_down_in_force().is_some();
    let counts = Counts {
        wanted: sizing.wanted,
        others: machines.count(),
        named: if is_in_force { named.len() } else { 0 },
    };
    let protected = removal_protection::protected(observed, pool, staying.iter().copied(), pods);
    let unprotected = removal_protection::unprotected(observed, staying.iter().copied(), pods);
    let refusals = Refusals { account, protected: &protected, unprotected: &unprotected };
    sizing.rollout = Rollout::of(observed, pool, members, &staying, &resting, counts, refusals);
    let mut present = Present { observed, staying, machines, resting };
    present.remove_excess(&mut sizing, named, is_in_force);
    present.add_missing(&mut sizing, pool, members, replaced);
    sizing
}

/// What becomes of nodes that ask to be left alone. Those of a pool that is deleted have to go, and go last.
fn protected_nodes(pool: &NodePool) -> ProtectedNodes {
    if pool.metadata.deletion_timestamp.is_some() {
        return ProtectedNodes::Last;
    }
    pool.spec.drain.as_ref().map_or_else(ProtectedNodes::default, |drain| drain.protected_nodes)
}

/// The nodes and machines that are there. Those that are to go are taken out.
struct Present<'a> {
    observed: &'a Observed,
    /// The nodes that are not leaving.
    staying: Vec<&'a Member>,
    machines: MachinesWithoutNode<'a>,
    /// Those of the nodes that are not drained again now.
    resting: Vec<(&'a str, Timestamp)>,
}

impl Present<'_> {
    /// Withdraws requests, and says from which nodes to choose those that go, where there are more than there should be or some
    /// are out of date. The Autoscaler has `named` nodes: `is_in_force` says that it has for the present count.
    fn remove_excess(&mut self, sizing: &mut Sizing, named: Vec<&Member>, is_in_force: bool) {
        let removals_wait = self.observed.supply.removals_wait.is_some();
        let most = sizing.wanted + sizing.rollout.surge;
        let excess = (self.staying.len() + self.machines.count()).saturating_sub(most);
        let excess = if removals_wait { 0 } else { excess };
        let resting = &self.resting;
        let is_rested = |member: &Member| resting.iter().all(|(name, _)| *name != member.name());
        let is_rolling = sizing.rollout.is_active && !sizing.rollout.outdated.is_empty();
        sizing.first = named.iter().map(|member| member.name().to_owned()).collect();
        let mut named: Vec<&Member> = named.into_iter().filter(|member| is_rested(member)).collect();
        named.sort_by_key(|member| !sizing.rollout.outdated.contains_key(member.name()));
        // Nodes named for the next count may still be needed: machines that are not nodes yet are withdrawn before them.
        let now_due = if is_in_force { excess } else { 0 };
        let machines_too_many = excess - named.len().min(now_due);
        let may_withdraw = !self.observed.may_be_hidden && !removals_wait;
        let superseded = &self.machines.superseded;
        let count = superseded.len().min(self.machines.may_supersede.max(machines_too_many));
        let superseded = &superseded[..count];
        sizing.is_superseding = !superseded.is_empty();
        sizing.withdraw = superseded.iter().map(|machine| machine.name.clone()).collect();
        let others_too_many = machines_too_many.saturating_sub(superseded.len());
        let too_many = withdraw(&mut self.machines.pending, if may_withdraw { others_too_many } else { 0 });
        sizing.withdraw.extend(too_many);
        sizing.has_excess = excess > sizing.withdraw.len() || is_rolling;
        // Nodes whose drain was just called off keep their place in the excess: no other node is drained instead.
        let excess = excess.saturating_sub(sizing.withdraw.len()).saturating_sub(resting.len());
        sizing.named = named.into_iter().take(excess).map(|member| member.name().to_owned()).collect();
        // A node that is about to join cannot be a victim yet. No other one goes in its place: the choice is made among all of
        // them as soon as it is a member.
        let about_to_join = self.machines.joining + self.machines.live.len();
        sizing.excess = (excess - sizing.named.len()).saturating_sub(about_to_join);
        self.staying.retain(|member| !sizing.named.contains(member.name()));
        // Nothing is taken away while nothing can be made in its place.
        if removals_wait || sizing.unasked.is_some() {
            sizing.rollout.may_go = MayGo::default();
        }
        if sizing.excess + sizing.rollout.may_go.count() > 0 {
            let may_be_replaced = |name: &str| {
                let outdated = sizing.rollout.outdated.get(name);
                outdated.is_some_and(|outdated| sizing.rollout.may_go.has(outdated.state))
            };
            let is_candidate = |member: &Member| sizing.excess > 0 || may_be_replaced(member.name());
            let candidates = self.staying.iter().filter(|member| is_rested(member) && is_candidate(member));
            sizing.candidates = candidates.map(|member| member.name().to_owned()).collect();
        }
    }

    /// Cancels drains and requests machines where there are fewer than there should be, and registers the machines that run.
    fn add_missing(
        &self,
        sizing: &mut Sizing,
        pool: &NodePool,
        members: &[Member],
        replaced: &BTreeSet<String>,
    ) {
        let observed = self.observed;
        let most = sizing.wanted + sizing.rollout.surge;
        // They come back although others were made in their place: what is too many then goes by the next pass.
        let recovered = if sizing.deletion.is_none() {
            cancelled_drains::recovered(members, replaced)
        } else {
            BTreeSet::new()
        };
        // Victims may have to wait, so they are there.
        let present =
            self.staying.len() + recovered.len() + self.machines.count() + observed.unread().count();
        let missing = MissingNodes {
            all: most.saturating_sub(present),
            to_wanted: sizing.wanted.saturating_sub(present + sizing.rollout.draining),
        };
        sizing.uncordon = cancelled_drains::wanted_again(observed, pool, members, replaced, missing);
        let missing = missing.all - sizing.uncordon.len();
        let sure =
            (sizing.wanted + sizing.rollout.sure_surge).saturating_sub(present + sizing.uncordon.len());
        let to_wanted = sizing.wanted.saturating_sub(present + sizing.uncordon.len());
        sizing.uncordon.extend(recovered);
        let may_request =
            |all| sizing.rollout.may_request(MissingMachines { all, to_wanted }, sizing.wanted, present);
        let (could, missing) = (may_request(missing), may_request(missing.min(sure)));
        // Further machines would have their Nodes elsewhere, too.
        let are_all_elsewhere =
            members.is_empty() && observed.joining().is_empty() && observed.elsewhere().next().is_some();
        let may_grow = sizing.unasked.is_none() && !are_all_elsewhere;
        if observed.supply.may_request(observed.now) && may_grow {
            let slots = Slots::of(&observed.cluster, &observed.key);
            sizing.request = slots.lowest_free(&observed.occupied(), missing);
            sizing.surge_lacks = if sizing.rollout.unknown.is_empty() { 0 } else { could - missing };
        }
        let machines = self.machines.pending.iter().chain(&self.machines.live);
        sizing.register = machines
            .filter(|machine| matches!(machine.state, MachineState::Running))
            .map(|machine| machine.name.clone())
            .collect();
    }
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
