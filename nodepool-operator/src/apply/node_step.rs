//! Carries out the plan's step for one node. Nothing is decided here.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::SignedDuration;
use kube::Api;
use kube::runtime::reflector::ObjectRef;
use machine_providers::{Deletion, ProviderError};
use node_lifecycle::outcome::{ActionOutcome, Applied, AppliedAction, Extent};
use node_lifecycle::patches::DrainNote;
use node_lifecycle::{Absence, Blocker, NodeAction, NodeStep, PoolKey, patches};
use shared_crds::names;
use shared_crds::v1alpha1::DisruptionReason;
use shared_runtime::write::Outcome;

use super::drain_step;
use super::node_write::{delete, patch, patched, provided, written};
use crate::context::Context;
use crate::error::{Error, MachineCall, Read, Write};

/// From when on a machine takes long to end: clouds take a minute or two.
const MACHINE_LATE_AFTER: SignedDuration = SignedDuration::from_secs(300);
/// Timeout of a live read of one node.
const READ_LIMIT: Duration = Duration::from_secs(10);

/// Carries out `step`. A node may have many pods: what has not started when the clock's monotonic time reaches
/// `deadline` is left for the next pass.
pub(crate) async fn carry_out(ctx: &Context, step: &NodeStep, deadline: Duration) -> Result<Applied, Error> {
    let node = &*step.member.node;
    let mut applied = Applied::default();
    // The time of the patch, not of the decision: pods that were created in between did not choose a cordoned node.
    if let Some(change) = step.change(ctx.clock.now()) {
        if matches!(step.action, NodeAction::Cordon | NodeAction::Release) {
            ctx.drains.drop_list(step.member.name());
        }
        if patch(ctx, node, change, &mut applied).await? {
            applied.record_step(step);
        }
        return Ok(applied);
    }
    match &step.action {
        NodeAction::Drain(of_pods) => return drain_step::carry_out(ctx, node, of_pods, deadline).await,
        NodeAction::Replace | NodeAction::ReplaceLost => {
            if delete(ctx, node, &mut applied).await? {
                applied.record_step(step);
            }
        }
        NodeAction::Repair => {
            let noted = note_cause(ctx, node, step.cause, &mut applied).await?;
            if let Some(node) = noted
                && delete(ctx, &node, &mut applied).await?
            {
                applied.record_step(step);
            }
        }
        NodeAction::EndMachine => end_machine(ctx, node, &step.absence, &mut applied).await?,
        NodeAction::Remove => remove(ctx, step, &mut applied).await?,
        action => debug_assert!(action.only_waits(), "{action:?} is carried out nowhere"),
    }
    Ok(applied)
}

/// Deletes the node unless it is already being deleted, then its machine, and removes its finalizer. Once the Node is
/// being deleted, nothing brings it back, so the machine goes only then, and again after a restart.
async fn remove(ctx: &Context, step: &NodeStep, applied: &mut Applied) -> Result<(), Error> {
    let node = &*step.member.node;
    let is_deleted = step.member.leaving.is_some_and(|leaving| leaving.deleting);
    if !is_deleted && !delete(ctx, node, applied).await? {
        return Ok(());
    }
    if patches::remove_node_finalizer(node).is_none() {
        return Ok(());
    }
    match provided(MachineCall::DeleteOfNode, delete_machine(ctx, node, &step.absence).await, applied)? {
        Some(Deletion::Gone | Deletion::HandedOver) => {}
        // Its kubelet would register the Node again.
        Some(Deletion::Started) => {
            return machine_is_ending(ctx, node, applied).await;
        }
        None => return Ok(()),
    }
    release(ctx, node, applied).await
}

/// Annotates why the node is about to be deleted; the node as it then is, or `None` where it is gone or has changed. Noted
/// afterwards, it would be missing for a node that has recovered meanwhile.
async fn note_cause(
    ctx: &Context,
    node: &Node,
    cause: Option<DisruptionReason>,
    applied: &mut Applied,
) -> Result<Option<Node>, Error> {
    let Some(patch) = cause.and_then(|cause| patches::note_cause(node, cause)) else {
        return Ok(Some(node.clone()));
    };
    patched(ctx, node, patch, applied).await
}

