//! **What is reported** about a pool: the `NodePool` operator's part of the status, and events. Like the plan, it is
//! computed from its arguments and from nothing else. The writer decides which fields may be written, and how.
//!
//! | file | contains |
//! |---|---|
//! | this one | the counts and conditions of the status |
//! | `clamped`, `unreadable` | the parts of the conditions about bounds, and about what cannot be read |
//! | `provisioning` | why the provider makes no nodes, and who else sets its number of machines |
//! | `rollout` | what is said about nodes that are out of date |
//! | `events` | the events of a pass |

mod clamped;
pub(crate) mod events;
mod provisioning;
mod rollout;
#[cfg(test)]
mod said_tests;
#[cfg(test)]
mod tests;
pub(crate) mod unreadable;
#[cfg(test)]
mod verdict_tests;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use node_lifecycle::Stall;
use node_lifecycle::facts::Facts;
use node_lifecycle::numbers::{nodes, number};
use node_lifecycle::outcome::{Applied, Rejected, RejectedWrite};
use node_lifecycle::supply::ProvisioningFailure;
use shared_crds::conditions::{ConditionType, Reason, Statement, set};
use shared_crds::v1alpha1::{NodePoolStatus, NodesSummary};
use shared_crds::{NodePool, names};

/// The operator's part of the status after a pass over the pool `acted_on`, to be written to `fresh`.
///
/// What this operator or the Autoscaler decides from has a field. The conditions say the same to people and to other tools, and
/// no decision reads them back.
pub(crate) fn of_pass(
    fresh: &NodePool,
    acted_on: &NodePool,
    facts: &Facts,
    applied: &Applied,
    now: &Time,
) -> NodePoolStatus {
    let mut status = NodePoolStatus {
        observed_generation: observed_generation(fresh, acted_on, applied),
        conditions: conditions(fresh, acted_on, facts, applied, now),
        ..fields(acted_on, facts)
    };
    let healthy = provisioning_healthy(facts, applied);
    if let Some(failure) = provisioning::failure(fresh, &healthy, acted_on.metadata.generation, now) {
        status.provisioning.get_or_insert_default().failure = Some(failure);
    }
    status
}

/// The counts, and the other parts that do not depend on the object they are written to. `observedGeneration`, the conditions and
/// the provider's failure do.
fn fields(pool: &NodePool, facts: &Facts) -> NodePoolStatus {
    NodePoolStatus {
        replicas: Some(number(facts.staying)),
        ready_replicas: Some(number(facts.ready)),
        up_to_date_replicas: Some(number(facts.up_to_date)),
        unavailable_replicas: Some(number(facts.wanted.saturating_sub(facts.ready))),
        selector: Some(names::node_selector(
            pool.metadata.namespace.as_deref().unwrap_or_default(),
            pool.metadata.name.as_deref().unwrap_or_default(),
        )),
        nodes: Some(NodesSummary {
            provisioning: number(facts.in_flight),
            starting: number(facts.starting),
            ready: number(facts.ready),
            not_ready: number(facts.not_ready),
            draining: number(facts.leaving),
        }),
        observed_generation: None,
        conditions: Vec::new(),
        provisioning: facts.remembered(pool),
        disruption: facts.disrupted,
        rollout: facts.rollout.as_ref().and_then(|rollout| rollout.record.clone()),
        replacement: Some(rollout::replacement(pool, facts)),
        autoscaling: None,
    }
}

/// The `observedGeneration` to write to `fresh`: it reaches the generation that was acted on when everything succeeded,
/// and never decreases.
fn observed_generation(fresh: &NodePool, acted_on: &NodePool, applied: &Applied) -> Option<i64> {
    let before = fresh.status.as_ref().and_then(|status| status.observed_generation);
    if applied.complete() { before.max(acted_on.metadata.generation) } else { before }
}

