//! What the step for a node writes, as data, and how the API server applies it.

use std::sync::Arc;

use json_patch::{Patch, PatchOperation};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use shared_crds::names;

use crate::plan::patches;
use crate::{DrainStep, NodeAction, NodeStep};

/// One write of a pass.
#[derive(Clone, Debug)]
pub enum PassWrite {
    /// Creates a Node.
    CreateNode(Box<Node>),
    /// Changes the Node of this name by a JSON patch: see [`patched`].
    PatchNode(String, Value),
    /// Deletes the Node of this name.
    DeleteNode(String),
    /// Evicts a pod, if its budgets allow.
    Evict(Arc<Pod>),
    /// Deletes a pod, whatever its budgets say.
    DeletePod(Arc<Pod>),
    /// Asks the provider for a machine of this name.
    RequestMachine(String),
    /// Asks the provider to end the machine of this name.
    EndMachine(String),
}

/// The writes for one node.
pub fn of_step(step: &NodeStep, now: Timestamp) -> Vec<PassWrite> {
    let node = &*step.member.node;
    let name = step.member.name();
    let patch = |patch| vec![PassWrite::PatchNode(name.to_owned(), patch)];
    let delete = || PassWrite::DeleteNode(name.to_owned());
    let machine = names::machine_of(&node.metadata).unwrap_or(name).to_owned();
    if let Some(change) = step.change(now) {
        return patch(change);
    }
    match &step.action {
        NodeAction::Drain(DrainStep { evict, delete, blockers: _, awaited: _ }) => {
            let evictions = evict.iter().cloned().map(PassWrite::Evict);
            evictions.chain(delete.iter().cloned().map(PassWrite::DeletePod)).collect()
        }
        NodeAction::Replace | NodeAction::ReplaceLost => vec![delete()],
        NodeAction::Repair => {
            let noted = step.cause.and_then(|cause| patches::note_cause(node, cause));
            noted.map(patch).unwrap_or_default().into_iter().chain([delete()]).collect()
        }
        NodeAction::EndMachine => {
            let ended = [PassWrite::EndMachine(machine)];
            ended.into_iter().chain(patch(patches::out_of_service(node))).collect()
        }
        NodeAction::Remove => {
            let released = patches::remove_node_finalizer(node).map(patch).unwrap_or_default();
            [delete(), PassWrite::EndMachine(machine)].into_iter().chain(released).collect()
        }
        action => {
            assert!(action.only_waits(), "{action:?} is carried out nowhere");
            Vec::new()
        }
    }
}

/// The Node after a patch, as the API server applies it: `test` with `null` holds where the field is absent. `None` if a test
/// fails, or the patch cannot be applied.
pub fn patched(node: &Node, patch: &Value) -> Option<Node> {
    let patch: Patch = serde_json::from_value(patch.clone()).ok()?;
    let mut json = serde_json::to_value(node).ok()?;
    let mut rest = Vec::new();
    for operation in &patch.0 {
        match operation {
            PatchOperation::Test(test) if test.value.is_null() => {
                if json.pointer(test.path.as_str()).is_some_and(|value| !value.is_null()) {
                    return None;
                }
            }
            other => rest.push(other.clone()),
        }
    }
    json_patch::patch(&mut json, &rest).ok()?;
    let mut node: Node = serde_json::from_value(json).ok()?;
    // The API server leaves `false` and empty lists out when it writes JSON.
    if let Some(spec) = node.spec.as_mut() {
        spec.unschedulable = spec.unschedulable.filter(|is_so| *is_so);
        spec.taints = spec.taints.take().filter(|taints| !taints.is_empty());
    }
    Some(node)
}
