//! Carries out what the plan says about one node.

use k8s_openapi::{
    api::core::v1::{Node, Pod},
    jiff::Timestamp,
};
use kube::Api;
use serde_json::Value;
use shared_runtime::write::{Deleted, Evicted, WriteError, Written};

use crate::{
    context::Context,
    error::Error,
    plan::{Applied, Blocked, Extent, Fate, NodeStep, PodName, patches},
};

/// Carries `step` out.
pub async fn carry_out(ctx: &Context, step: &NodeStep, now: Timestamp) -> Result<Applied, Error> {
    let node = &*step.node;
    let name = || node.metadata.name.clone().unwrap_or_default();
    let mut applied = Applied::default();
    match &step.fate {
        Fate::Keep | Fate::Wait => {}
        Fate::Adopt => {
            patch(ctx, node, patches::hold_node(node), &mut applied).await?;
        }
        Fate::MarkReady => {
            patch(ctx, node, patches::mark_ready(node, now), &mut applied).await?;
        }
        Fate::Close => {
            if patch(ctx, node, patches::close(node, now), &mut applied).await? {
                applied.closed.push(name());
            }
        }
        Fate::Rescue => {
            if patch(ctx, node, patches::rescue(node), &mut applied).await? {
                applied.rescued.push(name());
            }
        }
        Fate::Drain { evict, overdue: _ } => {
            for pod in evict {
                evict_pod(ctx, &name(), pod, &mut applied).await?;
            }
        }
        Fate::Replace => {
            if delete(ctx, node).await? {
                applied.replaced.push(name());
            }
        }
        Fate::Remove { delete_pods } => {
            for pod in delete_pods {
                delete_pod(ctx, pod, &mut applied).await?;
            }
            remove(ctx, node, &mut applied).await?;
        }
    }
    Ok(applied)
}

/// Names what a write was about, should it have failed.
pub fn written<T>(what: &'static str, result: Result<Written<T>, WriteError>) -> Result<Written<T>, Error> {
    result.map_err(|source| Error::Write { what, source })
}

/// Patches the node; `true` when it is as it should be now.
async fn patch(ctx: &Context, node: &Node, patch: Value, applied: &mut Applied) -> Result<bool, Error> {
    let api: Api<Node> = Api::all(ctx.client.clone());
    match written("a node", ctx.door.json_patch(&api, node, patch).await)? {
        Written::Changed(_) | Written::Unchanged => Ok(true),
        Written::Gone => Ok(false),
        Written::Conflict | Written::Aborted => {
            applied.extent = Extent::Conflict;
            Ok(false)
        }
    }
}

/// Deletes the node; `true` when this very node is on its way out or gone.
async fn delete(ctx: &Context, node: &Node) -> Result<bool, Error> {
    let api: Api<Node> = Api::all(ctx.client.clone());
    let deleted =
        ctx.door.delete(&api, node).await.map_err(|source| Error::Write { what: "a node", source })?;
    Ok(matches!(deleted, Deleted::Accepted | Deleted::Gone))
}

/// Deletes the node unless somebody has, and lets go of it.
async fn remove(ctx: &Context, node: &Node, applied: &mut Applied) -> Result<(), Error> {
    if node.metadata.deletion_timestamp.is_none() && !delete(ctx, node).await? {
        return Ok(());
    }
    let Some(release) = patches::release_node(node) else {
        return Ok(());
    };
    let api: Api<Node> = Api::all(ctx.client.clone());
    match written("a node's finalizer", ctx.door.json_patch(&api, node, release).await)? {
        Written::Changed(_) | Written::Unchanged | Written::Gone => {
            applied.removed.push(node.metadata.name.clone().unwrap_or_default());
        }
        Written::Conflict | Written::Aborted => applied.extent = Extent::Conflict,
    }
    Ok(())
}

fn pods(ctx: &Context, pod: &Pod) -> Api<Pod> {
    Api::namespaced(ctx.client.clone(), pod.metadata.namespace.as_deref().unwrap_or_default())
}

async fn evict_pod(ctx: &Context, node: &str, pod: &Pod, applied: &mut Applied) -> Result<(), Error> {
    let evicted = ctx.door.evict(&pods(ctx, pod), pod).await;
    match evicted.map_err(|source| Error::Write { what: "an eviction", source })? {
        Evicted::Accepted => applied.evicted += 1,
        Evicted::Blocked { message, .. } => {
            applied.blocked.push(Blocked { node: node.to_owned(), pod: PodName::of(pod), message });
        }
        Evicted::Gone | Evicted::Replaced => {}
    }
    Ok(())
}

async fn delete_pod(ctx: &Context, pod: &Pod, applied: &mut Applied) -> Result<(), Error> {
    let deleted = ctx.door.delete(&pods(ctx, pod), pod).await;
    if deleted.map_err(|source| Error::Write { what: "a pod", source })? == Deleted::Accepted {
        applied.deleted_pods += 1;
    }
    Ok(())
}
