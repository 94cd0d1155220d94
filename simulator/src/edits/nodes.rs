//! Removal of a node, and what happens to its pods.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PodCondition, PodStatus};
use planner::Observed;
use planner::input::{PodInfo, key, nodes, pods};
use shared_crds::QualifiedName;

use super::{EditError, find_pool};
use crate::nearest;
use crate::text::named;

/// The annotation of a mirror pod, which the kubelet runs from a file.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// What happened to the pods of a removed node. Pods are `namespace/name`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Removal {
    node: String,
    /// The pool the node belonged to, if any.
    pool: Option<String>,
    /// Pods that their controller creates again; they are pending now.
    pub(crate) displaced: Vec<String>,
    /// Pods without a controller, which are not created again.
    pub(crate) lost: Vec<String>,
    /// Pods that belong to the node, or were already terminating.
    pub(crate) gone: Vec<String>,
}

impl Removal {
    /// The same as text.
    pub(super) fn notes(&self) -> Vec<String> {
        let Self { node, pool, displaced, lost, gone } = self;
        let mut notes = vec![match displaced.as_slice() {
            [] => format!("what if {node} is gone: none of its pods becomes pending"),
            pods => format!("what if {node} is gone: pending now: {}", named(pods)),
        }];
        if !lost.is_empty() {
            notes.push(format!(
                "what if {node} is gone: no controller makes these pods again: {}",
                named(lost)
            ));
        }
        if !gone.is_empty() {
            let pods = named(gone);
            notes.push(format!(
                "what if {node} is gone: of a DaemonSet or the node itself, or ending, so gone too: {pods}"
            ));
        }
        if let Some(pool) = pool {
            notes.push(format!(
                "what if {node} is gone: spec.replicas of NodePool {pool} stays, so a node in its place is on its way; \
                 lower it with --pool to see the pool without"
            ));
        }
        notes
    }
}

/// Removes the node. Its pods become pending where a controller creates them again, under their old names.
pub(crate) fn remove_node(observed: &mut Observed, name: &str) -> Result<Removal, EditError> {
    let at = observed.nodes.iter().position(|node| key(&node.metadata).1 == name);
    let Some(at) = at else {
        let known = observed.nodes.iter().map(|node| key(&node.metadata).1);
        return Err(EditError::NoNode { name: name.to_owned(), hint: nearest::hint(name, known) });
    };
    let node = observed.nodes.remove(at);
    let pool = nodes::pool_of(&node)
        .filter(|id| observed.pools.iter().any(|pool| key(&pool.metadata) == *id))
        .map(|id| QualifiedName::from(id).to_string());
    let mut removal = Removal { node: name.to_owned(), pool, ..Removal::default() };
    let mut kept = Vec::with_capacity(observed.pods.len());
    for mut pod in std::mem::take(&mut observed.pods) {
        if pods::occupied_node(&pod) != Some(name) {
            kept.push(pod);
            continue;
        }
        let id = QualifiedName::from(pod.key()).to_string();
        match PodRemoval::of(&pod) {
            PodRemoval::Displaced => {
                removal.displaced.push(id);
                make_pending(Arc::make_mut(&mut pod));
                kept.push(pod);
            }
            PodRemoval::Lost => removal.lost.push(id),
            PodRemoval::Gone => removal.gone.push(id),
        }
    }
    observed.pods = kept;
    Ok(removal)
}

/// Like [`remove_node`], and the node's pool does not make a replacement.
pub(crate) fn keep_without(observed: &mut Observed, name: &str) -> Result<Removal, EditError> {
    let removal = remove_node(observed, name)?;
    if let Some(at) = removal.pool.as_deref().and_then(|pool| find_pool(observed, pool).ok()) {
        let pool = Arc::make_mut(&mut observed.pools[at]);
        let fewer = pool.spec.replicas.unwrap_or(pool.spec.min_replicas).saturating_sub(1).max(0);
        pool.spec.replicas = Some(fewer);
        pool.spec.min_replicas = pool.spec.min_replicas.min(fewer);
    }
    Ok(removal)
}

/// What happens to a pod whose node is gone.
enum PodRemoval {
    Displaced,
    Lost,
    Gone,
}

impl PodRemoval {
    fn of(pod: &PodInfo) -> Self {
        let owners = pod.owners();
        let is_mirror = pod.annotation(MIRROR_ANNOTATION).is_some();
        if is_mirror || owners.iter().any(|owner| matches!(owner.kind.as_str(), "DaemonSet" | "Node")) {
            return Self::Gone;
        }
        let Some(controller) = owners.iter().find(|owner| owner.controller == Some(true)) else {
            return Self::Lost;
        };
        // The successor of a terminating pod exists already, except for a StatefulSet's, which waits for the end.
        if pod.deleted().is_some() && controller.kind != "StatefulSet" {
            return Self::Gone;
        }
        Self::Displaced
    }
}

/// Turns a pod into a pending one, as the scheduler leaves it.
pub(super) fn make_pending(pod: &mut PodInfo) {
    pod.set_deleted(None);
    pod.unbind();
    let unschedulable = PodCondition {
        type_: "PodScheduled".to_owned(),
        status: "False".to_owned(),
        reason: Some("Unschedulable".to_owned()),
        ..PodCondition::default()
    };
    pod.pod_mut().status = Some(PodStatus {
        phase: Some("Pending".to_owned()),
        conditions: Some(vec![unschedulable]),
        ..PodStatus::default()
    });
}
