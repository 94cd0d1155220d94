//! How many nodes are missing or in excess, and what is done about it: uncordon draining nodes, request machines,
//! withdraw requests, choose victims.
//!
//! The invariant: staying nodes plus requests in flight never exceed the wanted number because of a decision made here.
//! A node that cannot be read is treated as staying; an excess is computed from the readable nodes alone.

use std::collections::BTreeSet;

use shared_crds::NodePool;

use super::contested::MachinesWriter;
use super::membership::{Member, Readiness, start_timeout};
use super::numbers::number;
use super::supply::{Machine, MachineState};
use super::{Observed, ObservedPods, slots, victims};

/// Maximum number of nodes whose pods are listed to choose victims: one request each, so a large pool goes without.
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
    /// Nodes to remove that the Autoscaler named.
    named: BTreeSet<String>,
    /// Number of nodes to remove besides the named ones.
    excess: usize,
    /// The nodes from which the excess is chosen; empty without an excess.
    candidates: BTreeSet<String>,
}

impl Sizing {
    /// The nodes to remove. Which of the candidates these are may depend on their pods.
    pub(crate) fn victims(&self, members: &[Member], pods: &ObservedPods) -> BTreeSet<String> {
        let candidates = members.iter().filter(|member| self.candidates.contains(member.name())).collect();
        let chosen = victims::in_order(candidates, &pods.by_node).into_iter().take(self.excess);
        self.named.iter().cloned().chain(chosen.map(|member| member.name().to_owned())).collect()
    }

    /// The candidates, where their pods help to choose among them and listing them is cheap enough.
    pub(crate) fn undecided(&self) -> BTreeSet<String> {
        let helps = (1..self.candidates.len()).contains(&self.excess);
        if helps && self.candidates.len() <= MAX_UNDECIDED {
            self.candidates.clone()
        } else {
            BTreeSet::new()
        }
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

/// Decides on the number of nodes. The nodes in `replaced` do not count as replicas any more.
pub(crate) fn size(
    observed: &Observed,
    pool: &NodePool,
    members: &[Member],
    replaced: &BTreeSet<String>,
) -> Sizing {
    let counts = |member: &&Member| member.stays() && !replaced.contains(member.name());
    let mut staying: Vec<&Member> = members.iter().filter(counts).collect();
    let (timed_out, mut machines): (Vec<&Machine>, Vec<&Machine>) =
        observed.in_flight().partition(|machine| has_timed_out(observed, pool, machine));
    let timed_out = timed_out.into_iter().map(|machine| machine.name.clone()).collect();
    let mut sizing = Sizing { wanted: wanted(observed, pool, members), timed_out, ..Sizing::default() };

    // Their machines cannot be withdrawn any more.
    let joining = observed.joining().len();
    let excess = (staying.len() + machines.len() + joining).saturating_sub(sizing.wanted);
    let may_remove = !observed.may_be_hidden && observed.supply.removals_wait.is_none();
    let excess = if observed.supply.removals_wait.is_none() { excess } else { 0 };
    let named = victims::named(pool, &staying);
    // Nodes named for the next count may still be needed: machines that are not nodes yet are withdrawn before them.
    let now_due = if pool.scale_down_in_force().is_some() { excess } else { 0 };
    let machines_too_many = excess - named.len().min(now_due);
    let machines_too_many = if may_remove { machines_too_many } else { 0 };
    sizing.withdraw = withdraw(&mut machines, machines_too_many);
    let excess = excess - sizing.withdraw.len();
    sizing.named = named.into_iter().take(excess).map(|member| member.name().to_owned()).collect();
    // A node that is about to join cannot be a victim yet. No other one goes in its place: the choice is made among all of
    // them as soon as it is a member.
    sizing.excess = (excess - sizing.named.len()).saturating_sub(joining);
    staying.retain(|member| !sizing.named.contains(member.name()));
    if sizing.excess > 0 {
        sizing.candidates = staying.iter().map(|member| member.name().to_owned()).collect();
    }

    let unread = observed.unread().count();
    let staying = staying.len().saturating_sub(sizing.excess);
    let missing = sizing.wanted.saturating_sub(staying + machines.len() + joining + unread);
    let uncordoned = drains_to_cancel(members).into_iter().take(missing);
    sizing.uncordon = uncordoned.map(|member| member.name().to_owned()).collect();
    let missing = missing - sizing.uncordon.len();
    if observed.supply.may_request(observed.now) {
        sizing.request = slots::lowest_free(&observed.key, &observed.occupied(), missing);
    }
    sizing.register = machines
        .iter()
        .filter(|machine| matches!(machine.state, MachineState::Running))
        .map(|machine| machine.name.clone())
        .collect();
    sizing
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

/// Nodes whose drain can be cancelled, best first: Ready ones, then those whose drain started last, because most of
/// their pods are still there. A deleted Node cannot be brought back.
fn drains_to_cancel(members: &[Member]) -> Vec<&Member> {
    let mut nodes: Vec<&Member> =
        members.iter().filter(|member| member.leaving.is_some_and(|leaving| !leaving.deleting)).collect();
    nodes.sort_by_key(|member| {
        let started = member.leaving.and_then(|leaving| leaving.drain_started);
        (member.readiness != Readiness::Ready, std::cmp::Reverse(started), member.name())
    });
    nodes
}
