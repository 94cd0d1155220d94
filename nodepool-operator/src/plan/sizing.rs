//! How many nodes are missing or in excess, and what is done about it: uncordon draining nodes, request machines,
//! withdraw requests, choose victims.
//!
//! The invariant: staying nodes plus requests in flight never exceed the wanted number because of a decision made here.
//! A node that cannot be read is treated as staying; an excess is computed from the readable nodes alone.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use shared_crds::NodePool;

use super::membership::{Member, Readiness};
use super::supply::{Machine, MachineState};
use super::{PoolKey, Supply, slots, victims};

/// Maximum number of nodes whose pods are listed to choose victims: one request each, so a large pool goes without.
const MAX_UNDECIDED: usize = 50;

/// What to do about the number of nodes.
#[derive(Debug, Default)]
pub(crate) struct Sizing<'a> {
    /// Drains to cancel.
    pub rescue: Vec<&'a Member>,
    /// Nodes to remove.
    pub victims: Vec<&'a Member>,
    /// Machines to request from the provider, by node name.
    pub request: Vec<String>,
    /// Requests to withdraw, by node name.
    pub withdraw: Vec<String>,
    /// Running machines to register as Node, by node name.
    pub register: Vec<String>,
    /// Nodes among which victims were chosen without knowing their pods, where listing them would be cheap enough.
    pub undecided: Vec<String>,
    /// Number of requests in flight after this pass.
    pub in_flight: usize,
}

/// The input of [`size`].
pub(crate) struct Input<'a> {
    /// The pool's key.
    pub key: &'a PoolKey,
    /// The pool.
    pub pool: &'a NodePool,
    /// Number of nodes wanted.
    pub wanted: usize,
    /// Every node of the pool.
    pub members: &'a [Member],
    /// Those members that count as replicas.
    pub staying: Vec<&'a Member>,
    /// Pods by node, where they are known.
    pub pods: &'a BTreeMap<String, Vec<Pod>>,
    /// Names of nodes that cannot be read.
    pub unreadable: &'a BTreeSet<String>,
    /// Number of unreadable nodes that count, without the foreign ones.
    pub unread: usize,
    /// The state of the provider's requests.
    pub supply: &'a Supply,
    /// The current time.
    pub now: Timestamp,
}

/// Decides on the number of nodes.
pub(crate) fn size(input: Input<'_>) -> Sizing<'_> {
    let Input { key, pool, wanted, members, mut staying, pods, unreadable, unread, supply, now } = input;
    let existing = existing(members, unreadable);
    let mut machines: Vec<&Machine> =
        supply.machines.iter().filter(|machine| !existing.contains(machine.name.as_str())).collect();
    let mut sizing = Sizing::default();

    let excess = (staying.len() + machines.len()).saturating_sub(wanted);
    let named = victims::named(pool, &staying);
    // Nodes named for the next count may still be needed: machines that are not nodes yet are withdrawn before them.
    let now_due = if pool.scale_down_in_force().is_some() { excess } else { 0 };
    let machines_too_many = excess - named.len().min(now_due);
    sizing.withdraw = take_back(&mut machines, machines_too_many);
    let excess = excess - sizing.withdraw.len();
    let named: Vec<&Member> = named.into_iter().take(excess).collect();
    let excess = excess - named.len();
    let chosen: BTreeSet<&str> = named.iter().map(|member| member.name()).collect();
    let rest: Vec<&Member> =
        staying.iter().copied().filter(|member| !chosen.contains(member.name())).collect();
    if (1..rest.len()).contains(&excess) && rest.len() <= MAX_UNDECIDED {
        sizing.undecided =
            rest.iter().map(|m| m.name().to_owned()).filter(|name| !pods.contains_key(name)).collect();
    }
    sizing.victims = named;
    sizing.victims.extend(victims::in_order(rest, pods).into_iter().take(excess));
    let leaving: BTreeSet<&str> = sizing.victims.iter().map(|victim| victim.name()).collect();
    staying.retain(|member| !leaving.contains(member.name()));

    let missing = wanted.saturating_sub(staying.len() + machines.len() + unread);
    sizing.rescue = rescuable(members).into_iter().take(missing).collect();
    let missing = missing - sizing.rescue.len();
    if supply.may_ask(now) {
        let mut occupied = existing;
        occupied.extend(machines.iter().map(|machine| machine.name.as_str()));
        occupied.extend(supply.taken.iter().map(String::as_str));
        sizing.request = slots::lowest_free(key, &occupied, missing);
    }
    sizing.register = machines
        .iter()
        .filter(|machine| matches!(machine.state, MachineState::Running))
        .map(|machine| machine.name.clone())
        .collect();
    sizing.in_flight = machines.len() + sizing.request.len();
    sizing
}

/// The names of the existing nodes, including those that cannot be read.
pub(crate) fn existing<'a>(members: &'a [Member], unreadable: &'a BTreeSet<String>) -> BTreeSet<&'a str> {
    members.iter().map(Member::name).chain(unreadable.iter().map(String::as_str)).collect()
}

/// Removes up to `count` requests from `machines`: those that would take longest first.
fn take_back(machines: &mut Vec<&Machine>, count: usize) -> Vec<String> {
    machines.sort_by(|a, b| (a.state.ready_at(), &a.name).cmp(&(b.state.ready_at(), &b.name)));
    let keep = machines.len().saturating_sub(count);
    machines.split_off(keep).into_iter().map(|machine| machine.name.clone()).collect()
}

/// Nodes whose drain can be cancelled, best first: Ready ones, then those whose drain started last, because most of
/// their pods are still there. A deleted Node cannot be brought back.
fn rescuable(members: &[Member]) -> Vec<&Member> {
    let mut nodes: Vec<&Member> =
        members.iter().filter(|member| member.leaving.is_some_and(|leaving| !leaving.deleting)).collect();
    nodes.sort_by_key(|member| {
        let started = member.leaving.and_then(|leaving| leaving.drain_started);
        (member.readiness != Readiness::Ready, std::cmp::Reverse(started), member.name())
    });
    nodes
}