/// Says that the node waits for its machine, also in the status when it takes long.
async fn machine_is_ending(ctx: &Context, node: &Node, applied: &mut Applied) -> Result<(), Error> {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    applied.record(name, AppliedAction::EndMachine, ActionOutcome::Ending);
    let deleted = node.metadata.deletion_timestamp.as_ref();
    let late = deleted.and_then(|at| at.0.checked_add(MACHINE_LATE_AFTER).ok());
    if late.is_some_and(|late| late < ctx.clock.now()) {
        applied.record(name, AppliedAction::EndMachine, ActionOutcome::Blocked(Blocker::Machine));
    }
    drain_step::note(ctx, node, &DrainNote::of(Some(&Blocker::Machine)), applied).await
}

/// Whether the kubelet of `node` is silent in the API server's own view, too, and has been since the same time: what is done
/// next cannot be undone.
async fn is_still_silent(ctx: &Context, node: &Node) -> Result<bool, Error> {
    let what = Read::Node;
    let api: Api<Node> = Api::all(ctx.client.clone());
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let live = tokio::time::timeout(READ_LIMIT, api.get_opt(name))
        .await
        .map_err(|_elapsed| Error::ReadTimeout { what, limit: READ_LIMIT })?
        .map_err(|source| Error::Read { what, source })?;
    let ready = |node: &Node| {
        let mut all = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        all.find(|it| it.type_ == "Ready").map(|it| (it.status.clone(), it.last_transition_time.clone()))
    };
    Ok(live.is_some_and(|live| live.metadata.uid == node.metadata.uid && ready(&live) == ready(node)))
}

/// Removes the operator's finalizer.
async fn release(ctx: &Context, node: &Node, applied: &mut Applied) -> Result<(), Error> {
    let Some(patch) = patches::remove_node_finalizer(node) else {
        return Ok(());
    };
    let api: Api<Node> = Api::all(ctx.client.clone());
    let patched = written(Write::ReleaseNode, ctx.writer.json_patch(&api, node, patch).await)?;
    applied.changed |= matches!(patched, Outcome::Written(_));
    match patched {
        Outcome::Written(_) | Outcome::AlreadyDone(_) | Outcome::Unchanged(_) | Outcome::Gone => {
            if let (Some(key), Some(machine)) = (PoolKey::of_node(node), names::machine_of(&node.metadata)) {
                ctx.provisioner.node_released(&key, machine);
            }
            let name = node.metadata.name.as_deref().unwrap_or_default();
            applied.record(name, AppliedAction::Remove, ActionOutcome::Done);
        }
        Outcome::Conflict(_) | Outcome::Aborted => applied.extent = Extent::Conflict,
    }
    Ok(())
}

/// Ends the machine of a node that is being deleted, and says to Kubernetes that it is off as soon as its provider does.
async fn end_machine(
    ctx: &Context,
    node: &Node,
    absence: &Absence,
    applied: &mut Applied,
) -> Result<(), Error> {
    if !is_still_silent(ctx, node).await? {
        ctx.drains.drop_list(node.metadata.name.as_deref().unwrap_or_default());
        applied.extent = Extent::Conflict;
        return Ok(());
    }
    match provided(MachineCall::DeleteOfNode, delete_machine(ctx, node, absence).await, applied)? {
        Some(Deletion::Gone) => {
            patch(ctx, node, patches::out_of_service(node), applied).await?;
        }
        Some(Deletion::Started) => {
            machine_is_ending(ctx, node, applied).await?;
        }
        // The controller that ends it keeps the Node meanwhile, and waits until no other one does.
        Some(Deletion::HandedOver) => {
            let others = node.metadata.finalizers.iter().flatten().any(|name| name != names::NODE_FINALIZER);
            if others {
                release(ctx, node, applied).await?;
            } else {
                machine_is_ending(ctx, node, applied).await?;
            }
        }
        None => {}
    }
    Ok(())
}

/// Deletes the machine of a node of a pool.
async fn delete_machine(ctx: &Context, node: &Node, absence: &Absence) -> Result<Deletion, ProviderError> {
    let (Some(key), Some(name)) = (PoolKey::of_node(node), names::machine_of(&node.metadata)) else {
        return Ok(Deletion::Gone);
    };
    let pool = ctx.pools.get(&ObjectRef::new(&key.name).within(&key.namespace));
    let made_by = node.metadata.labels.as_ref().and_then(|labels| labels.get(names::PROVIDER_LABEL));
    let (made_by, now) = (made_by.map(String::as_str), ctx.clock.now());
    ctx.provisioner.delete(&key, pool.as_deref(), made_by, name, absence, now).await
}

#[cfg(test)]
#[path = "node_step_tests.rs"]
mod tests;