/// The operator's conditions, to be written to `fresh`.
fn conditions(
    fresh: &NodePool,
    acted_on: &NodePool,
    facts: &Facts,
    applied: &Applied,
    now: &Time,
) -> Vec<Condition> {
    let existing = fresh.status.as_ref().map_or(&[][..], |status| &status.conditions);
    statements(acted_on, facts, applied)
        .iter()
        .map(|statement| set(existing, statement, acted_on.metadata.generation, now))
        .collect()
}

/// Every condition the operator owns.
pub(crate) fn statements(pool: &NodePool, facts: &Facts, applied: &Applied) -> Vec<Statement> {
    let mut statements = vec![
        ready(pool, facts, applied),
        reconciling(pool, facts, applied),
        stalled(facts, applied),
        nodes_ready(facts),
        provisioning_healthy(facts, applied),
        rollout::rolling_out(pool, facts),
        budgets_valid(facts),
        clamped::replicas_clamped(pool, facts),
        provisioning::machines_contested(pool, facts),
    ];
    statements.extend(facts.outdated_crd.clone());
    statements
}

fn ready(pool: &NodePool, facts: &Facts, applied: &Applied) -> Statement {
    let say = |status: bool, reason, message| Statement::new(ConditionType::Ready, status, reason, message);
    if facts.deleting && unknown_on_delete(facts).is_none() {
        say(false, Reason::Deleting, left_of_deleted(facts))
    } else if let Some(Stall { reason, message }) = &facts.stalled {
        say(false, *reason, message.clone())
    } else if let Some(rejected) = applied.rejected.as_ref().filter(|_| facts.not_updated > 0) {
        say(false, rejected.reason, counts_and_repair(facts))
    } else if facts.all_ready() && !facts.is_rolling() && facts.not_updated == 0 && !facts.may_be_rolling() {
        let on_delete = rollout::on_delete(facts).map(|those| format!("; {those}")).unwrap_or_default();
        // A node can be unhealthy and Ready.
        let unhealthy = facts.repair_waits.as_ref().map(|waits| format!("; {waits}")).unwrap_or_default();
        say(true, Reason::AllNodesReady, format!("{}{on_delete}{unhealthy}", all_ready(facts)))
    } else if pool.spec.paused {
        let outdated = rollout::outdated(facts).map(|those| format!("; {those}")).unwrap_or_default();
        say(false, Reason::Paused, format!("{}{outdated}; spec.paused is set", facts.counts()))
    } else if let Some(rejected) = &applied.rejected {
        say(false, rejected.reason, facts.counts())
    } else {
        say(false, why_not_ready(facts), counts_and_repair(facts))
    }
}

/// How many nodes a pool that is deleted still has, and how many of them leave now. Why the others do not is said by `Reconciling`.
fn left_of_deleted(facts: &Facts) -> String {
    let left = nodes(facts.leaving + facts.staying + facts.unreadable.len());
    let left = format!("the pool is being deleted, {left} left");
    match (facts.leaving, facts.staying) {
        (0, 0) => left,
        (leaving, staying) => format!("{left}: {leaving} leaving now, {staying} later"),
    }
}

