//! Turns the contents of the caches into the input of one plan. Nothing is decided and nothing is written here.

use planner::Observed;
use shared_runtime::freshness::Freshness;

use crate::cache;
use crate::context::Context;

/// The cluster in the caches. `None` while they are behind this operator's own writes: a plan from an older state would
/// repeat what has just been done.
pub(crate) fn observe(ctx: &Context) -> Option<Observed> {
    let (pools, autoscalers) = (ctx.caches.pools.state(), ctx.caches.autoscalers.state());
    let behind = pools.iter().any(|pool| ctx.write_tracker.check(&**pool) == Freshness::Stale)
        || autoscalers.iter().any(|autoscaler| ctx.write_tracker.check(&**autoscaler) == Freshness::Stale);
    let nodes = ctx.caches.nodes.state();
    (!behind).then(|| Observed {
        now: ctx.clock.now(),
        unreported: ctx.pending_status.missing_in(&pools),
        owed_for: ctx.owed_nodes.record(&pools, &nodes, ctx.clock.monotonic()),
        pools,
        autoscalers,
        nodes,
        pods: cache::state(&ctx.caches.pods),
        daemon_sets: ctx.caches.daemon_sets.state(),
        budgets: ctx.caches.budgets.state(),
        volumes: cache::state(&ctx.caches.volumes),
        claims: cache::state(&ctx.caches.claims),
        storage_classes: ctx.caches.storage_classes.state(),
        namespaces: ctx.caches.namespaces.state(),
        ..Observed::default()
    })
}
