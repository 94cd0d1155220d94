//! Requests machines from the provider of the pool.

use std::time::Duration;

use machine_providers::provisioner::SizeChange;
use machine_providers::{MachineRequest, ProviderError};
use node_lifecycle::outcome::{ActionOutcome, Applied, AppliedAction, Extent};
use node_lifecycle::slots::Slots;
use node_lifecycle::{Observed, Plan};
use shared_crds::NodePool;
use shared_crds::conditions::Reason;

use super::PassResult;
use crate::context::Context;
use crate::observe::Seen;

/// How many names may fail in one pass. If as many do, and none is taken, it is the provider that fails.
const MAX_FAILED_SLOTS: usize = 3;

/// Requests machines from the provider until `deadline` has come, or a request fails for a reason that is not about one
/// machine. Nodes that did not become Ready in time count as a failure.
pub(super) async fn request(
    ctx: &Context,
    plan: &Plan,
    seen: &Seen,
    deadline: Duration,
    result: &mut PassResult,
) {
    let observed = &seen.observed;
    let Some(pool) = observed.pool.as_deref() else { return };
    let generation = pool.metadata.generation;
    let fail = |reason: Reason, message: String| {
        ctx.metrics.failed(reason);
        ctx.provisioner.record_failure(&observed.key, generation, reason, message, observed.now)
    };
    let late = result.applied.names(|action| action == AppliedAction::TimeOut);
    let late: Vec<String> = late.map(ToOwned::to_owned).collect();
    let (replaced, timed_out) = (result.applied.count(AppliedAction::Replace), late.len());
    if replaced + timed_out > 0 {
        let machines = [
            (replaced, "of the nodes did not become Ready"),
            (timed_out, "of the machines did not register a Node"),
        ];
        let parts =
            machines.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
        let parts = parts.collect::<Vec<_>>().join(", and ");
        let why = match late.first() {
            Some(name) => ctx.provisioner.explain(&observed.key, &pool.spec.provider, name).await,
            None => None,
        };
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        let message = format!("{parts} within spec.provisioningTimeoutSeconds{why}");
        for name in &late {
            let reason = Reason::ProvisioningTimedOut;
            ctx.provisioner.slot_failed(&observed.key, generation, name, reason, observed.now);
        }
        let failure = fail(Reason::ProvisioningTimedOut, message);
        result.applied.retry_at = Some(failure.retry_at);
        return;
    }
    // The deletion of a machine may have failed in this pass.
    if ctx.provisioner.backs_off(&observed.key, observed.now) {
        return;
    }
    if let Some(size) = observed.supply.size {
        let by = i32::try_from(plan.request.len()).unwrap_or(i32::MAX);
        if by == 0 {
            return;
        }
        let change = SizeChange::Grow(by);
        let (key, now) = (&observed.key, observed.now);
        match ctx.provisioner.resize(key, &pool.spec.provider, size, change, now).await {
            Ok(()) => {
                result.applied.absorb(Applied::done(AppliedAction::Request, &plan.request));
                result.applied.changed = true;
            }
            Err(ProviderError::Conflict) => result.applied.extent = Extent::Conflict,
            Err(error) => {
                let failure = fail(error.reason(), error.to_string());
                result.applied.retry_at = Some(failure.retry_at);
                result.failure = Some(failure);
            }
        }
        return;
    }
    by_name(ctx, plan, seen, pool, deadline, result).await;
}

/// Requests machines under the names of the plan. A name for which that fails is passed over, and one more is tried.
async fn by_name(
    ctx: &Context,
    plan: &Plan,
    seen: &Seen,
    pool: &NodePool,
    deadline: Duration,
    result: &mut PassResult,
) {
    let observed = &seen.observed;
    let in_flight = observed.in_flight().count().saturating_sub(plan.withdraw.len());
    let existing = observed.nodes.len() + observed.unreadable.len() + in_flight;
    let mut failed: Vec<(String, ProviderError)> = Vec::new();
    let mut requested = 0;
    for name in names(plan, observed) {
        if requested == plan.request.len() || failed.len() == MAX_FAILED_SLOTS {
            break;
        }
        if ctx.clock.monotonic() >= deadline {
            result.applied.extent = result.applied.extent.max(Extent::CutShort);
            break;
        }
        let existing = existing + requested;
        let request = MachineRequest { pool: &observed.key, name: &name, spec: &pool.spec, existing };
        match ctx.provisioner.create(request, observed.now).await {
            Ok(expected) => {
                let applied = &mut result.applied;
                requested += 1;
                applied.record(name, AppliedAction::Request, ActionOutcome::Done);
                applied.changed = true;
                applied.expected = applied.expected.into_iter().chain(expected).min();
            }
            Err(ProviderError::Conflict) => {
                result.applied.extent = Extent::Conflict;
                break;
            }
            Err(error) => {
                let is_of_slot = error.may_be_of_one_machine();
                if is_of_slot {
                    let (generation, reason) = (pool.metadata.generation, error.reason());
                    ctx.provisioner.slot_failed(&observed.key, generation, &name, reason, observed.now);
                }
                failed.push((name, error));
                if !is_of_slot {
                    break;
                }
            }
        }
    }
    record(ctx, observed, pool, requested, plan.request.len(), &failed, result);
}

/// The names of the plan, and as many more as may be passed over.
fn names(plan: &Plan, observed: &Observed) -> Vec<String> {
    if plan.request.is_empty() {
        return Vec::new();
    }
    let mut occupied = observed.occupied();
    occupied.extend(plan.request.iter().map(String::as_str));
    let spare = Slots::of(&observed.cluster, &observed.key).lowest_free(&occupied, MAX_FAILED_SLOTS);
    plan.request.iter().cloned().chain(spare).collect()
}

/// Records what failed: that single slots did while others were taken is only said. If it concerns the provider as a whole, or
/// no name was taken, the pool backs off. Of the `wanted` machines, so many were `requested`.
fn record(
    ctx: &Context,
    observed: &Observed,
    pool: &NodePool,
    requested: usize,
    wanted: usize,
    failed: &[(String, ProviderError)],
    result: &mut PassResult,
) {
    let of_provider = failed.last().filter(|(_, error)| !error.may_be_of_one_machine());
    let Some((name, error)) = of_provider.or_else(|| failed.first()) else { return };
    let (reason, generation) = (error.reason(), pool.metadata.generation);
    ctx.metrics.failed(reason);
    let provisioner = &ctx.provisioner;
    if of_provider.is_none() && requested > 0 {
        let message = format!("machine {name}: {error}");
        let failure = provisioner.note_failure(&observed.key, generation, reason, message, observed.now);
        result.failure = Some(failure);
        if requested < wanted {
            result.applied.extent = result.applied.extent.max(Extent::CutShort);
        }
        return;
    }
    let message = if of_provider.is_some() { error.to_string() } else { format!("machine {name}: {error}") };
    let failure = provisioner.record_failure(&observed.key, generation, reason, message, observed.now);
    result.applied.retry_at = Some(failure.retry_at);
    result.failure = Some(failure);
}
