//! One pass over one pool: observe, plan, apply, report.

use std::{sync::Arc, time::Duration};

use k8s_openapi::jiff::Timestamp;
use shared_crds::NodePool;
use shared_runtime::controller::Step;

use crate::{
    apply::{Outcome, apply},
    context::Context,
    error::Error,
    observe::observe,
    plan::{self, Extent, PoolKey},
    report::{self, report},
};

/// Brings the pool one step closer to what is wanted.
pub async fn reconcile(ctx: Arc<Context>, key: PoolKey) -> Result<Step, Error> {
    if let Some(pool) = ctx.unreadable.get::<NodePool>(Some(&key.namespace), &key.name) {
        return report::unreadable(&ctx, &pool).await;
    }
    let Some(seen) = observe(&ctx, &key).await? else {
        return Ok(Step::Stale);
    };
    let plan = plan::plan(&seen.observed);
    let outcome = apply(&ctx, &seen, &plan).await;
    let reported = report(&ctx, &seen, &plan, &outcome).await;

    let Outcome { applied, error, .. } = outcome;
    if let Some(error) = error {
        return Err(error);
    }
    if applied.extent == Extent::Conflict || reported?.is_conflict() {
        return Ok(Step::Conflict);
    }
    if applied.released || (plan.facts.is_none() && plan.nodes.is_empty()) {
        ctx.forget(&key).await;
        return Ok(Step::Done);
    }
    if applied.extent == Extent::CutShort {
        return Ok(Step::RequeueAfter(Duration::ZERO));
    }
    let now = ctx.clock.now();
    Ok(plan.next_visit(&applied, now).map_or(Step::Done, |at| Step::RequeueAfter(until(at, now))))
}

fn until(at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or_default()
}
