//! **What should happen to a pool**, decided from what was observed and from nothing else: no client, no clock, no
//! randomness. The same input always gives the same [`Plan`].
//!
//! What a provider says of a pool comes in as [`Supply`]. Only those modules of `machine_providers` are used here that do no
//! I/O: `cargo xtask check` fails on another one.
//!
//! There are two steps, because pods are not watched: [`classify()`] derives the state of each node and names the nodes
//! whose pods have to be read, and [`plan()`] decides once they have been read.
//!
//! | file | decides |
//! |---|---|
//! | `model`, `decision`, `pod_name`, `blocker` | nothing: they define the input and the output |
//! | `classify` | whose pods have to be read |
//! | `membership` | the state of each node |
//! | `pods` | which pods keep a node |
//! | `observed_time` | whether this process itself has measured that a time has passed |
//! | `frozen` | why nothing may be changed |
//! | `elsewhere` | which machines without a Node here may have a live one |
//! | `absence` | whether a machine that its provider does not have is gone |
//! | `contested` | whether another writer has set the number of machines, and what follows |
//! | `machines` | which Nodes join the pool, and which marks of machines are taken back |
//! | `sizing` | how many nodes are missing or in excess |
//! | `budgets` | which nodes count as disrupted, and why |
//! | `victims` | which nodes are removed |
//! | `repair` | which nodes are replaced because they are unhealthy or have lost their machines |
//! | `outage` | whether too many nodes of all pools have failed for the nodes to be the cause |
//! | `rollout` | which nodes are out of date, and how many of them may go |
//! | `in_place` | what of a changed template reaches existing nodes |
//! | `drain`, `drain_limits`, `attached` | the next step of a leaving node |
//! | `template` | content of a new node |
//! | `patches` | how a decision is written so that it cannot be applied to the wrong object |
//! | `visits` | when to come back without an event |
//! | `numbers` | nothing: it writes numbers of nodes |

mod absence;
mod attached;
mod blocker;
pub(crate) mod budgets;
mod classify;
pub(crate) mod contested;
mod decision;
pub(crate) mod drain;
mod drain_limits;
pub(crate) mod elsewhere;
mod frozen;
mod in_place;
mod machines;
pub(crate) mod membership;
mod model;
pub(crate) mod numbers;
pub(crate) mod observed_time;
mod outage;
pub(crate) mod patches;
mod pod_name;
pub(crate) mod pods;
mod pool_finalizer;
pub(crate) mod reads;
pub(crate) mod repair;
pub(crate) mod rollout;
pub(crate) mod sizing;
pub(crate) mod template;
pub(crate) mod victims;
mod visits;

#[cfg(test)]
mod another_cluster_tests;
#[cfg(test)]
mod disturbance;
#[cfg(test)]
mod invariant_tests;
#[cfg(test)]
mod join_tests;
#[cfg(test)]
mod model_cluster;
#[cfg(test)]
mod model_writes;
#[cfg(test)]
mod plan_tests;
#[cfg(test)]
mod removal_tests;
#[cfg(test)]
mod repair_tests;
#[cfg(test)]
mod sized_tests;
#[cfg(test)]
mod start_tests;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod unread_tests;
#[cfg(test)]
mod visits_tests;

use std::collections::BTreeSet;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
pub(crate) use machine_providers::keys::{ClusterId, PoolKey};
pub(crate) use machine_providers::supply::{Absence, Supply};
use shared_crds::conditions::Reason;
use shared_crds::v1alpha1::DisruptionReason;
use shared_crds::{NodePool, names};

pub(crate) use self::blocker::Blocker;
pub(crate) use self::classify::{Classified, classify};
pub(crate) use self::decision::{JoinStep, Plan, Stall};
use self::drain_limits::DrainLimits;
use self::in_place::InPlace;
use self::membership::Member;
pub(crate) use self::model::{
    AttachedVolumes, DrainStep, NodeAction, NodeStep, Observed, ObservedPods, PodReads, Pods, PoolStep,
};
pub(crate) use self::outage::Sight;
pub(crate) use self::pod_name::PodName;
use self::repair::Repair;
pub(crate) use self::repair::RepairWait;
use self::rollout::Standard;
use self::sizing::{Sizing, Victims};
use self::template::{Blueprint, Invalid};

