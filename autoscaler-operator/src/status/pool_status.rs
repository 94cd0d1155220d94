//! The Autoscaler's part of a pool's status: `status.autoscaling` and three conditions, from a decision and its result.
//! Pure.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use planner::{Contest, ContestResponse, MAX_NAMED_NODES, PoolDecision, PoolReason};
use shared_crds::NodePool;
use shared_crds::conditions::{self, ConditionType, Reason, Statement};
use shared_crds::v1alpha1::{
    AutoscalingStatus, ContestedReplicas, Decision, NodePoolStatus, OnContested, ScaleDownPlan, ScaleEvent,
    UnneededNode,
};

/// `maxLength` of a decision's message.
const MAX_MESSAGE_CHARS: usize = 1024;

/// How far a decision has come when the status is written.
#[derive(Clone, Debug)]
pub(crate) enum DecisionState {
    /// There is nothing to do, or nothing is done about it.
    Settled,
    /// The replicas were written, by this pass or by an earlier one that could not report it.
    Scaled(Scaled),
    /// The replicas could not be written, for this reason.
    Failed(String),
}

/// A decision that was written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scaled {
    /// The decision.
    pub decision: Decision,
    /// The past changes, including this one, as far as policies need them.
    pub events: Vec<ScaleEvent>,
    /// The overwritten number of another writer; `None` when there was none.
    pub contested: Option<ContestedReplicas>,
}

impl Scaled {
    /// The record of a decision written at `time`.
    pub(crate) fn of(decision: &PoolDecision, time: &Time) -> Self {
        let limits = &decision.limits;
        let reclaimed = limits
            .replicas_writer
            .contest
            .as_ref()
            .filter(|contest| contest.course != ContestResponse::Yield);
        Self {
            decision: record(decision, time),
            events: limits.events_after(decision.current, decision.desired, time.0),
            contested: reclaimed.map(|contest| contest.record.clone()),
        }
    }

    /// `before`, updated with what has been done since.
    pub(crate) fn recorded_in(&self, before: &AutoscalingStatus) -> AutoscalingStatus {
        AutoscalingStatus {
            written_replicas: Some(self.decision.to_replicas),
            contested: self.contested.clone(),
            scale_events: self.events.clone(),
            last_decision: Some(self.decision.clone()),
            last_scale_up_time: if self.decision.to_replicas > self.decision.from_replicas {
                Some(self.decision.time.clone())
            } else {
                before.last_scale_up_time.clone()
            },
            ..before.clone()
        }
    }
}

/// The nodes that a decision removes; `None` if there are none. First come those of earlier decisions whose drain has
/// not started yet, in case this decision's count is delayed, and then its own. `nodes` are those it was made from.
pub(crate) fn victims(decision: &PoolDecision, nodes: &[Arc<Node>]) -> Option<ScaleDownPlan> {
    let own = decision.victims.iter().filter(|name| !decision.pending_removal.contains(name));
    let named: Vec<_> = decision.pending_removal.iter().chain(own).collect();
    let uid = |node: &Arc<Node>| {
        let metadata = &node.metadata;
        metadata.uid.clone().filter(|_| metadata.name.as_ref().is_some_and(|name| named.contains(&name)))
    };
    (!named.is_empty()).then(|| ScaleDownPlan {
        decision_id: decision.id.clone(),
        generation: None,
        target_replicas: decision.desired,
        node_uids: nodes.iter().filter_map(uid).collect(),
        nodes: named.iter().map(|name| (*name).clone()).collect(),
    })
}

/// The status unchanged, except for the list of victims: it is written before the count, which creates the generation
/// that follows.
pub(crate) fn announcing(pool: &NodePool, victims: Option<&ScaleDownPlan>) -> NodePoolStatus {
    let mut status = untouched(pool);
    let generation = pool.metadata.generation.map(|generation| generation.saturating_add(1));
    status.autoscaling.get_or_insert_default().scale_down =
        victims.map(|plan| ScaleDownPlan { generation, ..plan.clone() });
    status
}

fn record(decision: &PoolDecision, time: &Time) -> Decision {
    Decision {
        id: decision.id.clone(),
        from_replicas: decision.current.max(0),
        to_replicas: decision.desired,
        reason: decision.reason.as_str().to_owned(),
        message: decision.message.chars().take(MAX_MESSAGE_CHARS).collect(),
        time: time.clone(),
    }
}

