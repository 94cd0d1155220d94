//! Carries out what the plan says about the pods of one draining node. Nothing is decided here.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use node_lifecycle::outcome::{ActionOutcome, Applied, AppliedAction, Blocked};
use node_lifecycle::patches::DrainNote;
use node_lifecycle::{Blocker, DrainStep, PodName, patches};
use shared_runtime::error::chain;
use shared_runtime::write::{DeleteOutcome, EvictOutcome};

use super::node_write::{is_over, patch};
use crate::context::Context;
use crate::error::{Error, Write};
use crate::memory::drains::{PodRemoval, RemovalResult};

/// Evicts and deletes pods, and notes on the node what its drain waits for. What has not started when the clock's monotonic
/// time reaches `deadline` is left for the next pass.
pub(super) async fn carry_out(
    ctx: &Context,
    node: &Node,
    step: &DrainStep,
    deadline: Duration,
) -> Result<Applied, Error> {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let mut applied = Applied::default();
    if step.waits_for_place() {
        // Of many nodes at once: the pool says it for all of them, and what a drain waited for before stays on its node.
        return Ok(applied);
    }
    for by in &step.blockers {
        applied.record_blocked(Blocked { node: name.to_owned(), by: by.clone() });
    }
    let mut failed = None;
    let work = [(PodRemoval::Evict, &step.evict), (PodRemoval::Delete, &step.delete)];
    for (method, pod) in work.into_iter().flat_map(|(method, pods)| in_order_of_attempts(ctx, method, pods)) {
        if is_over(ctx, deadline, &mut applied) {
            break;
        }
        // A server that does not answer is not asked again in this pass.
        if let Err(error) = remove_pod(ctx, method, name, pod, &mut applied).await {
            failed = Some(error);
            break;
        }
    }
    let waits_for = applied.blocked().map(|(_, by)| by).min().or(step.awaited.as_ref());
    let waits_for = DrainNote::of(waits_for);
    note(ctx, node, &waits_for, &mut applied).await?;
    failed.map_or(Ok(applied), Err)
}

/// Annotates what the drain of `node` waits for, where that has changed; not more than once a minute where only the text
/// has.
pub(super) async fn note(
    ctx: &Context,
    node: &Node,
    waits_for: &DrainNote,
    applied: &mut Applied,
) -> Result<(), Error> {
    let noted = DrainNote::on(node);
    if noted == *waits_for {
        return Ok(());
    }
    let name = node.metadata.name.as_deref().unwrap_or_default();
    if noted.differs_in_words(waits_for) && !ctx.drains.may_note_again(name) {
        return Ok(());
    }
    if patch(ctx, node, patches::drain_waits(node, waits_for), applied).await? {
        ctx.drains.noted(name);
    }
    Ok(())
}

fn pods(ctx: &Context, pod: &Pod) -> Api<Pod> {
    Api::namespaced(ctx.client.clone(), pod.metadata.namespace.as_deref().unwrap_or_default())
}

fn in_order_of_attempts<'a>(
    ctx: &Context,
    method: PodRemoval,
    pods: &'a [Arc<Pod>],
) -> Vec<(PodRemoval, &'a Pod)> {
    ctx.drains.in_order_of_attempts(method, pods).into_iter().map(|pod| (method, pod)).collect()
}

/// Evicts or deletes a pod of `node`, unless that was attempted a moment ago.
async fn remove_pod(
    ctx: &Context,
    method: PodRemoval,
    node: &str,
    pod: &Pod,
    applied: &mut Applied,
) -> Result<(), Error> {
    // Its budget is asked at least once, also where that could not be done before there was no more time for it.
    if method == PodRemoval::Delete && !ctx.drains.was_tried(PodRemoval::Evict, pod) {
        let asked = evict(ctx, node, pod, applied).await;
        let result = asked.as_ref().map_or(RemovalResult::Unknown, RemovalResult::clone);
        ctx.drains.record_result(PodRemoval::Evict, pod, result);
        if asked? == RemovalResult::Terminating {
            return Ok(());
        }
    }
    let result = if let Some(result) = ctx.drains.recent_result(method, pod) {
        result
    } else {
        let attempt = match method {
            PodRemoval::Evict => evict(ctx, node, pod, applied).await,
            PodRemoval::Delete => delete_pod(ctx, node, pod, applied).await,
        };
        // A failure counts as an attempt too: otherwise the same pod would come first again and fail the next pass too.
        ctx.drains.record_result(
            method,
            pod,
            attempt.as_ref().map_or(RemovalResult::Unknown, RemovalResult::clone),
        );
        attempt?
    };
    if let RemovalResult::Refused(blocked) = result {
        applied.record_blocked(blocked);
    }
    Ok(())
}

fn refused(node: &str, pod: &Pod, message: String) -> RemovalResult {
    RemovalResult::Refused(Blocked { node: node.to_owned(), by: Blocker::Pod(PodName::of(pod), message) })
}

async fn evict(ctx: &Context, node: &str, pod: &Pod, applied: &mut Applied) -> Result<RemovalResult, Error> {
    let result = match ctx.writer.evict(&pods(ctx, pod), pod).await {
        Ok(EvictOutcome::Evicted) => {
            applied.record(node, AppliedAction::Evict, ActionOutcome::Done);
            applied.changed = true;
            RemovalResult::Terminating
        }
        Ok(EvictOutcome::Gone | EvictOutcome::Conflict(_)) => RemovalResult::Terminating,
        Ok(EvictOutcome::Blocked { message, .. }) => refused(node, pod, message),
        Err(source) if source.is_refusal() => refused(node, pod, chain(&source)),
        Err(source) => return Err(Error::Write { what: Write::EvictPod, source }),
    };
    if matches!(result, RemovalResult::Refused(_)) {
        applied.record(node, AppliedAction::Evict, ActionOutcome::Refused);
    }
    Ok(result)
}

/// Deletes the pod with its own grace period. A refusal is about this one pod, as with evictions.
async fn delete_pod(
    ctx: &Context,
    node: &str,
    pod: &Pod,
    applied: &mut Applied,
) -> Result<RemovalResult, Error> {
    match ctx.writer.delete(&pods(ctx, pod), pod).await {
        Ok(DeleteOutcome::Deleted | DeleteOutcome::Terminating(_)) => {
            applied.record(node, AppliedAction::DeletePod, ActionOutcome::Done);
            applied.changed = true;
            Ok(RemovalResult::Terminating)
        }
        Ok(DeleteOutcome::Gone | DeleteOutcome::Conflict(_)) => Ok(RemovalResult::Terminating),
        Err(source) if source.is_refusal() => Ok(refused(node, pod, chain(&source))),
        Err(source) => Err(Error::Write { what: Write::DeletePod, source }),
    }
}
