//! Reports what a pass found and did: status, events, metrics, and one log line when something changed.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Resource as _;
use node_lifecycle::facts::Facts;
use node_lifecycle::outcome::{Applied, EventReason, LoggedChange};
use node_lifecycle::{Observed, Plan};
use shared_crds::NodePool;
use shared_runtime::controller::Step;
use shared_runtime::events::EventKind;
use shared_runtime::reflect::Unreadable;
use tracing::{info, warn};

use crate::apply::PassResult;
use crate::apply::node_write::written;
use crate::context::Context;
use crate::error::{Error, Write};
use crate::observe::{Seen, raw_pool};
use crate::status::events::{deletion_waits, events};
use crate::status::{self, unreadable};

/// The result of writing the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reported {
    /// It was written, or unchanged, or the pool is gone.
    Done,
    /// Another writer changed the object first.
    Conflict,
}

impl Reported {
    /// Whether the pass should run again at once.
    pub(crate) const fn is_conflict(self) -> bool {
        matches!(self, Self::Conflict)
    }
}

/// Reports on a pass. There are no facts about a pool that is gone.
pub(crate) async fn report(
    ctx: &Context,
    seen: &Seen,
    plan: &Plan,
    result: &PassResult,
) -> Result<Reported, Error> {
    let PassResult { applied, failures: _, failure, facts, error: _ } = result;
    ctx.metrics.draining(&seen.observed.key, &plan.nodes, applied);
    ctx.metrics.applied(applied);
    log(applied);
    let Some(pool) = seen.observed.pool.as_deref() else {
        say_what_stays(ctx, &seen.observed);
        return Ok(Reported::Done);
    };
    let reference = pool.object_ref(&());
    let contest = facts.as_ref().and_then(|facts| facts.machines.contest.as_ref());
    let waits = facts.as_ref().and_then(|facts| deletion_waits(pool, facts));
    for event in events(pool, applied, failure.as_ref(), contest).into_iter().chain(waits) {
        ctx.recorder.publish(&reference, event_kind(event.reason), event.note);
    }
    match facts {
        Some(facts) if !applied.finalizer_removed => {
            write_status(ctx, pool, facts, applied, Time(seen.observed.now)).await
        }
        _ => Ok(Reported::Done),
    }
}

/// Reports on a pool that it cannot be read. Nothing else is done with it: the purpose of its nodes is not known.
pub(crate) async fn unreadable(ctx: &Context, pool: &Unreadable) -> Result<Step, Error> {
    let Some(raw) = raw_pool(ctx, pool).await? else {
        return Ok(Step::Done);
    };
    let (statements, now) = (unreadable::statements(&pool.error), Time(ctx.clock.now()));
    let outcome = ctx.writer.unreadable_node_pool(&raw, &statements, &now).await;
    Ok(if written(Write::PoolStatus, outcome)?.is_conflict() { Step::Conflict } else { Step::Done })
}

async fn write_status(
    ctx: &Context,
    pool: &NodePool,
    facts: &Facts,
    applied: &Applied,
    now: Time,
) -> Result<Reported, Error> {
    let decide = |fresh: &NodePool| status::of_pass(fresh, pool, facts, applied, &now);
    let outcome = written(Write::PoolStatus, ctx.writer.node_pool_status(pool, decide).await)?;
    Ok(if outcome.is_conflict() { Reported::Conflict } else { Reported::Done })
}

/// Logs, once, which nodes stay although their pool is gone. There is no object left that could say it.
fn say_what_stays(ctx: &Context, observed: &Observed) {
    let stays =
        |node: &&Arc<Node>| node.metadata.deletion_timestamp.is_none() && !observed.has_come_late(node);
    let nodes = observed.nodes.iter().filter(stays);
    let nodes: BTreeSet<String> = nodes.filter_map(|node| node.metadata.name.clone()).collect();
    let (count, first) = (nodes.len(), nodes.first().cloned());
    if ctx.gone_pools.is_news(&observed.key, nodes) {
        let advice = "create a NodePool of this name to have them looked after; `kubectl delete node` drains one and deletes its machine";
        warn!(
            count,
            first,
            advice,
            "the NodePool of nodes is gone without its deletion having ended: they are left alone"
        );
    }
}

/// Logs one line when something happened, none otherwise. The pool is in the span.
fn log(applied: &Applied) {
    let number = |change: LoggedChange| applied.names(|action| action.logged_as() == Some(change)).count();
    let (created, joined) = (number(LoggedChange::Created), number(LoggedChange::Joined));
    let (cordoned, uncordoned) = (number(LoggedChange::Cordoned), number(LoggedChange::Uncordoned));
    let (removed, released) = (number(LoggedChange::Removed), number(LoggedChange::Released));
    let (replaced, updated) = (number(LoggedChange::Replaced), number(LoggedChange::Updated));
    if created + joined + cordoned + uncordoned + removed + released + replaced + updated > 0 {
        info!(created, joined, cordoned, uncordoned, removed, released, replaced, updated, "nodes changed");
    }
}

/// The type and the action of the events of each reason.
pub(crate) const fn event_kind(reason: EventReason) -> EventKind {
    let name = reason.as_str();
    match reason {
        EventReason::ScaledUp => EventKind::normal(name, "CreateNode"),
        EventReason::ScalingDown | EventReason::RollingOut => EventKind::normal(name, "DrainNode"),
        EventReason::NodeRemoved => EventKind::normal(name, "DeleteNode"),
        EventReason::NodesReleased => EventKind::normal(name, "ReleaseNode"),
        EventReason::DeletionWaits => EventKind::warning(name, "DeletePool"),
        EventReason::DrainCancelled => EventKind::normal(name, "UncordonNode"),
        EventReason::DrainGivenBack => EventKind::warning(name, "UncordonNode"),
        EventReason::DrainBlocked => EventKind::warning(name, "EvictPod"),
        EventReason::ProvisioningFailed => EventKind::warning(name, "RequestMachine"),
        EventReason::WriteRejected => EventKind::warning(name, "WriteObject"),
        EventReason::MachinesContested => EventKind::warning(name, "SizeMachines"),
        EventReason::NodeRepaired | EventReason::MachineLost | EventReason::ProvisioningTimedOut => {
            EventKind::warning(name, "ReplaceNode")
        }
    }
}
