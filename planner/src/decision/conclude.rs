//! Reports the limits of a finished plan: which of them cut it, the message, when to plan again, and what to remember
//! in status. The number of nodes is not changed here.

use k8s_openapi::jiff::Timestamp;

use crate::limits::behavior::{BehaviorStage, Direction, Limit, history};
use crate::limits::bounds::BoundsConflict;
use crate::limits::contested::{Contest, ContestResponse, HOLD_SECONDS};
use crate::limits::schedules::ScheduledBounds;
use crate::numbers::{count, replicas};
use crate::reasons::PoolReason;
use crate::{PoolDecision, ScalingPlan};

/// Whether every pool of a plan that was made without the temporary limits stays within those limits.
pub(crate) fn keeps_within(plan: &ScalingPlan) -> bool {
    plan.pools.iter().filter(|decision| is_open(decision)).all(|decision| {
        let desired = decision.desired;
        number(decision.limits.ceiling(BehaviorStage::Limited)).is_none_or(|ceiling| desired <= ceiling)
            && number(decision.limits.floor(BehaviorStage::Limited)).is_none_or(|floor| desired >= floor)
    })
}

/// `plan` with its limits reported in the decisions. `free` is the plan without the temporary limits, if that is a
/// different one.
#[must_use]
pub(crate) fn concluded(mut plan: ScalingPlan, free: Option<&ScalingPlan>, now: Timestamp) -> ScalingPlan {
    for (at, decision) in plan.pools.iter_mut().enumerate() {
        if !is_open(decision) {
            continue;
        }
        let free = free.map(|plan| &plan.pools[at]);
        decision.wanted = free.map_or(decision.desired, |free| free.desired);
        say_bounds(decision);
        cut(decision, free.is_some_and(|free| free.limited));
        let memory = &mut decision.limits.memory;
        memory.recommendations = history::recommended(
            &memory.recommendations,
            decision.current,
            decision.wanted,
            memory.window_seconds,
            now,
        );
        let contested = decision.limits.replicas_writer.contest.as_ref().map(Contest::until);
        let lifted = decision.cut.as_ref().and_then(|limit| limit.until);
        let known = decision.discovered.iter();
        let forgotten = known.flat_map(|known| {
            let of_taints = known.beliefs.iter().map(|belief| &belief.until_time);
            of_taints.chain([&known.until_time]).flatten().map(|time| time.0)
        });
        let next = [plan.next, contested, lifted].into_iter().flatten().chain(forgotten);
        plan.next = next.filter(|&next| next > now).min();
    }
    plan
}

/// Whether this plan decides the pool's number of nodes.
fn is_open(decision: &PoolDecision) -> bool {
    decision.is_planned() && !matches!(decision.reason, PoolReason::Paused | PoolReason::Deleting)
}

/// Reports the limit that kept the pool from the wanted number of nodes, if one did.
fn cut(decision: &mut PoolDecision, limited_without: bool) {
    let PoolDecision { wanted, desired, limits, .. } = &*decision;
    let up = wanted > desired || (decision.limited && count(*desired) < limits.max);
    let direction = if up { Direction::Up } else { Direction::Down };
    let cut = up || wanted < desired;
    let limit = if cut { limits.binding(direction, count(*wanted)).cloned() } else { None };
    let Some(limit) = limit.or_else(|| at_hold(decision)) else { return };
    if limit.direction == Direction::Up {
        // Stabilization and another writer's value are neither a bound nor a rate policy.
        let rate = limit.reason == PoolReason::ScaleUpLimit;
        decision.limited = rate || (limited_without && !limit.lasting);
    }
    let words = words(decision, &limit);
    if decision.desired == decision.current
        && matches!(decision.reason, PoolReason::DesiredWithinRange | PoolReason::MaxReplicasReached)
    {
        (decision.reason, decision.message) = (limit.reason, words);
    } else {
        decision.message = format!("{}; {words}", decision.message);
    }
    decision.cut = Some(limit);
}

