//! What happens to a pool in a pass, from the states of its nodes and their pods.

use std::collections::BTreeSet;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use shared_crds::NodePool;
use shared_crds::conditions::Reason;
use shared_crds::v1alpha1::DisruptionReason;

use crate::assess::drain_limits::DrainLimits;
use crate::assess::membership::{self, Member};
use crate::assess::on_delete::OnDelete;
use crate::assess::outdated::{self, OutdatedCriteria};
use crate::count::disruption_account;
use crate::count::sizing::{self, Sizing};
use crate::count::unasked::unasked;
use crate::count::victim_selection::Victims;
use crate::input::observed::{Observed, ObservedPods};
use crate::plan::actions::Actions;
use crate::plan::choices::{self, Choices};
use crate::plan::classify::Classified;
use crate::plan::decision::{Plan, Stall};
use crate::plan::in_place::InPlace;
use crate::plan::same_step::{UNREADABLE_POLL, steps};
use crate::plan::{frozen, machines, orphaning_pool, pace, pool_finalizer, pool_gone, visits};
use crate::remove::Ground;
use crate::template::{Blueprint, Invalid};
use crate::{NodeAction, NodeStep};

/// Polling interval of the pods that protect their nodes: pods are not watched.
const PROTECTED_POLL: SignedDuration = SignedDuration::from_secs(15);

/// Decides what happens to a pool. `pods` are those that [`classify`](crate::classify()) asked for, as far as they could be read.
pub fn plan(observed: &Observed, classified: Classified, pods: &ObservedPods) -> Plan {
    let failed = if observed.leaves_machines() { Vec::new() } else { machines::failed(observed) };
    Plan { failed, ..of_pool(observed, classified, pods) }
}

fn of_pool(observed: &Observed, classified: Classified, pods: &ObservedPods) -> Plan {
    let Classified { reads: _, mut members, sizing } = classified;
    for member in &mut members {
        if let Some(pods) = pods.of(member.name()) {
            member.learn_from(pods);
        }
    }
    let Some(pool) = observed.pool.as_deref() else { return pool_gone::plan(observed, members, pods) };
    OutdatedCriteria::of(pool, observed.now).assess(&mut members);
    match OnDelete::due(pool).filter(|_| !pool.spec.paused) {
        Some(OnDelete::Orphan) => return orphaning_pool::plan(observed, pool, members, pods),
        Some(OnDelete::Unknown(value)) => {
            return while_paused(observed, pool, members, Some(orphaning_pool::unknown(&value)));
        }
        Some(OnDelete::Drain) | None => {}
    }
    let frozen = frozen::frozen(observed, pool, &members);
    // The deletion of a pool goes on: each node is deleted by the provider that made it.
    let is_held = frozen.is_some() && pool.metadata.deletion_timestamp.is_none();
    if let Some(sizing) = sizing.filter(|_| !is_held) {
        return active(observed, pool, members, sizing, pods);
    }
    let wanted = sizing::wanted(observed, pool, &members);
    let unasked = unasked(observed, pool, &members, wanted);
    let frozen = frozen.or_else(|| unasked.map(frozen::too_many_machines));
    while_paused(observed, pool, members, frozen)
}

/// The pool is paused or frozen, or its deletion waits. Nothing changes but the status and the annotation that a node has been Ready, which is lost if it is not written.
/// Nodes and pools that are being deleted wait too, kept by their finalizers.
fn while_paused(observed: &Observed, pool: &NodePool, members: Vec<Member>, frozen: Option<Stall>) -> Plan {
    let action = |member: &Member| match (member.stays(), member.lacks_mark()) {
        (true, true) => NodeAction::MarkReady,
        (true, false) => NodeAction::Keep,
        (false, _) => NodeAction::Wait,
    };
    let blueprint = Blueprint::of(&observed.key, pool, &observed.supply.source);
    let in_place = blueprint.as_ref().ok().map(|blueprint| InPlace::new(pool, &blueprint.metadata));
    let not_updated = not_updated(in_place.as_ref(), &members);
    let (template_hash, invalid) = reported(&blueprint);
    let stalled = frozen.or(invalid);
    let wanted = sizing::wanted(observed, pool, &members);
    Plan {
        wanted,
        budget_problems: disruption_account::problems(observed, pool, wanted),
        not_updated,
        template_hash,
        stalled,
        nodes: steps(observed, members, action),
        requeue_at: visits::next_list(observed),
        ..Plan::default()
    }
}

