//! Which nodes are replaced because they are unhealthy or have lost their machines.
//!
//! A node that is not Ready may be dead, or cut off with its pods running, or everything may be well and only the control
//! plane's view of it be gone. A machine that is not listed may be gone, or its provider may list a part of its machines. Nothing
//! here tells which. So a node is replaced only after a time, only while few nodes have failed in either way, and its pods are
//! given up only when the provider has confirmed the end of its machine.

use std::collections::BTreeSet;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use shared_crds::disruption::Account;
use shared_crds::v1alpha1::DisruptionReason;
use shared_crds::{NodePool, names};

use crate::assess::health::{Ailment, ailment, has_machine, spec};
use crate::assess::membership::{Member, NodeReadiness};
use crate::{Observed, Sight};

/// Polling interval while no node is replaced for a reason that may end without an event of this pool.
const HELD_POLL: SignedDuration = SignedDuration::from_secs(30);

/// What is done about nodes that have lost their machines, and about unhealthy ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Repair {
    /// The unhealthy nodes that are replaced now, by name.
    pub names: BTreeSet<String>,
    /// The nodes that are replaced now because their machines are gone, or going, behind the operator's back, by name.
    pub lost: BTreeSet<String>,
    /// Why such nodes stay; `None` when none does.
    pub waits: Option<RepairWait>,
    /// When to look again.
    pub next: Option<Timestamp>,
}

/// Why nodes stay that are unhealthy or have lost their machines. It says nothing that changes from pass to pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepairWait {
    /// The node has not been unhealthy for long enough.
    NotDue {
        /// The node's name.
        node: String,
        /// Why it is unhealthy, and for how long it has to be.
        why: String,
    },
    /// It has, and no node is replaced now.
    Held(String),
}