/// The limit of another writer's value that keeps a pool at that value, even if no other number of nodes is wanted.
fn at_hold(decision: &PoolDecision) -> Option<Limit> {
    let limit = decision.limits.limits.iter().find(|limit| limit.reason == PoolReason::ReplicasContested);
    limit.filter(|_| decision.desired == decision.current).cloned()
}

fn words(decision: &PoolDecision, limit: &Limit) -> String {
    let (wanted, bound) = (decision.wanted, limit.bound);
    match limit.reason {
        PoolReason::ScaleUpLimit if limit.lasting => {
            "pending pods ask for more nodes, and spec.behavior.scaleUp is disabled".to_owned()
        }
        PoolReason::ScaleDownLimit if limit.lasting => "spec.behavior.scaleDown is disabled".to_owned(),
        PoolReason::ScaleUpLimit => {
            format!("{wanted} nodes are wanted, spec.behavior.scaleUp allows {bound} for now")
        }
        PoolReason::ScaleDownLimit => {
            format!("{wanted} nodes are wanted, spec.behavior.scaleDown allows {bound} for now")
        }
        PoolReason::ScaleUpStabilized => {
            format!("{wanted} nodes are wanted, {bound} were within the window of spec.behavior.scaleUp")
        }
        PoolReason::ScaleDownStabilized => {
            format!("{wanted} nodes are wanted, {bound} were within the window of spec.behavior.scaleDown")
        }
        _ => kept(decision),
    }
}

fn kept(decision: &PoolDecision) -> String {
    decision.limits.replicas_writer.contest.as_ref().map_or_else(String::new, |contest| {
        let (writer, theirs, until) = (contest.writer(), contest.record.replicas, contest.until());
        format!("{writer} set spec.replicas to {theirs}, which is kept for {}, until {until}", hold())
    })
}

/// Corrects the message about the pool's own bounds when the bounds of a schedule apply, or when another writer's value
/// is overwritten.
fn say_bounds(decision: &mut PoolDecision) {
    let ScheduledBounds { names, .. } = &decision.limits.scheduled;
    let contest = decision
        .limits
        .replicas_writer
        .contest
        .as_ref()
        .filter(|contest| contest.course == ContestResponse::Reclaim);
    let current = decision.current;
    match (decision.reason, contest) {
        (PoolReason::ReplicasReclaimed, Some(contest)) => {
            let ours = decision.limits.replicas_writer.written.unwrap_or_default();
            let writer = contest.writer();
            decision.message = format!(
                "{writer} set spec.replicas to {current}, the Autoscaler goes on from its own {ours}"
            );
        }
        (PoolReason::AboveMaxReplicas | PoolReason::BelowMinReplicas, _) if !names.is_empty() => {
            let side = if decision.reason == PoolReason::AboveMaxReplicas { "above" } else { "below" };
            let bound = decision.desired;
            decision.message =
                format!("spec.replicas {current} is {side} {bound}, {}", whose(names, decision.conflict));
        }
        (PoolReason::MaxReplicasReached, _) if !names.is_empty() => {
            decision.message =
                format!("pending pods ask for more nodes than {}", whose(names, decision.conflict));
        }
        _ => {}
    }
}

/// The bound of active schedules, as text.
fn whose(names: &[String], conflict: Option<BoundsConflict>) -> String {
    let names = names.join(", ");
    match conflict {
        None => format!("the bound that schedule {names} sets"),
        Some(BoundsConflict::Cross) => {
            format!("the bound of schedule {names}, where the lower bound is above the upper one and holds")
        }
        Some(BoundsConflict::BeyondPool) => {
            format!("the pool's own bound, which schedule {names} goes beyond and no writer may")
        }
    }
}

/// How long another writer's value is kept, as text.
fn hold() -> String {
    format!("{} minutes", HOLD_SECONDS / 60)
}

/// A number of nodes in the API's type.
fn number(bound: Option<usize>) -> Option<i32> {
    bound.map(replicas)
}
