//! What happens to a pool in a pass, from the states of its nodes and their pods.

use std::collections::BTreeSet;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use shared_crds::conditions::Reason;
use shared_crds::v1alpha1::DisruptionReason;
use shared_crds::{NodePool, names};

use crate::assess::drain_limits::DrainLimits;
use crate::assess::membership::{self, Member};
use crate::assess::outdated::{self, Standard};
use crate::assess::{absence, health};
use crate::count::budgets;
use crate::count::sizing::{self, Sizing, Victims};
use crate::drain;
use crate::input::observed::{Observed, ObservedPods};
use crate::input::supply::Absence;
use crate::plan::actions::Actions;
use crate::plan::classify::Classified;
use crate::plan::decision::{Plan, Stall};
use crate::plan::in_place::InPlace;
use crate::plan::{frozen, machines, pool_finalizer, visits};
use crate::remove::{self, Choice, Question, Removals};
use crate::template::{Blueprint, Invalid};
use crate::{NodeAction, NodeStep};

/// Polling interval of a pool with an unreadable node: no watch event reports that it became readable or is gone.
const UNREADABLE_POLL: SignedDuration = SignedDuration::from_secs(30);

/// Polling interval of the pods that protect their nodes: pods are not watched.
const PROTECTED_POLL: SignedDuration = SignedDuration::from_secs(15);

/// Decides what happens to a pool. `pods` are those that [`classify`](crate::classify()) asked for, as far as they could be read.
pub fn plan(observed: &Observed, classified: Classified, pods: &ObservedPods) -> Plan {
    Plan { failed: machines::failed(observed), ..of_pool(observed, classified, pods) }
}

fn of_pool(observed: &Observed, classified: Classified, pods: &ObservedPods) -> Plan {
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
        Some(sizing) => {
            let waits = frozen.filter(|_| observed.in_flight().any(|machine| observed.is_unproven(machine)));
            let plan = active(observed, pool, members, sizing, pods);
            Plan { stalled: plan.stalled.or(waits), ..plan }
        }
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
    let mut account = budgets::account(observed, pool, &members, sizing.wanted);
    let mut question = Question {
        observed,
        pool,
        pods,
        going: observed.going(),
        brake: remove::brake(observed, pool, &members, sizing.wanted),
        can_make: blueprint.is_ok(),
        account: &mut account,
        choice: Choice::default(),
    };
    let mut removals = Removals::default();
    removals.ask(&remove::FAILED, &mut question, &members);
    let (repair_waits, next_repair) = (removals.repair_waits(), removals.next_repair());
    let replaced = removals.names();
    // Without such nodes the number of nodes is what it was before the pods were read.
    let sizing = if replaced.is_empty() {
        sizing
    } else {
        sizing::size(observed, pool, &members, &replaced, question.account)
    };
    let chosen = sizing.victims(observed, &members, pods, question.account);
    let next_choice = visits::undecided(&chosen, pods, now);
    let Victims { reasons: victims, mut held, refused, protected, is_undecided: _ } = chosen;
    question.choice = Choice {
        reasons: victims.clone(),
        kept: held.iter().chain(&refused).cloned().collect(),
        outdated: sizing.rollout.outdated.keys().cloned().collect(),
    };
    removals.ask(&remove::BY_NUMBER, &mut question, &members);
    let requeue_at = visits::next(observed, &members, start_timeout);
    let standard = Standard::of(pool, now);
    let next_rollout =
        standard.next(&members).into_iter().chain(outdated::deadline(pool)).filter(|at| *at > now).min();

    let has_nodes = !members.is_empty();
    let leaving: BTreeSet<String> = members
        .iter()
        .filter(|member| member.leaving.is_some_and(|leaving| leaving.deleting))
        .filter_map(|member| names::machine_of(&member.node.metadata).map(str::to_owned))
        .collect();
    let in_place = blueprint.as_ref().ok().map(|blueprint| InPlace::new(pool, &blueprint.marks));
    let not_updated = not_updated(in_place.as_ref(), &standard, &members);
    let actions = Actions {
        observed,
        pods,
        limits: DrainLimits::of(pool),
        removals: &removals,
        sizing: &sizing,
        standard: &standard,
        in_place: in_place.as_ref(),
        unhealthy: health::unhealthy(pool, &members).into_iter().map(str::to_owned).collect(),
        going: observed.going(),
    };
    let nodes = steps(observed, members, |member| actions.of(member));
    let reasons_to_stay = removals.reasons_to_stay();
    let with_cause = |step: NodeStep| {
        let cause = match step.action {
            NodeAction::Cordon if deleting => None,
            NodeAction::Cordon => victims.get(step.member.name()).copied(),
            NodeAction::Repair => Some(DisruptionReason::Repair),
            _ => None,
        };
        let waits = reasons_to_stay.get(step.member.name()).map(|why| (*why).to_owned());
        NodeStep { waits, cause, ..step }
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
    let ends_machines = !sizing.withdraw.is_empty() || !observed.supply.failed.is_empty();
    let machines_gone = (deleting && ends_machines).then(|| visits::withdrawn(now));
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
        failed: Vec::new(),
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
        waits: None,
        absence,
        member,
    };
    members.into_iter().zip(absences).map(step).collect()
}