/// Polling interval of a pool with an unreadable node: no watch event reports that it became readable or is gone.
const UNREADABLE_POLL: SignedDuration = SignedDuration::from_secs(30);

/// Polling interval of the pods that protect their nodes: pods are not watched.
const PROTECTED_POLL: SignedDuration = SignedDuration::from_secs(15);

/// Decides what happens to a pool. `pods` are those that [`classify()`] asked for, as far as they could be read.
pub(crate) fn plan(observed: &Observed, classified: Classified, pods: &ObservedPods) -> Plan {
    let Classified { reads: _, mut members, sizing } = classified;
    for member in &mut members {
        if let Some(pods) = pods.of(member.name()) {
            member.learn_from(pods);
        }
    }
    let Some(pool) = observed.pool.as_deref() else { return without_pool(observed, members, pods) };
    let frozen = frozen::frozen(observed, pool, &members);
    // The deletion of a pool goes on: each node is deleted by the provider that made it.
    let is_held = frozen.is_some() && pool.metadata.deletion_timestamp.is_none();
    match sizing.filter(|_| !is_held) {
        Some(sizing) => active(observed, pool, members, sizing, pods),
        None => while_paused(observed, pool, members, frozen),
    }
}

/// The pool is gone. Nodes that are being deleted are drained and their finalizer is removed; the others are left
/// alone, with their pods.
fn without_pool(observed: &Observed, members: Vec<Member>, pods: &ObservedPods) -> Plan {
    let requeue_at = visits::next(observed, &members, None);
    let action = |member: &Member| {
        let deleting = member.leaving.is_some_and(|leaving| leaving.deleting);
        if deleting {
            drain::leave(member, pods, DrainLimits::default(), observed.now)
        } else {
            NodeAction::Keep
        }
    };
    Plan {
        nodes: steps(observed, members, action),
        withdraw: observed.withdrawable().map(|machine| machine.name.clone()).collect(),
        requeue_at,
        ..Plan::default()
    }
}

/// The pool is paused or frozen. Nothing changes but the status and the annotation that a node has been Ready, which is lost if it is not written.
/// Nodes and pools that are being deleted wait too, kept by their finalizers.
fn while_paused(observed: &Observed, pool: &NodePool, members: Vec<Member>, frozen: Option<Stall>) -> Plan {
    let action = |member: &Member| match (member.stays(), member.lacks_mark()) {
        (true, true) => NodeAction::MarkReady,
        (true, false) => NodeAction::Keep,
        (false, _) => NodeAction::Wait,
    };
    let blueprint = Blueprint::of(&observed.key, pool, &observed.supply.source);
    let in_place = blueprint.as_ref().ok().map(|blueprint| InPlace::new(pool, &blueprint.marks));
    let not_updated = not_updated(in_place.as_ref(), &Standard::of(pool, observed.now), &members);
    let (template_hash, invalid) = reported(&blueprint);
    let stalled = frozen.or(invalid);
    let wanted = sizing::wanted(observed, pool, &members);
    Plan {
        wanted,
        budget_problems: budgets::problems(observed, pool, wanted),
        not_updated,
        template_hash,
        stalled,
        nodes: steps(observed, members, action),
        requeue_at: visits::next_list(observed),
        ..Plan::default()
    }
}

/// The nodes that lack something of the template that can be changed on them.
fn not_updated(
    in_place: Option<&InPlace<'_>>,
    standard: &Standard<'_>,
    members: &[Member],
) -> BTreeSet<String> {
    let Some(in_place) = in_place else { return BTreeSet::new() };
    // Leaving ones may come back in this pass.
    let due = members.iter().filter(|member| in_place.is_due(member, standard.outdated(member).is_some()));
    due.map(|member| member.name().to_owned()).collect()
}