/// The numbers of nodes, and what becomes of unhealthy ones.
fn counts_and_repair(facts: &Facts) -> String {
    let parts = [Some(facts.counts()), rollout::progress(facts), facts.repair_waits.clone()];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn all_ready(facts: &Facts) -> String {
    let ready = format!("{} of {} nodes are ready", facts.ready.min(facts.wanted), facts.wanted);
    match facts.staying.saturating_sub(facts.wanted) {
        0 => ready,
        _ if facts.is_rolling() => ready,
        more => format!("{ready}, {more} more cannot go now"),
    }
}

fn why_not_ready(facts: &Facts) -> Reason {
    match (&facts.failure, rollout::waits(facts)) {
        (Some(failure), _) if facts.too_few() => failure.reason,
        (_, Some(waits)) if facts.not_updated == 0 && facts.has_enough_ready() => waits,
        _ if facts.is_changing() && facts.not_ready == 0 => Reason::RollingOut,
        _ if facts.too_few() || facts.starting > 0 => Reason::Provisioning,
        _ if facts.not_ready > 0 => Reason::NodesNotReady,
        _ if !facts.unreadable.is_empty() => Reason::Unreadable,
        _ => Reason::Draining,
    }
}

fn reconciling(pool: &NodePool, facts: &Facts, applied: &Applied) -> Statement {
    let say =
        |status: bool, reason, message| Statement::new(ConditionType::Reconciling, status, reason, message);
    if pool.spec.paused {
        let mut message = "spec.paused is set".to_owned();
        if facts.deleting {
            message.push_str("; the deletion of the pool waits");
        }
        if facts.leaving > 0 {
            message.push_str(&format!("; {} waiting to be drained", nodes(facts.leaving)));
        }
        return say(false, Reason::Paused, message);
    }
    if let Some(Rejected { write: _, reason, message }) = applied.lasting_rejection() {
        return say(false, *reason, message.clone());
    }
    let lasting = [Reason::UnknownOnDelete, Reason::ProgressDeadlineExceeded, Reason::NodeElsewhere];
    let stalled = stalled_reason(facts, applied).filter(|(reason, _)| lasting.contains(reason));
    if let Some((reason, mut message)) = stalled {
        let blocked = applied.blocked().min().map(|(node, by)| format!("node {node} {by}"));
        for part in blocked.into_iter().chain(stays(facts)) {
            message.push_str(&format!("; {part}"));
        }
        return say(false, reason, message);
    }
    if let Some((node, by)) = applied.blocked().min() {
        let more = match applied.blocked().count() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        let others = stays(facts).map(|others| format!("; {others}")).unwrap_or_default();
        let message = format!("node {node} {by}{more}{others}");
        return say(true, Reason::DrainBlocked, message);
    }
    if facts.deleting {
        return say(true, Reason::Deleting, waiting(facts));
    }
    if facts.is_changing() {
        let waits = rollout::waits(facts).filter(|_| facts.not_updated == 0 && facts.leaving == 0);
        return say(true, waits.unwrap_or(Reason::RollingOut), waiting(facts));
    }
    if facts.leaving > 0 || facts.staying > facts.wanted {
        return say(true, Reason::Draining, waiting(facts));
    }
    if let Some((reason, message)) = stalled_reason(facts, applied) {
        return say(false, reason, message);
    }
    if facts.staying != facts.wanted || facts.starting + facts.in_flight > 0 {
        return say(true, Reason::Provisioning, facts.counts());
    }
    match &facts.repair_waits {
        Some(waits) => say(false, Reason::Settled, waits.clone()),
        None => say(false, Reason::Settled, "there is nothing to do".to_owned()),
    }
}

fn waiting(facts: &Facts) -> String {
    let unreadable = unreadable::of_nodes(&facts.unreadable);
    let rolling = rollout::progress(facts);
    let parts = [Some(facts.counts()), rolling, stays(facts), facts.removals_wait.clone(), unreadable];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Which nodes are too many and stay for now, and which wait to be drained, and why; `None` when there are none.
fn stays(facts: &Facts) -> Option<String> {
    let more = |count: usize| match count - 1 {
        0 => String::new(),
        more => format!(" (and {} more)", nodes(more)),
    };
    let given_back = facts.given_back.iter().min().map(|node| {
        let more = more(facts.given_back.len());
        format!("node {node}{more} was given back, its drain took longer than spec.drain.timeoutSeconds")
    });
    let held = facts
        .held
        .iter()
        .min()
        .map(|(node, why)| format!("node {node}{} stays, because it {why}", more(facts.held.len())));
    let waiting = (facts.waiting > 0).then(|| {
        let wait = if facts.waiting == 1 { "waits for its turn" } else { "wait for their turn" };
        format!("{} {wait} to be drained (--max-parallel-drains)", nodes(facts.waiting))
    });
    let parts: Vec<String> = given_back.into_iter().chain(held).chain(waiting).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Why nothing will change without the user. An exhausted quota is such a reason once everything else is done, and so
/// are nodes that cannot be read.
fn stalled_reason(facts: &Facts, applied: &Applied) -> Option<(Reason, String)> {
    if let Some(rejected) = applied.lasting_rejection() {
        return Some((rejected.reason, rejected.message.clone()));
    }
    let of_pool = facts.stalled.as_ref().filter(|_| !facts.deleting);
    if let Some(Stall { reason, message }) = of_pool.or(unknown_on_delete(facts)) {
        return Some((*reason, message.clone()));
    }
    if let Some(message) = &facts.elsewhere {
        return Some((Reason::NodeElsewhere, message.clone()));
    }
    if let Some(message) = rollout::stuck(facts) {
        return Some((Reason::ProgressDeadlineExceeded, message));
    }
    let busy = facts.in_flight + facts.starting + facts.leaving > 0;
    let is_used_up =
        |failure: &&ProvisioningFailure| failure.reason == Reason::QuotaExceeded && facts.too_few();
    let used_up = facts.failure.as_ref().filter(is_used_up).map(|it| (it.reason, it.message.clone()));
    let unreadable = || Some((Reason::Unreadable, unreadable::of_nodes(&facts.unreadable)?));
    used_up.or_else(unreadable).filter(|_| !busy)
}

/// Why the deletion of the pool waits for its user; `None` when it does not. Every other stall ends with the pool.
fn unknown_on_delete(facts: &Facts) -> Option<&Stall> {
    facts.stalled.as_ref().filter(|stall| stall.reason == Reason::UnknownOnDelete)
}

fn stalled(facts: &Facts, applied: &Applied) -> Statement {
    match stalled_reason(facts, applied) {
        Some((reason, message)) => Statement::new(ConditionType::Stalled, true, reason, message),
        None => Statement::new(ConditionType::Stalled, false, Reason::Settled, "not stalled"),
    }
}

fn nodes_ready(facts: &Facts) -> Statement {
    if facts.all_ready() || facts.has_enough_ready() {
        return Statement::new(ConditionType::NodesReady, true, Reason::AllNodesReady, all_ready(facts));
    }
    let reason = if facts.not_ready > 0 { Reason::NodesNotReady } else { why_not_ready(facts) };
    Statement::new(ConditionType::NodesReady, false, reason, counts_and_repair(facts))
}

fn budgets_valid(facts: &Facts) -> Statement {
    let say = |status: bool, reason, message: String| {
        Statement::new(ConditionType::BudgetsValid, status, reason, message)
    };
    if facts.budget_problems.is_empty() {
        say(true, Reason::BudgetsRead, "every budget of spec.disruption can be followed".to_owned())
    } else {
        say(false, Reason::InvalidBudget, facts.budget_problems.join("; "))
    }
}

fn provisioning_healthy(facts: &Facts, applied: &Applied) -> Statement {
    let say = |status: bool, reason, message: &str| {
        Statement::new(ConditionType::ProvisioningHealthy, status, reason, message)
    };
    let of_machines = [RejectedWrite::Creation, RejectedWrite::Machine];
    if let Some(rejected) = applied.rejected.as_ref().filter(|it| of_machines.contains(&it.write)) {
        return say(false, rejected.reason, &rejected.message);
    }
    // That a deletion waits says nothing about the provider.
    let of_provider = facts.stalled.as_ref().filter(|stall| stall.reason != Reason::UnknownOnDelete);
    if let Some(Stall { reason, message }) = of_provider {
        return say(false, *reason, message);
    }
    if let Some(message) = &facts.elsewhere {
        return say(false, Reason::NodeElsewhere, message);
    }
    match &facts.failure {
        Some(failure) => say(false, failure.reason, &failure.message),
        None if facts.in_flight > 0 => {
            let trouble = facts.trouble.iter().map(|trouble| format!("; {trouble}"));
            let message = format!("the provider is creating nodes{}", trouble.collect::<String>());
            say(true, Reason::Provisioning, &message)
        }
        None => say(true, Reason::Provisioned, "the provider has created every requested node"),
    }
}