/// The nodes that lack something of the template that can be changed on them.
fn not_updated(in_place: Option<&InPlace<'_>>, members: &[Member]) -> BTreeSet<String> {
    let Some(in_place) = in_place else { return BTreeSet::new() };
    // Leaving ones may come back in this pass.
    let due = members.iter().filter(|member| in_place.is_due(member, member.outdated.is_outdated()));
    due.map(|member| member.name().to_owned()).collect()
}

fn active(
    observed: &Observed,
    pool: &NodePool,
    members: Vec<Member>,
    sizing: Sizing,
    pods: &ObservedPods,
) -> Plan {
    let deleting = pool.metadata.deletion_timestamp.is_some();
    let blueprint = Blueprint::of(&observed.key, pool, &observed.supply.source);
    let choices = choices::choose(observed, pool, &members, sizing, pods, blueprint.is_ok());
    let criteria = OutdatedCriteria::of(pool, observed.now);
    let requeue_at = requeue_at(observed, pool, &members, &criteria, &choices, pods);
    let in_place = blueprint.as_ref().ok().map(|blueprint| InPlace::new(pool, &blueprint.metadata));
    let not_updated = not_updated(in_place.as_ref(), &members);
    let (has_nodes, leaving) = (!members.is_empty(), machines::leaving(&members));
    let steps = node_steps(observed, pool, members, pods, &choices, in_place.as_ref());
    let nodes = pace::paced(steps, observed.now);
    let requeue_at = requeue_at.into_iter().chain(pace::next(&nodes, observed.now)).min();

    let Choices { removals, sizing, account: _, victims } = choices;
    let Victims { reasons: _, mut held, refused, protected, unprotected, unread, is_undecided: _ } = victims;
    held.extend(refused);
    let (template_hash, invalid) = reported(&blueprint);
    let stalled = sizing.unasked.map(frozen::too_many_machines).or(invalid);
    // A Node that joined could be drained as one too many, and its machine removed.
    let join = if sizing.unasked.is_some() { Vec::new() } else { machines::join(observed, pool) };
    let (register, request) = match blueprint {
        Ok(blueprint) => {
            let node = |name: &String| blueprint.node(name, observed.supply.traits.get(name));
            (sizing.register.iter().filter_map(node).collect(), sizing.request)
        }
        // It is not known what the nodes should look like.
        Err(_) => (Vec::new(), Vec::new()),
    };
    let may_have_machines = !observed.supply.machines.is_empty() || observed.supply.uncertain_until.is_some();
    let unmark = machines::marked_for_nothing(observed, &leaving, &sizing.withdraw, &sizing.timed_out);
    Plan {
        pool: pool_finalizer::step(pool, has_nodes || may_have_machines || !all_read(observed)),
        fill: (pool.spec.replicas.is_none() && !deleting && all_read(observed))
            .then(|| i32::try_from(sizing.wanted).unwrap_or(i32::MAX)),
        wanted: sizing.wanted,
        template_hash,
        stalled,
        nodes,
        held,
        repair_waits: removals.repair_waits(),
        budget_problems: disruption_account::problems(observed, pool, sizing.wanted),
        not_updated,
        protected,
        unprotected,
        unread,
        failed: Vec::new(),
        request,
        withdraw: sizing.withdraw,
        unmark,
        timed_out: sizing.timed_out,
        register,
        left_over: observed.left_over().cloned().collect(),
        join,
        requeue_at,
    }
}

