//! One pass over the cluster: observe, plan, apply, report, and when to come back.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use planner::{Observed, ScalingPlan};
use shared_runtime::controller::Step;
use tracing::instrument;

use crate::apply::apply;
use crate::context::Context;
use crate::error::Error;
use crate::memory::write_backoff::Waiting;
use crate::observe::observe;
use crate::outcome::PoolOutcome;
use crate::report::{Reported, report};

/// Sets every pool to the number of nodes it should have, and reports why.
#[instrument(skip_all)]
pub(crate) async fn reconcile(ctx: Arc<Context>) -> Result<Step, Error> {
    let Some(observed) = observe(&ctx) else {
        return Ok(Step::Stale);
    };
    let started = ctx.clock.monotonic();
    let waiting = waiting(&ctx, &observed, started);
    let (observed, plan) = plan(&ctx, observed, &waiting, started).await?;
    let outcomes = apply(&ctx, &observed, &plan, &waiting).await;
    let reported = report(&ctx, &observed, &plan, &waiting, &outcomes).await;
    next(&ctx, &plan, started, outcomes, reported)
}

/// When to come back, or what failed.
fn next(
    ctx: &Context,
    plan: &ScalingPlan,
    started: Duration,
    outcomes: Vec<PoolOutcome>,
    reported: Reported,
) -> Result<Step, Error> {
    let retry = retry(ctx, started, &outcomes);
    let has_scaled = outcomes.iter().any(|outcome| matches!(outcome, PoolOutcome::Scaled));
    let conflict = outcomes.iter().any(PoolOutcome::is_conflict) | reported.conflict;
    if let Some(error) = outcomes.into_iter().find_map(PoolOutcome::into_error).or(reported.error) {
        return Err(error);
    }
    if conflict {
        return Ok(Step::Conflict);
    }
    let next_pass = plan.next.map(|at| ctx.clock.until(at));
    let again = if has_scaled { Step::ContinueAfter } else { Step::RequeueAfter };
    Ok(next_pass.into_iter().chain(retry).min().map_or(Step::Done, again))
}

/// The plan, made without the writes that wait, and the objects that it was made from.
async fn plan(
    ctx: &Context,
    mut observed: Observed,
    waiting: &Waiting,
    started: Duration,
) -> Result<(Observed, ScalingPlan), Error> {
    observed.closed_pools = waiting.closed_pools();
    let planner = Arc::clone(&ctx.planner);
    // A large cluster takes a while to plan; watches and the lease must not wait for it. It has no time limit: a thread cannot be
    // given up, and the planner waits for nothing (no I/O, no clock) and goes through what was observed a bounded number of times.
    // If it hung nevertheless, this pass would not end, and `/livez` would fail (`shared_runtime::liveness`).
    let (observed, mut plan) = tokio::task::spawn_blocking(move || {
        // A cancelled pass leaves nothing behind but parsed objects, which are valid by themselves.
        let mut planner = planner.lock().unwrap_or_else(PoisonError::into_inner);
        let plan = planner.plan_for_cluster(&observed);
        (observed, plan)
    })
    .await?;
    ctx.metrics.planned(&plan, ctx.clock.monotonic().saturating_sub(started));
    waiting.stand_in(&mut plan);
    Ok((observed, plan))
}

/// The writes that this pass leaves out, because they were refused a short while ago.
fn waiting(ctx: &Context, observed: &Observed, started: Duration) -> Waiting {
    let pools = observed.pools.iter().map(|pool| &pool.metadata);
    let autoscalers = observed.autoscalers.iter().map(|autoscaler| &autoscaler.metadata);
    ctx.backoff().waiting(pools.chain(autoscalers), started)
}

/// When to retry refused writes. A new refusal may change the plan at once: the pods of that pool may fit in another
/// one.
fn retry(ctx: &Context, started: Duration, outcomes: &[PoolOutcome]) -> Option<Duration> {
    let mut backoff = ctx.backoff();
    backoff.passed(started);
    ctx.metrics.refused(backoff.len(started));
    if outcomes.iter().any(|outcome| matches!(outcome, PoolOutcome::Failed(_))) {
        return Some(Duration::ZERO);
    }
    backoff.next(started).map(|due| due.saturating_sub(ctx.clock.monotonic()))
}
