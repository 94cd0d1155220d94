//! What every step for a node is made of: one write, and what its answer means for the pass.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use machine_providers::ProviderError;
use node_lifecycle::outcome::{Applied, Extent};
use serde_json::Value;
use shared_runtime::write::{DeleteOutcome, Outcome, WriterError};

use crate::context::Context;
use crate::error::{Error, MachineCall, Write};

/// Whether the pass has run out of time, which is then recorded in `applied`.
pub(super) fn is_over(ctx: &Context, deadline: Duration, applied: &mut Applied) -> bool {
    let over = ctx.clock.monotonic() >= deadline;
    if over {
        applied.extent = applied.extent.max(Extent::CutShort);
    }
    over
}

/// Adds to an error what was to be written.
pub(crate) fn written<T>(what: Write, result: Result<Outcome<T>, WriterError>) -> Result<Outcome<T>, Error> {
    result.map_err(|source| Error::Write { what, source })
}

/// Patches the node; `true` when it is now in the wanted state.
pub(super) async fn patch(
    ctx: &Context,
    node: &Node,
    patch: Value,
    applied: &mut Applied,
) -> Result<bool, Error> {
    Ok(patched(ctx, node, patch, applied).await?.is_some())
}

/// Patches the node; the node as it then is, or `None` where it is gone or has changed.
pub(super) async fn patched(
    ctx: &Context,
    node: &Node,
    patch: Value,
    applied: &mut Applied,
) -> Result<Option<Node>, Error> {
    let api: Api<Node> = Api::all(ctx.client.clone());
    let patched = written(Write::PatchNode, ctx.writer.json_patch(&api, node, patch).await)?;
    applied.changed |= matches!(patched, Outcome::Written(_));
    match patched {
        Outcome::Written(node) | Outcome::AlreadyDone(node) | Outcome::Unchanged(node) => Ok(Some(node)),
        Outcome::Gone => Ok(None),
        Outcome::Conflict(_) | Outcome::Aborted => {
            applied.extent = Extent::Conflict;
            Ok(None)
        }
    }
}

/// Deletes the node in the version that was observed; `true` when this node is terminating or gone. A node that has
/// changed may have been uncordoned: the next pass decides again from its current state. The same happens when the
/// kubelet has just updated the node status, which costs a pass. Heartbeats are leases and do not change the node.
pub(super) async fn delete(ctx: &Context, node: &Node, applied: &mut Applied) -> Result<bool, Error> {
    let api: Api<Node> = Api::all(ctx.client.clone());
    let deleted = ctx
        .writer
        .delete_unchanged(&api, node)
        .await
        .map_err(|source| Error::Write { what: Write::DeleteNode, source })?;
    applied.changed |= matches!(deleted, DeleteOutcome::Deleted);
    match deleted {
        DeleteOutcome::Deleted | DeleteOutcome::Terminating(_) | DeleteOutcome::Gone => Ok(true),
        DeleteOutcome::Conflict(_) => {
            applied.extent = Extent::Conflict;
            Ok(false)
        }
    }
}

/// The answer of a provider; `None` where another writer changed its objects first, so that the pass is repeated.
pub(super) fn provided<T>(
    what: MachineCall,
    answer: Result<T, ProviderError>,
    applied: &mut Applied,
) -> Result<Option<T>, Error> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(ProviderError::Conflict) => {
            applied.extent = Extent::Conflict;
            Ok(None)
        }
        Err(source) => Err(Error::Provider { what, source }),
    }
}