/// While a node cannot be read or the machines cannot be listed, the number of nodes is not known, not even that it is zero.
fn all_read(observed: &Observed) -> bool {
    observed.unread().next().is_none() && !observed.supply.is_unknown
}

/// When to look again without an event.
fn requeue_at(
    observed: &Observed,
    pool: &NodePool,
    members: &[Member],
    criteria: &OutdatedCriteria<'_>,
    choices: &Choices,
    pods: &ObservedPods,
) -> Option<Timestamp> {
    let Choices { removals, sizing, account, victims } = choices;
    let (now, deleting) = (observed.now, pool.metadata.deletion_timestamp.is_some());
    let after = |interval| now.checked_add(interval).unwrap_or(Timestamp::MAX);
    let unread = (!all_read(observed)).then(|| after(UNREADABLE_POLL));
    let is_kept = |node: &String| {
        observed.protected.contains_key(node) || victims.protected.iter().any(|(other, _)| other == node)
    };
    // Perhaps no node is made in the place of one whose pods ask to be left alone, and nothing else brings the pool back.
    let is_kept = sizing.rollout.is_active && sizing.rollout.outdated.keys().any(is_kept);
    let held = (is_kept || !victims.held.is_empty()).then(|| after(PROTECTED_POLL));
    let ends_machines = !sizing.withdraw.is_empty() || !observed.supply.failed.is_empty();
    let is_awaited = (deleting && ends_machines) || sizing.is_superseding;
    let machines_gone = is_awaited.then(|| visits::withdrawn(now));
    let of_rollout = criteria.next(members).into_iter().chain(outdated::deadline(pool));
    visits::next(observed, members, membership::start_timeout(pool))
        .into_iter()
        .chain(unread)
        .chain(machines_gone)
        .chain(held)
        .chain(visits::undecided(victims, pods, now))
        .chain(account.next().filter(|_| !deleting))
        .chain(removals.next_repair())
        .chain(of_rollout.filter(|at| *at > now))
        .min()
}

/// The step of each node, and why.
fn node_steps(
    observed: &Observed,
    pool: &NodePool,
    members: Vec<Member>,
    pods: &ObservedPods,
    Choices { removals, sizing, account: _, victims }: &Choices,
    in_place: Option<&InPlace<'_>>,
) -> Vec<NodeStep> {
    let actions = Actions {
        observed,
        pods,
        limits: DrainLimits::of(pool),
        removals,
        sizing,
        in_place,
        going: observed.going(),
    };
    let deleting = pool.metadata.deletion_timestamp.is_some();
    let reasons_to_stay = removals.reasons_to_stay();
    let with_cause = |step: NodeStep| {
        let cause = match step.action {
            NodeAction::Cordon if deleting => None,
            NodeAction::Cordon if removals.ground(step.member.name()) == Some(Ground::UnhealthyAnswering) => {
                Some(DisruptionReason::Repair)
            }
            NodeAction::Cordon => victims.reasons.get(step.member.name()).copied(),
            // One that leaves already keeps the reason that it was let go for.
            NodeAction::Repair => step.member.stays().then_some(DisruptionReason::Repair),
            _ => None,
        };
        let waits = reasons_to_stay.get(step.member.name()).map(|why| (*why).to_owned());
        NodeStep { cause, waits, ..step }
    };
    steps(observed, members, |member| actions.of(member)).into_iter().map(with_cause).collect()
}

/// The hash of the template, or why there is none.
fn reported(blueprint: &Result<Blueprint, Invalid>) -> (Option<String>, Option<Stall>) {
    match blueprint {
        Ok(blueprint) => (Some(blueprint.metadata.hash.clone()), None),
        Err(invalid) => (None, Some(Stall { reason: Reason::InvalidSpec, message: invalid.to_string() })),
    }
}