/// The Autoscaler's part of the status of `pool` as it should be; the other operator's part is left empty.
pub(crate) fn owned(
    pool: &NodePool,
    decision: &PoolDecision,
    state: &DecisionState,
    now: &Time,
) -> NodePoolStatus {
    let existing = pool.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    let statements = statements(existing, decision, state);
    // The generation of the plan, which may be older than the object's: our own write of replicas increases it.
    let generation = decision.object.metadata.generation;
    let conditions = statements.iter().map(|s| conditions::set(existing, s, generation, now)).collect();
    let autoscaling = autoscaling(pool, decision, state, now);
    NodePoolStatus { autoscaling, conditions, ..NodePoolStatus::default() }
}

/// The status unchanged.
pub(crate) fn untouched(pool: &NodePool) -> NodePoolStatus {
    pool.status.clone().unwrap_or_default()
}

fn autoscaling(
    pool: &NodePool,
    decision: &PoolDecision,
    state: &DecisionState,
    now: &Time,
) -> Option<AutoscalingStatus> {
    let autoscaler = decision.autoscaler.clone()?;
    let before = pool.status.as_ref().and_then(|s| s.autoscaling.clone()).unwrap_or_default();
    let written = match state {
        DecisionState::Scaled(scaled) => Some(scaled),
        DecisionState::Settled | DecisionState::Failed(_) => None,
    };
    let scaled = written.map(|written| &written.decision);
    let limits = &decision.limits;
    let contested = || limits.replicas_writer.contest.as_ref().map(|contest| contest.record.clone());
    let grown = scaled.filter(|last| last.to_replicas > last.from_replicas);
    let mut status = AutoscalingStatus {
        autoscaler: Some(autoscaler),
        desired_replicas: Some(decision.desired),
        last_scale_up_time: grown.map(|last| last.time.clone()).or_else(|| before.last_scale_up_time.clone()),
        last_decision: scaled.cloned().or_else(|| last_decision(&before, decision, now)),
        discovered: decision.discovered.clone(),
        scale_down: scale_down(pool, &before, decision, state),
        unneeded_nodes: remembered(decision.unneeded.clone()),
        written_replicas: scaled.map(|last| last.to_replicas).or(limits.replicas_writer.written),
        contested: written.map_or_else(contested, |written| written.contested.clone()),
        on_contested: decision.on_contested.filter(|policy| *policy != OnContested::default()),
        recommendations: limits.memory.recommendations.clone(),
        scale_events: written.map_or(&limits.memory.events, |written| &written.events).clone(),
    };
    end_at(&mut status, now);
    Some(status)
}

/// Makes past times of those that are to come: they were written before a clock was set back, or by a replica whose clock was ahead, and
/// would hold the pool for as much longer. What happened then counts as of now.
fn end_at(status: &mut AutoscalingStatus, now: &Time) {
    let AutoscalingStatus {
        autoscaler: _,
        desired_replicas: _,
        last_scale_up_time,
        last_decision,
        discovered: _,
        scale_down: _,
        // The planner lets none of them begin after now.
        unneeded_nodes: _,
        written_replicas: _,
        contested,
        on_contested: _,
        recommendations,
        scale_events,
    } = status;
    let times = last_scale_up_time
        .iter_mut()
        .chain(last_decision.iter_mut().map(|last| &mut last.time))
        .chain(contested.iter_mut().map(|contested| &mut contested.since_time))
        .chain(recommendations.iter_mut().map(|recommendation| &mut recommendation.time))
        .chain(scale_events.iter_mut().map(|event| &mut event.time));
    for time in times.filter(|time| time.0 > now.0) {
        *time = now.clone();
    }
}

/// The last decision unchanged, or a new one that is only recommended. An unchanged recommendation keeps its record.
fn last_decision(before: &AutoscalingStatus, decision: &PoolDecision, now: &Time) -> Option<Decision> {
    let last = before.last_decision.as_ref();
    let same = |last: &Decision| {
        (last.from_replicas, last.to_replicas, last.reason.as_str())
            == (decision.current, decision.desired, decision.reason.as_str())
    };
    let recommends = decision.is_planned() && !decision.acts && decision.changes_replicas();
    if recommends && !last.is_some_and(same) { Some(record(decision, now)) } else { last.cloned() }
}