fn active(
    observed: &Observed,
    pool: &NodePool,
    members: Vec<Member>,
    sizing: Sizing,
    pods: &ObservedPods,
) -> Plan {
    let now = observed.now;
    let deleting = pool.metadata.deletion_timestamp.is_some();
    let blueprint = Blueprint::of(&observed.key, pool, &observed.supply.source);
    let start_timeout = membership::start_timeout(pool);
    // A node counts as never started only after its pods were listed. Without the finalizer its machine would be left
    // when the Node goes, and become a Node again: it gets the finalizer first.
    let never_started: BTreeSet<String> = members
        .iter()
        .filter(|member| member.has_timed_out(start_timeout, now) && pods.of(member.name()).is_some())
        .filter(|member| member.has_finalizer && observed.supply.removals_wait.is_none())
        .map(|member| member.name().to_owned())
        .collect();
    let going = observed.going();
    let mut account = budgets::account(observed, pool, &members, sizing.wanted);
    let Repair { names: repaired, lost, waits: repair_waits, next: next_repair } =
        repair::repair(observed, pool, &members, sizing.wanted, blueprint.is_ok(), &mut account);
    let replaced: BTreeSet<String> =
        [&never_started, &lost, &repaired].into_iter().flatten().cloned().collect();
    // Without such nodes the number of nodes is what it was before the pods were read.
    let sizing = if replaced.is_empty() {
        sizing
    } else {
        sizing::size(observed, pool, &members, &replaced, &account)
    };
    let chosen = sizing.victims(observed, &members, pods, &mut account);
    let next_choice = visits::undecided(&chosen, pods, now);
    let Victims { reasons: victims, mut held, refused, protected, is_undecided: _ } = chosen;
    let requeue_at = visits::next(observed, &members, start_timeout);
    let standard = Standard::of(pool, now);
    let next_rollout =
        standard.next(&members).into_iter().chain(rollout::deadline(pool)).filter(|at| *at > now).min();

    let limits = DrainLimits::of(pool);
    let has_nodes = !members.is_empty();
    let leaving: BTreeSet<String> = members
        .iter()
        .filter(|member| member.leaving.is_some_and(|leaving| leaving.deleting))
        .filter_map(|member| names::machine_of(&member.node.metadata).map(str::to_owned))
        .collect();
    let in_place = blueprint.as_ref().ok().map(|blueprint| InPlace::new(pool, &blueprint.marks));
    let is_outdated = |member: &Member| standard.outdated(member).is_some();
    let not_updated = not_updated(in_place.as_ref(), &standard, &members);
    // What is noted before a node is repaired stands until it is, or is well again.
    let unhealthy: BTreeSet<String> =
        repair::unhealthy(pool, &members).into_iter().map(str::to_owned).collect();
    let update = |member: &Member| in_place.as_ref()?.update(member, is_outdated(member));
    let nodes = steps(observed, members, |member| {
        if lost.contains(member.name()) {
            NodeAction::ReplaceLost
        } else if never_started.contains(member.name()) {
            NodeAction::Replace
        } else if repaired.contains(member.name()) {
            NodeAction::Repair
        } else if sizing.uncordon.contains(member.name()) {
            NodeAction::Uncordon
        } else if victims.contains_key(member.name()) && member.has_finalizer {
            NodeAction::Cordon
        } else if !member.stays() {
            match drain::leave(member, pods, limits, now) {
                // Until its Node is deleted, the drain can be cancelled.
                NodeAction::Remove => wait(observed, member).unwrap_or(NodeAction::Remove),
                NodeAction::Drain(step) if is_ending(&going, member, &step) => NodeAction::Wait,
                action => action,
            }
        } else if !member.has_finalizer {
            NodeAction::Adopt
        } else if member.tainted
            || (member.has_stale_cause && !unhealthy.contains(member.name()))
            || (member.given_back.is_some() && !sizing.has_excess)
        {
            NodeAction::Tidy
        } else if member.lacks_mark() {
            NodeAction::MarkReady
        } else {
            update(member).map_or(NodeAction::Keep, NodeAction::Update)
        }
    });
    let with_cause = |step: NodeStep| {
        let cause = match step.action {
            NodeAction::Cordon if deleting => None,
            NodeAction::Cordon => victims.get(step.member.name()).copied(),
            NodeAction::Repair => Some(DisruptionReason::Repair),
            _ => None,
        };
        NodeStep { cause, ..step }
    };
    let nodes = nodes.into_iter().map(with_cause).collect();

    // While a node cannot be read or the machines cannot be listed, the number of nodes is not known, not even that it is
    // zero.
    let all_read = observed.unread().next().is_none() && !observed.supply.is_unknown;
    let unread = (!all_read).then(|| now.checked_add(UNREADABLE_POLL).unwrap_or(Timestamp::MAX));
    let held_until = (!held.is_empty()).then(|| now.checked_add(PROTECTED_POLL).unwrap_or(Timestamp::MAX));
    let held_until = held_until.into_iter().chain(next_choice);
    let held_until = held_until.chain(account.next().filter(|_| !deleting));
    held.extend(refused);
    let (template_hash, stalled) = reported(&blueprint);
    let (register, request) = match blueprint {
        Ok(blueprint) => {
            let node = |name: &String| blueprint.node(name, observed.supply.traits.get(name));
            (sizing.register.iter().filter_map(node).collect(), sizing.request)
        }
        // It is not known what the nodes should look like.
        Err(_) => (Vec::new(), Vec::new()),
    };
    let machines_gone = (deleting && !sizing.withdraw.is_empty()).then(|| visits::withdrawn(now));
    let may_have_machines = !observed.supply.machines.is_empty() || observed.supply.uncertain_until.is_some();
    let unmark = machines::marked_for_nothing(observed, &leaving, &sizing.withdraw, &sizing.timed_out);
    Plan {
        pool: pool_finalizer::step(pool, has_nodes || may_have_machines || !all_read),
        fill: (pool.spec.replicas.is_none() && !deleting && all_read)
            .then(|| i32::try_from(sizing.wanted).unwrap_or(i32::MAX)),
        wanted: sizing.wanted,
        template_hash,
        stalled,
        nodes,
        held,
        repair_waits,
        budget_problems: budgets::problems(observed, pool, sizing.wanted),
        not_updated,
        protected,
        request,
        withdraw: sizing.withdraw,
        unmark,
        timed_out: sizing.timed_out,
        register,
        left_over: observed.left_over().cloned().collect(),
        join: machines::join(observed, pool),
        requeue_at: requeue_at
            .into_iter()
            .chain(unread)
            .chain(machines_gone)
            .chain(held_until)
            .chain(next_repair)
            .chain(next_rollout)
            .min(),
    }
}

