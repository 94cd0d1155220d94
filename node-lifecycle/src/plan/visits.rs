//! When a pool has to be visited again although no event says so.

use std::collections::BTreeSet;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::assess::contested::MachinesWriter;
use crate::assess::drain_limits::DrainLimits;
use crate::assess::membership::Member;
use crate::count::sizing;
use crate::count::victim_selection::Victims;
use crate::drain;
use crate::input::supply::{Machine, MachineState, NodeSource};
use crate::{Observed, ObservedPods};

/// Polling interval of a provider while a machine is between two states that no event reports.
const MACHINE_POLL: SignedDuration = SignedDuration::from_secs(5);
/// Polling interval of a provider whose machines register their Nodes themselves: finds machines that were not asked for, and
/// those that went away.
const MACHINE_RESYNC: SignedDuration = SignedDuration::from_secs(60);

/// Polling interval of a machine that was withdrawn or has failed while its pool is being deleted, or was withdrawn for its template: it
/// may be gone with the next list.
const WITHDRAWN_POLL: SignedDuration = SignedDuration::from_secs(1);
/// Polling interval of a choice that more nodes than a pass looks at are left for, and in which nothing was learned.
const UNDECIDED_POLL: SignedDuration = SignedDuration::from_secs(15);

/// When something is due without an event: a machine is expected, the provider's backoff ends, a node's start times
/// out, a cordoned node may be removed. Never now: what is due now is done in this pass, or waits for something else, which
/// has its own polling interval.
pub(crate) fn next(
    observed: &Observed,
    members: &[Member],
    start_timeout: Option<SignedDuration>,
) -> Option<Timestamp> {
    let now = observed.now;
    let machines = next_list(observed).into_iter();
    let given_up = observed.in_flight().filter_map(|machine| {
        let rest = start_timeout?.checked_sub(observed.machine_times.of_machine(&machine.name))?;
        now.checked_add(rest.max(SignedDuration::ZERO)).ok()
    });
    let given_up = given_up.filter(|at| *at > now);
    let retry = observed.supply.failure.as_ref().map(|failure| failure.retry_at).filter(|at| *at > now);
    let deadlines = members
        .iter()
        .filter(|member| member.stays())
        .filter_map(|member| member.start_deadline(start_timeout?, now))
        .filter(|at| *at > now);
    let lost = members.iter().filter(|member| member.stays()).filter_map(|member| member.lost_at(now));
    let lost = lost.filter(|at| *at > now);
    let removals =
        members.iter().filter_map(|member| drain::margin_end(member.leaving?, now)).filter(|end| *end > now);
    let limits = observed.pool.as_deref().map_or_else(DrainLimits::default, DrainLimits::of);
    let let_go = members.iter().filter_map(|member| drain::let_go_at(member, limits, now));
    let let_go = let_go.filter(|at| *at > now);
    let writer = observed.pool.as_deref().map(|pool| MachinesWriter::of(pool, &observed.supply, now));
    let contest = writer.and_then(|writer| writer.contest).map(|contest| contest.until());
    let contest = contest.filter(|at| *at > now);
    let resting = observed.pool.as_deref().map_or_else(Vec::new, |pool| sizing::resting(pool, members, now));
    let of_nodes = deadlines.chain(lost).chain(removals).chain(let_go);
    let of_nodes = of_nodes.chain(resting.into_iter().map(|(_, end)| end));
    machines.chain(given_up).chain(contest).chain(retry).chain(of_nodes).min()
}

/// When the provider has to be asked again.
pub(crate) fn next_list(observed: &Observed) -> Option<Timestamp> {
    let now = observed.now;
    let after = |interval| now.checked_add(interval).unwrap_or(Timestamp::MAX);
    let registers_itself = observed.supply.source == Ok(NodeSource::Kubelet);
    let in_flight: BTreeSet<&str> = observed.in_flight().map(|machine| &*machine.name).collect();
    let of_machine = |machine: &Machine| match machine.state {
        MachineState::Starting { until: Some(until) } if until > now => Some(until),
        MachineState::Starting { until: _ } | MachineState::Deleting => Some(after(MACHINE_POLL)),
        // Its Node may have registered before the provider knew the provider ID.
        MachineState::Running => {
            (registers_itself && in_flight.contains(&*machine.name)).then(|| after(MACHINE_POLL))
        }
    };
    let machines = observed.supply.machines.iter().filter_map(of_machine);
    // While the machines cannot be listed, what should have come by now stays uncertain.
    let uncertain = observed.supply.uncertain_until.filter(|until| *until > now);
    let uncertain = uncertain.map(|until| until.min(after(MACHINE_POLL)));
    // A list that fails has a backoff of its own.
    let is_waiting = observed.supply.removals_wait.is_some() && !observed.supply.is_unknown;
    let waiting = is_waiting.then(|| after(MACHINE_POLL));
    let resync = registers_itself.then(|| after(MACHINE_RESYNC));
    machines.chain(uncertain).chain(waiting).chain(resync).min()
}

/// When the choice of victims goes on, with nodes that were not looked at. At once if this pass decided something or found
/// nodes that the next one need not look at; otherwise it would look at the same ones.
pub(crate) fn undecided(victims: &Victims, pods: &ObservedPods, now: Timestamp) -> Option<Timestamp> {
    let has_learned = !victims.protected.is_empty() || !victims.unprotected.is_empty();
    let is_new = !victims.reasons.is_empty() || has_learned;
    let wait = if is_new { SignedDuration::ZERO } else { UNDECIDED_POLL };
    let due = now.checked_add(wait).unwrap_or(Timestamp::MAX);
    victims.is_undecided.then(|| due.max(pods.next_list(now)))
}

/// When to look whether machines are gone that this pass withdraws: the pool's finalizer may then go, or others come in their place.
pub(crate) fn withdrawn(now: Timestamp) -> Timestamp {
    now.checked_add(WITHDRAWN_POLL).unwrap_or(Timestamp::MAX)
}