/// Decides which nodes are replaced because their machines are gone, and which because they are unhealthy, of those that have been
/// Ready. `wanted` is the number of nodes that the pool should have. `can_make` says that new nodes can be made. Each unhealthy
/// node that is replaced is taken out of the `account`: what became of a lost one was decided elsewhere.
pub(crate) fn repair(
    observed: &Observed,
    pool: &NodePool,
    members: &[Member],
    wanted: usize,
    can_make: bool,
    account: &mut Account,
) -> Repair {
    let ended = ended_elsewhere(observed, members);
    if observed.supply.removals_wait.is_some() {
        return Repair { lost: ended, ..Repair::default() };
    }
    let lost = members.iter().filter(|member| member.is_lost()).map(|member| member.name().to_owned());
    let lost: BTreeSet<String> = lost.chain(ended.iter().cloned()).collect();
    if pool.metadata.deletion_timestamp.is_some() {
        // All nodes go, and none is replaced.
        return Repair { lost, ..Repair::default() };
    }
    let spec = spec(pool);
    let sick: Vec<(&Member, Ailment<'_>)> = members
        .iter()
        .filter(|member| member.readiness != NodeReadiness::Starting && has_machine(member))
        .filter_map(|member| Some((member, ailment(observed, &spec.conditions, &member.node)?)))
        .collect();
    let failed = Failed::count(members, &sick);
    let staying = sick.into_iter().filter(|(member, _)| member.stays() && !lost.contains(member.name()));
    let (due, ailing): (Vec<_>, Vec<_>) = staying.partition(|(_, ailment)| ailment.due <= observed.now);
    let next = ailing.iter().map(|(_, ailment)| ailment.due).min();
    let held = |why: String, lost: BTreeSet<String>| {
        let again = observed.now.checked_add(HELD_POLL).ok();
        let next = next.into_iter().chain(again).min();
        Repair { lost, waits: Some(RepairWait::Held(why)), next, ..Repair::default() }
    };
    let is_any_due = !due.is_empty() || lost.len() > ended.len();
    if let Some(why) = failed.brake(observed.sight, wanted, spec.bound(wanted)).filter(|_| is_any_due) {
        return held(why, ended);
    }
    let may_make = can_make && observed.supply.may_request(observed.now);
    if !due.is_empty() && !may_make {
        return held("unhealthy nodes are not replaced while no new nodes can be made".to_owned(), lost);
    }
    let (mut names, mut refused) = (BTreeSet::new(), None);
    for (member, _) in due {
        match account.take(DisruptionReason::Repair) {
            Ok(()) => {
                names.insert(member.name().to_owned());
            }
            Err(refusal) => {
                refused.get_or_insert(format!("unhealthy node {} has to wait: {refusal}", member.name()));
            }
        }
    }
    let next = next.into_iter().chain(refused.as_ref().and_then(|_| account.next())).min();
    let first = ailing.iter().min_by_key(|(member, ailment)| (ailment.since, member.name()));
    let not_due = || {
        let (member, ailment) = first?;
        Some(RepairWait::NotDue { node: member.name().to_owned(), why: ailment.to_string() })
    };
    Repair { names, lost, waits: refused.map(RepairWait::Held).or_else(not_due), next }
}

/// The nodes that stay although somebody else is ending their machines. That is decided, so no bound holds it.
fn ended_elsewhere(observed: &Observed, members: &[Member]) -> BTreeSet<String> {
    let going = observed.going();
    let is_ended = |member: &&Member| {
        let machine = names::machine_of(&member.node.metadata);
        member.stays() && member.has_finalizer && machine.is_some_and(|machine| going.contains(machine))
    };
    members.iter().filter(is_ended).map(|member| member.name().to_owned()).collect()
}

/// How many nodes count against `spec.repair.maxUnhealthy`, for however short a time they have failed: those that stay, and those
/// whose machine has not ended yet, whichever way they leave.
struct Failed {
    /// Nodes that are not Ready and whose machine their provider does not list.
    unlisted: usize,
    /// Unhealthy nodes, but those.
    unhealthy: usize,
}

impl Failed {
    fn count(members: &[Member], sick: &[(&Member, Ailment<'_>)]) -> Self {
        let is_going = |member: &Member| member.leaving.is_some_and(|it| it.deleting && !it.out_of_service);
        let counts = |member: &Member| member.stays() || is_going(member);
        let is_unlisted = |member: &Member| member.has_finalizer && member.lost.is_some();
        let unhealthy = sick.iter().filter(|(member, _)| counts(member) && !is_unlisted(member));
        Self {
            unlisted: members.iter().filter(|member| counts(member) && is_unlisted(member)).count(),
            unhealthy: unhealthy.count(),
        }
    }

    /// Why no node is replaced for its state: so many have failed that the cause is something else, such as a provider that lists
    /// a part of its machines; `None` when that is not so.
    fn brake(&self, sight: Sight, wanted: usize, bound: usize) -> Option<String> {
        let Self { unlisted, unhealthy } = *self;
        let allowed = format!("with {wanted} nodes wanted spec.repair.maxUnhealthy allows {bound}");
        let is_too_many = unlisted + unhealthy > bound;
        let too_many = is_too_many.then(|| match (unlisted, unhealthy) {
            (0, _) => format!("{}, and {allowed}", are_unhealthy(unhealthy, "")),
            (_, 0) => format!("{}, and {allowed}", are_unlisted(unlisted)),
            _ => {
                let both = [are_unlisted(unlisted), are_unhealthy(unhealthy, "other ")].join(" and ");
                format!("{both}, and {allowed} of both together")
            }
        });
        let Sight { not_ready, all } = sight;
        let outage =
            sight.is_outage().then(|| format!("{not_ready} of {all} nodes of all pools are not Ready"));
        let all = [too_many, outage].into_iter().flatten().collect::<Vec<_>>().join(", and ");
        let advice = if unlisted > 0 { "; delete the Nodes whose machines are known to be gone" } else { "" };
        (!all.is_empty()).then(|| format!("{all}, so none is replaced{advice}"))
    }
}

fn are_unhealthy(count: usize, other: &str) -> String {
    if count == 1 {
        format!("1 {other}node is unhealthy")
    } else {
        format!("{count} {other}nodes are unhealthy")
    }
}

fn are_unlisted(count: usize) -> String {
    if count == 1 {
        "the machine of 1 node is not listed any more".to_owned()
    } else {
        format!("the machines of {count} nodes are not listed any more")
    }
}
