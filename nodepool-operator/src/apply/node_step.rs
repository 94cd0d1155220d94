//! Carries out the plan's step for one node. Nothing is decided here.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::runtime::reflector::ObjectRef;
use shared_crds::names;
use shared_runtime::write::Outcome;

use super::drain_step;
use super::node_write::{delete, patch, provided, written};
use crate::context::Context;
use crate::error::Error;
use crate::outcome::{Applied, Extent};
use crate::plan::{NodeAction, NodeStep, PoolKey, patches};
use crate::provider::{Deletion, ProviderError};

/// Carries out `step`. A node may have many pods: what has not started when the clock's monotonic time reaches
/// `deadline` is left for the next pass.
pub(crate) async fn carry_out(ctx: &Context, step: &NodeStep, deadline: Duration) -> Result<Applied, Error> {
    let node = &*step.member.node;
    let name = || node.metadata.name.clone().unwrap_or_default();
    let mut applied = Applied::default();
    match &step.action {
        NodeAction::Keep | NodeAction::Wait => {}
        NodeAction::Adopt => {
            patch(ctx, node, patches::add_node_finalizer(node), &mut applied).await?;
        }
        NodeAction::MarkReady => {
            patch(ctx, node, patches::mark_ready(node, ctx.clock.now()), &mut applied).await?;
        }
        NodeAction::Cordon => {
            // The time of the patch, not of the decision: pods that were created in between did not choose a cordoned
            // node.
            let now = ctx.clock.now();
            ctx.drains.drop_list(&name());
            if patch(ctx, node, patches::cordon(node, now), &mut applied).await? {
                applied.cordoned.push(name());
            }
        }
        NodeAction::Uncordon => {
            if patch(ctx, node, patches::uncordon(node), &mut applied).await? {
                applied.uncordoned.push(name());
            }
        }
        NodeAction::Tidy => {
            patch(ctx, node, patches::uncordon(node), &mut applied).await?;
        }
        NodeAction::GiveBack => {
            if patch(ctx, node, patches::give_back(node, ctx.clock.now()), &mut applied).await? {
                applied.given_back.push(name());
            }
        }
        NodeAction::Drain(of_pods) => return drain_step::carry_out(ctx, node, of_pods, deadline).await,
        NodeAction::Replace => {
            if delete(ctx, node, &mut applied).await? {
                applied.replaced.push(name());
            }
        }
        NodeAction::ReplaceLost => {
            if delete(ctx, node, &mut applied).await? {
                applied.lost.push(name());
            }
        }
        NodeAction::Remove => remove(ctx, node, &mut applied).await?,
    }
    Ok(applied)
}

/// Deletes the node unless it is already being deleted, then its machine, and removes its finalizer. Once the Node is
/// being deleted, nothing brings it back, so the machine goes only then, and again after a restart.
async fn remove(ctx: &Context, node: &Node, applied: &mut Applied) -> Result<(), Error> {
    if node.metadata.deletion_timestamp.is_none() && !delete(ctx, node, applied).await? {
        return Ok(());
    }
    let Some(patch) = patches::remove_node_finalizer(node) else {
        return Ok(());
    };
    match provided("the machine of a node", delete_machine(ctx, node).await, applied)? {
        Some(Deletion::Gone | Deletion::HandedOver) => {}
        // Its kubelet would register the Node again.
        Some(Deletion::Started) => {
            applied.machines_ending += 1;
            return drain_step::note(ctx, node, Some("waits for its machine to end"), applied).await;
        }
        None => return Ok(()),
    }
    let api: Api<Node> = Api::all(ctx.client.clone());
    match written("a node's finalizer", ctx.writer.json_patch(&api, node, patch).await)? {
        Outcome::Written(_) | Outcome::AlreadyDone(_) | Outcome::Unchanged(_) | Outcome::Gone => {
            applied.removed.push(node.metadata.name.clone().unwrap_or_default());
        }
        Outcome::Conflict(_) | Outcome::Aborted => applied.extent = Extent::Conflict,
    }
    Ok(())
}

/// Deletes the machine of a node of a pool.
async fn delete_machine(ctx: &Context, node: &Node) -> Result<Deletion, ProviderError> {
    let (Some(key), Some(name)) = (PoolKey::of_node(node), names::machine_of(&node.metadata)) else {
        return Ok(Deletion::Gone);
    };
    let pool = ctx.pools.get(&ObjectRef::new(&key.name).within(&key.namespace));
    let made_by = node.metadata.labels.as_ref().and_then(|labels| labels.get(names::PROVIDER_LABEL));
    ctx.provisioner.delete(&key, pool.as_deref(), made_by.map(String::as_str), name).await
}

#[cfg(test)]
#[path = "node_step_tests.rs"]
mod tests;