/// The list of victims: those of this decision, or those of an earlier one while they are leaving. Any other list is
/// removed, unless its count may still arrive.
fn scale_down(
    pool: &NodePool,
    before: &AutoscalingStatus,
    decision: &PoolDecision,
    state: &DecisionState,
) -> Option<ScaleDownPlan> {
    let is_going = |plan: &ScaleDownPlan| {
        decision.acts
            && pool.scale_down_first() == Some(plan)
            && plan.nodes.iter().any(|node| decision.leaving.contains(node))
    };
    // Where the API server does not record the writer of the count, another writer's count could be treated as the one
    // that did not arrive.
    let may_yet_come = || pool.replicas_writers().next().is_some();
    match state {
        // What was announced stays; the object at hand may be older.
        DecisionState::Scaled(_) => before.scale_down.clone(),
        // It replaced the previous list, so without it no list would name the nodes to remove for the current count.
        DecisionState::Failed(_) => before.scale_down.clone().filter(|plan| may_yet_come() || is_going(plan)),
        DecisionState::Settled => before.scale_down.clone().filter(is_going),
    }
}

/// As many nodes as the list can hold, those unneeded for longest; sorted by name, so that an equal set is an equal
/// list.
fn remembered(mut unneeded: Vec<UnneededNode>) -> Vec<UnneededNode> {
    unneeded.sort_by(|a, b| (&a.since_time, &a.name).cmp(&(&b.since_time, &b.name)));
    unneeded.truncate(MAX_NAMED_NODES);
    unneeded.sort_by(|a, b| a.name.cmp(&b.name));
    unneeded
}

fn statements(existing: &[Condition], decision: &PoolDecision, state: &DecisionState) -> Vec<Statement> {
    use ConditionType::{AbleToScale, ScalingActive};
    let message = decision.message.as_str();
    let inactive = |reason| {
        vec![
            Statement::new(AbleToScale, false, reason, message),
            Statement::new(ScalingActive, false, reason, message),
        ]
    };
    match decision.reason {
        // No autoscaler plans the pool, so the operator reports nothing on it.
        PoolReason::NotSelected => return Vec::new(),
        PoolReason::AutoscalerOff => return inactive(Reason::AutoscalerOff),
        PoolReason::AmbiguousSelector => return inactive(Reason::AmbiguousSelector),
        PoolReason::RecommendOnly => return inactive(Reason::RecommendOnly),
        PoolReason::Paused => return inactive(Reason::Paused),
        PoolReason::Deleting => return inactive(Reason::Deleting),
        PoolReason::ScaleUp
        | PoolReason::ScaleDown
        | PoolReason::BelowMinReplicas
        | PoolReason::AboveMaxReplicas
        | PoolReason::ReplicasUnset
        | PoolReason::MaxReplicasReached
        | PoolReason::DesiredWithinRange
        | PoolReason::ScaleUpLimit
        | PoolReason::ScaleDownLimit
        | PoolReason::ScaleUpStabilized
        | PoolReason::ScaleDownStabilized
        | PoolReason::ReplicasContested
        | PoolReason::ReplicasReclaimed
        | PoolReason::InvalidTemplate => {}
    }
    vec![able(existing, decision, state), active(decision), limited(decision), contested(decision)]
}

