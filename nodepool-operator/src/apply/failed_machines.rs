//! Machines that will never run, or have to be asked to go again: what the lists of this pass have found is recorded, and the machines are
//! deleted.

use node_lifecycle::supply::ProvisioningFailure;
use node_lifecycle::{Observed, Plan};

use super::PassResult;
use crate::context::Context;
use crate::observe::Seen;

/// Records what has failed, and deletes the machines that will never run. Returns the pool's failure after that; `None` where
/// nothing was found.
pub(super) async fn end(
    ctx: &Context,
    seen: &Seen,
    plan: &Plan,
    result: &mut PassResult,
) -> Option<ProvisioningFailure> {
    let Observed { key, pool, now, .. } = &seen.observed;
    let generation = pool.as_deref().and_then(|pool| pool.metadata.generation);
    let ended = ctx.provisioner.end_failed(key, generation, &seen.findings, &plan.failed, *now);
    result.failures = ended.await;
    ctx.provisioner.last_failure(key).filter(|_| !result.failures.is_empty())
}
