//! Deletes machines that have no Node. Each deletion may take as long as a call to a provider may, so it is looked at before
//! each whether the pass has time left and the pool is still the one that was decided about.

use std::time::Duration;

use kube::runtime::reflector::ObjectRef;
use machine_providers::Deletion;
use machine_providers::provisioner::SizeChange;
use node_lifecycle::outcome::{ActionOutcome, Applied, AppliedAction, Extent};
use node_lifecycle::supply::Size;
use node_lifecycle::{Absence, Observed, Plan};
use shared_crds::NodePool;

use super::{PassResult, at_most, node_write};
use crate::context::Context;
use crate::error::{Error, MachineCall};
use crate::observe::Seen;

/// Number of concurrent deletions: those that have begun when the count is raised cannot be taken back.
const PARALLEL_WITHDRAWALS: usize = 4;

/// Deletes the machines that have no Node and are too many, or have waited for it too long.
pub(super) async fn withdraw_all(
    ctx: &Context,
    seen: &Seen,
    plan: &Plan,
    deadline: Duration,
    result: &mut PassResult,
) {
    let Observed { supply, pool, .. } = &seen.observed;
    let kept_number = supply.size.zip(pool.as_deref());
    if let Some((size, pool)) = kept_number {
        reduce(ctx, seen, plan, pool, size, result).await;
    }
    // A provider that keeps a number ends none that another one made for the pool before.
    let is_by_name = |name: &&String| kept_number.is_none() || supply.former_machines.contains_key(*name);
    let one = |name: &'_ String, has_timed_out: bool| {
        let name = name.clone();
        async move {
            // The rest of a decision is not carried out once there is a newer one to make.
            if !is_current(ctx, seen) {
                return Ok(Applied { extent: Extent::CutShort, ..Applied::default() });
            }
            let deleted = withdraw(ctx, seen, &name).await?;
            Ok(if has_timed_out { timed_out(deleted, &[name]) } else { deleted })
        }
    };
    let too_many = plan.withdraw.iter().filter(is_by_name).map(|name| one(name, false));
    let late = plan.timed_out.iter().filter(is_by_name).map(|name| one(name, true));
    let work: Vec<_> = too_many.chain(late).collect();
    at_most(PARALLEL_WITHDRAWALS, ctx, deadline, work.into_iter(), result).await;
}

/// The result of a pass that gave these machines up.
fn timed_out(mut applied: Applied, names: &[String]) -> Applied {
    applied.absorb(Applied::done(AppliedAction::TimeOut, names));
    applied
}

/// Lets a provider that keeps a number of machines, the `size`, have as many less as are to go of those that it made.
async fn reduce(
    ctx: &Context,
    seen: &Seen,
    plan: &Plan,
    pool: &NodePool,
    size: Size,
    result: &mut PassResult,
) {
    for name in &plan.unmark {
        result.absorb(resize(ctx, seen, pool, size, SizeChange::Keep(name)).await);
    }
    let former = &seen.observed.supply.former_machines;
    let own = |names: &[String]| -> Vec<String> {
        names.iter().filter(|name| !former.contains_key(*name)).cloned().collect()
    };
    let (withdrawn, late) = (own(&plan.withdraw), own(&plan.timed_out));
    let machines = [&withdrawn[..], &late].concat();
    if machines.is_empty() {
        return;
    }
    let resized = resize(ctx, seen, pool, size, SizeChange::Without(&machines)).await;
    result.absorb(resized.map(|mut applied| match applied.extent {
        Extent::Complete => {
            applied.absorb(Applied::done(AppliedAction::Withdraw, &machines));
            timed_out(applied, &late)
        }
        _ => applied,
    }));
}

/// Whether the pool's spec is still the one that the plan was made from, as far as the cache knows.
fn is_current(ctx: &Context, seen: &Seen) -> bool {
    let Observed { key, pool, .. } = &seen.observed;
    let now = ctx.pools.get(&ObjectRef::new(&key.name).within(&key.namespace));
    let spec = |pool: &NodePool| (pool.metadata.uid.clone(), pool.metadata.generation);
    match (pool.as_deref(), now.as_deref()) {
        (Some(planned), Some(now)) => spec(planned) == spec(now),
        (None, Some(_)) => false,
        (_, None) => true,
    }
}

/// Deletes a machine that has no Node.
pub(super) async fn withdraw(ctx: &Context, seen: &Seen, name: &str) -> Result<Applied, Error> {
    let Observed { key, pool, now, supply, .. } = &seen.observed;
    let mut applied = Applied::default();
    let deleted = match supply.former_machines.get(name) {
        Some(former) => ctx.provisioner.delete_at_former(key, former, name, *now).await,
        // No Node goes with it, so nothing depends on whether it was there.
        None => ctx.provisioner.delete(key, pool.as_deref(), None, name, &Absence::Credible, *now).await,
    };
    if let Some(deletion) = node_write::provided(MachineCall::Delete, deleted, &mut applied)? {
        let is_gone = deletion == Deletion::Gone;
        let outcome = if is_gone { ActionOutcome::Done } else { ActionOutcome::Ending };
        applied.record(name, AppliedAction::Withdraw, outcome);
    }
    Ok(applied)
}

/// Changes the number of machines that the provider keeps.
async fn resize(
    ctx: &Context,
    seen: &Seen,
    pool: &NodePool,
    from: Size,
    change: SizeChange<'_>,
) -> Result<Applied, Error> {
    let mut applied = Applied::default();
    let call = match change {
        SizeChange::Keep(_) => MachineCall::Unmark,
        SizeChange::Grow(_) | SizeChange::Without(_) => MachineCall::Shrink,
    };
    let (key, now) = (&seen.observed.key, seen.observed.now);
    let changed = ctx.provisioner.resize(key, &pool.spec.provider, from, change, now).await;
    node_write::provided(call, changed, &mut applied)?;
    Ok(applied)
}