/// Whether nothing but finalizers keeps the node, and whoever ends its machine is at it.
fn is_ending(going: &BTreeSet<&str>, member: &Member, step: &DrainStep) -> bool {
    let machine = names::machine_of(&member.node.metadata);
    matches!(step.only_waits_for(), Some(Blocker::Finalizers(_)))
        && machine.is_some_and(|machine| going.contains(machine))
}

/// The step of a node that has to wait with its deletion until its provider may remove a machine; `None` when it need not.
fn wait(observed: &Observed, member: &Member) -> Option<NodeAction> {
    let unlisted = || observed.unlisted(member).map(str::to_owned);
    let why = observed.supply.removals_wait.clone().or_else(unlisted)?;
    let is_deleted = member.leaving.is_some_and(|leaving| leaving.deleting);
    (!is_deleted).then(|| NodeAction::Drain(DrainStep::waits(Blocker::Provider(why), true)))
}

/// The hash of the template, or why there is none.
fn reported(blueprint: &Result<Blueprint, Invalid>) -> (Option<String>, Option<Stall>) {
    match blueprint {
        Ok(blueprint) => (Some(blueprint.marks.hash.clone()), None),
        Err(invalid) => (None, Some(Stall { reason: Reason::InvalidSpec, message: invalid.to_string() })),
    }
}

fn steps(observed: &Observed, members: Vec<Member>, action: impl Fn(&Member) -> NodeAction) -> Vec<NodeStep> {
    let all: Vec<&Member> = members.iter().collect();
    let absences: Vec<Absence> =
        members.iter().map(|member| absence::absence(observed, &all, member)).collect();
    let step = |(member, absence): (Member, Absence)| NodeStep {
        action: action(&member),
        cause: None,
        absence,
        member,
    };
    members.into_iter().zip(absences).map(step).collect()
}
