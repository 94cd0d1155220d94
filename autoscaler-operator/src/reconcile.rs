//! One pass over the cluster: observe, plan, apply, report.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;
use shared_runtime::controller::Step;
use tracing::instrument;

use crate::{
    apply::{Outcome, apply},
    context::Context,
    error::Error,
    observe::observe,
    report::report,
};

/// Brings every pool to the number of nodes it should have, and says why.
#[instrument(skip_all)]
pub async fn reconcile(ctx: Arc<Context>) -> Result<Step, Error> {
    let Some(observed) = observe(&ctx) else {
        return Ok(Step::Stale);
    };
    let now = observed.now;
    let started = ctx.clock.monotonic();
    // A large cluster takes a while to plan; watches and the lease must not wait for it.
    let planner = Arc::clone(&ctx.planner);
    let (observed, plan) = tokio::task::spawn_blocking(move || {
        // A pass that was cut off leaves nothing behind but readings, which are right by themselves.
        let mut planner = planner.lock().unwrap_or_else(PoisonError::into_inner);
        let plan = planner.plan_for_cluster(&observed);
        (observed, plan)
    })
    .await?;
    ctx.metrics.planned(&plan, ctx.clock.monotonic().saturating_sub(started));

    let outcomes = apply(&ctx, &plan, now).await;
    let reported = report(&ctx, &observed, &plan, &outcomes).await;

    let conflict = outcomes.iter().any(Outcome::is_conflict) | reported.conflict;
    if let Some(error) = outcomes.into_iter().find_map(Outcome::into_error).or(reported.error) {
        return Err(error);
    }
    if conflict {
        return Ok(Step::Conflict);
    }
    Ok(plan.next.map_or(Step::Done, |at| Step::RequeueAfter(until(at, ctx.clock.now()))))
}

fn until(at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or_default()
}
