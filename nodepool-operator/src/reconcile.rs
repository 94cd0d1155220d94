//! One pass over one pool: observe, plan, apply, report.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use shared_runtime::controller::Step;

use crate::apply::{Outcome, apply};
use crate::context::Context;
use crate::error::Error;
use crate::observe::{observe, unreadable};
use crate::plan::{self, Extent, PoolKey};
use crate::report::{self, report};

/// Retry interval when pods could not be listed. That is not a failure of the pool: the rest of it continues at its own
/// pace.
const UNREAD_RETRY: Duration = Duration::from_secs(2);

/// Brings the pool one step closer to its wanted state.
pub(crate) async fn reconcile(ctx: Arc<Context>, key: PoolKey) -> Result<Step, Error> {
    if let Some(pool) = unreadable(&ctx, &key) {
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
    // Checked first: a status that cannot be written is an error, whatever else happened.
    let reported = reported?;
    if applied.extent == Extent::Conflict || reported.is_conflict() {
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
    let due = plan.next_visit(&applied, now).map(|at| until(at, now));
    let again = seen.has_unread.then_some(UNREAD_RETRY);
    Ok(due.into_iter().chain(again).min().map_or(Step::Done, Step::RequeueAfter))
}

fn until(at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plan::testing::{key, node, pool};
    use crate::testing::{Bench, failure};

    #[tokio::test]
    async fn a_status_that_cannot_be_written_is_an_error_also_beside_a_conflict() {
        let bench = Bench::new(|path, _| match path {
            path if path.starts_with("/api/v1/nodes?") => {
                (200, json!({ "kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": [node(0)] }))
            }
            path if path.starts_with("/api/v1/nodes/") => failure(409, "Conflict", "it has changed"),
            _ => failure(403, "Forbidden", "no right to write the status"),
        });
        let (ctx, asked) = bench.with_pool(pool(0)).into_parts();
        let ended = reconcile(ctx, key()).await;
        assert!(asked().iter().any(|line| line.starts_with("PATCH /api/v1/nodes/")), "{:?}", asked());
        assert!(matches!(ended, Err(Error::Write { what: "the status", .. })), "{ended:?}");
    }
}