fn able(existing: &[Condition], decision: &PoolDecision, state: &DecisionState) -> Statement {
    let say =
        |status, reason, message: String| Statement::new(ConditionType::AbleToScale, status, reason, message);
    match state {
        DecisionState::Scaled(Scaled { decision: last, .. }) => {
            let (from, to, message) = (last.from_replicas, last.to_replicas, &last.message);
            say(true, Reason::SucceededRescale, format!("spec.replicas went from {from} to {to}: {message}"))
        }
        DecisionState::Failed(problem) => say(false, Reason::FailedUpdateScale, problem.clone()),
        DecisionState::Settled => {
            let stabilized = decision.cut.as_ref().and_then(|limit| match limit.reason {
                PoolReason::ScaleUpStabilized => Some(Reason::ScaleUpStabilized),
                PoolReason::ScaleDownStabilized => Some(Reason::ScaleDownStabilized),
                _ => None,
            });
            if let Some(stabilized) = stabilized {
                return say(true, stabilized, decision.message.clone());
            }
            // The statement about the last decision stays true until the next one.
            let last = existing
                .iter()
                .find(|c| c.type_ == ConditionType::AbleToScale.as_str() && c.status == "True");
            match last {
                Some(last) if last.reason == Reason::SucceededRescale.as_str() => {
                    say(true, Reason::SucceededRescale, last.message.clone())
                }
                _ => say(true, Reason::ReadyForNewScale, "ready to write the next decision".to_owned()),
            }
        }
    }
}

fn active(decision: &PoolDecision) -> Statement {
    let autoscaler = decision.autoscaler.as_deref().unwrap_or_default();
    let say = |status, reason, message| Statement::new(ConditionType::ScalingActive, status, reason, message);
    if decision.reason == PoolReason::InvalidTemplate {
        say(false, Reason::InvalidSpec, decision.message.clone())
    } else if decision.acts {
        say(true, Reason::ValidPoolFound, format!("NodePoolAutoscaler {autoscaler} plans this pool"))
    } else {
        say(
            true,
            Reason::RecommendOnly,
            format!("NodePoolAutoscaler {autoscaler} only recommends: {}", recommendation(decision)),
        )
    }
}

fn recommendation(decision: &PoolDecision) -> String {
    let PoolDecision { current, desired, message, .. } = decision;
    if decision.changes_replicas() {
        format!("{current} to {desired} nodes, {message}")
    } else {
        message.clone()
    }
}

fn limited(decision: &PoolDecision) -> Statement {
    let say = |status, reason, message: &str| {
        Statement::new(ConditionType::ScalingLimited, status, reason, message)
    };
    match decision.cut.as_ref().map(|limit| limit.reason) {
        Some(PoolReason::ScaleUpLimit) => say(true, Reason::ScaleUpLimit, &decision.message),
        Some(PoolReason::ScaleDownLimit) => say(true, Reason::ScaleDownLimit, &decision.message),
        _ if decision.limited => {
            let max = decision.limits.max;
            let message = format!("pending pods need more than the upper bound of {max} nodes");
            say(true, Reason::TooManyReplicas, &message)
        }
        _ => {
            let message = "the number of nodes is what pods need or the lower bound requires";
            say(false, Reason::DesiredWithinRange, message)
        }
    }
}

/// Whether another writer set the replicas, and what happens to its number.
fn contested(decision: &PoolDecision) -> Statement {
    let say =
        |status, reason, message| Statement::new(ConditionType::ReplicasContested, status, reason, message);
    let own_write = &decision.limits.replicas_writer;
    let Some(contest) = &own_write.contest else {
        let message = "no writer but the Autoscaler has set spec.replicas recently".to_owned();
        return say(false, Reason::NotContested, message);
    };
    let (theirs, since) = (contest.record.replicas, contest.record.since_time.0);
    let (writer, until) = (contest.writer(), Contest::until(contest));
    let said = format!("{writer} set spec.replicas to {theirs} (seen {since})");
    let ours = own_write.written.unwrap_or_default();
    match contest.course {
        ContestResponse::Yield => {
            let message = format!(
                "{said}; the Autoscaler had written {ours}. The value of {writer} is kept until {until} as far as the bounds allow, then the pool is planned again from it. Set spec.onContested: Reclaim to have it overwritten instead"
            );
            say(true, Reason::Yielded, message)
        }
        ContestResponse::Reclaim | ContestResponse::Reclaimed => {
            let message = format!(
                "{said}; the Autoscaler overwrote it, because spec.onContested is Reclaim. Have {writer} stop writing spec.replicas (removing the field that is set scales the pool to its minimum), or set spec.onContested: Yield"
            );
            say(true, Reason::Reclaimed, message)
        }
    }
}

#[cfg(test)]
#[path = "pool_status_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "restart_tests.rs"]
mod restart_tests;

#[cfg(test)]
#[path = "loops/mod.rs"]
mod loops;
